package usage

import (
	"iter"
	"slices"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
)

// Window is what one group used in one window.
type Window struct {
	From, To calendar.Micros
	Group    []Label // in the order of the grid's dimensions; shared, not to be changed
	Value    amount.Amount
	Empty    bool // no fact counts
}

// None reports whether the window has no value: no facts add up to zero, but have no minimum and no average.
func (w *Window) None(a meter.Aggregation) bool {
	return w.Empty && a != meter.Sum && a != meter.Count && a != meter.Unique
}

// All yields the windows of groups in which any fact counts, by window, then group.
func (w *Windows) All() iter.Seq[Window] {
	order := w.cells.sorted(w.ranks(), len(w.grid.Cuts)-1)
	return func(yield func(Window) bool) {
		for _, i := range order {
			c := w.cells.get(i)
			out := Window{From: w.grid.Cuts[c.window], To: w.grid.Cuts[c.window+1], Group: w.groups.labels[c.group],
				Value: c.result(w.grid.Aggregation)}
			if !yield(out) {
				return
			}
		}
	}
}

// Groups lists the groups in which any fact counts, in the order of All.
func (w *Windows) Groups() [][]Label {
	counts := make([]bool, len(w.groups.labels))
	for i := range uint32(w.cells.n) {
		if c := w.cells.get(i); c.count > 0 {
			counts[c.group] = true
		}
	}
	out := [][]Label{}
	for group, some := range counts {
		if some {
			out = append(out, w.groups.labels[group])
		}
	}
	slices.SortFunc(out, compareLabels)
	return out
}

// Filled yields every window of every one of the groups, in the order of All, which yields no other: those in which no
// fact counts are empty.
func (w *Windows) Filled(groups [][]Label) iter.Seq[Window] {
	all, n := w.All(), (len(w.grid.Cuts)-1)*len(groups)
	empty := func(i int) Window {
		window := i / len(groups)
		return Window{From: w.grid.Cuts[window], To: w.grid.Cuts[window+1], Group: groups[i%len(groups)], Empty: true}
	}
	return func(yield func(Window) bool) {
		i := 0
		for some := range all {
			for ; some.From != w.grid.Cuts[i/len(groups)] ||
				compareLabels(some.Group, groups[i%len(groups)]) != 0; i++ {
				if !yield(empty(i)) {
					return
				}
			}
			if i++; !yield(some) {
				return
			}
		}
		for ; i < n; i++ {
			if !yield(empty(i)) {
				return
			}
		}
	}
}

// ranks says of each group how many come before it.
func (w *Windows) ranks() []uint32 {
	order := make([]uint32, len(w.groups.labels))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return compareLabels(w.groups.labels[a], w.groups.labels[b]) })
	ranks := make([]uint32, len(order))
	for rank, group := range order {
		ranks[group] = uint32(rank)
	}
	return ranks
}

func (c *cell) result(a meter.Aggregation) amount.Amount {
	switch a {
	case meter.Count:
		return amount.FromInt(c.count)
	case meter.Avg:
		return c.value.DivInt(c.count)
	}
	return c.value
}
