package slice

import (
	"errors"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// What is damaged is set aside: moved into a folder of its own, where it is read no more and a person can look at it.
// In its place the manifest gets a hole, before the file is moved. So damage is found once: the next start, and the
// next verification, find a hole, or the file that was made in its place.

const (
	asideDir = "damaged"
	// keepAside and keepAsideBytes bound what is kept, the newest files; one is always kept.
	keepAside      = 8
	keepAsideBytes = 1 << 30
)

// TakeDamage returns what was found damaged or lost since Open, or since the last call: each is reported once.
func (s *Set) TakeDamage() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.damage
	s.damage = nil
	return out
}

func (s *Set) note(err error) {
	s.found(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damaged++
	if s.damage = append(s.damage, err); len(s.damage) > maxDamage {
		s.damage = s.damage[1:]
	}
}

// maxDamage bounds what waits to be reported.
const maxDamage = 1000

// Report sets aside the file that a Damage names, so that it is read no more and made again. Other errors are no
// concern.
func (s *Set) Report(err error) {
	var d *Damage
	if !errors.As(err, &d) {
		return
	}
	s.editMu.Lock()
	defer s.editMu.Unlock()
	for _, f := range s.peek().files {
		if f.path == strings.TrimSuffix(d.File, sumsName("")) {
			s.lose(f, d)
			return
		}
	}
}

// lose makes a file a hole and sets it aside. When the manifest cannot be written the file stays where it is: the
// next start finds the damage again. editMu is held, or the set is not shared yet.
func (s *Set) lose(f *file, err error) {
	s.note(err)
	m := &s.manifest
	m.Files = slices.DeleteFunc(slices.Clone(m.Files), func(x fileMeta) bool { return x.Number == f.Number })
	m.Holes = append(slices.Clone(m.Holes), Hole{Month: f.Month, Span: f.Span})
	if _, err := writeManifest(s.fs, s.dir, m); err != nil {
		s.stale = true
		f.refs.Add(1) // for good: it must not be removed
	} else {
		s.stale = false
		s.setAside(fileName(f.Number), sumsName(fileName(f.Number)))
	}
	s.replace(s.snapshot(s.peek()))
}

// setAside moves files into the folder. What cannot be moved is removed by the next start, since no manifest names it.
func (s *Set) setAside(names ...string) {
	dir := s.fs.PathJoin(s.dir, asideDir)
	if err := s.fs.MkdirAll(dir, 0o700); err != nil {
		return
	}
	for _, name := range names {
		_ = s.fs.Rename(s.fs.PathJoin(s.dir, name), s.fs.PathJoin(dir, name))
	}
	s.boundAside(dir)
}

// boundAside removes the oldest files that were set aside when there are too many.
func (s *Set) boundAside(dir string) {
	names, err := s.fs.List(dir)
	if err != nil {
		return
	}
	slices.Sort(names) // numbers rise
	kept, size := 0, int64(0)
	for _, name := range slices.Backward(names) {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		path := s.fs.PathJoin(dir, name)
		info, err := s.fs.Stat(path)
		if err != nil {
			continue
		}
		kept, size = kept+1, size+info.Size()
		if kept > 1 && (kept > keepAside || size > keepAsideBytes) {
			_ = s.fs.Remove(path)
			_ = s.fs.Remove(sumsName(path))
		}
	}
}

// same reports whether two manifests name the same; numbers may have been handed out since one was written.
func (m *manifest) same(other *manifest) bool {
	return m.StoreID == other.StoreID && m.Covered == other.Covered &&
		slices.Equal(m.Holes, other.Holes) && slices.Equal(m.Files, other.Files)
}

// VerifyManifest reads the manifest again, which nobody does between two starts. One that is not what was written is
// set aside and written anew.
func (s *Set) VerifyManifest() error {
	s.editMu.Lock()
	defer s.editMu.Unlock()
	path, own := s.fs.PathJoin(s.dir, manifestName), &s.manifest
	m, err := readManifest(s.fs, path)
	var damage *Damage
	switch {
	case isMissing(err) && own.Covered == (journal.Position{}), s.stale:
		return nil // none was written yet, or not the last one
	case isMissing(err):
		damage = &Damage{File: path, Reason: "is missing"}
	case errors.As(err, &damage):
	case err != nil:
		return err
	case m.same(own):
		return nil
	default:
		damage = &Damage{File: path, Reason: "is not the manifest in use"}
	}
	s.note(damage)
	s.setAside(manifestName)
	_, err = writeManifest(s.fs, s.dir, own)
	return err
}
