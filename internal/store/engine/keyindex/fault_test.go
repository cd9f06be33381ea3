package keyindex

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tallystick/tallystick/internal/thorough"
)

// faultStride is how many operations lie between two that fail first.
var faultStride = int64(thorough.Choose(7, 1))

// faults makes operations fail: from the n-th on while it lasts, or only the n-th.
type faults struct {
	seen atomic.Int64
	from int64 // first operation to fail, counted from 1; 0 is none
	once bool
	err  error
	off  atomic.Bool
	hits atomic.Int64
	kind func(errorfs.Op) bool
}

func (f *faults) inject(op errorfs.Op) error {
	if f.off.Load() || !f.kind(op) {
		return nil
	}
	n := f.seen.Add(1)
	if f.from == 0 || n < f.from || f.once && n > f.from {
		return nil
	}
	f.hits.Add(1)
	return fmt.Errorf("injected: %w", f.err)
}

func changesDisk(op errorfs.Op) bool { return op.Kind.ReadOrWrite() == errorfs.OpIsWrite }

func anyOperation(errorfs.Op) bool { return true }

const faultEntries, faultMemory = 20, 1

// feedWithFaults inserts everything whatever the disk says, and returns how often it got an error.
func feedWithFaults(t *testing.T, x *Index) (reported int) {
	t.Helper()
	for i := range faultEntries {
		fill(x, i, i+1)
		if i%faultMemory != faultMemory-1 {
			continue
		}
		if err := x.settle(); err != nil {
			reported++
		}
	}
	return reported
}

// The disk is full from some operation on, and later it is not. Whatever the
// operation: nothing is lost meanwhile, and all of it reaches disk afterwards.
func TestDiskFullFromEveryOperationOn(t *testing.T) {
	testFaults(t, syscall.ENOSPC, changesDisk, false)
}

// A single operation fails, reads included, and the next ones work.
func TestEveryOperationFailsOnce(t *testing.T) {
	testFaults(t, syscall.EIO, anyOperation, true)
}

func testFaults(t *testing.T, failure error, kind func(errorfs.Op) bool, once bool) {
	for n := int64(1); ; n += faultStride {
		mem := newFS(t)
		mustClose(t, mustOpen(t, mem, faultMemory)) // creation has its own test
		f := &faults{from: n, once: once, err: failure, kind: kind}
		f.off.Store(true)
		x := mustOpen(t, errorfs.Wrap(mem, errorfs.InjectorFunc(f.inject)), faultMemory)
		f.off.Store(false)
		reported := feedWithFaults(t, x)
		f.off.Store(true)
		hits := f.hits.Load()
		mustHold(t, x, faultEntries, faultEntries+5)
		if !once && hits > 0 && reported == 0 && x.Backlog() > 0 {
			t.Fatalf("operation %d: a full disk and a backlog of %d, but no error was reported", n, x.Backlog())
		}
		x.Freeze(markOf(faultEntries))
		x.Durable(markOf(faultEntries))
		if err := settleTwice(x); err != nil {
			t.Fatalf("operation %d: the disk works again, but: %v", n, err)
		}
		if err := x.Verify(nil); err != nil {
			t.Fatalf("operation %d: %v", n, err)
		}
		if s := x.Stats(); s.FlushError != nil || s.Frozen > 0 {
			t.Fatalf("operation %d: %+v", n, s)
		}
		_ = x.Close() // a close that fails is no loss
		x = mustOpen(t, mem, faultMemory)
		if x.Mark() != markOf(faultEntries) {
			t.Fatalf("operation %d: mark %v", n, x.Mark())
		}
		mustHold(t, x, faultEntries, faultEntries+5)
		live := x.Stats().Runs
		if got := runFiles(t, mem); len(got) != live {
			t.Fatalf("operation %d: %d runs are live, but there are %v", n, live, got)
		}
		mustClose(t, x)
		if hits == 0 {
			if n < 100 {
				t.Fatalf("only %d operations: the test has lost its subject", n)
			}
			return
		}
	}
}

// settleTwice allows for a try that began before the fault went away.
func settleTwice(x *Index) error {
	if err := x.settle(); err == nil {
		return nil
	}
	return x.settle()
}

// Open fails at every operation, reads included, and then works: it damages nothing.
func TestOpenFailsAtEveryOperation(t *testing.T) {
	for _, entries := range []int{0, 24} {
		for n := int64(1); ; n++ {
			mem := newFS(t)
			if entries > 0 {
				x := mustOpen(t, mem, faultMemory)
				fill(x, 0, entries)
				if err := x.settle(); err != nil {
					t.Fatal(err)
				}
				mustClose(t, x)
			}
			f := &faults{from: n, err: syscall.EIO, once: true, kind: anyOperation}
			x, err := Open(options(errorfs.Wrap(mem, errorfs.InjectorFunc(f.inject)), faultMemory))
			f.off.Store(true)
			hits := f.hits.Load()
			if err == nil {
				mustHold(t, x, entries, 30)
				_ = x.Close()
			} else if !errors.Is(err, syscall.EIO) {
				t.Fatalf("operation %d: %v does not say what the disk said", n, err)
			}
			x = mustOpen(t, mem, faultMemory)
			mustHold(t, x, entries, 30)
			mustClose(t, x)
			if hits == 0 {
				break
			}
		}
	}
}

// While the disk refuses, tables pile up in memory, in order, and Backlog says so.
func TestBacklogGrowsWhileTheDiskRefuses(t *testing.T) {
	f := &faults{from: 1, err: syscall.ENOSPC, kind: changesDisk}
	f.off.Store(true)
	x := mustOpen(t, errorfs.Wrap(newFS(t), errorfs.InjectorFunc(f.inject)), 4)
	f.off.Store(false)
	fill(x, 0, 40)
	if err := x.Flush(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("flush on a full disk: %v", err)
	}
	if s := x.Stats(); s.Frozen != 10 || x.Backlog() != 10 || !errors.Is(s.FlushError, syscall.ENOSPC) {
		t.Fatalf("%+v", s)
	}
	mustHold(t, x, 40, 45)
	f.off.Store(true)
	if err := settleTwice(x); err != nil {
		t.Fatal(err)
	}
	if x.Backlog() != 0 || x.Mark() != markOf(40) {
		t.Fatalf("backlog %d, mark %v", x.Backlog(), x.Mark())
	}
	mustHold(t, x, 40, 45)
	mustClose(t, x)
}
