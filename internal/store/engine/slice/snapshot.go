package slice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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

// snapshot makes one of the manifest, with the files of the one before as far as they are still there. editMu is held,
// or the set is not shared yet.
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

// discard removes a file that no manifest names and nobody reads. What cannot be removed now is removed by the next
// start.
func (s *Set) discard(f *file) {
	s.cache.drop(f)
	_ = s.fs.Remove(f.path)
	_ = s.fs.Remove(sumsName(f.path))
}

// Missed is what could not be read of a file: its month's rows of a span of the journal, but for those that were
// handed on before.
type Missed struct {
	Hole
	Err  error
	some bool
	last rowPlace
}

// rowPlace is a row's place among those of a query, in the order of the files.
type rowPlace struct {
	customer string
	time     calendar.Micros
	seq      uint64
}

// Has reports whether a row is among what was missed.
func (m *Missed) Has(customer string, t calendar.Micros, seq uint64) bool {
	last := &m.last
	return !m.some ||
		cmp.Or(cmp.Compare(customer, last.customer), cmp.Compare(t, last.time), cmp.Compare(seq, last.seq)) > 0
}

// Read calls fn for the usage that the query names and the files hold, piece by piece. What it could not read of them
// it returns, for the caller to look up in the journal. Errors are those of fn.
func (n *Snapshot) Read(q Query, fn func(*store.Slice) error) (missed []Missed, err error) {
	if q.From >= q.To {
		return nil, nil
	}
	first, last := calendar.MonthOf(max(q.From, calendar.MinMicros)), calendar.MonthOf(min(q.To-1, calendar.MaxMicros))
	var failed error
	r := reader{query: q}
	for _, f := range n.files {
		if f.Month < first || f.Month > last {
			continue
		}
		m := Missed{Hole: Hole{Month: f.Month, Span: f.Span}}
		r.emit = func(s *store.Slice) error {
			failed = fn(s)
			m.some, m.last = true, rowPlace{strings.Clone(s.Customer), s.Time[s.Len()-1], s.Seq[s.Len()-1]}
			return failed
		}
		if m.Err = n.set.cache.use(f, r.file); failed != nil {
			return missed, failed
		}
		if m.Err != nil {
			missed = append(missed, m)
		}
	}
	return missed, nil
}

// Part is a file as the journal should give it: the rows of one month of one span.
type Part struct {
	Hole
	Digest Digest
	file   *file
}

// Parts lists the files.
func (n *Snapshot) Parts() []Part {
	out := make([]Part, len(n.files))
	for i, f := range n.files {
		out[i] = Part{Hole: Hole{f.Month, f.Span}, Digest: Digest{Rows: f.Rows, Sum: f.fileMeta.Digest}, file: f}
	}
	return out
}

// Verify reads every block of a file against its sum. want is what the journal gives. It ends when reached returns an
// error.
func (n *Snapshot) Verify(p *Part, want Digest, reached func(bytes int64) error) error {
	if p.Digest != want {
		reason := fmt.Sprintf("holds %d rows, the journal gives %d or others", p.Digest.Rows, want.Rows)
		return &Damage{File: p.file.path, Reason: reason}
	}
	return n.set.cache.use(p.file, func(h *handle) error { return h.checked.verify(reached) })
}

// Bytes is the length of all files.
func (n *Snapshot) Bytes() (total int64) {
	for _, f := range n.files {
		total += f.Bytes
	}
	return total
}
