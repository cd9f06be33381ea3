package engine

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// # Counters that are not in memory
//
// Reading one from the state takes longer than all the rest of a fact. Were the decider to do it, every tenant would
// wait, so the callers do, in parallel, while they prepare: a batch brings the cells along that it will need and that
// memory does not have.
//
// A cell that was fetched is used only if it is what the decider would read now. The state changes by checkpoints
// alone. So the number of the last complete checkpoint is taken before anything is read, and compared under the lock
// when the cell is used:
//
//   - the same number, and the counter is not in memory: nothing has changed it since. What changes a counter brings it into
//     memory, where it stays dirty until a checkpoint that saves it is complete, and that would be another number.
//   - another number: the cell is dropped and the decider reads the state itself. That is rare: a checkpoint comes once in a
//     million facts, and only batches that waited while it ended are concerned.
//
// The number is taken first: a checkpoint that ends between the two makes a fresh cell look old, never an old one
// fresh.

// fetched are the cells that a batch brought along, by hash.
type fetched struct {
	cells map[uint64]*cell
	done  uint64 // the last complete checkpoint, before they were read
}

// As many cells may wait in the queue: a share of the counters that stay in memory, and at least a few batches' worth.
// Past that batches bring none.
const (
	fetchedShare = 4
	minFetched   = 4 * store.MaxBatch
)

// fetch reads the counters that the batch will need and that are not in memory. One that cannot be read is left for
// judging, which refuses the facts that need it and no others.
func (e *Engine) fetch(w *work) {
	e.unfetch(w) // meters that changed make a batch fetch again
	w.fetched.done = e.cells.done.Load()
	now := calendar.MonthOf(max(w.book.published.Load().head.Clock, calendar.FromTime(e.now())))
	for i := range w.facts {
		f := &w.facts[i]
		if f.Refusal != nil || f.Key.Name == "" || f.Event.Corrects != "" || f.found.OK {
			continue // a correction's counter is its target's, and what is known changes none
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
	if e.waiting.Add(1) > int64(max(minFetched, e.cells.max/fetchedShare)) {
		e.waiting.Add(-1)
		return
	}
	c, err := e.readCell(w.book, id, slug, hash)
	if err != nil {
		e.waiting.Add(-1)
		return
	}
	if w.fetched.cells == nil {
		w.fetched.cells = map[uint64]*cell{}
	}
	w.fetched.cells[hash] = c
	e.metrics.fetched.Inc()
}

// readCell makes a cell of what the state has.
func (e *Engine) readCell(b *book, id usage.CounterID, slug string, hash uint64) (*cell, error) {
	v, _, err := e.state.Counter(b.number, store.CounterPlace{Month: id.Month, Meter: slug, Customer: id.Customer})
	if err != nil {
		return nil, fmt.Errorf("read counter: %w", err)
	}
	return newCell(b, id, slug, hash, v), nil
}

// unfetch forgets what a batch brought along: it is answered, or its caller gave up before its turn, or it starts
// again.
func (e *Engine) unfetch(w *work) {
	e.waiting.Add(-int64(len(w.fetched.cells)))
	w.fetched = fetched{}
}

// take returns a cell that was brought along, if it is what the state has now. Engine.mu is held.
func (f *fetched) take(b *book, id usage.CounterID, hash, done uint64) *cell {
	if f == nil {
		return nil
	}
	c := f.cells[hash]
	if c == nil || f.done != done || c.book != b || c.id != id {
		return nil
	}
	return c
}
