package billing

import (
	"context"
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

// AdjustmentFilter says which adjustments are wanted; empty fields and a nil month take any.
type AdjustmentFilter struct {
	Meter, Customer string
	Month           *calendar.Month
}

// Adjustments lists what people and late rows did to totals, in the order of their rows, after the given row. A row's
// adjustments stay together, so a page may be longer than the limit by the rest of a row; it may be short or empty
// while nextSeq, where to go on, is not yet zero. Errors: NotFound (tenant, or the filter's meter).
func (s *Service) Adjustments(ctx context.Context, tenantID string, f AdjustmentFilter, afterSeq uint64,
	limit int) (items []usage.Adjustment, nextSeq uint64, err error) {
	err = s.ledgers.View(ctx, tenantID, func(v store.View) error {
		l := adjustmentList{customer: f.Customer, month: f.Month, limit: limit}
		if f.Meter != "" {
			m, err := store.GetMeter(v, f.Meter)
			if err != nil {
				return err
			}
			l.meter = m.Number
		}
		if err := l.read(v, afterSeq); err != nil {
			return err
		}
		items, nextSeq = l.items, l.next
		return tellReverted(v, items)
	})
	if err != nil {
		return nil, 0, err
	}
	return items, nextSeq, nil
}

type adjustmentList struct {
	meter    uint32 // zero: any
	customer string
	month    *calendar.Month
	limit    int

	items []usage.Adjustment
	next  uint64
}

func (l *adjustmentList) read(v store.View, after uint64) error {
	hint := store.RowHint{Adjusted: true, Changes: true, Events: true}
	if l.month != nil {
		hint.From, hint.To = l.month.Start(), l.month.End()
	}
	var full uint64 // the row that filled the page
	var bad error
	last, end, err := v.Rows(after, hint, func(r *ledger.Row) bool {
		if bad = l.take(r); bad != nil {
			return false
		}
		if len(l.items) >= l.limit {
			full = r.Seq
			return false
		}
		return true
	})
	switch {
	case err != nil:
		return fmt.Errorf("read rows: %w", err)
	case bad != nil:
		return bad
	case full != 0:
		if full < v.Head().Seq {
			l.next = full
		}
	case !end:
		l.next = last
	}
	return nil
}

// take adds a row's adjustments. Rows are valid during the call only.
func (l *adjustmentList) take(r *ledger.Row) error {
	if r.Kind() != ledger.EventRow {
		e := r.Entity()
		a, err := usage.AdjustmentKind.ReadIf(&e)
		if err == nil && a != nil && l.wants(a) {
			l.items = append(l.items, *a)
		}
		return err
	}
	for i := range r.Event.Outcomes {
		a, late := usage.LateAdjustment(r.Event, &r.Event.Outcomes[i], r.Seq, r.At)
		if !late || !l.wants(&a) {
			continue
		}
		a.Customer, a.Event = strings.Clone(a.Customer), strings.Clone(a.Event)
		l.items = append(l.items, a)
	}
	return nil
}

func (l *adjustmentList) wants(a *usage.Adjustment) bool {
	return (l.meter == 0 || a.Meter == l.meter) && (l.customer == "" || a.Customer == l.customer) &&
		(l.month == nil || a.Month == *l.month)
}

// tellReverted completes people's adjustments with what a later row did to them, which their own rows cannot say.
func tellReverted(v store.View, items []usage.Adjustment) error {
	for i := range items {
		if items[i].Event != "" || items[i].Reverts != "" {
			continue
		}
		a, err := store.Adjustment(v, items[i].ID)
		if err != nil {
			return fmt.Errorf("read adjustment %s: %w", items[i].ID, err)
		}
		items[i].Reverted = a.Reverted
	}
	return nil
}

// Adjustment returns one adjustment. Errors: NotFound.
func (s *Service) Adjustment(ctx context.Context, tenantID, id string) (usage.Adjustment, error) {
	var a usage.Adjustment
	err := s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		a, err = adjustment(v, id)
		return err
	})
	if err != nil {
		return usage.Adjustment{}, err
	}
	return a, nil
}

// adjustment reads by the one spelling of an id: "adj_7" is one, "adj_07" is none.
func adjustment(v store.View, id string) (usage.Adjustment, error) {
	missing := problem.New(problem.NotFound, "no such adjustment")
	seq, number, ok := usage.ParseAdjustmentID(id)
	if !ok || id != usage.ManualID(seq) && id != usage.LateID(seq, number) {
		return usage.Adjustment{}, missing
	}
	a, err := store.Adjustment(v, id)
	if problem.Is(err, problem.NotFound) {
		return usage.Adjustment{}, missing
	}
	return a, err
}

// Adjust adds an amount to a total by hand; its counter need not have rows yet, and its month may be closed. Errors:
// NotFound (tenant), UnknownMeter, Invalid, TenantClosed, Overflow.
func (s *Service) Adjust(ctx context.Context, actor, tenantID string, meterSlug, customer string, m calendar.Month,
	a amount.Amount, reason string) (usage.Adjustment, error) {
	wanted := usage.Adjustment{Customer: customer, Month: m, Amount: a, Reason: reason, Actor: actor}
	if p := wanted.Check(); p != nil {
		return usage.Adjustment{}, p
	}
	var made usage.Adjustment
	err := s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		of, err := store.GetMeter(tx, meterSlug)
		if problem.Is(err, problem.NotFound) {
			return &problem.Error{Code: problem.UnknownMeter, Detail: "no such meter: create it with POST /v1/meters",
				Fields: []problem.Field{{Path: "meter", Message: "unknown"}}}
		}
		if err != nil {
			return err
		}
		wanted.Meter = of.Number
		made, err = adjust(tx, "created", of.Slug, wanted)
		return err
	})
	if err != nil {
		return usage.Adjustment{}, err
	}
	return made, nil
}

// Revert undoes a person's adjustment with its exact opposite, once. Errors: NotFound, TenantClosed, Overflow, Conflict
// (it was reverted, is a revert itself, or was made by a late row).
func (s *Service) Revert(ctx context.Context, actor, tenantID, id string) (usage.Adjustment, error) {
	var made usage.Adjustment
	err := s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		target, err := adjustment(tx, id)
		if err != nil {
			return err
		}
		if p := revertible(&target); p != nil {
			return p
		}
		slug, err := slugOf(tx, target.Meter)
		if err != nil {
			return err
		}
		made, err = adjust(tx, "reverted", slug, usage.Adjustment{
			Meter: target.Meter, Customer: target.Customer, Month: target.Month, Amount: target.Amount.Neg(),
			Reason: "reverts " + target.ID, Actor: actor, Reverts: target.ID, Replay: target.Replay,
		})
		return err
	})
	if err != nil {
		return usage.Adjustment{}, err
	}
	return made, nil
}

func revertible(a *usage.Adjustment) *problem.Error {
	switch {
	case a.Event != "":
		return problem.New(problem.Conflict, "%s was made by a late event: correct event %q instead", a.ID, a.Event)
	case a.Reverts != "":
		return problem.New(problem.Conflict, "%s is itself the revert of %s: make a new adjustment instead",
			a.ID, a.Reverts)
	case a.Reverted != "":
		return problem.New(problem.Conflict, "%s was already reverted by %s", a.ID, a.Reverted)
	}
	return nil
}

func slugOf(v store.View, number uint32) (string, error) {
	meters, err := allMeters(v)
	if err != nil {
		return "", err
	}
	for i := range meters {
		if meters[i].Number == number {
			return meters[i].Slug, nil
		}
	}
	return "", fmt.Errorf("an adjustment names meter number %d, which the ledger does not have", number)
}

// adjustmentPayload is what an audit event says of an adjustment.
type adjustmentPayload struct {
	ID       string `json:"id"`
	Meter    string `json:"meter"`
	Customer string `json:"customer"`
	Period   string `json:"period"`
	Amount   string `json:"amount"`
	Reason   string `json:"reason"`
	Reverts  string `json:"reverts,omitempty"`
	Replay   string `json:"replay,omitempty"`
}

// adjust appends an adjustment. Its id names its row, so the row's number has to be known before it is appended.
func adjust(tx store.Tx, action, slug string, a usage.Adjustment) (usage.Adjustment, error) {
	c, err := tx.Counter(usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month})
	if err != nil {
		return usage.Adjustment{}, fmt.Errorf("read counter: %w", err)
	}
	if !c.CanAdjust(a.Amount) {
		return usage.Adjustment{}, problem.New(problem.Overflow,
			"the counter of meter %s for this customer in %s cannot hold more than 10^26", slug, a.Month)
	}
	expected := tx.Head().Seq + 1
	a.ID = usage.ManualID(expected)
	payload := adjustmentPayload{a.ID, slug, a.Customer, a.Month.String(), a.Amount.String(), a.Reason,
		a.Reverts, a.Replay}
	seq, err := ledgers.Append(tx, a.Actor, audit.Of(usage.AdjustmentKind.Name, action, a.ID), payload,
		usage.AdjustmentKind.State(&a))
	if err != nil {
		return usage.Adjustment{}, err
	}
	if seq != expected {
		return usage.Adjustment{}, fmt.Errorf("append adjustment: expected row %d, got %d", expected, seq)
	}
	return store.Adjustment(tx, a.ID)
}
