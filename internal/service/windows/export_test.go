package windows

import "github.com/tallystick/tallystick/internal/store"

// NewBounded is a service whose answers have at most so many windows of groups.
func NewBounded(s store.Store, cells int) *Service {
	w := New(s)
	w.maxCells = cells
	return w
}
