package keyindex

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tallystick/tallystick/internal/thorough"
)

// crash is what the disk may hold if the power fails before an operation.
type crash struct {
	op      string
	fs      *vfs.MemFS
	flushed int // entries that a Flush which returned had made durable
	durable int // entries that the journal held
}

// Before every operation that changes the disk the power fails: with nothing that
// was not synced, and with a random half of it. Each time the index must open, hold
// exactly what lies before its mark, and go on from there.
func TestPowerFailsBeforeEveryOperation(t *testing.T) {
	testCrashes(t, 0, thorough.Choose(5, 1))
}

// The same on a disk that often fails to sync the directory, before and after the
// manifest was renamed: then both manifests may come back, and both must be whole.
func TestPowerFailsAfterFailedSyncs(t *testing.T) {
	testCrashes(t, 30, thorough.Choose(11, 3))
}

const crashEntries, crashMemory = 20, 1

// testCrashes crashes before every stride-th operation.
func testCrashes(t *testing.T, failPercent, stride int) {
	mem := newFS(t)
	if failPercent > 0 {
		mustClose(t, mustOpen(t, mem, crashMemory)) // Open does not try again
	}
	var mu sync.Mutex
	var crashes []crash
	var flushed, durable atomic.Int64
	rng := rand.New(rand.NewPCG(1, 2))
	ops := 0
	maybeFail := func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && op.Path == testDir && rng.IntN(100) < failPercent {
			return syscall.EIO
		}
		return nil
	}
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if ops++; ops%stride != 0 {
			return maybeFail(op)
		}
		for _, percent := range []int{0, 50} {
			// The journal is read after the disk and Flush before it: whatever the
			// disk holds then lies between the two.
			c := crash{op: fmt.Sprintf("%d %s %d%%", op.Kind, op.Path, percent), flushed: int(flushed.Load())}
			c.fs = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
			c.durable = int(durable.Load())
			crashes = append(crashes, c)
		}
		return maybeFail(op)
	}))
	x := mustOpen(t, fs, crashMemory)
	settle := func() {
		for {
			err := x.settle()
			if err == nil {
				return
			}
			if !errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
		}
	}
	for i := range crashEntries {
		x.Insert(entryOf(uint64(i)))
		if !x.Full() {
			continue
		}
		x.Freeze(markOf(i + 1))
		durable.Store(int64(i + 1))
		x.Durable(markOf(i + 1))
		if i%3 != 0 {
			continue // let three tables wait for a flush together
		}
		settle()
		flushed.Store(int64(i + 1))
	}
	settle()
	if s := x.Stats(); s.MergesDone != crashEntries/fanIn || s.SketchesMade < 10 {
		t.Fatalf("too few merges to learn from: %+v", s)
	}
	live := x.Stats().Runs
	mustClose(t, x)
	if got := runFiles(t, mem); len(got) != live {
		t.Fatalf("%d runs are live, but there are %v", live, got)
	}
	for i, c := range crashes {
		if err := recoverFrom(c); err != nil {
			t.Fatalf("crash %d before %s: %v", i, c.op, err)
		}
	}
}

func recoverFrom(c crash) error {
	x, err := Open(options(c.fs, crashMemory))
	if err != nil {
		return err
	}
	defer x.Close()
	n := x.Mark().entries()
	if n < c.flushed || n > c.durable {
		return fmt.Errorf("mark covers %d entries, flushed were %d, durable %d", n, c.flushed, c.durable)
	}
	if err := holds(x, n, crashEntries); err != nil {
		return err
	}
	if err := x.Verify(nil); err != nil {
		return err
	}
	fill(x, n, crashEntries)
	if err := x.settle(); err != nil {
		return err
	}
	if err := holds(x, crashEntries, crashEntries+5); err != nil {
		return err
	}
	live := x.Stats().Runs
	if err := x.Close(); err != nil {
		return err
	}
	names, err := c.fs.List(testDir)
	if err != nil {
		return err
	}
	if len(names) != live+1 {
		return fmt.Errorf("%d runs are live, but there are %v", live, names)
	}
	return nil
}
