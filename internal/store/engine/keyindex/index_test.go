package keyindex

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestNothingReachesDiskBeforeTheJournalIsDurable(t *testing.T) {
	fs := newFS(t)
	x := mustOpen(t, fs, 4)
	for i := range 4 {
		x.Insert(entryOf(uint64(i)))
	}
	if !x.Full() {
		t.Fatal("four of four entries are not full")
	}
	x.Freeze(markOf(4))
	x.Durable(markOf(3))
	if err := x.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := runFiles(t, fs); len(got) > 0 || x.Backlog() != 1 || x.Mark() != (Mark{}) {
		t.Fatalf("files %v, backlog %d, mark %v before the journal was durable", got, x.Backlog(), x.Mark())
	}
	mustHold(t, x, 4, 6)
	x.Durable(markOf(4))
	if err := x.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := runFiles(t, fs); len(got) != 1 || x.Backlog() != 0 || x.Mark() != markOf(4) {
		t.Fatalf("files %v, backlog %d, mark %v after", got, x.Backlog(), x.Mark())
	}
	mustHold(t, x, 4, 6)
	mustClose(t, x)
}

func TestReopenKeepsSeedMarkAndEntries(t *testing.T) {
	fs := newFS(t)
	x := mustOpen(t, fs, 8)
	fill(x, 0, 1000)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	seed := x.Seed()
	stats := x.Stats()
	if stats.Layers != 125%fanIn+125/fanIn || stats.MergesDone != 125/fanIn || stats.Entries != 1000 {
		t.Fatalf("after 125 flushes: %+v", stats)
	}
	mustHold(t, x, 1000, 1100)
	mustClose(t, x)
	x = mustOpen(t, fs, 8)
	if x.Seed() != seed || x.Mark() != markOf(1000) {
		t.Fatalf("seed %x mark %v, want %x %v", x.Seed(), x.Mark(), seed, markOf(1000))
	}
	mustHold(t, x, 1000, 1100)
	if err := x.Verify(nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, x)
}

// A frozen empty table moves the mark without a file, so that a start after many
// groups of duplicates does not replay them.
func TestEmptyTableMovesTheMark(t *testing.T) {
	fs := newFS(t)
	x := mustOpen(t, fs, 8)
	x.Freeze(markOf(5))
	x.Durable(markOf(5))
	if err := x.Flush(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, x)
	x = mustOpen(t, fs, 8)
	if x.Mark() != markOf(5) || len(runFiles(t, fs)) != 0 {
		t.Fatalf("mark %v, files %v", x.Mark(), files(t, fs))
	}
	mustClose(t, x)
}

// A key that is flushed, and merged, between its probe and its lookup is found.
func TestLookupFindsWhatWasFlushedAfterTheProbe(t *testing.T) {
	x := mustOpen(t, newFS(t), 4)
	const n = 100
	keys := make([]Hash, n)
	out := make([][]Found, n)
	at := make([]Epoch, n)
	for i := range keys {
		keys[i] = hashOf(uint64(i))
	}
	for i := range n {
		out[i] = make([]Found, n)
		var err error
		if at[i], err = x.Probe(keys, out[i]); err != nil {
			t.Fatal(err)
		}
		fill(x, i, i+1)
		if i%7 == 0 {
			if err := x.settle(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range n {
		for k, h := range keys {
			f, err := x.Lookup(h, out[i][k], at[i])
			if err != nil || !f.OK || f.Seq != uint64(k) {
				t.Fatalf("probe %d, key %d: %+v %v", i, k, f, err)
			}
		}
	}
	mustClose(t, x)
}

func TestExtremeHashesAndValues(t *testing.T) {
	fs := newFS(t)
	x := mustOpen(t, fs, 2)
	var want []Entry
	for _, hi := range []uint64{0, 1, 1<<58 - 1, 1 << 58, 1 << 63, math.MaxUint64 - 1, math.MaxUint64} {
		for _, lo := range []uint64{0, 1, math.MaxUint64} {
			want = append(want, Entry{Hash: Hash{hi, lo}, Check: math.MaxUint32, Seq: maxSeq})
		}
	}
	for i, e := range want {
		x.Insert(e)
		if x.Full() {
			x.Freeze(markOf(i))
			x.Durable(markOf(i))
		}
	}
	x.Freeze(markOf(len(want)))
	x.Durable(markOf(len(want)))
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	for _, e := range want {
		if f, err := x.Get(e.Hash); err != nil || f != (Found{Seq: e.Seq, Check: e.Check, OK: true}) {
			t.Fatalf("%x: %+v %v", e.Hash, f, err)
		}
	}
	if f, err := x.Get(Hash{math.MaxUint64, 2}); err != nil || f.OK {
		t.Fatalf("absent key found: %+v %v", f, err)
	}
	if err := x.Verify(nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, x)
}

// Thousands of keys that share Hi span many blocks whose fences are all equal.
func TestKeysThatShareHalfTheirHash(t *testing.T) {
	x := mustOpen(t, newFS(t), 700)
	hash := func(i int) Hash { return Hash{Hi: 42 << 32, Lo: mix(uint64(i))} }
	const n = fanIn * 700
	for i := range n {
		x.Insert(Entry{Hash: hash(i), Seq: uint64(i)})
		if x.Full() {
			x.Freeze(markOf(i + 1))
			x.Durable(markOf(i + 1))
		}
	}
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	if s := x.Stats(); s.Runs != 1 || s.Entries != n {
		t.Fatalf("%+v", s)
	}
	for i := range n + 100 {
		if f, err := x.Get(hash(i)); err != nil || f.OK != (i < n) || f.OK && f.Seq != uint64(i) {
			t.Fatalf("key %d: %+v %v", i, f, err)
		}
	}
	if err := x.Verify(nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, x)
}

func TestAMergeTakesSixteenRunsAndSplitsThem(t *testing.T) {
	x := mustOpen(t, newFS(t), 64)
	// 16 tables become one layer of 16 files, 256 tables one of 64, a partition each.
	for _, c := range []struct{ tables, layers, runs, merges int }{{15, 15, 15, 0}, {16, 1, 16, 1},
		{255, 30, 15 + 15*16, 15}, {256, 1, 64, 16 + 16}} {
		for x.Stats().Flushes < int64(c.tables) {
			n := int(x.Stats().Flushes) * 64
			fill(x, n, n+64)
			if err := x.settle(); err != nil {
				t.Fatal(err)
			}
		}
		if s := x.Stats(); s.Layers != c.layers || s.Runs != c.runs || s.MergesDone != int64(c.merges) {
			t.Fatalf("after %d tables: %+v", c.tables, s)
		}
	}
	if err := x.Verify(nil); err != nil {
		t.Fatal(err)
	}
	mustHold(t, x, 256*64, 256*64+100)
	mustClose(t, x)
}

func TestFilesOutliveTheirReaders(t *testing.T) {
	fs := newFS(t)
	x := mustOpen(t, fs, 8)
	fill(x, 0, 24)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	v, err := x.pin()
	if err != nil {
		t.Fatal(err)
	}
	held := runFiles(t, fs)
	fill(x, 24, 64)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	for _, name := range held {
		if _, err := fs.Stat(fs.PathJoin(testDir, name)); err != nil {
			t.Fatalf("a run that a view holds is gone: %v", err)
		}
	}
	out := make([]Found, 1)
	for i := range 24 {
		if err := v.probe([]Hash{hashOf(uint64(i))}, out); err != nil || !out[0].OK {
			t.Fatalf("old view lost key %d: %v", i, err)
		}
	}
	x.unpin(v)
	live := x.Stats().Runs
	mustClose(t, x)
	if got := runFiles(t, fs); len(got) != live {
		t.Fatalf("%d files stay, %d are live: %v", len(got), live, got)
	}
}

// Readers probe while the owner inserts and flushes and merges run: what was
// inserted before a lookup is found by it. The race detector watches.
func TestProbesBesideFlushesAndMerges(t *testing.T) {
	x := mustOpen(t, vfs.NewMem(), 64)
	const n = 6000
	var owner sync.RWMutex
	var inserted atomic.Int64
	var wg sync.WaitGroup
	for r := range 3 {
		wg.Go(func() {
			keys, out := make([]Hash, 50), make([]Found, 50)
			for step := r; inserted.Load() < n; step++ {
				known := inserted.Load()
				from := int64(mix(uint64(step))) & math.MaxInt64 % (known + 1)
				for i := range keys {
					keys[i] = hashOf(uint64(from) + uint64(i))
				}
				at, err := x.Probe(keys, out)
				if err != nil {
					t.Error(err)
					return
				}
				owner.RLock()
				for i, h := range keys {
					k := from + int64(i)
					f, err := x.Lookup(h, out[i], at)
					if err != nil || k < known && (!f.OK || f.Seq != uint64(k)) || k >= n && f.OK {
						t.Errorf("key %d of %d: %+v %v", k, known, f, err)
					}
				}
				owner.RUnlock()
			}
		})
	}
	for i := range n {
		owner.Lock()
		fill(x, i, i+1)
		owner.Unlock()
		inserted.Store(int64(i + 1))
		if i%512 == 511 { // or all the background work would come after the last insert
			if err := x.settle(); err != nil {
				t.Error(err)
			}
		}
	}
	wg.Wait()
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	if s := x.Stats(); s.MergesDone < 5 || s.SketchesMade < 2*64 {
		t.Fatalf("too little moved beside the probes: %+v", s)
	}
	if err := x.Verify(nil); err != nil {
		t.Fatal(err)
	}
	mustHold(t, x, n, n+10)
	mustClose(t, x)
}

func TestClosedIndexRefuses(t *testing.T) {
	x := mustOpen(t, newFS(t), 4)
	mustClose(t, x)
	_, probe := x.Probe(nil, nil)
	for name, err := range map[string]error{"probe": probe, "flush": x.Flush(), "verify": x.Verify(nil),
		"close": x.Close()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}
