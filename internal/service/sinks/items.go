package sinks

import (
	"context"
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

func toValid(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?") }

// beginItem plans the next part of an item that waits, if there is one.
func (w *worker) beginItem(v store.View, t *tenant.Tenant, n *note) (bool, error) {
	if n.Item == "" {
		waiting, err := store.ListBy(v, &sink.ItemKind, entity.Term{Index: sink.ByWaiting, Value: w.sinkID},
			store.Page{Limit: 1})
		if err != nil || len(waiting) == 0 {
			return false, err
		}
		n.Item, n.Next = waiting[0].ID, waiting[0].From
	}
	item, err := store.Get(v, &sink.ItemKind, n.Item)
	if err != nil {
		return false, err
	}
	if item.State != sink.Pending {
		n.Item, n.Next = "", 0
		return false, nil
	}
	// A delivery that failed goes out as it was; what was asked for is cut into parts.
	b := begun{From: item.From, To: item.To, Filter: item.Filter, Epoch: uint64(t.Epoch(item.From))}
	for item.Asked && n.Next <= item.To {
		part, err := read(v, w.r.o.Render, t, &item.Filter, w.sinkID, n.Next-1, min(item.To, v.Head().Seq),
			enough{rows: w.of.Batch})
		if err != nil {
			return false, fmt.Errorf("read rows of %s from %d on: %w", item.ID, n.Next, err)
		}
		var rows []Row
		b, rows = part.cut(&item.Filter, w.of.Batch)
		if len(rows) > 0 || b.To < n.Next { // or the ledger ends here
			break
		}
		n.Next = b.To + 1
	}
	b.Item, b.Asked = item.ID, item.Asked
	n.Under = &b
	return true, nil
}

// endPart takes note that a part of an item was delivered, and ends the item with its last part.
func (w *worker) endPart(ctx context.Context, b *begun, next *note) error {
	next.Next = b.To + 1
	done := false
	err := w.r.store.Update(ctx, w.tenantID, func(tx store.Tx) error {
		item, err := store.Get(tx, &sink.ItemKind, b.Item)
		if err != nil {
			return err
		}
		if done = b.To >= min(item.To, tx.Head().Seq) || !item.Asked; !done || item.State != sink.Pending {
			return nil
		}
		item.State, item.Error = sink.Recovered, ""
		return appendItem(tx, audit.ActorSystem, "recovered", &item)
	})
	if done {
		next.Item, next.Next = "", 0
	}
	return err
}

// failItem gives an item up.
func (w *worker) failItem(ctx context.Context, b *begun) error {
	return w.r.store.Update(ctx, w.tenantID, func(tx store.Tx) error {
		item, err := store.Get(tx, &sink.ItemKind, b.Item)
		if err != nil || item.State != sink.Pending {
			return err
		}
		item.State, item.Attempts, item.Error = sink.Failed, item.Attempts+b.Attempts, b.Error
		return appendItem(tx, audit.ActorSystem, "delivery_failed", &item)
	})
}

// recordFailure records a delivery that was given up. The same one again changes nothing.
func (r *Runner) recordFailure(ctx context.Context, tenantID, sinkID string, b *begun) error {
	return r.store.Update(ctx, tenantID, func(tx store.Tx) error {
		item := sink.Item{ID: itemID(sinkID, b), Sink: sinkID, From: b.From, To: b.To, Filter: b.Filter,
			State: sink.Failed, Attempts: b.Attempts, Error: b.Error, CreatedAt: tx.Now()}
		if _, err := store.Get(tx, &sink.ItemKind, item.ID); !problem.Is(err, problem.NotFound) {
			return err
		}
		return appendItem(tx, audit.ActorSystem, "delivery_failed", &item)
	})
}

// itemID names a delivery that failed.
func itemID(sinkID string, b *begun) string {
	return fmt.Sprintf("%s-%d-%d-%d", sinkID, b.Epoch, b.From, b.To)
}

// entityType is what audit events of sinks and of their items are about: a sink carries none about itself.
const entityType = "sink"

func appendItem(tx store.Tx, actor, action string, i *sink.Item) error {
	_, err := ledgers.Append(tx, actor, audit.Of(entityType, action, i.Sink), itemPayload{
		ID: i.ID, FromSeq: i.From, ToSeq: i.To, State: i.State, Attempts: i.Attempts, Error: i.Error,
	}, sink.ItemKind.State(i))
	return err
}

type itemPayload struct {
	ID       string     `json:"id"`
	FromSeq  uint64     `json:"from_seq"`
	ToSeq    uint64     `json:"to_seq"`
	State    sink.State `json:"state"`
	Attempts int        `json:"attempts,omitempty"`
	Error    string     `json:"error,omitempty"`
}
