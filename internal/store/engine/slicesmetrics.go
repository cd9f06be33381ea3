package engine

import "github.com/tallystick/tallystick/internal/store/engine/slice"

// slices shows how the sorted files stand.
func (m *metrics) slices(s *slicer) {
	for _, g := range [...]struct {
		name, help string
		value      func(slice.Stats) float64
	}{
		{"slices_files", "Files of sorted usage.", func(t slice.Stats) float64 { return float64(t.Files) }},
		{"slices_rows", "Rows in files of sorted usage.", func(t slice.Stats) float64 { return float64(t.Rows) }},
		{"slices_bytes", "Bytes of files of sorted usage.", func(t slice.Stats) float64 { return float64(t.Bytes) }},
		{"slices_merges", "Merges of files of sorted usage since the start.", func(t slice.Stats) float64 {
			return float64(t.Merges)
		}},
		{"slices_holes", "Files of sorted usage that were lost and are not made again yet.",
			func(t slice.Stats) float64 {
				return float64(t.Holes)
			}},
		{"slices_damaged", "Files of sorted usage that were found damaged since the start.",
			func(t slice.Stats) float64 {
				return float64(t.Damaged)
			}},
	} {
		m.gaugeFunc(g.name, g.help, func() float64 { return g.value(s.set.Stats()) })
	}
	m.gaugeFunc("slices_behind_bytes", "Bytes of the journal that are in no file of sorted usage yet.", func() float64 {
		return float64(s.behind())
	})
	m.gaugeFunc("slices_trouble", "1 when the last try to sort usage into files failed.", func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.trouble != nil {
			return 1
		}
		return 0
	})
}
