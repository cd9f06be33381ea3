package keyindex

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testStore = [16]byte{7, 7, 7}

const testDir = "db/keys"

// hashOf spreads a small number over 128 bits as the owner's hash would.
func hashOf(n uint64) Hash {
	a, b := bits.Mul64(n^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	hi := mix(a ^ b ^ n)
	return Hash{Hi: hi, Lo: mix(hi ^ bits.RotateLeft64(n, 32) ^ 0xa0761d6478bd642f)}
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func entryOf(n uint64) Entry {
	return Entry{Hash: hashOf(n), Check: uint32(mix(n)), Seq: n}
}

// markOf is the journal position behind the n-th entry.
func markOf(n int) Mark { return Mark{Segment: uint32(n / 16), Offset: uint32(n % 16)} }

func (m Mark) entries() int { return int(m.Segment)*16 + int(m.Offset) }

// settle waits until everything durable is flushed and nothing is left to merge. It
// returns the error of a try that failed meanwhile.
func (x *Index) settle() error {
	if err := x.Flush(); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	since := x.merging.begun
	for {
		_, due := x.sketchDue()
		if !due && x.mergeable() == nil && !x.merging.busy {
			return nil
		}
		if x.merging.failed > since || x.halted {
			return x.merging.err
		}
		poke(x.mergePoke)
		poke(x.mergeRetry)
		x.changed.Wait()
	}
}

// newFS is a crashable file system whose parent directory is durable.
func newFS(t testing.TB) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewCrashableMem()
	if err := fs.MkdirAll("db", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syncDir(fs, "/"); err != nil {
		t.Fatal(err)
	}
	return fs
}

func options(fs vfs.FS, memEntries int) Options {
	return Options{FS: fs, Dir: testDir, MemEntries: memEntries, StoreID: testStore}
}

func mustOpen(t testing.TB, fs vfs.FS, memEntries int) *Index {
	t.Helper()
	x, err := Open(options(fs, memEntries))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func mustClose(t testing.TB, x *Index) {
	t.Helper()
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

// fill inserts entries [from, to), freezing and releasing every full table.
func fill(x *Index, from, to int) {
	for i := from; i < to; i++ {
		x.Insert(entryOf(uint64(i)))
		if x.Full() {
			x.Freeze(markOf(i + 1))
			x.Durable(markOf(i + 1))
		}
	}
}

// holds checks that the index holds exactly the entries [0, n) out of [0, upto), by
// Probe with Lookup, and some of them by Get.
func holds(x *Index, n, upto int) error {
	keys := make([]Hash, upto)
	out := make([]Found, upto)
	for i := range keys {
		keys[i] = hashOf(uint64(i))
	}
	at, err := x.Probe(keys, out)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	for i, h := range keys {
		want := Found{}
		if i < n {
			e := entryOf(uint64(i))
			want = Found{Seq: e.Seq, Check: e.Check, OK: true}
		}
		got, err := x.Lookup(h, out[i], at)
		if err != nil || got != want {
			return fmt.Errorf("lookup of entry %d of %d: got %+v %v, want %+v", i, n, got, err, want)
		}
		if i%8 != 0 {
			continue
		}
		got, err = x.Get(h)
		if err != nil || got != want {
			return fmt.Errorf("get of entry %d of %d: got %+v %v, want %+v", i, n, got, err, want)
		}
	}
	return nil
}

func mustHold(t testing.TB, x *Index, n, upto int) {
	t.Helper()
	if err := holds(x, n, upto); err != nil {
		t.Fatal(err)
	}
}

func files(t testing.TB, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func runFiles(t testing.TB, fs vfs.FS) []string {
	t.Helper()
	return slices.DeleteFunc(files(t, fs), func(n string) bool { return !strings.HasSuffix(n, runSuffix) })
}
