package engine

import (
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store"
)

// Slice implements store.View.
func (v *view) Slice(q store.SliceQuery, fn func(*store.Slice) error) error {
	if v.config.catalog.Number(q.Meter) == nil {
		return problem.New(problem.NotFound, "no meter of that number")
	}
	return store.ScanSlice(v, q, fn)
}
