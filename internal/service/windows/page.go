package windows

import (
	"errors"
	"sort"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// page gathers one page. Windows are independent of one another, so that it need not fold the whole range: it begins
// with one window and takes twice as many each time, until the page is full.
func (f *fold) page(from *Place, limit int) (items []usage.Window, next *Place, err error) {
	first, skip := 0, uint64(0)
	if from != nil {
		skip = from.Given
		first = sort.Search(len(f.cuts)-1, func(i int) bool { return f.cuts[i] >= from.From })
		if first == len(f.cuts)-1 || f.cuts[first] != from.From {
			return nil, nil, problem.At("cursor", "does not lead to a window of this range")
		}
	}
	groups, err := f.toFill()
	if err != nil {
		return nil, nil, err
	}
	for n := 1; first < len(f.cuts)-1; {
		to := min(first+n, len(f.cuts)-1)
		w, err := f.windows(f.cuts[first:to+1], f.meter.Aggregation)
		if errors.Is(err, usage.ErrTooMany) && n > 1 {
			n = 1
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		all := w.All()
		if f.query.Fill {
			all = w.Filled(groups)
		}
		for x := range all {
			if skip > 0 {
				skip--
				continue
			}
			if len(items) == limit {
				return items, f.after(items, from), nil
			}
			items = append(items, x)
		}
		first, skip, n = to, 0, 2*n
	}
	return items, nil, nil
}

// after is the place behind the last item.
func (f *fold) after(items []usage.Window, from *Place) *Place {
	last := items[len(items)-1].From
	p := &Place{Seq: f.seq, From: last}
	for i := len(items) - 1; i >= 0 && items[i].From == last; i-- {
		p.Given++
	}
	if from != nil && from.From == last {
		p.Given += from.Given
	}
	return p
}
