package journal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Given readers at work, when a writer appends across segments, then each of them sees a growing prefix of the records.
func TestReadersBesideTheWriter(t *testing.T) {
	const records, readers = 200, 3
	j := mustReopen(t, vfs.NewMem(), Position{}, 0)

	var mu sync.Mutex // guards starts
	var starts []Position
	done := make(chan struct{})
	var wg sync.WaitGroup
	for r := range readers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(r), 0))
			for {
				mu.Lock()
				known := starts
				mu.Unlock()
				if err := readSome(j, known, rng); err != nil {
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
	}
	wg.Go(func() {
		for {
			if err := j.Reserve(j.MaxPayload()); err != nil {
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
	for i := range records {
		pos := commit(t, j, i, i+1)
		mu.Lock()
		starts = append(starts, pos...)
		mu.Unlock()
	}
	close(done)
	wg.Wait()
	mustClose(t, j)
}

// readSome reads a record at random and scans from another.
func readSome(j *Journal, known []Position, rng *rand.Rand) error {
	if len(known) == 0 {
		return nil
	}
	i := rng.IntN(len(known))
	got, _, err := j.Read(known[i], nil)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, payload(i)) {
		return fmt.Errorf("record %d at %s is not the one appended", i, known[i])
	}
	first := rng.IntN(len(known))
	count := first
	if err := j.Scan(known[first], j.End(), inOrder(&count)); err != nil {
		return err
	}
	if count < len(known) {
		return fmt.Errorf("scan saw %d records of %d", count, len(known))
	}
	if j.Size() <= 0 {
		return fmt.Errorf("size %d", j.Size())
	}
	return nil
}

// Files are lent to readers out of a bounded set.
func TestOpenFilesAreBounded(t *testing.T) {
	fs := vfs.NewMem()
	o := testOptions(fs)
	o.SegmentBytes = minSegmentBytes
	j, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Recover(Position{}, Position{}, func(_, _ Position, _ []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	const segments = maxOpenFiles + 40
	big := payloadOf(0, j.MaxPayload())
	for range segments {
		if _, _, err := j.Append(big); err != nil {
			t.Fatal(err)
		}
		if err := j.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		seen := 0
		if err := j.Scan(Position{}, j.End(), func(_, _ Position, _ []byte) error { seen++; return nil }); err != nil ||
			seen != segments {
			t.Fatalf("scanned %d of %d: %v", seen, segments, err)
		}
		if n := len(j.files.files); n > maxOpenFiles {
			t.Fatalf("%d files are open", n)
		}
	}
	mustClose(t, j)
	if len(j.files.files) != 0 {
		t.Fatal("files are open after close")
	}
}

// Close lets a reader finish with the file it holds.
func TestCloseBesideAReader(t *testing.T) {
	j := mustReopen(t, vfs.NewMem(), Position{}, 0)
	commit(t, j, 0, 3)
	count := 0
	check := inOrder(&count)
	err := j.Scan(Position{}, j.End(), func(pos, next Position, got []byte) error {
		if count == 0 {
			mustClose(t, j)
		}
		return check(pos, next, got)
	})
	if err != nil || count != 3 {
		t.Fatalf("saw %d records: %v", count, err)
	}
}

// Close returns only when the preparer is done with the directory.
func TestCloseWaitsForThePreparer(t *testing.T) {
	var j *Journal
	var finished atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if j == nil || op.Kind != errorfs.OpCreate {
			return nil
		}
		j.mu.Lock()
		for !j.closed {
			j.changed.Wait()
		}
		j.mu.Unlock()
		finished.Store(true)
		return nil
	}))
	j = mustOpen(t, fs)
	if err := j.Recover(Position{}, Position{}, inOrder(new(int))); err != nil {
		t.Fatal(err)
	}
	j.mu.Lock()
	for !j.preparing {
		j.mu.Unlock()
		runtime.Gosched()
		j.mu.Lock()
	}
	j.mu.Unlock()
	mustClose(t, j)
	if !finished.Load() {
		t.Fatal("the preparer is still at work")
	}
}
