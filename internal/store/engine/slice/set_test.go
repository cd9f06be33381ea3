package slice

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/thorough"
)

// Given any journal, when it is sliced in any parts, merged, closed, opened and damaged in any order, then the slices
// answer any query with exactly the rows that they cover.
func TestSlicesAreTheJournal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewMem()
		w := &world{seqs: map[string]uint64{}}
		s := openTiny(t, fs)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				from := len(w.facts)
				for range rapid.IntRange(0, 40).Draw(t, "facts") {
					w.facts = append(w.facts, drawFact(t, w.seqs))
				}
				if from == len(w.facts) {
					return
				}
				if err := s.Add(w.batch(from, len(w.facts), nil), position(len(w.facts)), never); err != nil {
					t.Fatalf("add: %v", err)
				}
			},
			"merge": func(t *rapid.T) {
				if _, err := s.Merge(never); err != nil {
					t.Fatalf("merge: %v", err)
				}
			},
			"lose": func(t *rapid.T) {
				files := s.peek().files
				if len(files) == 0 {
					return
				}
				f := files[rapid.IntRange(0, len(files)-1).Draw(t, "file")]
				s.Report(fmt.Errorf("somebody read: %w",
					&Damage{File: f.path + rapid.SampledFrom([]string{"", ".sums"}).Draw(t, "which")}))
			},
			"fill": func(t *rapid.T) { w.fill(t, s) },
			"restart": func(t *rapid.T) {
				holes := s.Stats().Holes
				if err := s.Close(); err != nil {
					t.Fatalf("close: %v", err)
				}
				s = openTiny(t, fs)
				if got := s.Stats().Holes; got != holes {
					t.Fatalf("%d holes after a restart, %d before", got, holes)
				}
			},
			"": func(t *rapid.T) { w.agree(t, s) },
		})
		for s.Stats().Holes > 0 {
			w.fill(t, s)
		}
		w.agree(t, s)
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	})
}

// fill fills a part of a hole.
func (w *world) fill(t *rapid.T, s *Set) {
	n := s.Acquire()
	defer n.Release()
	if len(n.Holes) == 0 {
		return
	}
	h := n.Holes[0]
	to := rapid.IntRange(int(h.From.Offset)+1, int(h.To.Offset)).Draw(t, "filled up to")
	if err := s.Fill(w.batch(int(h.From.Offset), to, &h.Month), h, position(to), never); err != nil {
		t.Fatalf("fill: %v", err)
	}
}

// grown is a set of many facts in many files.
func grown(t *testing.T, fs vfs.FS, parts int) (*world, *Set) {
	t.Helper()
	return grownBy(t, fs, parts, 20)
}

func grownBy(t *testing.T, fs vfs.FS, parts, size int) (*world, *Set) {
	t.Helper()
	w := &world{seqs: map[string]uint64{}}
	s := openTiny(t, fs)
	draw := rapid.Custom(func(t *rapid.T) fact { return drawFact(t, w.seqs) })
	for range parts {
		from := len(w.facts)
		for range size {
			w.facts = append(w.facts, draw.Example(len(w.facts)))
		}
		if err := s.Add(w.batch(from, len(w.facts), nil), position(len(w.facts)), never); err != nil {
			t.Fatal(err)
		}
	}
	return w, s
}

func all(w *world) Query {
	return Query{Tenant: "tenant-1", Meter: "meter-1", To: calendar.MaxMicros, UpTo: uint64(len(w.facts)), Wants: 15}
}

func TestMergingBoundsTheFilesOfAMonth(t *testing.T) {
	w, s := grown(t, vfs.NewMem(), 40)
	defer mustClose(t, s)
	for {
		did, err := s.Merge(never)
		if err != nil {
			t.Fatal(err)
		}
		if !did {
			break
		}
	}
	if files := s.Stats().Files; files > len(months)*3*fanout {
		t.Errorf("%d files of %d months after merging all", files, len(months))
	}
	n := s.Acquire()
	defer n.Release()
	got, err := read(n, all(w))
	if err != nil {
		t.Fatal(err)
	}
	if want := w.scan(t, all(w), covered(n)); !slices.Equal(got, want) {
		t.Errorf("after merging, %d rows, want %d", len(got), len(want))
	}
}

// A reader goes on with the files that it began with, and they go when it is done.
func TestReadersKeepTheirFiles(t *testing.T) {
	fs := vfs.NewMem()
	w, s := grown(t, fs, fanout)
	defer mustClose(t, s)
	n := s.Acquire()
	for did := true; did; {
		var err error
		if did, err = s.Merge(never); err != nil {
			t.Fatal(err)
		}
	}
	got, err := read(n, all(w))
	if want := w.scan(t, all(w), covered(n)); err != nil || !slices.Equal(got, want) {
		t.Errorf("a reader of merged files saw %d rows, want %d (%v)", len(got), len(want), err)
	}
	before := countFiles(t, fs)
	n.Release()
	if after := countFiles(t, fs); after >= before || after != 2*s.Stats().Files {
		t.Errorf("%d files with the reader, %d without, %d in use", before, after, s.Stats().Files)
	}
}

func countFiles(t *testing.T, fs vfs.FS) (n int) {
	t.Helper()
	names, err := fs.List("slices")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.Contains(name, suffix) {
			n++
		}
	}
	return n
}

func TestStoppedWorkLeavesNothing(t *testing.T) {
	fs := vfs.NewMem()
	w, s := grown(t, fs, fanout)
	defer mustClose(t, s)
	before := countFiles(t, fs)
	if _, err := s.Merge(func() bool { return false }); !errors.Is(err, ErrStopped) {
		t.Errorf("a merge that was stopped returned %v", err)
	}
	to := position(len(w.facts) + 5)
	if err := s.Add(w.batch(0, 20, nil), to, func() bool { return false }); !errors.Is(err, ErrStopped) {
		t.Errorf("an addition that was stopped returned %v", err)
	}
	if after := countFiles(t, fs); after != before {
		t.Errorf("%d files before, %d after", before, after)
	}
	if s.Covered() == to {
		t.Error("what was stopped counts as covered")
	}
}

// Given a file with any byte changed, when it is opened, read and verified, then the answer is right, whatever was
// handed on before the damage was met; and the damage is named and reported once.
func TestEveryFlippedByteIsReadAround(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	base := vfs.NewMem()
	w, s := grownBy(t, base, 2, 500)
	n := s.Acquire()
	want := w.scan(t, all(w), covered(n))
	n.Release()
	mustClose(t, s)
	names, err := base.List("slices")
	if err != nil {
		t.Fatal(err)
	}
	within := 0
	for _, name := range names {
		if name == manifestName {
			continue
		}
		for range thorough.Choose(6, 10) {
			fs := copied(t, base)
			s := openTiny(t, fs)
			at := flip(t, fs, "slices/"+name, rng)
			if rng.IntN(2) == 0 { // before the start, or after it
				mustClose(t, s)
				s = openTiny(t, fs)
			}
			n := s.Acquire()
			got, before, missed := w.readAround(t, n, all(w))
			for _, h := range n.Holes {
				got = sortLines(append(got, w.scan(t, all(w), h.records)...))
			}
			if within += before; !slices.Equal(got, want) {
				t.Errorf("%s flipped at %d: %d rows, want %d, %d of them before it was met", name, at, len(got),
					len(want), before)
			}
			n.Release()
			for i := range missed {
				s.Report(missed[i].Err)
			}
			for turn, expected := range []int{1, 0, 0} {
				found := verified(t, w, s)
				named := len(found) == 1 && strings.Contains(found[0].Error(), strings.TrimSuffix(name, ".sums"))
				if len(found) != expected || expected == 1 && !named {
					t.Errorf("%s flipped at %d: verification %d says %v", name, at, turn+1, found)
				}
				mustClose(t, s)
				s = openTiny(t, fs)
			}
			if _, err := fs.Stat("slices/damaged/" + strings.TrimSuffix(name, ".sums")); err != nil {
				t.Errorf("%s flipped at %d was not kept: %v", name, at, err)
			}
			mustClose(t, s)
		}
	}
	if within < thorough.Choose(1, 20) {
		t.Errorf("only %d rows had been handed on before damage was met: the test did not test", within)
	}
}

// verified verifies every file, has the damaged ones set aside, and returns what is to be reported.
func verified(t *testing.T, w *world, s *Set) []error {
	t.Helper()
	n := s.Acquire()
	defer n.Release()
	parts := n.Parts()
	for i := range parts {
		p := &parts[i]
		var want Digest
		for record := range w.facts {
			f := &w.facts[record]
			if f.Event.Month() != p.Month || !p.Holds(position(record)) {
				continue
			}
			for j := range f.Event.Outcomes {
				o := &f.Event.Outcomes[j]
				want.Add(f.tenant, meterName(o.Meter), &f.Row, o)
			}
		}
		s.Report(n.Verify(p, want, func(int64) error { return nil }))
	}
	if err := s.VerifyManifest(); err != nil {
		t.Fatal(err)
	}
	return s.TakeDamage()
}

// A file that is whole but holds other rows than the journal gives is damaged, too.
func TestAFileWithOtherRowsIsSetAside(t *testing.T) {
	w, s := grown(t, vfs.NewMem(), 1)
	defer mustClose(t, s)
	w.facts[0].Event.Outcomes[0].Value = amount.FromInt(1 << 40)
	for turn, expected := range []int{1, 0} {
		if found := verified(t, w, s); len(found) != expected {
			t.Errorf("verification %d says %v", turn+1, found)
		}
	}
	if s.Stats().Holes != 1 {
		t.Errorf("%+v", s.Stats())
	}
}

// A manifest that rots while the set is open is noticed by verification, once, and written anew: the next start finds
// all files.
func TestAManifestThatRotsIsWrittenAnew(t *testing.T) {
	fs := vfs.NewMem()
	w, s := grown(t, fs, 3)
	files := s.Stats().Files
	flip(t, fs, "slices/"+manifestName, rand.New(rand.NewPCG(1, 3)))
	for turn, expected := range []int{1, 0} {
		if found := verified(t, w, s); len(found) != expected {
			t.Errorf("verification %d says %v", turn+1, found)
		}
	}
	mustClose(t, s)
	s = openTiny(t, fs)
	defer mustClose(t, s)
	if got := s.Stats(); got.Files != files || len(s.TakeDamage()) != 0 {
		t.Errorf("after a start, %+v, had %d files", got, files)
	}
}

// What is set aside is bounded: the newest files stay.
func TestWhatIsSetAsideIsBounded(t *testing.T) {
	fs := vfs.NewMem()
	_, s := grown(t, fs, 3*keepAside)
	defer mustClose(t, s)
	var last string
	for lost := 0; lost < 2*keepAside; lost++ {
		f := s.peek().files[0]
		last = f.path
		s.Report(&Damage{File: f.path})
	}
	names, err := fs.List("slices/damaged")
	if err != nil {
		t.Fatal(err)
	}
	base := fs.PathBase(last)
	if len(names) != 2*keepAside || !slices.Contains(names, base) || !slices.Contains(names, sumsName(base)) {
		t.Errorf("kept: %v, the last was %s", names, last)
	}
}

// While the manifest cannot be written a damaged file stays where it is, is read no more, and is found again by the
// next start.
func TestDamageOnAFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	var broken atomic.Bool
	full := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errorfs.ErrInjected
		}
		return nil
	}))
	w, s := grown(t, full, 2)
	broken.Store(true)
	path := s.peek().files[0].path
	changeOne(t, mem, path)
	if found := verified(t, w, s); len(found) != 1 {
		t.Errorf("verification says %v", found)
	}
	if found := verified(t, w, s); len(found) != 0 {
		t.Errorf("the second verification says %v", found)
	}
	mustClose(t, s)
	broken.Store(false)
	s = openTiny(t, full)
	defer mustClose(t, s)
	if found := verified(t, w, s); len(found) != 1 || !strings.Contains(found[0].Error(), path) {
		t.Errorf("after a start, verification says %v", found)
	}
}

func changeOne(t *testing.T, fs vfs.FS, path string) {
	t.Helper()
	flip(t, fs, path, rand.New(rand.NewPCG(7, 7)))
}

// copied is the same files elsewhere.
func copied(t *testing.T, from vfs.FS) *vfs.MemFS {
	t.Helper()
	to := vfs.NewMem()
	if ok, err := vfs.Clone(from, to, "slices", "slices"); err != nil || !ok {
		t.Fatalf("copy: %v, %v", ok, err)
	}
	return to
}

// flip changes one bit of a file.
func flip(t *testing.T, fs vfs.FS, name string, rng *rand.Rand) int64 {
	t.Helper()
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	at := rng.Int64N(info.Size())
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << rng.IntN(8)
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return at
}

// A manifest that cannot be read takes the slices with it, and the set starts anew.
func TestALostManifestStartsAnew(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, fs vfs.FS){
		"flipped": func(t *testing.T, fs vfs.FS) { flip(t, fs, "slices/"+manifestName, rand.New(rand.NewPCG(1, 3))) },
		"missing": func(t *testing.T, fs vfs.FS) {
			if err := fs.Remove("slices/" + manifestName); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			_, s := grown(t, fs, 3)
			mustClose(t, s)
			harm(t, fs)
			s = openTiny(t, fs)
			defer mustClose(t, s)
			if got := s.Stats(); got.Files != 0 || !s.Covered().Less(position(0)) || countFiles(t, fs) != 0 {
				t.Errorf("after that, %+v and %d files", got, countFiles(t, fs))
			}
		})
	}
}

func TestSlicesOfAnotherStoreAreDropped(t *testing.T) {
	fs := vfs.NewMem()
	_, s := grown(t, fs, 1)
	mustClose(t, s)
	s, err := Open(Options{FS: fs, Dir: "slices", StoreID: [16]byte{2}})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, s)
	if s.Stats().Files != 0 || len(s.TakeDamage()) != 1 {
		t.Errorf("%+v", s.Stats())
	}
}

// A panic of the function that a reader was given leaves no file in use: whoever recovers from it goes on reading.
func TestAPanicInAReaderGivesItsFilesBack(t *testing.T) {
	w, s := grown(t, vfs.NewMem(), 3)
	defer mustClose(t, s)
	n := s.Acquire()
	defer n.Release()
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				t.Errorf("recovered %v", got)
			}
		}()
		_, _ = n.Read(all(w), func(*store.Slice) error { panic("boom") })
	}()
	for _, h := range s.cache.open {
		if h.users != 0 {
			t.Errorf("%s is in use by %d", h.file.path, h.users)
		}
	}
}
