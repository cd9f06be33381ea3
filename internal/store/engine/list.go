package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// Bounds of one call of Rows. A caller that finds nothing in that many goes on from where the scan stopped.
const (
	maxScanRows     = 100_000
	maxScanSections = 50_000
	// placesAtOnce is how many sections are looked up at a time.
	placesAtOnce = 256
)

func (v *view) Rows(after uint64, hint store.RowHint, fn func(*ledger.Row) bool) (last uint64, end bool, err error) {
	last = after
	if err := v.resident.Horizon.Missing(after, hint, v.hasLeft); err != nil {
		return last, false, err
	}
	stopped, rows, sections := false, 0, 0
	err = v.places(after+1, func(p state.Section) (bool, error) {
		sections++
		if passes(&p, hint) {
			rows += p.Rows
			var d decoder
			s, err := v.e.readPlace(v.b, p, &d, v.resident)
			if err != nil {
				return false, err
			}
			if last, stopped = feed(s.rows, last, fn); stopped {
				return false, nil
			}
		} else {
			last = p.First + uint64(p.Rows) - 1
		}
		stopped = rows >= maxScanRows || sections >= maxScanSections
		return !stopped, nil
	})
	if err != nil || stopped {
		return last, err == nil && last >= v.head.Seq, err
	}
	if v.tx != nil {
		for _, more := range [...][]ledger.Row{v.tx.section.rows, v.tx.rows} {
			if last, stopped = feed(more, last, fn); stopped {
				return last, last >= v.head.Seq, nil
			}
		}
	}
	return last, true, nil
}

// feed hands rows above last to fn; it reports whether fn had enough.
func feed(rows []ledger.Row, last uint64, fn func(*ledger.Row) bool) (uint64, bool) {
	for i := range rows {
		if rows[i].Seq <= last {
			continue
		}
		last = rows[i].Seq
		if !fn(&rows[i]) {
			return last, true
		}
	}
	return last, false
}

// passes reports whether a section may hold rows that the hint names.
func passes(p *state.Section, h store.RowHint) bool {
	if h.Changes && p.Changes || h.Entries && p.Entries {
		return true
	}
	if !h.Events || p.MinTime > p.MaxTime || h.Adjusted && !p.Adjusted {
		return false
	}
	return (h.From == 0 || p.MaxTime >= h.From) && (h.To == 0 || p.MinTime < h.To)
}

// PrunedSections implements store.View.
func (v *view) PrunedSections(first uint64, fn func(*ledger.Section) error) error {
	err := v.places(first, func(p state.Section) (bool, error) {
		var d decoder
		s, err := v.e.readPlace(v.b, p, &d, v.resident)
		if err != nil {
			return false, err
		}
		return true, fn(&ledger.Section{First: s.first, At: s.at, Rows: s.rows, Gone: p.Rows - len(s.rows)})
	})
	if err != nil || v.tx == nil {
		return err
	}
	if rows := append(slices.Clone(v.tx.section.rows), v.tx.rows...); len(rows) > 0 {
		return fn(&ledger.Section{First: rows[0].Seq, At: rows[0].At, Rows: rows})
	}
	return nil
}

// places calls fn for the sections from the one that holds a row on, up to the view's head.
func (v *view) places(from uint64, fn func(state.Section) (bool, error)) error {
	limit := v.head.Seq
	if v.tx != nil {
		v.e.drain()
		limit = v.tx.section.first - 1
	}
	if from > limit {
		return nil
	}
	p, err := v.e.place(v.b, max(from, 1))
	if err != nil {
		return err
	}
	for first := p.First; ; {
		some, err := v.e.placesFrom(v.b, first)
		if err != nil {
			return err
		}
		for _, p := range some {
			if p.First > limit {
				return nil
			}
			more, err := fn(p)
			if err != nil || !more {
				return err
			}
			first = p.First + 1
		}
		if len(some) < placesAtOnce {
			return nil
		}
	}
}

// placesFrom lists the next sections. Those in memory are read first: what a checkpoint moves meanwhile is then seen
// twice, not missed, and the state's part ends where the memory's begins.
func (e *Engine) placesFrom(b *book, first uint64) ([]state.Section, error) {
	recent := b.placesFrom(first, placesAtOnce)
	var out []state.Section
	err := e.state.Sections(b.number, first, func(s state.Section) bool {
		if len(recent) > 0 && s.First >= recent[0].First {
			return false
		}
		out = append(out, s)
		return len(out) < placesAtOnce
	})
	if len(out) < placesAtOnce {
		out = append(out, recent[:min(len(recent), placesAtOnce-len(out))]...)
	}
	return out, err
}

func (v *view) Counter(id usage.CounterID) (out usage.Counter, err error) {
	m := v.resident.Catalog.Number(id.Meter)
	if m == nil {
		return out, problem.New(problem.NotFound, "no meter of number %d", id.Meter)
	}
	if v.tx != nil {
		if c := v.tx.counters[id]; c != nil {
			return c.Clone(), nil
		}
	}
	found, hash := false, cellHash(v.b.number, id, hashCustomer(id.Customer))
	err = v.settled(func() error {
		r := v.e.cells.find(v.b, id, hash)
		if found = r != 0; !found {
			return nil
		}
		var err error
		out, err = v.e.cells.read(r)
		return err
	})
	if err == nil && !found {
		// Without the lock. What is not in memory the state has, now and later; a checkpoint in between brings only
		// what is durable.
		var c state.Counter
		c, _, err = v.e.state.Counter(v.b.number,
			store.CounterPlace{Month: id.Month, Meter: m.Slug, Customer: id.Customer})
		out = c.Counter
	}
	return out, err
}

// dirtyPlace is where a counter is among its book's.
type dirtyPlace struct {
	store.CounterPlace
	meter uint32
}

// dirtyPlaces lists where the book's counters are that the state does not have as they are, from a place on, in order.
func (v *view) dirtyPlaces(from store.CounterPlace) (out []dirtyPlace, err error) {
	for tries := 1; ; tries++ {
		var whole bool
		if out, whole, err = v.listDirty(from, tries < listTries); whole || err != nil {
			break
		}
	}
	if v.tx != nil {
		out = append(out, v.tx.ownPlaces(from)...)
	}
	if err := cmp.Or(err, v.settled(func() error { return nil })); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b dirtyPlace) int { return byPlace(a.CounterPlace, b.CounterPlace) })
	return slices.Compact(out), nil
}

// listTries is how often listing what is dirty gives way to others; then it goes on to its end.
const listTries = 4

// listDirty goes over the dirty counters. When it gives way, a checkpoint may begin or end meanwhile, after which the
// entries are others; it is not whole then.
func (v *view) listDirty(from store.CounterPlace, giveWay bool) (out []dirtyPlace, whole bool, err error) {
	cs, at := v.e.cells, 0
	var epoch, done uint64
	for more := true; more && err == nil; {
		v.e.options.listing()
		v.peek(func() {
			if at == 0 {
				epoch, done = cs.epoch, cs.done.Load()
			}
			if whole = cs.epoch == epoch && cs.done.Load() == done; !whole {
				more = false
				return
			}
			all := len(v.b.saving) + len(v.b.dirty)
			end := all
			if giveWay {
				end = min(all, at+cellsAtOnce)
			}
			v.e.metrics.listed.Add(float64(end - at))
			for ; at < end && err == nil; at++ {
				r := v.b.dirtyAt(at)
				if cs.before(r, from) {
					continue
				}
				var c usage.Counter
				if c, err = cs.read(r); !c.Empty() {
					out = append(out, dirtyPlace{cs.place(r), cs.meter(r)})
				}
			}
			more = at < all
		})
	}
	return out, whole, err
}

// peek runs fn on the state in memory. What it saw may not be durable yet: settled waits for that.
func (v *view) peek(fn func()) {
	if v.tx == nil {
		v.e.mu.RLock()
		defer v.e.mu.RUnlock()
	}
	fn()
}

// Counters merges the counters in memory that changed lately with those of the state.
func (v *view) Counters(from store.CounterPlace, fn func(store.CounterPlace, *usage.Counter) bool) error {
	if err := store.CheckPlace(from.Meter, from.Customer); err != nil {
		return err
	}
	dirty, err := v.dirtyPlaces(from)
	if err != nil {
		return err
	}
	emit := func(p dirtyPlace) (bool, error) {
		out, err := v.Counter(usage.CounterID{Meter: p.meter, Customer: p.Customer, Month: p.Month})
		return err == nil && fn(p.CounterPlace, &out), err
	}
	stopped, inner := false, error(nil)
	err = v.e.state.Counters(v.b.number, from, func(p store.CounterPlace, c *state.Counter) bool {
		for len(dirty) > 0 && byPlace(dirty[0].CounterPlace, p) <= 0 {
			next := dirty[0]
			dirty = dirty[1:]
			more, err := emit(next)
			if inner = err; err != nil || !more {
				stopped = true
				return false
			}
			if next.CounterPlace == p {
				return true
			}
		}
		if c.Empty() {
			return true
		}
		stopped = !fn(p, &c.Counter)
		return !stopped
	})
	if err != nil || inner != nil || stopped {
		return cmp.Or(inner, err)
	}
	for _, c := range dirty {
		if more, err := emit(c); err != nil || !more {
			return err
		}
	}
	return nil
}

func byPlace(a, b store.CounterPlace) int {
	return cmp.Or(cmp.Compare(a.Month, b.Month), strings.Compare(a.Meter, b.Meter),
		strings.Compare(a.Customer, b.Customer))
}
