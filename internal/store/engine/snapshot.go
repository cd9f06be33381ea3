package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// Snapshot is the whole store as one checkpoint left it: rows, counters and everything else as of the same commit,
// however much is committed meanwhile. It reads the checkpoint from the disk and holds no lock that the committer
// wants; while facts come in it reads at the pace of what works beside the committer. A view of it shows a counter or
// a meter as the state on disk has it, so that what is verified through it is what the next start would begin with.
//
// Rows do not leave while there is a snapshot: Prune waits for its release, and a snapshot for the end of Prune.
type Snapshot struct {
	ctx   context.Context //nolint:containedctx // a snapshot ends with what it was made for
	e     *Engine
	state *state.Snapshot
	heads map[string]state.Head
	pacer pacer
}

// Snapshot makes a checkpoint, if the last one is not up to date, and keeps it until Release. There is one at a time:
// a second call waits, as Verify and Prune do. Its readers end when ctx ends or the store closes. Errors: Unavailable
// (the disk has no room for a checkpoint, or the store closes), and those of ctx.
func (e *Engine) Snapshot(ctx context.Context) (*Snapshot, error) {
	if err := e.hold(ctx); err != nil {
		return nil, err
	}
	n, err := e.snapshot(ctx)
	if err != nil {
		e.letGo()
		return nil, err
	}
	return n, nil
}

func (e *Engine) snapshot(ctx context.Context) (*Snapshot, error) {
	durable := unpack(e.durable.Load())
	n := &Snapshot{ctx: ctx, e: e, state: e.state.Snapshot(), heads: map[string]state.Head{}}
	n.pacer = pacer{e: e, stop: ctx.Done()}
	at, err := n.state.Reflects()
	if err == nil && at.Less(durable) {
		if err := n.state.Close(); err != nil {
			return nil, err
		}
		if err := e.checkpointed(ctx); err != nil {
			return nil, fmt.Errorf("write a checkpoint: %w", err)
		}
		n.state = e.state.Snapshot()
	}
	var heads []state.Head
	if err == nil {
		heads, err = n.state.Heads()
	}
	if err != nil {
		_ = n.state.Close() // was only read
		return nil, &state.DamageError{Dir: stateDir, Err: err}
	}
	for _, h := range heads {
		n.heads[h.ID] = h
	}
	n.pacer.begin()
	return n, nil
}

// hold keeps the rows of the journal where they are, until letGo.
func (e *Engine) hold(ctx context.Context) error {
	if err := e.reads.enter(); err != nil {
		return err
	}
	select {
	case e.examined <- struct{}{}:
		return nil
	case <-ctx.Done():
		e.reads.leave()
		return ctx.Err()
	}
}

func (e *Engine) letGo() {
	<-e.examined
	e.reads.leave()
}

// Release ends the snapshot. Its views must not be used any more.
func (n *Snapshot) Release() error {
	defer n.e.letGo()
	return n.state.Close()
}

// going reports whether reading may go on, after giving way to the committer.
func (n *Snapshot) going() error { return n.pacer.going(n.ctx) }

// Tenants lists tenants by id, after the given one. The operator's own is not among them.
func (n *Snapshot) Tenants(ctx context.Context, after string, limit int) ([]store.Listed, error) {
	var out []store.Listed
	for _, id := range page(n.heads, after, limit+1) { // one of them may be the operator
		if id == tenant.Operator || len(out) == limit {
			continue
		}
		if err := errors.Join(ctx.Err(), n.going()); err != nil {
			return nil, err
		}
		self, _, err := n.state.Entity(n.heads[id].Number, tenant.Kind.Name, tenant.Self)
		if err != nil {
			return nil, &state.DamageError{Dir: stateDir, Err: err}
		}
		out = append(out, store.Listed{ID: id, Entity: self.Entity})
	}
	return out, nil
}

// View runs fn on a tenant's ledger as of the snapshot. Errors: NotFound.
func (n *Snapshot) View(ctx context.Context, id string, fn func(store.View) error) error {
	if err := errors.Join(ctx.Err(), n.going()); err != nil {
		return err
	}
	head, ok := n.heads[id]
	if !ok {
		return errNoTenant(id)
	}
	b, err := n.e.book(id)
	if err != nil {
		return err
	}
	set, err := n.e.loadResident(&n.state.Reader, head.Number)
	if err != nil {
		return err
	}
	v := view{e: n.e, b: b, from: &n.state.Reader, frozen: true, resident: set, head: head.Head, now: head.Clock}
	v.recall.limit = examineBytes
	return fn(&snapshotView{view: v, snapshot: n})
}

// snapshotView reads rows as every view does, up to its head, and what is derived from the checkpoint.
type snapshotView struct {
	view
	snapshot *Snapshot
}

func (v *snapshotView) PrunedSections(first uint64, fn func(*ledger.Section) error) error {
	return v.view.PrunedSections(first, func(s *ledger.Section) error {
		if err := v.snapshot.going(); err != nil {
			return err
		}
		return fn(s)
	})
}

// Event leaves corrections out that came later.
func (v *snapshotView) Event(k usage.Key) (ledger.Row, []ledger.Row, error) {
	r, by, err := v.view.Event(k)
	if err == nil && r.Seq > v.head.Seq {
		return ledger.Row{}, nil, problem.New(problem.NotFound, "no event %q", k.ID())
	}
	return r, slices.DeleteFunc(by, func(c ledger.Row) bool { return c.Seq > v.head.Seq }), err
}

func (v *snapshotView) Counter(id usage.CounterID) (usage.Counter, error) {
	m := v.resident.Catalog.Number(id.Meter)
	if m == nil {
		return usage.Counter{}, problem.New(problem.NotFound, "no meter of number %d", id.Meter)
	}
	place := store.CounterPlace{Month: id.Month, Meter: m.Slug, Customer: id.Customer}
	c, _, err := v.snapshot.state.Counter(v.b.number, place)
	return c.Counter, err
}

func (v *snapshotView) Counters(from store.CounterPlace, fn func(store.CounterPlace, *usage.Counter) bool) error {
	var ended error
	err := v.snapshot.state.Counters(v.b.number, from, func(p store.CounterPlace, c *state.Counter) bool {
		if ended = v.snapshot.going(); ended != nil {
			return false
		}
		return c.Empty() || fn(p, &c.Counter)
	})
	if ended != nil {
		return ended
	}
	return err
}

func (v *snapshotView) Tally(meter uint32, m calendar.Month) (usage.Tally, error) {
	if v.resident.Catalog.Number(meter) == nil {
		return usage.Tally{}, problem.New(problem.NotFound, "no meter of number %d", meter)
	}
	return v.snapshot.state.Tally(v.b.number, meter, m)
}
