package engine

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// tx is a view of what is decided, with rows of its own that are not part of it yet. The decider runs it; Engine.mu is held.
type tx struct {
	view
	section *sectionBuild
	rows    []ledger.Row
	manual  map[usage.CounterID]amount.Amount
	undone  map[uint64]uint64 // reverted adjustments → their opposites

	touches []usage.CounterID // counters that the rows change; of an alert of the tenant's own quota the tally alone, without a customer
}

// Append implements store.Tx.
func (x *tx) Append(c ledger.Change) (uint64, error) {
	if err := x.config.tenant.CheckKeptHere(); err != nil {
		return 0, err
	}
	r := ledger.Row{Seq: x.section.first + uint64(len(x.section.rows)+len(x.rows)), At: x.section.at, Change: &c}
	s, err := ledger.DecodeState(&r)
	if err != nil {
		return 0, err
	}
	if a := s.Adjustment; a != nil {
		id := usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
		if x.config.catalog.Number(a.Meter) == nil {
			return 0, problem.New(problem.NotFound, "no meter of number %d", a.Meter)
		}
		x.manual[id], _ = x.manual[id].Add(a.Amount)
		if seq, _, ok := usage.ParseAdjustmentID(a.Reverts); ok {
			x.undone[seq] = r.Seq
		}
	}
	x.touch(s)
	x.config = x.config.with(s)
	x.rows = append(x.rows, r)
	x.head.Seq = r.Seq
	return r.Seq, nil
}

// touch notes the counters that a state will change.
func (x *tx) touch(s ledger.State) {
	switch {
	case s.Adjustment != nil:
		a := s.Adjustment
		x.touches = append(x.touches, usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month})
	case s.Alert != nil:
		a := s.Alert
		x.touches = append(x.touches, usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month})
	case s.Base != nil:
		for i := range s.Base.Counters {
			in := &s.Base.Counters[i]
			x.touches = append(x.touches, usage.CounterID{Meter: in.Meter, Customer: in.Customer, Month: s.Base.Month})
		}
	}
}

// decideUpdate runs an Update and takes its rows into the group, or discards them. Engine.mu is held.
func (e *Engine) decideUpdate(g *group, w *work) {
	b, err := e.bookOf(w.tenantID)
	if err != nil {
		w.err = err
		return
	}
	s := g.sectionFor(e, b)
	x := &tx{section: s, manual: map[usage.CounterID]amount.Amount{}, undone: map[uint64]uint64{}}
	x.view = view{e: e, b: b, config: b.config, head: b.published.Load().head, now: s.at, tx: x}
	x.head.Seq = s.first + uint64(len(s.rows)) - 1
	if w.err = store.RunUpdate(w.update, x); w.err != nil {
		return
	}
	if x.config.tenant == nil {
		w.err = errNoTenant(w.tenantID)
		return
	}
	bound := changeBound(x.rows)
	if w.err = e.canDecide(g, bound); w.err != nil {
		return
	}
	if w.err = e.reach(x); w.err != nil {
		return
	}
	g.bound += bound
	if e.byID[w.tenantID] == nil {
		e.byID[w.tenantID] = b
		e.nextNumber++
	}
	for i := range x.rows {
		s.rows = append(s.rows, x.rows[i])
		s.place.Changes = true
		if err := e.applyChange(b, &x.rows[i]); err != nil {
			w.err = e.halfDecided(err) // Append decoded the very same state, and reach has read what it changes
			return
		}
	}
	e.touched(g, s)
}

// reach brings what the rows of a transaction change into memory. It is the last thing that may fail: a state that cannot be read refuses
// the call, with nothing changed. Engine.mu is held.
func (e *Engine) reach(x *tx) error {
	for _, id := range x.touches {
		m := x.config.catalog.Number(id.Meter) // the transaction itself may have made it
		if m == nil {
			return problem.New(problem.NotFound, "no meter of number %d", id.Meter)
		}
		if usage.AddsUp(m.Aggregation) {
			if _, err := e.findTally(tallyID{x.b, id.Meter, id.Month}); err != nil {
				return unreadable(err)
			}
		}
		hash := cellHash(x.b.number, id, hashCustomer(id.Customer))
		if id.Customer == "" || e.cells.find(x.b, id, hash) != nil {
			continue
		}
		if _, err := e.loadCell(x.b, id, hash, m.Slug); err != nil {
			return unreadable(err)
		}
	}
	return nil
}

func unreadable(err error) error {
	return problem.Wrap(problem.Unavailable, err, "the counters that this changes cannot be read now; nothing was changed").Retry(5 * time.Second)
}

// halfDecided ends the engine: memory holds a part of what was being decided, and it must not be written. Only a restart makes memory
// and disk one again.
func (e *Engine) halfDecided(err error) error {
	e.fail(fmt.Errorf("what was decided could not be applied: %w", err))
	return e.errFailed()
}

// bookOf returns a tenant's ledger, a new one for a tenant that is not there yet. A deployment that was moved takes no new tenants.
// Engine.mu is held.
func (e *Engine) bookOf(tenantID string) (*book, error) {
	if b := e.byID[tenantID]; b != nil {
		return b, nil
	}
	if operator := e.byID[tenant.Operator]; operator != nil {
		if err := operator.config.tenant.CheckKeptHere(); err != nil {
			return nil, err
		}
	}
	return newBook(e.nextNumber, tenantID), nil
}

// applyChange makes a change row take effect: when it is decided, and again when it is replayed. Engine.mu is held.
func (e *Engine) applyChange(b *book, r *ledger.Row) error {
	s, err := ledger.DecodeState(r)
	if err != nil {
		return err
	}
	e.noteAudit(b, r)
	b.config = b.config.with(s)
	ent := state.Entity{Seq: r.Seq, At: r.At, State: bytes.Clone(r.Change.State)}
	switch {
	case s.Tenant != nil:
		ent.Class = state.ClassTenant
	case s.Key != nil:
		ent.Class, ent.Name = state.ClassKey, s.Key.ID
	case s.Close != nil:
		ent.Class, ent.Name = state.ClassPeriod, s.Close.Month.String()
	case s.Floor != nil:
		if *s.Floor != b.config.horizon.Floor { // it only moves forward
			return nil
		}
		ent.Class = state.ClassFloor
	case s.Archive != nil:
		ent.Class, ent.Name = state.ClassArchive, s.Archive.Month.String()
	case s.Base != nil:
		return e.applyBase(b, s.Base)
	case s.Meter != nil:
		ent.Class, ent.Name = state.ClassMeter, s.Meter.Slug
		ent.Used = b.meters[s.Meter.Number].Used
		b.meters[s.Meter.Number] = ent
	case s.Adjustment != nil:
		return e.adjust(b, s.Adjustment)
	case s.Request != nil:
		e.noteRequest(b, s.Request, r.Seq)
		return nil
	case s.Plan != nil:
		ent.Class, ent.Name = state.ClassPlan, s.Plan.Name
	case s.Assignment != nil:
		ent.Class, ent.Name = state.ClassAssign, s.Assignment.Customer
	case s.Alert != nil:
		return e.tell(b, s.Alert)
	default:
		return nil
	}
	e.noteEntity(b, ent)
	return nil
}

func (e *Engine) adjust(b *book, a *usage.Adjustment) error {
	m := b.config.catalog.Number(a.Meter)
	c, err := e.cell(b, usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}, hashCustomer(a.Customer))
	if err != nil {
		return err
	}
	e.cells.touch(c)
	c.Adjust(a.Amount, m.Aggregation, b.config.closed(a.Month))
	if seq, _, ok := usage.ParseAdjustmentID(a.Reverts); ok {
		e.notes[0].reverted[rowKey{b, seq}] = a.Seq
	}
	return nil
}

func (e *Engine) noteEntity(b *book, ent state.Entity) {
	e.notes[0].entities[entityKey{b, ent.Class, ent.Name}] = ent
}

// use notes a meter's first event.
func (e *Engine) use(b *book, number uint32) {
	if b.lastUsed == number {
		return
	}
	b.lastUsed = number
	ent := b.meters[number]
	if ent.Used {
		return
	}
	ent.Used = true
	b.meters[number] = ent
	e.noteEntity(b, ent)
}

func (e *Engine) noteCorrection(b *book, r *usage.Row, seq uint64) {
	k := usage.KeyOfID(strings.Clone(r.Corrects))
	n := e.notes[0].corrections
	n[factKey{b, k}] = append(n[factKey{b, k}], seq)
}

func errNoTenant(id string) error { return problem.New(problem.NotFound, "no tenant %q", id) }
