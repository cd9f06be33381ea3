package engine

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// maxTallies bounds the tallies in memory: one for each meter and month that facts came for, about 150 bytes. Past it
// those that the state has are let go.
const maxTallies = 200_000

// recentTallies is how many tallies a book finds without a search. Most facts are of one month, and of a few meters.
const recentTallies = 8

// tallies are what tenants used of their meters, over all customers. Guarded by Engine.mu.
type tallies struct {
	all   map[tallyID]*tally
	dirty []*tally // changed since the last checkpoint began
	limit int
}

type tallyID struct {
	book  *book
	meter uint32
	month calendar.Month
}

type tally struct {
	usage.Tally
	id    tallyID
	dirty bool
}

func newTallies(limit int) *tallies { return &tallies{all: map[tallyID]*tally{}, limit: limit} }

// tally returns a tally that is about to change, bringing it into memory. Engine.mu is held for writing.
func (e *Engine) tally(b *book, meter uint32, month calendar.Month) (*tally, error) {
	recent := &b.tallies[meter%recentTallies]
	t := *recent
	if t == nil || t.id.meter != meter || t.id.month != month {
		var err error
		if t, err = e.findTally(tallyID{b, meter, month}); err != nil {
			return nil, err
		}
		*recent = t
	}
	if !t.dirty {
		t.dirty = true
		e.tallies.dirty = append(e.tallies.dirty, t)
	}
	return t, nil
}

func (e *Engine) findTally(id tallyID) (*tally, error) {
	if t := e.tallies.all[id]; t != nil {
		return t, nil
	}
	v, err := e.state.Tally(id.book.number, id.meter, id.month)
	if err != nil {
		return nil, fmt.Errorf("read tally: %w", err)
	}
	t := &tally{Tally: v, id: id}
	e.tallies.all[id] = t
	return t, nil
}

// savedTally is a tally as a checkpoint shall save it.
type savedTally struct {
	id    tallyID
	value usage.Tally
}

// freeze begins a checkpoint: it returns what changed since the last one. There are few, so that they are copied at
// once.
func (ts *tallies) freeze() []savedTally {
	out := make([]savedTally, len(ts.dirty))
	for i, t := range ts.dirty {
		out[i] = savedTally{t.id, t.Tally}
		t.dirty = false
	}
	clear(ts.dirty)
	ts.dirty = ts.dirty[:0]
	return out
}

func saveTallies(c *state.Checkpoint, saved []savedTally) {
	for i := range saved {
		id := saved[i].id
		c.SetTally(id.book.number, id.meter, id.month, saved[i].value)
	}
}

// finish ends a checkpoint: the state has every tally that has not changed since, so that these may go when there are
// too many.
func (ts *tallies) finish() {
	if len(ts.all) <= ts.limit {
		return
	}
	for id, t := range ts.all {
		if !t.dirty {
			delete(ts.all, id)
			id.book.tallies = [recentTallies]*tally{}
		}
	}
}

func (h *history) Tally(meter uint32, m calendar.Month) (*usage.Tally, error) {
	t, err := h.e.tally(h.b, meter, m)
	if err != nil {
		return nil, err
	}
	return &t.Tally, nil
}
