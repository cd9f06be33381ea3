package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tallystick/tallystick/internal/store/storetest"
)

// filled is a closed store.
func filled(t testing.TB, fs vfs.FS, now func() time.Time, batches int) {
	t.Helper()
	e := mustOpen(t, small(fs, now))
	fill(t, e, batches)
	mustEnd(t, e)
}

// inOrder opens the store and has everything checked.
func inOrder(t testing.TB, fs vfs.FS, now func() time.Time) {
	t.Helper()
	e := mustOpen(t, small(fs, now))
	if err := e.Verify(context.Background(), nil); err != nil {
		t.Errorf("verify: %v", err)
	}
	storetest.CheckLedger(t, e, "acme")
	storetest.CheckLedger(t, e, "globex")
	mustEnd(t, e)
}

func TestRebuildFromTheJournalAlone(t *testing.T) {
	fs, now := vfs.NewMem(), storetest.NewClock().Now
	filled(t, fs, now, manyBatches)
	if damaged(t, fs, "data/keys", ".run", 100)+damaged(t, fs, "data/state", "", 5) == 0 {
		t.Fatal("nothing to damage")
	}
	o := small(fs, now)
	var done, total int64
	o.Progress = func(d, of int64) {
		if d < done || d > of {
			t.Errorf("progress went from %d to %d of %d", done, d, of)
		}
		done, total = d, of
	}
	if err := Rebuild(o); err != nil {
		t.Fatal(err)
	}
	if done != total || total < 1<<20 {
		t.Errorf("progress ended at %d of %d", done, total)
	}
	inOrder(t, fs, now)
	names, err := fs.List("data")
	slices.Sort(names)
	if want := "[LOCK STORE journal keys slices state]"; err != nil || fmt.Sprint(names) != want {
		t.Errorf("the directory holds %v, want %s (%v)", names, want, err)
	}
}

// When the journal cannot be replayed, the derived files that were there are there again.
func TestRebuildThatFailsLeavesWhatWas(t *testing.T) {
	fs, now := vfs.NewMem(), storetest.NewClock().Now
	filled(t, fs, now, manyBatches)
	name := sealedSegment(t, fs)
	damaged(t, fs, "data/journal", name, 8192)
	if err := Rebuild(small(fs, now)); err == nil {
		t.Fatal("a damaged journal was rebuilt from")
	}
	damaged(t, fs, "data/journal", name, 8192) // the same bit again: fixed
	inOrder(t, fs, now)
}

func TestRebuildKeepsOut(t *testing.T) {
	fs, now := vfs.NewMem(), storetest.NewClock().Now
	if err := Rebuild(small(fs, now)); err == nil {
		t.Error("rebuilt a store that is not there")
	}
	filled(t, fs, now, manyBatches)
	e := mustOpen(t, small(fs, now))
	if err := Rebuild(small(fs, now)); err == nil {
		t.Error("rebuilt a store that is open")
	}
	mustEnd(t, e)
	inOrder(t, fs, now)
}

// Whenever the power fails during a rebuild, the next start finds everything, and so does the next rebuild.
func TestRebuildSurvivesPowerFailures(t *testing.T) {
	now := storetest.NewClock().Now
	base := vfs.NewCrashableMem()
	filled(t, base, now, 3)
	all := vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}
	for survives := range 2 {
		cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: survives * 100, RNG: all.RNG}
		for at := 1; ; at += 1 + at/3 {
			disk := base.CrashClone(all)
			var mu sync.Mutex // guards crashed and count: an engine has goroutines that write
			var crashed *vfs.MemFS
			count := 0
			watched := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
					mu.Lock()
					defer mu.Unlock()
					if count++; count == at {
						crashed = disk.CrashClone(cfg)
					}
				}
				return nil
			}))
			if err := Rebuild(small(watched, now)); err != nil {
				t.Fatal(err)
			}
			if crashed == nil {
				break
			}
			inOrder(t, crashed.CrashClone(all), now)
			if err := Rebuild(small(crashed, now)); err != nil {
				t.Fatalf("again, after a failure at write %d: %v", at, err)
			}
			inOrder(t, crashed, now)
		}
	}
}
