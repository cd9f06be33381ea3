package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// eager slices every commit at once.
func eager(fs vfs.FS, now func() time.Time) Options {
	o := tiny(fs, now)
	o.NoSlices = false
	o.SliceBytes = 1
	return o
}

// sliceRow is a row of a slice in a form that compares.
type sliceRow struct {
	customer                                    string
	seq                                         uint64
	time                                        calendar.Micros
	value, base                                 amount.Amount
	why                                         usage.Why
	corrects, resource, properties, member, key string
}

func sliceRows(ask func(store.SliceQuery, func(*store.Slice) error) error, q store.SliceQuery) (out []sliceRow,
	err error) {
	q.Wants = store.WantKeys | store.WantResources | store.WantProperties | store.WantMembers
	err = ask(q, func(s *store.Slice) error {
		for i := range s.Seq {
			r := sliceRow{
				customer: strings.Clone(s.Customer), seq: s.Seq[i], time: s.Time[i], value: s.Value[i], why: s.Why[i],
				key:      strings.Clone(s.Key[i].ID()),
				resource: strings.Clone(s.Resource[i]), properties: strings.Clone(s.Properties[i]),
				member: strings.Clone(s.Member[i]),
			}
			if s.Corrects != nil {
				r.corrects, r.base = strings.Clone(s.Corrects[i]), s.Base[i]
			}
			out = append(out, r)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b sliceRow) int { return cmp.Compare(a.seq, b.seq) })
	return out, err
}

// sameSlices holds what a view's slices say against what its rows say.
func sameSlices(v store.View, rng *rand.Rand) error {
	meters, err := store.Slugs(v)
	if err != nil {
		return err
	}
	for number := uint32(1); number <= uint32(len(meters)); number++ {
		m := storetest.Month
		for _, q := range []store.SliceQuery{
			{From: 0, To: calendar.MaxMicros},
			{From: m.Start(), To: m.End(), Customer: "c"},
			{From: 0, To: calendar.MaxMicros, UpTo: 1 + rng.Uint64N(v.Head().Seq+1)},
			{From: v.Now() - calendar.Micros(rng.Int64N(1e12)), To: v.Now(), UpTo: v.Head().Seq},
		} {
			q.Meter = number
			got, err := sliceRows(v.Slice, q)
			if err != nil {
				return fmt.Errorf("%+v: %w", q, err)
			}
			want, err := sliceRows(func(q store.SliceQuery,
				fn func(*store.Slice) error) error {
				return store.ScanSlice(v, q, fn)
			}, q)
			if err != nil {
				return fmt.Errorf("%+v by rows: %w", q, err)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("%+v:\n got %+v\nwant %+v", q, got, want)
			}
		}
	}
	return nil
}

// agree holds every tenant's slices against its rows, for a reader and within a transaction.
func agree(e *Engine, rng *rand.Rand) error {
	for _, id := range crashTenants {
		if _, err := e.book(id); problem.Is(err, problem.NotFound) {
			continue
		}
		if err := e.View(context.Background(), id, func(v store.View) error { return sameSlices(v, rng) }); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		kept := errors.New("not to be kept")
		err := whenFree(func() error {
			return e.Update(context.Background(), id, func(tx store.Tx) error {
				if err := sameSlices(tx, rng); err != nil {
					return err
				}
				return kept
			})
		})
		if !errors.Is(err, kept) {
			return fmt.Errorf("%s, in a transaction: %w", id, err)
		}
	}
	return nil
}

// busy plays a workload.
func busy(t *testing.T, e *Engine, rng *rand.Rand, name string, steps int) {
	t.Helper()
	for _, id := range crashTenants {
		if _, err := e.book(id); problem.Is(err, problem.NotFound) {
			if err := storetest.Create(e, id, crashMeters()...); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := &session{e: e, log: &diary{}, rng: rng, name: name, low: map[string][]string{}}
	for range steps {
		if err := s.step(); err != nil {
			t.Fatal(err)
		}
	}
}

// inParts plays a workload that is sliced part by part.
func inParts(t *testing.T, e *Engine, rng *rand.Rand, name string, parts int) {
	t.Helper()
	for part := range parts {
		busy(t, e, rng, fmt.Sprint(name, part), 5)
		if err := e.Settle(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// Given workloads with corrections and late facts, sliced while they come, when asked at any time, before and after
// restarts, then slices and journal give exactly the same rows.
func TestSlicesAnswerLikeTheJournal(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	clock, mem := storetest.NewClock(), vfs.NewMem()
	for life := range 3 {
		e := mustOpen(t, eager(mem, clock.Now))
		for part := range 8 {
			busy(t, e, rng, fmt.Sprint("life", life, "part", part), 6)
			clock.Advance(36 * time.Hour)
			if err := agree(e, rng); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Settle(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := agree(e, rng); err != nil {
			t.Fatalf("settled: %v", err)
		}
		if st := e.slicer.set.Stats(); st.Covered != e.journal.End() || st.Merges == 0 && life > 0 || st.Rows == 0 {
			t.Errorf("settled, but %+v, and the journal ends at %s", st, e.journal.End())
		}
		mustEnd(t, e)
		if err := verified(mem, clock); err != nil {
			t.Error(err)
		}
	}
}

// Given a journal that is many times what is sorted at once, when it is sliced for the first time, and again after a
// loss, then every row is in one slice, whatever a batch holds when it is full.
func TestSlicesOfFullBatches(t *testing.T) {
	for _, rows := range []int{1, 3, 6} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(6, uint64(rows)))
			clock, mem := storetest.NewClock(), vfs.NewMem()
			o := eager(mem, clock.Now)
			o.NoSlices = true
			e := mustOpen(t, o)
			for range 4 {
				busy(t, e, rng, fmt.Sprint("life", clock.Now().Unix()), 10)
				clock.Advance(10 * 24 * time.Hour)
			}
			mustEnd(t, e)
			o.NoSlices, o.SliceRows = false, rows
			for life := range 2 {
				e = mustOpen(t, o)
				if err := errors.Join(e.Settle(context.Background()), agree(e, rng)); err != nil {
					t.Fatal(err)
				}
				st := e.slicer.set.Stats()
				if st.Covered != e.journal.End() || st.Holes != 0 || st.Rows < int64(10*rows) ||
					st.Damaged != int64(life) {
					t.Errorf("%+v, and the journal ends at %s", st, e.journal.End())
				}
				mustEnd(t, e)
				if err := verified(mem, clock); err != nil {
					t.Error(err)
				}
				if life == 0 {
					if err := mem.Remove(largestSlice(t, mem)); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// largestSlice is the path of the largest slice.
func largestSlice(t *testing.T, fs vfs.FS) (path string) {
	t.Helper()
	names, err := fs.List("data/slices")
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, name := range names {
		info, err := fs.Stat("data/slices/" + name)
		if err == nil && strings.HasSuffix(name, ".parquet") && info.Size() > size {
			path, size = "data/slices/"+name, info.Size()
		}
	}
	return path
}

// verified opens a store, which is then at rest, and has it verified.
func verified(fs vfs.FS, clock *storetest.Clock) error {
	e, err := Open(eager(fs, clock.Now))
	if err != nil {
		return err
	}
	if err := errors.Join(e.Verify(context.Background(), nil), e.Close()); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// Given slices being made, merged and made again after a loss, when the power fails before any operation on their files
// and takes any of what was not synced, then the next start answers like the journal, at once and when it has caught
// up.
func TestPowerFailsWhileSlicing(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	clock := storetest.NewClock()
	mem := vfs.NewCrashableMem()
	e := mustOpen(t, eager(mem, clock.Now))
	inParts(t, e, rng, "before", 5)
	// A fact of another month, which has slices of its own: there are several, however much was merged.
	got := record(e, crashTenants[0], storetest.Fact("old", "calls", "c", storetest.Ago(45*24*time.Hour), "1"))
	if err := errors.Join(got.err, e.Settle(context.Background())); err != nil ||
		!strings.HasPrefix(got.said, "accepted") {
		t.Fatalf("%s, %v", got.said, err)
	}
	mustEnd(t, e)
	if names, err := mem.List("data/slices"); err != nil || len(names) < 5 {
		t.Fatalf("slices before: %v (%v)", names, err)
	}
	var mu sync.Mutex // guards crashed
	var crashed []*vfs.MemFS
	watched := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.Contains(op.Path, slicesDir) || op.Kind.ReadOrWrite() == errorfs.OpIsRead ||
			op.Kind == errorfs.OpFileClose {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		percent := survives[len(crashed)%len(survives)]
		crashed = append(crashed, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
		return nil
	}))
	damagedFile := firstSlice(t, mem)
	if err := mem.Remove(damagedFile); err != nil {
		t.Fatal(err)
	}
	e = mustOpen(t, eager(watched, clock.Now))
	inParts(t, e, rand.New(rand.NewPCG(1, 1)), "during", 8)
	if st := e.slicer.set.Stats(); st.Merges == 0 || st.Damaged != 1 || st.Holes != 0 {
		t.Errorf("%+v", st)
	}
	mustEnd(t, e)
	step := max(1, len(crashed)/sliceCrashes)
	for i := 0; i < len(crashed); i += step {
		if err := agreeAfterCrash(crashed[i], clock); err != nil {
			t.Errorf("crash %d of %d: %v", i, len(crashed), err)
		}
	}
	t.Logf("%d crash points, every %dth looked at", len(crashed), step)
}

func agreeAfterCrash(fs vfs.FS, clock *storetest.Clock) error {
	rng := rand.New(rand.NewPCG(2, 3))
	e, err := Open(eager(fs, clock.Now))
	if err != nil {
		return err
	}
	err = agree(e, rng)
	if err == nil {
		err = e.Settle(context.Background())
	}
	if err == nil {
		err = agree(e, rng)
	}
	if err = errors.Join(err, e.Close()); err != nil {
		return err
	}
	return verified(fs, clock)
}

// firstSlice is the path of a slice.
func firstSlice(t *testing.T, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List("data/slices")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasSuffix(name, ".parquet") {
			return "data/slices/" + name
		}
	}
	t.Fatal("no slices")
	return ""
}

// Given a slice that was deleted or changed, when the store is opened and asked, then the damage is named, answers stay
// right, and the file is made again from the journal.
func TestALostSliceIsMadeAgain(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, fs *vfs.MemFS, path string){
		"deleted": func(t *testing.T, fs *vfs.MemFS, path string) {
			if err := fs.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"its end changed":   func(t *testing.T, fs *vfs.MemFS, path string) { changeByte(t, fs, path, -9) },
		"its start changed": func(t *testing.T, fs *vfs.MemFS, path string) { changeByte(t, fs, path, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(4, 4))
			clock, mem := storetest.NewClock(), vfs.NewMem()
			e := mustOpen(t, eager(mem, clock.Now))
			inParts(t, e, rng, "life", 6)
			mustEnd(t, e)
			path := firstSlice(t, mem)
			harm(t, mem, path)
			e = mustOpen(t, eager(mem, clock.Now))
			if err := agree(e, rng); err != nil {
				t.Error(err)
			}
			if err := e.Verify(context.Background(), nil); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("verify says %v, and does not name %s", err, path)
			}
			for range 2 { // at once, and in another process
				if err := e.Verify(context.Background(), nil); err != nil {
					t.Errorf("the next verify says %v", err)
				}
				mustEnd(t, e)
				e = mustOpen(t, eager(mem, clock.Now))
			}
			if err := e.Settle(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := agree(e, rng); err != nil {
				t.Error(err)
			}
			mustEnd(t, e)
			if err := verified(mem, clock); err != nil {
				t.Errorf("after it was made again: %v", err)
			}
		})
	}
}

// Given every slice damaged under a store that has them open, when it is read, then readers are answered from the
// journal, right and at once, and the files are set aside and made again.
func TestDamageUnderAReader(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	clock, mem := storetest.NewClock(), vfs.NewMem()
	o := eager(mem, clock.Now)
	e := mustOpen(t, o)
	inParts(t, e, rng, "life", 6)
	mustEnd(t, e)
	o.SliceBytes = 1 << 30 // nothing happens beside the reader
	e = mustOpen(t, o)
	defer func() { mustEnd(t, e) }()
	names, err := mem.List("data/slices")
	if err != nil {
		t.Fatal(err)
	}
	harmed := int64(0)
	for _, name := range names {
		if strings.HasSuffix(name, ".parquet") {
			changeByte(t, mem, "data/slices/"+name, 100)
			harmed++
		}
	}
	if err := agree(e, rng); err != nil {
		t.Fatal(err)
	}
	if got := e.slicer.set.Stats().Damaged; got == 0 || got > harmed {
		t.Errorf("%d files were found damaged, %d are", got, harmed)
	}
	said := e.Verify(context.Background(), nil)
	for _, name := range names {
		if strings.HasSuffix(name, ".parquet") && (said == nil || !strings.Contains(said.Error(), name)) {
			t.Errorf("verify does not name %s: %v", name, said)
		}
	}
	if err := errors.Join(e.Verify(context.Background(), nil), e.Settle(context.Background())); err != nil {
		t.Errorf("the second time: %v", err)
	}
	if st := e.slicer.set.Stats(); st.Holes != 0 || st.Damaged != harmed || st.Covered != e.journal.End() {
		t.Errorf("made again, but %+v", st)
	}
	if err := agree(e, rng); err != nil {
		t.Error(err)
	}
}

// A merge that meets damage leaves a hole that is filled, and goes on.
func TestDamageUnderAMerge(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 6))
	clock, mem := storetest.NewClock(), vfs.NewMem()
	o := eager(mem, clock.Now)
	o.SliceBytes = 1 << 30 // nothing is sliced before it is settled: a part is one slice
	e := mustOpen(t, o)
	inParts(t, e, rng, "life", 7) // one less than are merged
	if st := e.slicer.set.Stats(); st.Merges != 0 {
		t.Fatalf("merged too early: %+v", st)
	}
	changeByte(t, mem, firstSlice(t, mem), 100)
	inParts(t, e, rng, "more", 9)
	if st := e.slicer.set.Stats(); st.Merges == 0 || st.Damaged != 1 || st.Holes != 0 {
		t.Errorf("%+v", st)
	}
	if err := agree(e, rng); err != nil {
		t.Error(err)
	}
	mustEnd(t, e)
	if err := verified(mem, clock); err != nil {
		t.Error(err)
	}
}

func changeByte(t *testing.T, fs vfs.FS, path string, at int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		at += info.Size()
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Given facts coming in from several sides while slices are made and read, then every reader sees a whole prefix, and
// in the end all are there once.
func TestSlicingBesideIngest(t *testing.T) {
	const writers, batches, size = 4, 30, 20
	clock, mem := storetest.NewClock(), vfs.NewMem()
	o := eager(mem, clock.Now)
	o.SegmentBytes = 1 << 20
	e := mustOpen(t, o)
	if err := storetest.Create(e, "acme", crashMeters()...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		wg.Go(func() {
			for b := range batches {
				events := make([]usage.Event, size)
				for i := range events {
					events[i] = one(fmt.Sprintf("w%db%di%d", w, b, i))[0]
				}
				if _, err := patiently(e, sentBatch{tenant: "acme", events: events}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			if err := countsUp(e); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	wg.Wait()
	close(done)
	readers.Wait()
	if err := e.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := countsUp(e); err != nil {
		t.Error(err)
	}
	mustEnd(t, e)
}

// countsUp compares the rows that slices give with the number that the view's head leaves for them.
func countsUp(e *Engine) error {
	return e.View(context.Background(), "acme", func(v store.View) error {
		seen := map[uint64]bool{}
		err := v.Slice(store.SliceQuery{Meter: 1, To: calendar.MaxMicros}, func(s *store.Slice) error {
			for _, seq := range s.Seq {
				if seen[seq] || seq > v.Head().Seq {
					return fmt.Errorf("row %d, seen before or after the head %d", seq, v.Head().Seq)
				}
				seen[seq] = true
			}
			return nil
		})
		changes := uint64(1 + len(crashMeters()))
		if err == nil && uint64(len(seen)) != v.Head().Seq-changes {
			err = fmt.Errorf("%d rows in slices, %d in the ledger", len(seen), v.Head().Seq-changes)
		}
		return err
	})
}

// A disk that takes no slices hurts nobody else, and when it does again they are made.
func TestSlicesThatCannotBeWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	clock, mem := storetest.NewClock(), vfs.NewMem()
	var mu sync.Mutex // guards broken
	broken := true
	watched := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if broken && strings.Contains(op.Path, ".parquet") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errorfs.ErrInjected
		}
		return nil
	}))
	e := mustOpen(t, eager(watched, clock.Now))
	busy(t, e, rng, "life", 20)
	if err := e.Settle(context.Background()); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("settled with %v", err)
	}
	if err := agree(e, rng); err != nil {
		t.Error(err)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	if err := e.Settle(context.Background()); err != nil {
		t.Errorf("after the disk was fixed: %v", err)
	}
	if e.slicer.set.Covered() != e.journal.End() {
		t.Error("not all is covered")
	}
	if err := agree(e, rng); err != nil {
		t.Error(err)
	}
	mustEnd(t, e)
}

func TestWithoutSlices(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	clock, mem := storetest.NewClock(), vfs.NewMem()
	o := eager(mem, clock.Now)
	o.NoSlices = true
	e := mustOpen(t, o)
	busy(t, e, rng, "life", 20)
	if err := errors.Join(agree(e, rng), e.Settle(context.Background())); err != nil {
		t.Error(err)
	}
	mustEnd(t, e)
	if _, err := mem.Stat("data/slices"); err == nil {
		t.Error("there is a directory of slices")
	}
}
