package engine

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// What all customers used of a meter by the hour is added up by the decider, which has every fact in hand: a chart of a
// month is then a few reads, however fast facts come in. One customer's hours are not kept: the slices are sorted by
// customer, and hold nobody else's rows in between.

const (
	// maxDays bounds the days in memory, of some 100 to 1300 bytes each. Past it those that the state has are let go.
	maxDays = 100_000
	// maxDirtyDays starts a checkpoint, and refuseDirtyDays refuses facts until one has ended.
	maxDirtyDays    = 50_000
	refuseDirtyDays = 200_000
	// recentDays is how many days a book finds without a search: a month of a meter or two.
	recentDays = 64
)

// days counts what the books' days hold. Guarded by Engine.mu.
type days struct {
	dirty  []*day // changed since the last checkpoint began
	count  int    // in memory
	limit  int
	loaded []*book // that have any in memory
}

// bookDays are the days of one tenant that are in memory. Guarded by Engine.mu.
type bookDays struct {
	all    map[dayID]*day
	recent []*day
}

type dayID struct {
	meter uint32
	day   calendar.Day
}

type day struct {
	*usage.Day
	id    dayID
	book  *book
	dirty bool
	saved bool // a checkpoint has it as it is: the next change makes a copy
}

// day returns a day that is about to change, bringing it into memory. Engine.mu is held for writing.
func (e *Engine) day(b *book, meter uint32, on calendar.Day) (*day, error) {
	id := dayID{meter, on}
	if b.days.recent == nil {
		b.days = bookDays{all: map[dayID]*day{}, recent: make([]*day, recentDays)}
		e.days.loaded = append(e.days.loaded, b)
	}
	recent := &b.days.recent[(uint32(on)+meter*31)%recentDays]
	d := *recent
	if d == nil || d.id != id {
		var err error
		if d, err = e.findDay(b, id); err != nil {
			return nil, err
		}
		*recent = d
	}
	if d.saved {
		d.Day, d.saved = d.Clone(), false
	}
	if !d.dirty {
		d.dirty = true
		e.days.dirty = append(e.days.dirty, d)
	}
	return d, nil
}

func (e *Engine) findDay(b *book, id dayID) (*day, error) {
	if d := b.days.all[id]; d != nil {
		return d, nil
	}
	v, err := e.state.Day(b.number, id.meter, id.day)
	if err != nil {
		return nil, fmt.Errorf("read the hours of a day: %w", err)
	}
	d := &day{Day: v, id: id, book: b}
	b.days.all[id] = d
	e.days.count++
	return d, nil
}

// Day implements usage.State.
func (h *history) Day(meter uint32, on calendar.Day) (*usage.Day, error) {
	d, err := h.e.day(h.b, meter, on)
	if err != nil {
		return nil, err
	}
	return d.Day, nil
}

// savedDay is a day as a checkpoint shall save it.
type savedDay struct {
	book  *book
	id    dayID
	value *usage.Day
}

// freeze begins a checkpoint: it returns what changed since the last one, and nobody changes what it returns.
func (ds *days) freeze() []savedDay {
	out := make([]savedDay, len(ds.dirty))
	for i, d := range ds.dirty {
		out[i] = savedDay{d.book, d.id, d.Day}
		d.dirty, d.saved = false, true
	}
	clear(ds.dirty)
	ds.dirty = ds.dirty[:0]
	return out
}

func saveDays(c *state.Checkpoint, saved []savedDay) {
	for i := range saved {
		c.SetDay(saved[i].book.number, saved[i].id.meter, saved[i].id.day, saved[i].value)
	}
}

// finish ends a checkpoint: the state has every day that has not changed since, so that these may go when there are too
// many.
func (ds *days) finish() {
	if ds.count <= ds.limit {
		return
	}
	kept := ds.loaded[:0]
	for _, b := range ds.loaded {
		for id, d := range b.days.all {
			if !d.dirty {
				delete(b.days.all, id)
				ds.count--
			}
		}
		if len(b.days.all) == 0 {
			b.days = bookDays{}
			continue
		}
		clear(b.days.recent)
		kept = append(kept, b)
	}
	clear(ds.loaded[len(kept):])
	ds.loaded = kept
}

// Hours implements store.View, for all customers together.
func (v *view) Hours(q store.HourQuery, fn func(*store.Hour) error) (upTo uint64, kept bool, err error) {
	m := v.resident.Catalog.Number(q.Meter)
	if m == nil {
		return 0, false, problem.New(problem.NotFound, "no meter of that number")
	}
	if v.tx != nil || q.ByCustomer() || !usage.RollsUp(m.Aggregation) {
		return 0, false, nil
	}
	hint := store.RowHint{From: q.From, To: q.To, Events: true}
	if err := v.resident.Horizon.Missing(0, hint, v.hasLeft); err != nil {
		return 0, false, err
	}
	if v.frozen {
		return v.head.Seq, true, v.savedHours(v.from, q, nil, fn)
	}
	from, to := q.Days()
	var snapshot *state.Snapshot
	live := map[calendar.Day]*usage.Day{}
	err = v.settled(func() error {
		// Days that are not in memory are in the state, and in this version of it.
		snapshot = v.e.state.Snapshot()
		upTo = v.b.seq
		v.b.days.between(q.Meter, from, to, func(on calendar.Day, d *day) { live[on] = d.Clone() })
		return nil
	})
	if snapshot != nil {
		defer func() { _ = snapshot.Close() }() // was only read
	}
	if err != nil {
		return 0, false, err
	}
	now := v.b.published.Load() // rows that came meanwhile may name meters that came meanwhile
	v.head, v.resident = now.head, now.resident
	return upTo, true, v.savedHours(&snapshot.Reader, q, live, fn)
}

// between calls fn for the days of a meter that are in memory.
func (bd *bookDays) between(meter uint32, from, to calendar.Day, fn func(calendar.Day, *day)) {
	if int(to-from) > len(bd.all) {
		for id, d := range bd.all {
			if id.meter == meter && id.day >= from && id.day <= to {
				fn(id.day, d)
			}
		}
		return
	}
	for on := from; on <= to; on++ {
		if d := bd.all[dayID{meter, on}]; d != nil {
			fn(on, d)
		}
	}
}

// savedHours calls fn for the hours of days that are live, and of those that only the state has.
func (v *view) savedHours(from *state.Reader, q store.HourQuery, live map[calendar.Day]*usage.Day,
	fn func(*store.Hour) error) error {
	first, last := q.Days()
	err := from.Days(v.b.number, q.Meter, first, last, func(on calendar.Day, d *usage.Day) error {
		if live[on] != nil {
			return nil
		}
		return q.Each("", on, d, fn)
	})
	for on, d := range live {
		if err == nil {
			err = q.Each("", on, d, fn)
		}
	}
	return err
}
