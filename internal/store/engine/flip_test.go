package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// Given a store that was closed, when any one bit of its files is flipped, then opening it, reading all of it or
// verifying it names the file or what to do; or nothing that can be seen has changed. What is derived comes back by a
// rebuild, from the journal as it is; a damaged journal is never read around. A damaged slice is: usage is answered
// right, the file is named once, and the next verification finds nothing.
//
// Every bit of what is not zero is flipped in the store's name, the journal and the key index, and in the state's own
// bookkeeping. In long stretches of zeros, in slices, and in the tables and options of the state, some places are
// taken, always the same.
func TestEveryFlippedBitIsFoundOrHarmless(t *testing.T) {
	f := newFlips(t)
	defer mustEnd(t, f.oracle)
	var wg sync.WaitGroup
	jobs := make(chan flip)
	for range 2 {
		wg.Go(func() {
			for j := range jobs {
				if err := f.try(j); err != nil {
					t.Errorf("bit %d of byte %d of %s: %v", j.bit, j.at, j.path, err)
				}
			}
		})
	}
	for _, path := range f.paths(t) {
		before := f.tried.Load()
		f.each(t, path, func(j flip) { jobs <- j })
		t.Logf("%s: %d bits", path, f.tried.Load()-before)
	}
	close(jobs)
	wg.Wait()
	t.Logf("%d bits: %d found, %d harmless", f.tried.Load(), f.found.Load(), f.tried.Load()-f.found.Load())
	if f.found.Load() < int64(2000/flipStride) {
		t.Errorf("only %d flips were found: the test did not test", f.found.Load())
	}
}

type flip struct {
	path string
	at   int64
	bit  int
	zero bool // the byte was zero
}

// flips is a closed store, and an open copy of it that says how it should look.
type flips struct {
	clock        *storetest.Clock
	base         *vfs.MemFS
	oracle       *Engine
	tried, found atomic.Int64
}

var flipTenants = []string{"acme"}

func newFlips(t *testing.T) *flips {
	f := &flips{clock: storetest.NewClock(), base: vfs.NewCrashableMem()}
	e := mustOpen(t, f.sliced(f.base))
	if err := storetest.Create(e, "acme", storetest.NewMeter("low", meter.Min)); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		events := []usage.Event{
			storetest.Fact(fmt.Sprint("a", i), "low", "c", storetest.Ago(0), "2.5"),
			storetest.Fact(fmt.Sprint("b", i), "low", "d", storetest.Ago(0), "3"),
			storetest.Correction(fmt.Sprint("c", i), fmt.Sprint("b", i), "-1"),
		}
		if _, err := e.Record(context.Background(), store.Batch{Tenant: "acme", Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, e)
	f.oracle = mustOpen(t, f.options(f.copy()))
	return f
}

func (f *flips) options(fs vfs.FS) Options {
	o := tiny(fs, f.clock.Now)
	o.SegmentBytes = 16 << 10
	o.IndexEntries = 64
	o.Fatal = func(error) {}
	return o
}

// sliced are options with slices, made at once; f.options has none.
func (f *flips) sliced(fs vfs.FS) Options {
	o := f.options(fs)
	o.NoSlices, o.SliceBytes = false, 1
	return o
}

func (f *flips) copy() *vfs.MemFS { return f.base.CrashClone(vfs.CrashCloneCfg{}) }

func (f *flips) paths(t *testing.T) (out []string) {
	t.Helper()
	for _, dir := range []string{"data", "data/journal", "data/keys", "data/state", "data/slices"} {
		names, err := f.base.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		for _, name := range names {
			path := f.base.PathJoin(dir, name)
			if info, err := f.base.Stat(path); err != nil {
				t.Fatal(err)
			} else if !info.IsDir() {
				out = append(out, path)
			}
		}
	}
	return out
}

// each chooses the bits of a file.
func (f *flips) each(t *testing.T, path string, do func(flip)) {
	t.Helper()
	content, err := readAll(f.base, path)
	if err != nil {
		t.Fatal(err)
	}
	every, zeros := int64(1), int64(389)
	switch {
	case strings.HasSuffix(path, ".sst"):
		every, zeros = 11, 29
	case strings.Contains(path, "OPTIONS"):
		every = 97
	case strings.HasSuffix(path, ".parquet"):
		every, zeros = 211, 211
	case strings.Contains(path, slicesDir):
		every, zeros = 7, 7
	}
	count := int64(0)
	for at, b := range content {
		for bit := range 8 {
			stride := every
			if b == 0 {
				stride = zeros
			}
			if count++; count%(stride*int64(flipStride)) == 0 {
				do(flip{path, int64(at), bit, b == 0})
			}
		}
	}
}

func readAll(fs vfs.FS, path string) ([]byte, error) {
	file, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return b, err
}

func (f *flips) try(j flip) error {
	fs := f.copy()
	if err := flipBit(fs, j); err != nil {
		return err
	}
	n := f.tried.Add(1)
	if strings.HasPrefix(j.path, "data/slices") {
		f.found.Add(1)
		return f.readAround(fs, j.path)
	}
	said, err := f.look(fs)
	if err != nil {
		return err
	}
	derived := strings.HasPrefix(j.path, "data/keys") || strings.HasPrefix(j.path, "data/state")
	if said == "" {
		// A bit in the zeros behind the journal's end is what a torn write may leave, and is cut as one. Pebble has
		// files that it does not need, and bytes that it does not read.
		if strings.HasPrefix(j.path, "data/state") || j.path == "data/LOCK" ||
			strings.HasPrefix(j.path, "data/journal") && j.zero {
			return nil
		}
		return fmt.Errorf("nobody noticed")
	}
	f.found.Add(1)
	switch {
	case derived && !strings.Contains(said, "tallystick rebuild"):
		return fmt.Errorf("does not say what to do: %s", said)
	case !derived && !strings.Contains(said, j.path):
		return fmt.Errorf("does not name the file: %s", said)
	case !derived || n%16 != 0:
		return nil
	}
	return f.rebuilds(j)
}

// look opens the store, compares everything and verifies. It returns what was said of damage, or "" when all is as it
// should be; an error is a difference that nobody said anything of.
func (f *flips) look(fs *vfs.MemFS) (said string, err error) {
	e, err := Open(f.options(fs))
	if err != nil {
		return err.Error(), nil
	}
	defer func() { _ = e.Close() }() // a damaged state may not close
	if err := objections(func(tb storetest.TB) { storetest.Compare(tb, f.oracle, e, flipTenants...) }); err != nil {
		if strings.Contains(err.Error(), "differs") || strings.Contains(err.Error(), ", want ") {
			return "", fmt.Errorf("shows something else: %w", err)
		}
		return err.Error(), nil
	}
	if err := e.Verify(context.Background(), nil); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// readAround opens a store with a damaged slice, three times: the first verification names the file, the others find
// nothing, and usage is always what the rows say.
func (f *flips) readAround(fs *vfs.MemFS, path string) error {
	for run := range 3 {
		e, err := Open(f.sliced(fs))
		if err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(1, 1))
		err = e.View(context.Background(), "acme", func(v store.View) error { return sameSlices(v, rng) })
		said := e.Verify(context.Background(), nil)
		if err = errors.Join(err, e.Close()); err != nil {
			return fmt.Errorf("run %d: %w", run+1, err)
		}
		named := said != nil && strings.Contains(said.Error(), strings.TrimSuffix(path, ".sums"))
		if run == 0 && !named || run > 0 && said != nil {
			return fmt.Errorf("verification %d says %w", run+1, said)
		}
	}
	return nil
}

// rebuilds makes the derived files again.
func (f *flips) rebuilds(j flip) error {
	fs := f.copy()
	if err := flipBit(fs, j); err != nil {
		return err
	}
	if err := Rebuild(f.options(fs)); err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	said, err := f.look(fs)
	if err == nil && said != "" {
		err = fmt.Errorf("after a rebuild: %s", said)
	}
	return err
}

func flipBit(fs *vfs.MemFS, j flip) error {
	file, err := fs.OpenReadWrite(j.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	var b [1]byte
	if _, err := file.ReadAt(b[:], j.at); err != nil {
		return err
	}
	b[0] ^= 1 << j.bit
	if _, err := file.WriteAt(b[:], j.at); err != nil {
		return err
	}
	return file.Close()
}
