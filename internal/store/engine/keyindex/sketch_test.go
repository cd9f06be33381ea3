package keyindex

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"
)

// Whatever the keys and however full: what was added is admitted.
func TestASketchDeniesNothingItWasGiven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSketch(rapid.Int64Range(1, 100).Draw(t, "limit"))
		pbits := rapid.SampledFrom([]uint{0, 2, 6, 8}).Draw(t, "partition bits")
		keys := rapid.SliceOf(rapid.Uint64()).Draw(t, "keys")
		for _, hi := range keys {
			s.add(hi, hi<<pbits)
		}
		for _, hi := range keys {
			if admits(s.load(hi<<pbits), hi) != 1 {
				t.Fatalf("%x is denied", hi)
			}
			if admits(unsketched.load(hi<<pbits), hi) != 1 {
				t.Fatalf("%x is denied by no sketch", hi)
			}
		}
	})
}

// False alarms cost time, so their share is part of the design.
func TestSketchRates(t *testing.T) {
	for _, c := range []struct {
		fill  float64 // of the limit
		worst float64
	}{{0.5, 0.01}, {1, 0.055}} {
		const limit, asked = 100_000, 100_000
		s := newSketch(limit)
		n := uint64(c.fill * limit)
		for i := range n {
			hi := hashOf(i).Hi
			s.add(hi, hi)
		}
		wrong := uint64(0)
		for i := range uint64(asked) {
			hi := hashOf(n + i).Hi
			wrong += admits(s.load(hi), hi)
		}
		if share := float64(wrong) / asked; share > c.worst {
			t.Errorf("%.0f%% full: %.4f of absent keys are admitted", 100*c.fill, share)
		}
	}
}

func TestSketchLimits(t *testing.T) {
	const partitions = 64
	for _, keys := range []int64{0, 1, 7, 8, 9, 1000, 1 << 20, 1 << 32} {
		for p := range uint32(partitions) {
			limit := sketchLimit(p, partitions, keys)
			if limit <= keys || limit > max(2*smallestLimit, 2*keys) || sketchLimit(p, partitions, limit) != 2*limit {
				t.Fatalf("partition %d with %d keys: %d", p, keys, limit)
			}
		}
	}
	// As an index doubles evenly, its sketches are outgrown one after the other.
	for keys := int64(1 << 20); keys < 1<<21; keys += 1 << 15 {
		outgrown := 0
		for p := range uint32(partitions) {
			if sketchLimit(p, partitions, keys) <= keys+1<<15 {
				outgrown++
			}
		}
		if outgrown > partitions/8 {
			t.Fatalf("%d of %d sketches are outgrown between %d and %d keys", outgrown, partitions, keys, keys+1<<15)
		}
	}
}

// An outgrown sketch is made again before long, and one that is not outgrown is kept.
func TestSketchesGrowWithTheirPartition(t *testing.T) {
	x := mustOpen(t, newFS(t), 16)
	for n := 0; n < 4096; n += 16 {
		fill(x, n, n+16)
		if err := x.settle(); err != nil {
			t.Fatal(err)
		}
		x.mu.Lock()
		for p, now := range x.tallies {
			if now.keys > now.limit || now.limit > max(2*smallestLimit, 2*now.keys) {
				t.Errorf("partition %d at %d keys: %+v", p, n, now)
			}
		}
		x.mu.Unlock()
	}
	var keys int64
	x.mu.Lock()
	for _, now := range x.tallies {
		keys += now.keys
	}
	x.mu.Unlock()
	// 64 partitions of 64 keys, from a limit of 8 on: no more than four doublings each,
	// and one at first.
	if s := x.Stats(); keys != 4096 || s.SketchesMade > 5*64 || s.SketchesMade < 64+16 {
		t.Fatalf("%d keys are counted: %+v", keys, s)
	}
	mustClose(t, x)
}

// A key missing from a sketch would be called new and billed twice. Here one is taken
// out: the probe misses it, which shows that sketches are asked, and Verify finds it.
func TestVerifyFindsAKeyMissingFromItsSketch(t *testing.T) {
	x := mustOpen(t, newFS(t), 8)
	fill(x, 0, 64)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	h := hashOf(20)
	word := x.view.sketches[h.Hi>>x.pshift].word(h.Hi << (64 - x.pshift))
	whole := *word
	*word = 0
	out := make([]Found, 1)
	if _, err := x.Probe([]Hash{h}, out); err != nil || out[0].OK {
		t.Fatalf("%+v %v", out, err)
	}
	if err := x.Verify(nil); !isDamage(err) || !strings.Contains(err.Error(), "not in the sketch") {
		t.Fatalf("Verify says %v", err)
	}
	*word = whole
	mustHold(t, x, 64, 70)
	mustClose(t, x)
}

// gate lets reads of the first blocks of some runs wait, as those that make sketches.
type gate struct {
	files  []string
	shut   atomic.Bool
	waits  chan struct{}
	opened chan struct{}
	once   sync.Once
}

func (g *gate) inject(op errorfs.Op) error {
	if !g.shut.Load() || op.Kind != errorfs.OpFileReadAt || op.Offset != 0 {
		return nil
	}
	for _, name := range g.files {
		if strings.HasSuffix(op.Path, name) {
			g.once.Do(func() { close(g.waits) })
			<-g.opened
		}
	}
	return nil
}

// A sketch is being made when tables are flushed: their keys are in none of the runs
// that are read for it, and still in the sketch when it is published.
func TestFlushWhileASketchIsMade(t *testing.T) {
	mem := newFS(t)
	x := mustOpen(t, mem, 8)
	fill(x, 0, 24)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, x)
	g := &gate{files: runFiles(t, mem), waits: make(chan struct{}), opened: make(chan struct{})}
	g.shut.Store(true)
	x = mustOpen(t, errorfs.Wrap(mem, errorfs.InjectorFunc(g.inject)), 8)
	<-g.waits
	fill(x, 24, 80)
	if err := x.Flush(); err != nil {
		t.Fatal(err)
	}
	if s := x.Stats(); s.Flushes != 7 || s.SketchesMade != 0 {
		t.Fatalf("the sketch did not wait: %+v", s)
	}
	close(g.opened)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	if x.Stats().SketchesMade == 0 {
		t.Fatal("no sketch was made")
	}
	mustHold(t, x, 80, 100)
	if err := x.Verify(nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, x)
}

// Readers that probed before, during and after: the owner flushes, merges and makes
// sketches in any order, and a probe of an old view is completed by Lookup.
func TestProbesOfOldViewsBesideSketches(t *testing.T) {
	x := mustOpen(t, newFS(t), 4)
	const n = 1500
	var owner sync.RWMutex
	var inserted atomic.Int64
	grown := sync.NewCond(&sync.Mutex{}) // inserted is more than it was
	var wg sync.WaitGroup
	for r := range uint64(3) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(r, 1))
			keys, out := make([]Hash, 20), make([]Found, 20)
			for inserted.Load() < n {
				v, err := x.pin()
				if err != nil {
					t.Error(err)
					return
				}
				known := inserted.Load()
				from := rng.Int64N(known + 1)
				for i := range keys {
					keys[i] = hashOf(uint64(from) + uint64(i))
				}
				age := rng.Int64N(1 + rng.Int64N(40)) // most views are young
				grown.L.Lock()
				for inserted.Load() < min(n, known+age) {
					grown.Wait()
				}
				grown.L.Unlock()
				err = v.probe(keys, out)
				at := Epoch(v.flushed)
				x.unpin(v)
				owner.RLock()
				for i, h := range keys {
					k := from + int64(i)
					f, lookup := x.Lookup(h, out[i], at)
					if err != nil || lookup != nil || k < known && (!f.OK || f.Seq != uint64(k)) {
						t.Errorf("key %d of %d: %+v %v %v", k, known, f, err, lookup)
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
		grown.L.Lock()
		inserted.Store(int64(i + 1))
		grown.L.Unlock()
		grown.Broadcast()
		if i%100 == 99 {
			if err := x.settle(); err != nil {
				t.Error(err)
			}
		}
	}
	wg.Wait()
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	if s := x.Stats(); s.MergesDone < 20 || s.SketchesMade < 2*64 {
		t.Fatalf("too little moved beside the probes: %+v", s)
	}
	if err := x.Verify(nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, x)
}

// While runs cannot be read there is no sketch, and nothing is called new that is
// not: known keys are answered with the disk's error and unknown ones by the filters.
func TestReadsFailWhileASketchIsMade(t *testing.T) {
	mem := newFS(t)
	x := mustOpen(t, mem, 8)
	fill(x, 0, 40)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, x)
	f := &faults{from: 1, err: syscall.EIO, kind: func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpFileReadAt && op.Offset == 0
	}}
	x = mustOpen(t, errorfs.Wrap(mem, errorfs.InjectorFunc(f.inject)), 8)
	if err := x.settle(); err == nil || isDamage(err) {
		t.Fatalf("settle says %v", err)
	}
	unread := 0
	for i := range uint64(60) {
		found, err := x.Get(hashOf(i))
		if found.OK || i < 40 && err == nil {
			t.Fatalf("key %d: %+v %v", i, found, err)
		}
		if err != nil {
			unread++
		}
	}
	if s := x.Stats(); s.SketchesMade != 0 || s.MergeError == nil || unread > 45 {
		t.Fatalf("%d keys could not be looked up: %+v", unread, s)
	}
	f.off.Store(true)
	if err := settleTwice(x); err != nil {
		t.Fatal(err)
	}
	if s := x.Stats(); s.SketchesMade == 0 || s.MergeError != nil {
		t.Fatalf("%+v", s)
	}
	mustHold(t, x, 40, 60)
	mustClose(t, x)
}
