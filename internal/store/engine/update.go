package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/resident"
)

// tx is a view of what is decided, with rows of its own that are not part of it yet. The decider runs it; Engine.mu is
// held.
type tx struct {
	view
	section *sectionBuild
	rows    []ledger.Row
	overlay *store.Overlay // entities that the rows changed

	// What the rows leave counters and tallies as.
	counters map[usage.CounterID]*usage.Counter
	tallies  map[tallyID]*usage.Tally
}

func (e *Engine) newTx(b *book, s *sectionBuild) *tx {
	x := &tx{
		section: s, overlay: store.NewOverlay(e.options.Kinds),
		counters: map[usage.CounterID]*usage.Counter{}, tallies: map[tallyID]*usage.Tally{},
	}
	x.view = view{e: e, b: b, from: &e.state.Reader, resident: b.resident, now: s.at, tx: x}
	x.head = b.published.Load().head
	x.head.Seq = s.first + uint64(len(s.rows)) - 1
	return x
}

// Append implements store.Tx. What it returns an error for has changed nothing.
func (x *tx) Append(c ledger.Change) (uint64, error) {
	if err := x.resident.CheckKeptHere(); err != nil {
		return 0, err
	}
	r := ledger.Row{Seq: x.section.first + uint64(len(x.section.rows)+len(x.rows)), At: x.section.at, Change: &c}
	if !c.State.IsZero() {
		if err := x.take(r.Entity()); err != nil {
			return 0, err
		}
	}
	x.rows = append(x.rows, r)
	x.head.Seq = r.Seq
	return r.Seq, nil
}

// take makes a change take effect within the transaction.
func (x *tx) take(ent entity.Entity) error {
	next, err := x.e.checkChange(x.b, x.resident, &ent)
	if err != nil {
		return err
	}
	if err := x.overlay.Put(ent); err != nil {
		return err
	}
	x.resident = next.resident
	return next.effect.Apply(&pending{history{e: x.e, b: x.b}, x})
}

// checked is what a change will do.
type checked struct {
	resident *resident.Set
	effect   ledger.Effect
}

// checkChange says what a change will do to a book that has so far become this set, and brings the counters that it
// changes into memory. It is the last thing that may fail: a state that cannot be read, or a kind that this build must
// know, refuses the call, with nothing changed. Engine.mu is held.
func (e *Engine) checkChange(b *book, set *resident.Set, ent *entity.Entity) (next checked, err error) {
	if _, err := e.options.Kinds.Entry(ent); err != nil {
		return next, err
	}
	if next.resident, err = set.With(ent); err != nil {
		return next, err
	}
	if next.effect, err = next.resident.EffectOf(ent); err != nil {
		return next, err
	}
	next.effect.Touches(func(id usage.CounterID) {
		if err == nil {
			err = e.reach(b, next.resident.Catalog, id)
		}
	})
	return next, err
}

// pending is the past as a transaction's rows leave it. Effects ask for nothing but what is here.
type pending struct {
	history
	x *tx
}

func (p *pending) Catalog() *usage.Catalog { return p.x.resident.Catalog }

func (p *pending) Closed(m calendar.Month) bool { return p.x.resident.Closed(m) }

func (p *pending) Counter(id usage.CounterID) (*usage.Counter, error) {
	if c := p.x.counters[id]; c != nil {
		return c, nil
	}
	c, err := p.x.Counter(id)
	if err != nil {
		return nil, err
	}
	p.x.counters[id] = &c
	return &c, nil
}

func (p *pending) Tally(meter uint32, m calendar.Month) (*usage.Tally, error) {
	id := tallyID{p.b, meter, m}
	if t := p.x.tallies[id]; t != nil {
		return t, nil
	}
	t, err := p.x.Tally(meter, m)
	if err != nil {
		return nil, err
	}
	p.x.tallies[id] = &t
	return &t, nil
}

// decideUpdate runs an Update and takes its rows into the group, or discards them. Engine.mu is held.
func (e *Engine) decideUpdate(g *group, w *work) {
	b, err := e.bookOf(w.tenantID)
	if err != nil {
		w.err = err
		return
	}
	s := g.sectionFor(e, b)
	x := e.newTx(b, s)
	if w.err = store.RunUpdate(w.update, x); w.err != nil {
		return
	}
	if !x.resident.Exists() {
		w.err = errNoTenant(w.tenantID)
		return
	}
	bound := changeBound(x.rows)
	if w.err = e.canDecide(g, bound); w.err != nil {
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
			w.err = e.halfDecided(err) // Append has checked the very same change and read what it needs
			return
		}
	}
	e.touched(g, s)
}

// reach brings a counter that a change touches into memory; one without a customer stands for the tally of its meter
// alone. Engine.mu is held.
func (e *Engine) reach(b *book, catalog *usage.Catalog, id usage.CounterID) error {
	m := catalog.Number(id.Meter)
	if usage.AddsUp(m.Aggregation) {
		if _, err := e.findTally(tallyID{b, id.Meter, id.Month}); err != nil {
			return unreadable(err)
		}
	}
	hash := cellHash(b.number, id, hashCustomer(id.Customer))
	if id.Customer == "" || e.cells.find(b, id, hash) != 0 {
		return nil
	}
	e.cells.release()
	if _, err := e.loadCell(b, id, hash, m.Slug); err != nil {
		return unreadable(err)
	}
	return nil
}

func unreadable(err error) error {
	p := problem.Wrap(problem.Unavailable, err, "the counters that this changes cannot be read: nothing was changed")
	return p.Retry(5 * time.Second)
}

// halfDecided ends the engine: memory holds a part of what was being decided, and it must not be written. Only a
// restart makes memory and disk one again.
func (e *Engine) halfDecided(err error) error {
	e.fail(fmt.Errorf("what was decided could not be applied: %w", err))
	return e.errFailed()
}

// bookOf returns a tenant's ledger, a new one for a tenant that is not there yet. A deployment that was moved takes no
// new tenants. Engine.mu is held.
func (e *Engine) bookOf(tenantID string) (*book, error) {
	if b := e.byID[tenantID]; b != nil {
		return b, nil
	}
	if operator := e.byID[tenant.Operator]; operator != nil {
		if err := operator.resident.CheckKeptHere(); err != nil {
			return nil, err
		}
	}
	return newBook(e.nextNumber, tenantID, e.options.Kinds), nil
}

// ownPlaces are the places of the counters that the transaction's rows change, from one on.
func (x *tx) ownPlaces(from store.CounterPlace) (out []dirtyPlace) {
	for id, c := range x.counters {
		p := store.CounterPlace{Month: id.Month, Meter: x.resident.Catalog.Number(id.Meter).Slug, Customer: id.Customer}
		if !c.Empty() && byPlace(p, from) >= 0 {
			out = append(out, dirtyPlace{p, id.Meter})
		}
	}
	return out
}

// applyChange makes a change row take effect: when it is decided, and again when it is replayed. Engine.mu is held.
func (e *Engine) applyChange(b *book, r *ledger.Row) error {
	e.noteAudit(b, r)
	if r.Change.State.IsZero() {
		return nil
	}
	ent := r.Entity().Clone()
	entry, err := e.options.Kinds.Entry(&ent)
	if err != nil {
		return err
	}
	set, err := b.resident.With(&ent)
	if err != nil {
		return err
	}
	effect, err := set.EffectOf(&ent)
	if err != nil {
		return err
	}
	b.resident = set
	if err := b.assign(&ent); err != nil {
		return err
	}
	e.noteEntity(b, &ent, &entry)
	return e.applyEffect(b, &effect)
}

// applyEffect changes the counters that a change is about. A base may be all that is left of a meter's events.
func (e *Engine) applyEffect(b *book, f *ledger.Effect) error {
	h := &history{e: e, b: b, oneByOne: true}
	err := f.Apply(h)
	f.Touches(func(id usage.CounterID) {
		if err != nil || id.Customer == "" || b.used[id.Meter] {
			return
		}
		e.cells.release()
		var c *cell
		if c, err = e.cell(b, id, hashCustomer(id.Customer)); err == nil && c.HasRows() {
			e.use(b, id.Meter)
		}
	})
	return err
}

// use notes a meter's first event.
func (e *Engine) use(b *book, number uint32) {
	if b.lastUsed == number {
		return
	}
	b.lastUsed = number
	if !b.used[number] {
		b.used[number] = true
		e.notes[0].used[usedMeter{b, number}] = struct{}{}
	}
}

func (e *Engine) noteCorrection(b *book, r *usage.Row, seq uint64) {
	k := usage.KeyOfID(strings.Clone(r.Corrects))
	n := e.notes[0].corrections
	n[factKey{b, k}] = append(n[factKey{b, k}], seq)
}

func errNoTenant(id string) error { return problem.New(problem.NotFound, "no tenant %q", id) }
