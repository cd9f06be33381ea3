package tree

import "github.com/tallystick/tallystick/internal/core/sha256lanes"

// Use makes a hasher use a kernel that need not be the fastest.
func (h *Hasher) Use(kernel sha256lanes.Kernel) { h.lanes = *sha256lanes.New(kernel) }

// Use makes an appender use a kernel that need not be the fastest.
func (a *Appender) Use(kernel sha256lanes.Kernel) {
	a.levels = &levels{lanes: *sha256lanes.New(kernel)}
}
