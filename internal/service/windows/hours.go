package windows

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Bounds of what is answered from hours. Beyond them rows are folded, which gives the same.
const (
	maxHours = 1_000_000 // that are held at once
	maxScans = 4         // ranges whose rows are folded beside them: each may read as much as all of them at once
)

// span is a range of time, half open.
type span struct{ from, to calendar.Micros }

// plan says where an answer comes from: hours that the store has added up, and the rows of what is left of the range.
type plan struct {
	hours []store.Hour
	rows  []span // in order
}

var errTooManyHours = errors.New("more hours than are held at once")

// plan splits the range. The hours of it stand for the ledger at f.seq, as the rows do.
func (f *fold) plan(fixed bool) (plan, error) {
	all := span{f.cuts[0], f.cuts[len(f.cuts)-1]}
	scan := plan{rows: []span{all}}
	inner, ok := f.wholeHours()
	if !ok {
		return scan, nil
	}
	q := store.HourQuery{Meter: f.meter.Number, Customer: f.query.Customer, EachCustomer: len(f.query.GroupBy) > 0,
		From: inner.from, To: inner.to}
	var out plan
	lost := map[calendar.Micros]bool{}
	upTo, kept, err := f.view.Hours(q, func(h *store.Hour) error {
		if h.Lost {
			lost[h.Begin] = true
		}
		if len(out.hours) == maxHours {
			return errTooManyHours
		}
		out.hours = append(out.hours, *h)
		return f.ctx.Err()
	})
	switch {
	case errors.Is(err, errTooManyHours):
		return scan, nil
	case err != nil:
		return scan, fmt.Errorf("read hours of meter %s: %w", f.meter.Slug, err)
	case !kept || upTo < f.seq || fixed && upTo != f.seq:
		return scan, nil
	}
	out.rows = uncovered(all, inner, lost)
	if len(out.rows) > maxScans {
		return scan, nil
	}
	out.hours = slices.DeleteFunc(out.hours, func(h store.Hour) bool { return lost[h.Begin] })
	f.seq = upTo
	return out, nil
}

// wholeHours is the part of the range that hours of UTC cover exactly, if every window takes them whole and hours know
// enough to answer.
func (f *fold) wholeHours() (inner span, ok bool) {
	q := f.query
	if !usage.RollsUp(f.meter.Aggregation) || len(q.Where) > 0 || len(q.GroupBy) > 1 ||
		len(q.GroupBy) == 1 && q.GroupBy[0].Of != usage.ByCustomer {
		return inner, false
	}
	for _, cut := range f.cuts[1 : len(f.cuts)-1] {
		if !cut.WholeHour() {
			return inner, false
		}
	}
	inner = span{f.cuts[0], f.cuts[len(f.cuts)-1]}
	if !inner.from.WholeHour() {
		inner.from = beginOfHour(inner.from).Add(time.Hour)
	}
	inner.to = beginOfHour(inner.to)
	return inner, inner.from < inner.to
}

func beginOfHour(t calendar.Micros) calendar.Micros {
	d, hour := calendar.DayOf(t)
	return d.Hour(hour)
}

// uncovered are the parts of a range that the hours of the inner one do not give.
func uncovered(all, inner span, lost map[calendar.Micros]bool) []span {
	out := []span{{all.from, inner.from}, {inner.to, all.to}}
	for begin := range lost {
		out = append(out, span{begin, begin.Add(time.Hour)})
	}
	out = slices.DeleteFunc(out, func(s span) bool { return s.from >= s.to })
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	merged := out[:0]
	for _, s := range out {
		if n := len(merged); n > 0 && merged[n-1].to == s.from {
			merged[n-1].to = s.to
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// within is the part of the plan that lies in a range.
func (p *plan) within(s span) plan {
	var out plan
	for _, h := range p.hours {
		if h.Begin >= s.from && h.Begin < s.to {
			out.hours = append(out.hours, h)
		}
	}
	for _, r := range p.rows {
		if r.from, r.to = max(r.from, s.from), min(r.to, s.to); r.from < r.to {
			out.rows = append(out.rows, r)
		}
	}
	return out
}
