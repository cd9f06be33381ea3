package slice

import "github.com/tallystick/tallystick/internal/core/calendar"

// Forget makes holes of the files of some months, because rows of them are about to leave the journal. It belongs to
// the goroutine that adds and merges, or excludes it; what fills the holes again must begin when the rows have left.
func (s *Set) Forget(months map[calendar.Month]bool) error {
	return s.edit(func(m *manifest) error {
		kept := m.Files[:0]
		for _, f := range m.Files {
			if months[f.Month] {
				m.Holes = append(m.Holes, Hole{Month: f.Month, Span: f.Span})
				continue
			}
			kept = append(kept, f)
		}
		m.Files = kept
		return nil
	})
}
