package usage

import (
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
)

// Hour is what was used of a meter in one hour: the fold of all rows of that hour, on time or not, each fact with what
// its corrections left of it. It is kept beside the rows so that a chart need not fold them.
type Hour struct {
	Count int64 // facts that count
	// Value is their sum, minimum, maximum or last, as the meter's aggregation is; zero for one that counts.
	Value amount.Amount
	At    int64   // of a minimum or a maximum: facts that have it
	last  *latest // of the last: where it stands
	// Lost says that only the rows know: a correction took the extreme or the last fact away, or the sum does not fit.
	// Nothing else of the hour is of use then.
	Lost bool
}

// Day is what was used of a meter in the hours of one day, by one customer or by all of them. Its zero value is empty.
type Day struct {
	place [calendar.HoursPerDay]uint8 // of an hour in hours, one up; zero: nothing was used
	hours []Hour
}

// RollsUp reports whether what a meter folds can be added up by the hour. Distinct members cannot: one may be in many
// hours, and is one member of the day.
func RollsUp(a meter.Aggregation) bool { return a != meter.Unique }

// dayOf finds the hours that a meter adds a moment's facts up in; nil: there are none.
func dayOf(st State, m *meter.Meter, t calendar.Micros) (*Day, error) {
	if !RollsUp(m.Aggregation) {
		return nil, nil
	}
	d, _ := calendar.DayOf(t)
	return st.Day(m.Number, d)
}

// Hour returns an hour of the day, nil when nothing was ever used in it.
func (d *Day) Hour(i int) *Hour {
	if d.place[i] == 0 {
		return nil
	}
	return &d.hours[d.place[i]-1]
}

// ensure returns an hour of the day, new if there was none.
func (d *Day) ensure(i int) *Hour {
	if d.place[i] == 0 {
		d.hours = append(d.hours, Hour{})
		d.place[i] = uint8(len(d.hours))
	}
	return &d.hours[d.place[i]-1]
}

// Clone gives the day memory of its own.
func (d *Day) Clone() *Day {
	c := &Day{place: d.place, hours: slices.Clone(d.hours)}
	for i := range c.hours {
		if last := c.hours[i].last; last != nil {
			own := *last
			c.hours[i].last = &own
		}
	}
	return c
}

// Add takes a fact into the day, which is that of its time. Only a meter that keeps the last fact looks at the key.
func (d *Day) Add(a meter.Aggregation, v amount.Amount, t calendar.Micros, k Key) {
	if h := d.at(t); !h.Lost {
		h.add(a, v, t, k)
	}
}

// Correct takes a correction into the day: o is its outcome, done what corrections did before to the fact, whose time
// and key these are.
func (d *Day) Correct(a meter.Aggregation, o *Outcome, done Corrected, t calendar.Micros, target Key) {
	h := d.at(t)
	if h.Lost {
		return
	}
	from, to := done.all(o.Base), done.with(o).all(o.Base)
	if from.Counts {
		h.take(a, from.Quantity, to, t, target)
	}
	if to.Counts && !h.Lost {
		h.add(a, to.Quantity, t, target)
	}
}

func (d *Day) at(t calendar.Micros) *Hour {
	_, i := calendar.DayOf(t)
	return d.ensure(i)
}

// add folds one fact.
func (h *Hour) add(a meter.Aggregation, v amount.Amount, t calendar.Micros, k Key) {
	h.Count++
	switch a {
	case meter.Sum, meter.Avg:
		var ok bool
		if h.Value, ok = h.Value.Add(v); !ok {
			h.lose()
		}
	case meter.Min, meter.Max:
		switch c := h.compare(a, v); {
		case h.Count == 1 || c > 0:
			h.Value, h.At = v, 1
		case c == 0:
			h.At++
		}
	case meter.Last:
		if h.last == nil {
			h.last = &latest{}
		}
		if h.Count == 1 || later(t, k, h.last.time, h.last.key) {
			h.Value, *h.last = v, latest{t, Key{k.Space, strings.Clone(k.Name)}}
		}
	}
}

// compare says how much more extreme a value is than what the hour has.
func (h *Hour) compare(a meter.Aggregation, v amount.Amount) int {
	if a == meter.Min {
		return -v.Cmp(h.Value)
	}
	return v.Cmp(h.Value)
}

func (h *Hour) lose() { *h = Hour{Lost: true} }

// take takes one fact out, in whose place comes another.
func (h *Hour) take(a meter.Aggregation, v amount.Amount, next Effective, t calendar.Micros, k Key) {
	if h.Count--; h.Count == 0 {
		*h = Hour{}
		return
	}
	switch a {
	case meter.Sum, meter.Avg:
		var ok bool
		if h.Value, ok = h.Value.Sub(v); !ok {
			h.lose()
		}
	case meter.Min, meter.Max:
		if v != h.Value {
			return
		}
		// What comes in its place may be as extreme, or more so: the next one is then not needed.
		if h.At--; h.At == 0 && (!next.Counts || h.compare(a, next.Quantity) < 0) {
			h.lose()
		}
	case meter.Last:
		if t != h.last.time || k != h.last.key {
			return
		}
		// The same fact comes back with another quantity, or what was last before it is not known.
		if h.Value = next.Quantity; !next.Counts {
			h.lose()
		}
	}
}
