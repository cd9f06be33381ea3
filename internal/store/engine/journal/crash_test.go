package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// progress is what the writer knows when the power fails.
type progress struct {
	mu      sync.Mutex // the preparer's operations crash too, beside the writer
	started int        // records whose Append was called
	synced  int        // records whose Sync returned
	floor   Position   // End when the last Sync returned
}

func (p *progress) read() (started, synced int, floor Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started, p.synced, p.floor
}

// everyWrite wraps fs so that f runs before each operation that changes it.
func everyWrite(fs vfs.FS, f func(errorfs.OpKind)) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			f(op.Kind)
		}
		return nil
	}))
}

// write appends records from first up to, not including, last, keeping p.
func (p *progress) write(j *Journal, first, last int) error {
	for i := first; i < last; i++ {
		p.mu.Lock()
		p.started = i + 1
		p.mu.Unlock()
		if _, _, err := j.Append(payload(i)); err != nil {
			return err
		}
		if err := j.Sync(); err != nil {
			return err
		}
		p.mu.Lock()
		p.synced, p.floor = i+1, j.End()
		p.mu.Unlock()
	}
	return nil
}

// Given a writer, when the power fails before any of its operations and any of the blocks not synced are lost, then
// every record whose Sync returned is recovered, at most one more, and the journal goes on from there.
func TestCrashAtEveryOperation(t *testing.T) {
	const records = 45
	percents := []int{0, 25, 50, 75, 100}
	crashes, torn := 0, 0
	var p progress
	var mu sync.Mutex // one crash at a time: the random source and the counters are shared
	rng := rand.New(rand.NewPCG(1, 2))
	mem := vfs.NewCrashableMem()
	fs := everyWrite(mem, func(kind errorfs.OpKind) {
		mu.Lock()
		defer mu.Unlock()
		rounds := len(percents)
		if kind == errorfs.OpFileSyncData {
			rounds *= 4 // a record was just written: which of its blocks are lost matters most here
		}
		for round := range rounds {
			_, synced, floor := p.read()
			clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percents[round%len(percents)], RNG: rng})
			started, _, _ := p.read()
			crashes++
			if err := survives(clone, rng, synced, started, floor, &torn); err != nil {
				t.Errorf("crash %d: %v", crashes, err)
			}
		}
	})
	j, _, err := reopen(fs, Position{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.write(j, 0, records); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	if torn == 0 {
		t.Error("no crash tore a record: the test did not test")
	}
	t.Logf("%d crashes, %d of them tore a record, %d segments", crashes, torn, j.last())
}

// survives recovers a crashed file system, crashing at every operation of the recovery too, and writes on.
func survives(mem *vfs.MemFS, rng *rand.Rand, atLeast, atMost int, floor Position, torn *int) error {
	var mu sync.Mutex // recovery's own preparer works beside it
	var nested []*vfs.MemFS
	overwrites, recovering := 0, true
	j, count, err := reopen(everyWrite(mem, func(kind errorfs.OpKind) {
		mu.Lock()
		defer mu.Unlock()
		if !recovering {
			return
		}
		nested = append(nested, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}))
		if kind == errorfs.OpFileWriteAt {
			overwrites++
		}
	}), floor)
	if err != nil {
		return err
	}
	settled(j)
	mu.Lock()
	recovering = false
	mu.Unlock()
	if count < atLeast || count > atMost {
		return fmt.Errorf("recovered %d records, synced %d, started %d", count, atLeast, atMost)
	}
	if overwrites > 1 {
		*torn++ // the last record was written again, and zeros over the torn one
	}
	var p progress
	if err := p.write(j, count, count+2); err != nil {
		return err
	}
	if err := j.Close(); err != nil {
		return err
	}
	j, again, err := reopen(mem.CrashClone(vfs.CrashCloneCfg{}), p.floor)
	if err != nil {
		return fmt.Errorf("after a second crash: %w", err)
	}
	if again != count+2 {
		return fmt.Errorf("a second crash left %d records of %d", again, count+2)
	}
	if err := j.Close(); err != nil {
		return err
	}
	if overwrites < 2 && atMost%4 != 0 {
		// recovery did the same few writes as after any other crash without a tear: a sample of these is enough
		return nil
	}
	for _, fs := range nested {
		j, again, err := reopen(fs, floor)
		if err != nil {
			return fmt.Errorf("crash while recovering: %w", err)
		}
		if again != count {
			return fmt.Errorf("a crash while recovering left %d records of %d", again, count)
		}
		if err := j.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Given a process that died after writing a record and before its sync, when the next one recovers the record, then a
// power failure right after does not take it back.
func TestRecoveredMeansDurable(t *testing.T) {
	for records := range 30 {
		mem := vfs.NewCrashableMem()
		dead := mustReopen(t, mem, Position{}, 0)
		commit(t, dead, 0, records)
		if _, _, err := dead.Append(payload(records)); err != nil {
			t.Fatal(err)
		}
		settled(dead)
		j := mustReopen(t, mem, Position{}, records+1)
		after := mem.CrashClone(vfs.CrashCloneCfg{})
		mustClose(t, mustReopen(t, after, j.End(), records+1))
		mustClose(t, j)
		mustClose(t, dead)
	}
}

// A failed sync can leave the last record in the page cache, marked clean. Only writing it again brings it to the disk.
func TestRecoverWritesTheLastRecordAgain(t *testing.T) {
	for _, records := range []int{0, 1, 3} {
		mem := vfs.NewMem()
		j := mustReopen(t, mem, Position{}, 0)
		starts := commit(t, j, 0, records)
		mustClose(t, j)

		var ops []errorfs.Op
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWriteAt || op.Kind == errorfs.OpFileSyncData {
				ops = append(ops, errorfs.Op{Kind: op.Kind, Offset: op.Offset})
			}
			return nil
		}))
		mustClose(t, mustReopen(t, fs, Position{}, records))
		want := []errorfs.Op{{Kind: errorfs.OpFileWriteAt}, {Kind: errorfs.OpFileSyncData}}
		if records > 0 {
			want[0].Offset = int64(starts[records-1].Offset)
		}
		if !slices.Equal(ops, want) {
			t.Fatalf("%d records: recovery did %+v, want %+v", records, ops, want)
		}
	}
}

// Given a process that died between naming a prepared segment and syncing the directory, when the next one takes the
// segment over and fills it, then a power failure does not take the name back.
func TestSpareOfADeadProcessIsMadeDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	broken := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && op.Path == testDir {
			return syscall.EIO
		}
		return nil
	})}
	dead := mustOpen(t, errorfs.Wrap(mem, broken))
	broken.On()
	if err := dead.Recover(Position{}, Position{}, inOrder(new(int))); err != nil {
		t.Fatal(err)
	}
	settled(dead)
	if err := dead.Close(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the directory was to stay unsynced: %v", err)
	}
	// No third segment, or preparing it would sync the directory.
	full := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	}))
	j := mustReopen(t, full, Position{}, 0)
	written := 0
	for j.End().Segment < 2 {
		commit(t, j, written, written+1)
		written++
	}
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, mustReopen(t, after, j.End(), written))
	mustClose(t, j)
}
