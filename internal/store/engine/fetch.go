package engine

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// # Counters that are not in memory
//
// Reading one from the state takes longer than all the rest of a fact. Were the decider to do it, every tenant would
// wait, so the callers do, in parallel, while they prepare: a batch brings the counters along that it will need and
// that memory does not have.
//
// A counter that was fetched is used only if it is what the decider would read now. The state changes by checkpoints
// alone. So the number of the last complete checkpoint is taken before anything is read, and compared under the lock
// when the counter is used:
//
//   - the same number, and the counter is not in memory: nothing has changed it since. What changes a counter brings it
//     into memory, where it stays dirty until a checkpoint that saves it is complete, and that would be another number.
//   - another number: it is dropped and the decider reads the state itself. That is rare: a checkpoint comes once in a
//     million facts, and only batches that waited while it ended are concerned.
//
// The number is taken first: a checkpoint that ends between the two makes a fresh counter look old, never an old one
// fresh.

// brought is a counter that is not in memory yet.
type brought struct {
	state.Counter
	book *book
	id   usage.CounterID
	slug string
	hash uint64
}

// fetched are the counters that a batch brought along, by hash.
type fetched struct {
	cells map[uint64]*brought
	done  uint64 // the last complete checkpoint, before they were read
}

// maxFetched is how many counters may wait in the queue, about 450 bytes each. Past that batches bring none.
const maxFetched = 100_000

// fetch reads the counters that the batch will need and that are not in memory. One that cannot be read is left for
// judging, which refuses the facts that need it and no others.
func (e *Engine) fetch(w *work) {
	e.unfetchCells(w) // meters that changed make a batch fetch again
	w.fetched.done = e.cells.done.Load()
	now := calendar.MonthOf(max(w.book.published.Load().head.Clock, calendar.FromTime(e.now())))
	for i := range w.facts {
		f := &w.facts[i]
		if f.Refusal != nil || f.Key.Name == "" || f.Event.Corrects != "" || f.found.OK {
			continue // a correction's counter is its target's (targets.go), and what is known changes none
		}
		month := now
		if f.Event.Has(usage.GivenTime) {
			month = calendar.MonthOf(f.Event.Time)
		}
		for _, feed := range f.Feeds() {
			id := usage.CounterID{Meter: feed.Meter.Number, Customer: f.Event.Customer, Month: month}
			e.fetchOne(w, id, feed.Meter.Slug, cellHash(w.book.number, id, f.customer))
		}
	}
}

func (e *Engine) fetchOne(w *work, id usage.CounterID, slug string, hash uint64) {
	if e.cells.likely(hash) || w.fetched.cells[hash] != nil {
		return
	}
	if !e.mayFetch(1) {
		return
	}
	c, err := e.bring(w.book, id, slug, hash)
	if err != nil {
		e.waiting.Add(-1)
		return
	}
	if w.fetched.cells == nil {
		w.fetched.cells = map[uint64]*brought{}
	}
	w.fetched.cells[hash] = c
	e.metrics.fetched.Inc()
}

// mayFetch takes room for what counts as so many counters, if there is any.
func (e *Engine) mayFetch(cells int64) bool {
	if e.waiting.Add(cells) > maxFetched {
		e.waiting.Add(-cells)
		return false
	}
	return true
}

// bring reads what the state has of a counter. The customer's name gets memory of its own.
func (e *Engine) bring(b *book, id usage.CounterID, slug string, hash uint64) (*brought, error) {
	v, _, err := e.state.Counter(b.number, store.CounterPlace{Month: id.Month, Meter: slug, Customer: id.Customer})
	if err != nil {
		return nil, fmt.Errorf("read counter: %w", err)
	}
	id.Customer = strings.Clone(id.Customer)
	return &brought{Counter: v, book: b, id: id, slug: slug, hash: hash}, nil
}

// fetchReplayed reads the counters that a section's rows change and that are not in memory, side by side: a start after
// a crash does little else. One that cannot be read is left for replaying to meet.
func (e *Engine) fetchReplayed(b *book, s *section) *fetched {
	f := &fetched{cells: map[uint64]*brought{}, done: e.cells.done.Load()}
	var wanted []*brought
	for i := range s.rows {
		if s.rows[i].Kind() != ledger.EventRow || s.isArchived(i) {
			continue
		}
		row := s.rows[i].Event
		for j := range row.Outcomes {
			id := usage.CounterID{Meter: row.Outcomes[j].Meter, Customer: row.Customer, Month: row.Month()}
			hash := cellHash(b.number, id, hashCustomer(id.Customer))
			if m := b.resident.Catalog.Number(id.Meter); m != nil && f.cells[hash] == nil &&
				e.cells.find(b, id, hash) == 0 {
				one := &brought{book: b, id: id, slug: m.Slug, hash: hash}
				f.cells[hash], wanted = one, append(wanted, one)
			}
		}
	}
	var readers sync.WaitGroup
	for some := range slices.Chunk(wanted, len(wanted)/runtime.GOMAXPROCS(0)+1) {
		readers.Go(func() {
			for _, one := range some {
				if in, err := e.bring(b, one.id, one.slug, one.hash); err == nil {
					*one = *in
				} else {
					one.book = nil // which no fact names
				}
			}
		})
	}
	readers.Wait()
	e.metrics.fetched.Add(float64(len(wanted)))
	return f
}

// unfetch forgets what a batch brought along: it is answered, or its caller gave up before its turn.
func (e *Engine) unfetch(w *work) {
	e.unfetchCells(w)
	e.waiting.Add(-targetCells * int64(len(w.targets)))
	w.targets = nil
}

func (e *Engine) unfetchCells(w *work) {
	e.waiting.Add(-int64(len(w.fetched.cells)))
	w.fetched = fetched{}
}

// take returns a cell that was brought along, if it is what the state has now. Engine.mu is held.
func (f *fetched) take(b *book, id usage.CounterID, hash, done uint64) *brought {
	if f == nil {
		return nil
	}
	c := f.cells[hash]
	if c == nil || f.done != done || c.book != b || c.id != id {
		return nil
	}
	return c
}
