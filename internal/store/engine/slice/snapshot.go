package slice

import (
	"slices"
	"sync/atomic"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// Snapshot is the slices at one moment. Its files stay until it is released.
type Snapshot struct {
	Covered journal.Position
	Holes   []Hole
	files   []*file

	set  *Set
	refs atomic.Int64 // the set's own while it is the current one, and its readers'
}

// Query names usage as the files know it.
type Query struct {
	Tenant, Meter string
	Customer      string          // "": every customer
	From, To      calendar.Micros // half open
	UpTo          uint64
	Wants         store.Columns
}

// snapshot makes one of the manifest, with the files of the one before as far as they are still there. editMu is held, or the
// set is not shared yet.
func (s *Set) snapshot(before *Snapshot) *Snapshot {
	known := map[uint64]*file{}
	if before != nil {
		for _, f := range before.files {
			known[f.Number] = f
		}
	}
	n := &Snapshot{set: s, Covered: s.manifest.Covered, Holes: slices.Clone(s.manifest.Holes)}
	n.refs.Store(1)
	for _, meta := range s.manifest.Files {
		f := known[meta.Number]
		if f == nil {
			f = &file{fileMeta: meta, set: s, path: s.path(meta.Number)}
		}
		f.refs.Add(1)
		n.files = append(n.files, f)
	}
	return n
}

// replace makes a snapshot the current one.
func (s *Set) replace(n *Snapshot) {
	s.mu.Lock()
	old := s.current
	s.current = n
	s.mu.Unlock()
	old.Release()
}

func (s *Set) peek() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// Acquire returns the current snapshot, which the caller releases.
func (s *Set) Acquire() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.refs.Add(1)
	return s.current
}

// Release gives the snapshot back. The files that nothing uses any more are removed.
func (n *Snapshot) Release() {
	if n.refs.Add(-1) > 0 {
		return
	}
	for _, f := range n.files {
		if f.refs.Add(-1) == 0 {
			n.set.discard(f)
		}
	}
}

// discard removes a file that no manifest names and nobody reads. What cannot be removed now is removed by the next start.
func (s *Set) discard(f *file) {
	s.cache.drop(f)
	_ = s.fs.Remove(f.path)
	_ = s.fs.Remove(sumsName(f.path))
}

// Read calls fn for the usage that the query names and the files hold, piece by piece.
func (n *Snapshot) Read(q Query, fn func(*store.Slice) error) error {
	if q.From >= q.To {
		return nil
	}
	first, last := calendar.MonthOf(max(q.From, calendar.MinMicros)), calendar.MonthOf(min(q.To-1, calendar.MaxMicros))
	r := reader{query: q, emit: fn}
	for _, f := range n.files {
		if f.Month < first || f.Month > last {
			continue
		}
		if err := n.set.cache.use(f, r.file); err != nil {
			return err
		}
	}
	return nil
}

// Digests adds up the digests of the files of each month.
func (n *Snapshot) Digests() map[calendar.Month]Digest {
	out := map[calendar.Month]Digest{}
	for _, f := range n.files {
		d := out[f.Month]
		out[f.Month] = Digest{Rows: d.Rows + f.Rows, Sum: d.Sum + f.Digest}
	}
	return out
}

// Verify reads every block of every file against its sum, and ends when told so.
func (n *Snapshot) Verify(tell func(bytes int64) error) error {
	for _, f := range n.files {
		if err := n.set.cache.use(f, func(h *handle) error { return h.checked.verify(tell) }); err != nil {
			return err
		}
	}
	return nil
}

// Bytes is the length of all files.
func (n *Snapshot) Bytes() (total int64) {
	for _, f := range n.files {
		total += f.Bytes
	}
	return total
}
