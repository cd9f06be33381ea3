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
}

// All yields the windows of groups in which any fact counts, by window, then group.
func (w *Windows) All() iter.Seq[Window] {
	order := w.cells.sorted(w.ranks(), len(w.grid.Cuts)-1)
	return func(yield func(Window) bool) {
		for _, i := range order {
			c := w.cells.get(i)
			out := Window{From: w.grid.Cuts[c.window], To: w.grid.Cuts[c.window+1], Group: w.groups.labels[c.group], Value: c.result(w.grid.Aggregation)}
			if !yield(out) {
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
