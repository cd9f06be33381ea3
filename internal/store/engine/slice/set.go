package slice

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// Options of a Set.
type Options struct {
	// FS holds the files. Required.
	FS vfs.FS
	// Dir is the directory of slices alone. It is made when absent. Required.
	Dir string
	// StoreID is in the manifest. Slices of another store are dropped.
	StoreID [16]byte
	// Damaged is called with what is found damaged or lost, once for each. Default: nothing is.
	Damaged func(error)

	shape shape
}

// Set is the slices of a store. Add, Fill and Merge belong to one goroutine; everything else may be called from any.
type Set struct {
	fs    vfs.FS
	dir   string
	shape shape
	cache handles
	found func(error) // damage, for the log

	// editMu is held while the manifest is replaced, and guards it.
	editMu   sync.Mutex
	manifest manifest
	stale    bool // the one on disk is older: it could not be replaced when a file was lost

	mu      sync.Mutex // guards what follows
	current *Snapshot
	damaged int64   // files found so since Open
	damage  []error // likewise, that TakeDamage has not returned yet
	merges  int64
	closed  bool
}

const suffix = ".parquet"

func fileName(number uint64) string { return fmt.Sprintf("%012d%s", number, suffix) }

// Open opens the slices of a directory. Files that are missing or do not fit become holes; a manifest that cannot be
// read takes all of them with it. What is damaged is set aside, and TakeDamage returns it. Errors: *VersionError, or
// a failure of the file system.
func Open(o Options) (*Set, error) {
	if err := o.FS.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of slices: %w", err)
	}
	if o.shape == (shape{}) {
		o.shape = defaultShape
	}
	if o.Damaged == nil {
		o.Damaged = func(error) {}
	}
	s := &Set{fs: o.FS, dir: o.Dir, shape: o.shape, found: o.Damaged}
	m, err := readManifest(o.FS, o.FS.PathJoin(o.Dir, manifestName))
	var damage *Damage
	switch {
	case isMissing(err):
		m = manifest{}
	case errors.As(err, &damage):
		s.note(err)
		s.setAside(manifestName)
		m = manifest{}
	case err != nil:
		return nil, err
	case m.StoreID != o.StoreID:
		s.note(&Damage{File: o.FS.PathJoin(o.Dir, manifestName), Reason: "belongs to another store"})
		s.setAside(manifestName)
		m = manifest{}
	}
	m.StoreID = o.StoreID
	s.manifest = m
	if err := s.removeStrangers(); err != nil {
		return nil, err
	}
	s.current = s.snapshot(nil)
	for _, f := range s.current.files {
		if err := f.glance(); err != nil {
			s.lose(f, err)
		}
	}
	return s, nil
}

// removeStrangers removes the files that the manifest does not name.
func (s *Set) removeStrangers() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("list slices: %w", err)
	}
	known := map[string]bool{manifestName: true, asideDir: true}
	for _, f := range s.manifest.Files {
		known[fileName(f.Number)], known[sumsName(fileName(f.Number))] = true, true
	}
	for _, name := range names {
		number := uint64(0)
		if _, err := fmt.Sscanf(name, "%d.", &number); err == nil && strings.Contains(name, suffix) {
			s.manifest.Next = max(s.manifest.Next, number+1) // a manifest in doubt may have named it
		}
		if known[name] {
			continue
		}
		if err := s.fs.Remove(s.fs.PathJoin(s.dir, name)); err != nil {
			return fmt.Errorf("remove a slice that is not in use: %w", err)
		}
	}
	return nil
}

// edit replaces the manifest by what fn makes of a copy, and then the files that readers see.
func (s *Set) edit(fn func(m *manifest) error) error {
	s.editMu.Lock()
	defer s.editMu.Unlock()
	next := s.manifest
	next.Files, next.Holes = slices.Clone(next.Files), slices.Clone(next.Holes)
	if err := fn(&next); err != nil {
		return err
	}
	if err := next.check(s.dir); err != nil {
		return fmt.Errorf("a change of the slices is wrong: %w", err)
	}
	if inDoubt, err := writeManifest(s.fs, s.dir, &next); err != nil {
		if inDoubt {
			err = fmt.Errorf("%w: whether it took effect is unknown", err)
		}
		return err
	}
	s.manifest, s.stale = next, false
	s.replace(s.snapshot(s.peek()))
	return nil
}

// number hands out the number of a new file. None is ever given twice.
func (s *Set) number() uint64 {
	s.editMu.Lock()
	defer s.editMu.Unlock()
	n := s.manifest.Next
	s.manifest.Next++
	return n
}

// Covered is how far into the journal the slices reach, holes aside.
func (s *Set) Covered() journal.Position { return s.peek().Covered }

// Add writes a batch, whose rows are all those of the journal from Covered to a position, and covers that. It calls
// pace between pages and ends with ErrStopped when that returns false.
func (s *Set) Add(b *Batch, to journal.Position, pace func() bool) error {
	return s.write(b, Span{From: s.Covered(), To: to}, pace, func(m *manifest) error {
		m.Covered = to
		return nil
	})
}

// Fill writes a batch, whose rows are those of the hole's month from its beginning to a position, and shrinks the hole.
// It paces itself as Add does.
func (s *Set) Fill(b *Batch, h Hole, to journal.Position, pace func() bool) error {
	return s.write(b, Span{From: h.From, To: to}, pace, func(m *manifest) error {
		i := slices.Index(m.Holes, h)
		if i < 0 {
			return errors.New("the hole to be filled is gone")
		}
		if m.Holes[i].From = to; !to.Less(h.To) {
			m.Holes = slices.Delete(m.Holes, i, i+1)
		}
		return nil
	})
}

func (s *Set) write(b *Batch, span Span, pace func() bool, then func(*manifest) error) (err error) {
	var made []fileMeta
	defer func() {
		if err != nil {
			s.remove(made)
		}
	}()
	for _, m := range b.Sort() {
		meta := fileMeta{Number: s.number(), Month: m, Span: span}
		w, err := newWriter(s.fs, s.path(meta.Number), s.shape)
		if err != nil {
			return err
		}
		if err := b.Write(w, m, pace); err != nil {
			w.abandon()
			return err
		}
		if err := w.finish(&meta); err != nil {
			return err
		}
		meta.Tier = tierOf(meta.Rows)
		made = append(made, meta)
	}
	return s.edit(func(m *manifest) error {
		m.Files = append(m.Files, made...)
		return then(m)
	})
}

// remove takes files away that were never named.
func (s *Set) remove(files []fileMeta) {
	for _, f := range files {
		_ = s.fs.Remove(s.path(f.Number))
		_ = s.fs.Remove(sumsName(s.path(f.Number)))
	}
}

func (s *Set) path(number uint64) string { return s.fs.PathJoin(s.dir, fileName(number)) }

// Close releases the files. Readers under way come to their end.
func (s *Set) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.mu.Unlock()
	return s.cache.close()
}

// Stats shows an operator how the slices stand.
type Stats struct {
	Files   int
	Holes   int
	Rows    int64
	Bytes   int64
	Merges  int64 // since Open
	Damaged int64 // files found damaged since Open
	Covered journal.Position
}

// Stats counts what there is.
func (s *Set) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{
		Files: len(s.current.files), Holes: len(s.current.Holes), Merges: s.merges, Damaged: s.damaged,
		Covered: s.current.Covered,
	}
	for _, f := range s.current.files {
		out.Rows += f.Rows
		out.Bytes += f.Bytes
	}
	return out
}
