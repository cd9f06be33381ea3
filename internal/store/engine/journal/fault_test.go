package journal

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Given a disk that fails any one operation, when a writer meets it, then what was synced survives a power failure,
// nothing that was not appended appears, and no call succeeds after one that failed with more than a want of space.
func TestFaultAtEveryOperation(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
		t.Run(fault.Error(), func(t *testing.T) {
			failed := 0
			for at := int64(0); ; at++ {
				hit, err := faultAt(at, fault)
				if err != nil {
					t.Fatalf("operation %d: %v", at, err)
				}
				if !hit {
					break
				}
				failed++
			}
			// Fewer than one write and one sync for each record means that the faults missed the writer.
			if failed < 2*faultRecords {
				t.Fatalf("only %d operations could fail", failed)
			}
		})
	}
}

const faultRecords = 20

// faultAt runs a writer on a disk whose at-th operation fails. hit is false when there were not so many.
func faultAt(at int64, fault error) (hit bool, err error) {
	var ops atomic.Int64
	mem := vfs.NewCrashableMem()
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
		if ops.Add(1)-1 == at {
			return fault
		}
		return nil
	}))
	var p progress
	writeErr := writeOnBadDisk(fs, &p)
	hit = ops.Load() > at
	if writeErr != nil && !errors.Is(writeErr, fault) {
		return hit, fmt.Errorf("failed with another error: %w", writeErr)
	}
	started, synced, floor := p.read()
	if writeErr == nil && synced != faultRecords {
		return hit, fmt.Errorf("no error, and %d records synced", synced)
	}
	for _, after := range []*vfs.MemFS{mem.CrashClone(vfs.CrashCloneCfg{}), mem} {
		j, count, err := reopen(after, floor)
		if err != nil {
			return hit, fmt.Errorf("the next start: %w", err)
		}
		if count < synced || count > started {
			return hit, fmt.Errorf("the next start found %d records, %d were synced, %d appended", count, synced,
				started)
		}
		if err := j.Close(); err != nil {
			return hit, err
		}
	}
	return hit, nil
}

// writeOnBadDisk writes faultRecords records, asking again when there is no space, and reads them back.
func writeOnBadDisk(fs vfs.FS, p *progress) error {
	j, _, err := reopen(fs, Position{})
	if err != nil {
		return err
	}
	for i := 0; i < faultRecords && err == nil; i++ {
		for {
			err = j.Reserve(len(payload(i)))
			if !errors.Is(err, ErrNoSpace) {
				break
			}
			settled(j)
		}
		if err == nil {
			err = p.write(j, i, i+1)
		}
	}
	if err != nil {
		return errors.Join(err, staysPoisoned(j), j.Close())
	}
	// A read that fails poisons nothing.
	count := 0
	err = j.Scan(Position{}, j.End(), inOrder(&count))
	_, _, readErr := j.Read(Position{}, nil)
	return errors.Join(err, readErr, j.Sync(), j.Close())
}

// staysPoisoned checks that a journal does nothing after it failed.
func staysPoisoned(j *Journal) error {
	_, _, appendErr := j.Append(payload(0))
	_, _, readErr := j.Read(Position{}, nil)
	scanErr := j.Scan(Position{}, j.End(), func(_, _ Position, _ []byte) error { return nil })
	for i, err := range []error{appendErr, readErr, scanErr, j.Reserve(1), j.Sync()} {
		if err == nil {
			return fmt.Errorf("call %d of a poisoned journal succeeded", i)
		}
	}
	return nil
}

// Given a full disk, when the current segment has no room either, then Reserve says so without blocking, what fits is
// still taken, and once there is space it goes on.
func TestNoSpaceIsToldBeforeWriting(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFilePreallocate, errorfs.OpFileWrite,
		errorfs.OpFileSync, errorfs.OpRename} {
		full := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == kind && strings.HasSuffix(op.Path, tempSuffix) {
				return syscall.ENOSPC
			}
			return nil
		})}
		mem := vfs.NewMem()
		fs := errorfs.Wrap(mem, full)
		mustClose(t, mustReopen(t, fs, Position{}, 0))
		// The preparer may have made a segment already, or not.
		if err := mem.RemoveAll(fs.PathJoin(testDir, segmentName(2))); err != nil {
			t.Fatal(err)
		}
		full.On()
		j := mustReopen(t, fs, Position{}, 0)
		if err := j.Reserve(j.MaxPayload()); err != nil {
			t.Fatalf("the first segment is empty: %v", err)
		}
		commit(t, j, 0, 3)
		for range 3 {
			err := j.Reserve(j.MaxPayload())
			if !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("reserve on a full disk: %v", err)
			}
			if _, _, err := j.Append(make([]byte, j.MaxPayload())); !errors.Is(err, ErrNoSpace) {
				t.Fatalf("append on a full disk: %v", err)
			}
		}
		if err := j.Reserve(100); err != nil {
			t.Fatalf("the current segment has room: %v", err)
		}
		commit(t, j, 3, 4)
		full.Off()
		for errors.Is(j.Reserve(j.MaxPayload()), ErrNoSpace) {
			settled(j)
		}
		commit(t, j, 4, 12)
		end := j.End()
		mustClose(t, j)
		mustClose(t, mustReopen(t, mem, end, 12))
	}
}

// A sync of the directory that failed may have lost a name, and is not tried again.
func TestFailedDirectorySyncPoisons(t *testing.T) {
	mem := vfs.NewMem()
	bad := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && op.Path == testDir {
			return syscall.EIO
		}
		return nil
	})}
	j := mustReopen(t, errorfs.Wrap(mem, bad), Position{}, 0)
	settled(j)
	bad.On()
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		if _, _, err = j.Append(payload(i)); err == nil {
			err = j.Sync()
		}
	}
	if !errors.Is(err, syscall.EIO) || errors.Is(err, ErrNoSpace) {
		t.Fatalf("got %v", err)
	}
	bad.Off()
	if err := staysPoisoned(j); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("close: %v", err)
	}
}
