package windows

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// toFill finds the groups whose empty windows are wanted, nil when none are. A page knows its own windows only, so that
// the groups of the whole range are looked for first, in one window and by counting, which needs neither values nor
// members.
func (f *fold) toFill() ([][]usage.Label, error) {
	if !f.query.Fill {
		return nil, nil
	}
	var w *usage.Windows
	if len(f.query.GroupBy) > 0 {
		var err error
		if w, err = f.windows([]calendar.Micros{f.cuts[0], f.cuts[len(f.cuts)-1]}, meter.Count); err != nil {
			return nil, err
		}
	}
	groups := f.filled(w)
	return groups, f.fits(groups)
}

// filled lists the groups of a fold of the whole range. What is not grouped is one group, also when there is no usage
// at all: a chart of nothing is a line of zeros.
func (f *fold) filled(w *usage.Windows) [][]usage.Label {
	if len(f.query.GroupBy) == 0 {
		return [][]usage.Label{{}}
	}
	return w.Groups()
}

// fits bounds a filled answer as a whole, also one that comes in pages: beyond it most of what is given would be zeros.
func (f *fold) fits(groups [][]usage.Label) error {
	if windows := len(f.cuts) - 1; len(groups) > f.cells/windows {
		return fmt.Errorf("%w: fill=zero gives %d windows of %d groups, more than %d", usage.ErrTooMany, windows,
			len(groups), f.cells)
	}
	return nil
}
