package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testDir  = "journal"
	testSize = 16 << 10
)

var testStore = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func testOptions(fs vfs.FS) Options {
	return Options{FS: fs, Dir: testDir, SegmentBytes: testSize, StoreID: testStore}
}

// payload is the i-th record of every test: its number and bytes that are a function of it, none of them zero at the
// end.
func payload(i int) []byte { return payloads()[i] }

// payloads are made once: recovery is checked against them thousands of times.
var payloads = sync.OnceValue(func() [][]byte {
	all := make([][]byte, 1000)
	for i := range all {
		rng := rand.New(rand.NewPCG(uint64(i), 0))
		n := 8 + rng.IntN(200)
		if i%4 == 3 {
			n += rng.IntN(3 * 4096)
		}
		all[i] = payloadOf(i, n)
	}
	return all
})

func payloadOf(i, n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(1 + rng.IntN(255))
	}
	binary.LittleEndian.PutUint64(b, uint64(i))
	b[n-1] |= 1
	return b
}

func mustOpen(t testing.TB, fs vfs.FS) *Journal {
	t.Helper()
	j, err := Open(testOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func mustClose(t testing.TB, j *Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// inOrder expects the records to be payload(0), payload(1), ... and counts them.
func inOrder(count *int) func(pos, next Position, got []byte) error {
	return func(pos, next Position, got []byte) error {
		if want := payload(*count); !bytes.Equal(got, want) {
			return fmt.Errorf("record %d at %s is not the one appended", *count, pos)
		}
		if !pos.Less(next) {
			return fmt.Errorf("record %d goes from %s to %s", *count, pos, next)
		}
		*count++
		return nil
	}
}

// reopen opens and recovers everything, and returns how many records there are.
func reopen(fs vfs.FS, floor Position) (*Journal, int, error) {
	j, err := Open(testOptions(fs))
	if err != nil {
		return nil, 0, err
	}
	count := 0
	if err := j.Recover(Position{}, floor, inOrder(&count)); err != nil {
		return nil, 0, errors.Join(err, j.Close())
	}
	return j, count, nil
}

func mustReopen(t testing.TB, fs vfs.FS, floor Position, want int) *Journal {
	t.Helper()
	j, count, err := reopen(fs, floor)
	if err != nil {
		t.Fatal(err)
	}
	if count != want {
		t.Fatalf("recovered %d records, want %d", count, want)
	}
	return j
}

// commit appends and syncs payload(i) for i from first to last-1 and returns where each begins.
func commit(t testing.TB, j *Journal, first, last int) []Position {
	t.Helper()
	var starts []Position
	for i := first; i < last; i++ {
		pos, next, err := j.Append(payload(i))
		if err == nil {
			err = j.Sync()
		}
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if j.End() != next {
			t.Fatalf("End is %s after a record that ends at %s", j.End(), next)
		}
		starts = append(starts, pos)
	}
	return starts
}

// settled waits until the preparer has nothing to do.
func settled(j *Journal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for (j.wanted || j.preparing) && j.usable() == nil {
		j.changed.Wait()
	}
}

func wantDamage(t testing.TB, err error) {
	t.Helper()
	_ = damageOf(t, err)
}

func damageOf(t testing.TB, err error) *Damage {
	t.Helper()
	var d *Damage
	if !errors.As(err, &d) {
		t.Fatalf("got %v, want damage", err)
	}
	if d.Path == "" || d.What == "" || d.Hint == "" {
		t.Fatalf("damage without explanation: %+v", d)
	}
	return d
}

// file returns the bytes of a segment, to be changed in place while no journal is open.
func file(t testing.TB, fs *vfs.MemFS, number uint32) []byte {
	t.Helper()
	b, err := fs.UnsafeGetFileDataBuffer(fs.PathJoin(testDir, segmentName(number)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAppendedRecordsAreReadBack(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": vfs.Default} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(fs)
			if name == "disk" {
				o.Dir = t.TempDir() + "/data/journal"
			}
			const records = 60
			var starts []Position
			for session := range 3 {
				j, err := Open(o)
				if err != nil {
					t.Fatal(err)
				}
				count := 0
				if err := j.Recover(Position{}, Position{}, inOrder(&count)); err != nil {
					t.Fatal(err)
				}
				if count != session*records {
					t.Fatalf("session %d recovered %d records", session, count)
				}
				starts = append(starts, commit(t, j, count, count+records)...)
				checkReads(t, j, starts)
				if j.Size() <= 0 || j.Size() > int64(j.last())*testSize {
					t.Fatalf("size %d of %d segments", j.Size(), j.last())
				}
				mustClose(t, j)
				if err := j.Sync(); !errors.Is(err, ErrClosed) {
					t.Fatalf("sync after close: %v", err)
				}
			}
			if starts[len(starts)-1].Segment < 10 {
				t.Fatal("the test did not cross enough segments")
			}
		})
	}
}

// checkReads reads every record by its position, by following next, and by scanning from it.
func checkReads(t *testing.T, j *Journal, starts []Position) {
	t.Helper()
	var buf []byte
	at := Position{}
	for i, pos := range starts {
		got, _, err := j.Read(pos, buf)
		if err != nil || !bytes.Equal(got, payload(i)) {
			t.Fatalf("read record %d at %s: %v", i, pos, err)
		}
		buf = got[:0]
		got, next, err := j.Read(at, nil)
		if err != nil || !bytes.Equal(got, payload(i)) {
			t.Fatalf("read record %d following next %s: %v", i, at, err)
		}
		at = next
		if i%9 == 0 {
			count := i
			if err := j.Scan(pos, j.End(), inOrder(&count)); err != nil || count != len(starts) {
				t.Fatalf("scan from record %d saw up to %d: %v", i, count, err)
			}
			count = 0
			if err := j.Scan(Position{}, pos, inOrder(&count)); err != nil || count != i {
				t.Fatalf("scan up to record %d saw %d: %v", i, count, err)
			}
		}
	}
	if _, _, err := j.Read(at, nil); !errors.Is(err, io.EOF) {
		t.Fatalf("read at the end: %v", err)
	}
}

func TestRecoverFromAPosition(t *testing.T) {
	fs := vfs.NewMem()
	j := mustReopen(t, fs, Position{}, 0)
	starts := commit(t, j, 0, 40)
	end := j.End()
	mustClose(t, j)
	for i, pos := range append(starts, end) {
		j := mustOpen(t, fs)
		count := i
		if err := j.Recover(pos, end, inOrder(&count)); err != nil || count != 40 {
			t.Fatalf("from record %d: saw up to %d: %v", i, count, err)
		}
		mustClose(t, j)
	}
	j = mustOpen(t, fs)
	defer j.Close()
	inside := starts[5]
	inside.Offset++
	err := j.Recover(inside, Position{}, func(_, _ Position, _ []byte) error { return nil })
	wantDamage(t, err)
	if _, _, err := j.Append(payload(40)); err == nil {
		t.Fatal("a journal that was not recovered took a record")
	}
}

func TestAppendRecordFillsItsHeaderIn(t *testing.T) {
	fs := vfs.NewMem()
	j := mustReopen(t, fs, Position{}, 0)
	record := append(make([]byte, HeaderSize), payload(0)...)
	if _, _, err := j.AppendRecord(record); err != nil {
		t.Fatal(err)
	}
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	mustClose(t, mustReopen(t, fs, Position{}, 1))
}

func TestRecordSizeBounds(t *testing.T) {
	j := mustReopen(t, vfs.NewMem(), Position{}, 0)
	defer mustClose(t, j)
	for _, n := range []int{0, j.MaxPayload() + 1} {
		if _, _, err := j.Append(make([]byte, n)); !errors.Is(err, ErrTooLarge) {
			t.Fatalf("append of %d bytes: %v", n, err)
		}
		if err := j.Reserve(n); !errors.Is(err, ErrTooLarge) {
			t.Fatalf("reserve of %d bytes: %v", n, err)
		}
	}
	big := payloadOf(0, j.MaxPayload())
	for range 3 {
		if err := j.Reserve(len(big)); err != nil {
			t.Fatal(err)
		}
		pos, next, err := j.Append(big)
		if err != nil {
			t.Fatal(err)
		}
		if pos.Offset != headerBlock || next.Offset != testSize {
			t.Fatalf("the largest record went from %s to %s", pos, next)
		}
		if err := j.Sync(); err != nil {
			t.Fatal(err)
		}
		if got, _, err := j.Read(pos, nil); err != nil || !bytes.Equal(got, big) {
			t.Fatalf("read back: %v", err)
		}
	}
}

func TestAppendBeforeSyncPoisons(t *testing.T) {
	j := mustReopen(t, vfs.NewMem(), Position{}, 0)
	if _, _, err := j.Append(payload(0)); err != nil {
		t.Fatal(err)
	}
	_, _, first := j.Append(payload(1))
	if first == nil {
		t.Fatal("a second record was written before the first was synced")
	}
	if err := j.Sync(); !errors.Is(err, first) {
		t.Fatalf("sync of a poisoned journal: %v", err)
	}
	if err := j.Close(); !errors.Is(err, first) {
		t.Fatalf("close of a poisoned journal: %v", err)
	}
}

func TestSegmentSizeMayChange(t *testing.T) {
	fs := vfs.NewMem()
	written := 0
	for _, size := range []uint32{16 << 10, 64 << 10, 20 << 10, 32<<10 + 17, 16 << 10} {
		o := testOptions(fs)
		o.SegmentBytes = size
		j, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		if err := j.Recover(Position{}, Position{}, inOrder(&count)); err != nil || count != written {
			t.Fatalf("size %d: recovered %d of %d: %v", size, count, written, err)
		}
		commit(t, j, written, written+20)
		written += 20
		if err := j.Reserve(j.MaxPayload()); err != nil {
			t.Fatal(err)
		}
		mustClose(t, j)
	}
}

func TestPositionsOrder(t *testing.T) {
	ordered := []Position{{}, {1, 4096}, {1, 5000}, {2, 4096}, {10, 0}}
	for i, p := range ordered {
		for k, q := range ordered {
			if p.Less(q) != (i < k) || (p.Compare(q) == 0) != (i == k) {
				t.Fatalf("%s and %s", p, q)
			}
		}
	}
	if s := ordered[2].String(); s != "1:5000" {
		t.Fatal(s)
	}
}
