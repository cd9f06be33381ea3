package keyindex

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/thorough"
)

// flipStride is how many bits lie between two that are flipped: odd, so that every bit of a byte has its turn.
var flipStride = thorough.Choose(11, 1)

// smallIndex leaves a closed index of one merged run and one fresh one.
func smallIndex(t testing.TB) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	x := mustOpen(t, fs, 1)
	for i := range fanIn + 1 {
		// One partition, so that the merge writes one file.
		x.Insert(Entry{Hash: Hash{Hi: uint64(i + 1), Lo: mix(uint64(i))}, Check: uint32(i), Seq: uint64(i)})
		if x.Full() {
			x.Freeze(markOf(i + 1))
			x.Durable(markOf(i + 1))
			if err := x.settle(); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, x)
	if got := files(t, fs); len(got) != 3 {
		t.Fatalf("files %v", got)
	}
	return fs
}

// Every single bit of every file: a flip outside the blocks is found by Open, a flip
// inside by Verify and by the reads that meet it, which never answer wrongly.
func TestEveryFlippedBitIsFound(t *testing.T) {
	fs := smallIndex(t)
	x := mustOpen(t, fs, 4)
	if err := x.settle(); err != nil { // the sketches, which are made from these files
		t.Fatal(err)
	}
	for _, name := range files(t, fs) {
		data, err := fs.UnsafeGetFileDataBuffer(fs.PathJoin(testDir, name))
		if err != nil {
			t.Fatal(err)
		}
		blocks := 0
		if strings.HasSuffix(name, runSuffix) {
			blocks = blockBytes * 8
		}
		for bit := 0; bit < len(data)*8; bit += flipStride {
			data[bit/8] ^= 1 << (bit % 8)
			if bit < blocks {
				checkReads(t, x, name, bit)
			} else if _, err := Open(options(fs, 4)); !isDamage(err) || !strings.Contains(err.Error(), name) {
				t.Fatalf("%s bit %d: Open says %v", name, bit, err)
			}
			if err := x.Verify(nil); !isDamage(err) || !strings.Contains(err.Error(), name) {
				t.Fatalf("%s bit %d: Verify says %v", name, bit, err)
			}
			data[bit/8] ^= 1 << (bit % 8)
		}
	}
	if err := x.Verify(nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, x)
}

func checkReads(t *testing.T, x *Index, name string, bit int) {
	t.Helper()
	failed := 0
	for _, i := range []int{0, fanIn} { // one in each run
		f, err := x.Get(Hash{Hi: uint64(i + 1), Lo: mix(uint64(i))})
		switch {
		case isDamage(err):
			failed++
		case err != nil || f != (Found{Seq: uint64(i), Check: uint32(i), OK: true}):
			t.Fatalf("%s bit %d: key %d is answered %+v %v", name, bit, i, f, err)
		}
	}
	if failed != 1 {
		t.Fatalf("%s bit %d: %d runs fail their reads, not the one", name, bit, failed)
	}
}

// Every truncation of every file is found by Open.
func TestEveryTruncationIsFound(t *testing.T) {
	whole := smallIndex(t)
	for _, name := range files(t, whole) {
		path := whole.PathJoin(testDir, name)
		data, err := whole.UnsafeGetFileDataBuffer(path)
		if err != nil {
			t.Fatal(err)
		}
		data = append([]byte(nil), data...)
		for n := 0; n < len(data); n += 13 {
			writeFile(t, whole, path, data[:n])
			if _, err := Open(options(whole, 4)); !isDamage(err) {
				t.Fatalf("%s cut to %d bytes: %v", name, n, err)
			}
		}
		writeFile(t, whole, path, data)
	}
	mustClose(t, mustOpen(t, whole, 4))
}

func writeFile(t testing.TB, fs vfs.FS, path string, data []byte) {
	t.Helper()
	if err := writeSynced(fs, path, append([]byte(nil), data...)); err != nil {
		t.Fatal(err)
	}
}

func TestMissingFilesAreDamage(t *testing.T) {
	for _, lost := range files(t, smallIndex(t)) {
		fs := smallIndex(t)
		if err := fs.Remove(fs.PathJoin(testDir, lost)); err != nil {
			t.Fatal(err)
		}
		_, err := Open(options(fs, 4))
		if !isDamage(err) || !strings.Contains(err.Error(), lost) ||
			!strings.Contains(err.Error(), "tallystick rebuild") {
			t.Fatalf("without %s: %v", lost, err)
		}
	}
}

// Two runs that change places are whole, but each is damage where it stands.
func TestExchangedRunsAreDamage(t *testing.T) {
	fs := smallIndex(t)
	runs := runFiles(t, fs)
	a, b, c := fs.PathJoin(testDir, runs[0]), fs.PathJoin(testDir, runs[1]), fs.PathJoin(testDir, "aside")
	for _, move := range [][2]string{{a, c}, {b, a}, {c, b}} {
		if err := fs.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(options(fs, 4)); !isDamage(err) {
		t.Fatalf("exchanged runs: %v", err)
	}
}

// Two blocks of one run that change places are damage to the read that meets them.
func TestExchangedBlocksAreDamage(t *testing.T) {
	fs := vfs.NewMem()
	const n = 2 * blockKeys
	x := mustOpen(t, fs, n)
	fill(x, 0, n)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	data, err := fs.UnsafeGetFileDataBuffer(fs.PathJoin(testDir, runFiles(t, fs)[0]))
	if err != nil {
		t.Fatal(err)
	}
	first := append([]byte(nil), data[:blockBytes]...)
	copy(data, data[blockBytes:2*blockBytes])
	copy(data[blockBytes:], first)
	for i := range n {
		if f, err := x.Get(hashOf(uint64(i))); !isDamage(err) {
			t.Fatalf("key %d: %+v %v", i, f, err)
		}
	}
	mustClose(t, x)
}

func TestUnknownVersionsAreNamed(t *testing.T) {
	for _, name := range files(t, smallIndex(t)) {
		fs := smallIndex(t)
		data, err := fs.UnsafeGetFileDataBuffer(fs.PathJoin(testDir, name))
		if err != nil {
			t.Fatal(err)
		}
		whole := data
		if strings.HasSuffix(name, runSuffix) {
			whole = data[len(data)-footerBytes:]
		}
		binary.LittleEndian.PutUint32(whole[8:], 99)
		end := len(whole) - 4
		binary.LittleEndian.PutUint32(whole[end:], crc32.Checksum(whole[:end], castagnoli))
		_, err = Open(options(fs, 4))
		var version *VersionError
		if !errors.As(err, &version) || version.Version != 99 || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "upgrade") {
			t.Fatalf("%s of version 99: %v", name, err)
		}
	}
}

func TestAnotherStoresIndexIsRefused(t *testing.T) {
	fs := smallIndex(t)
	o := options(fs, 4)
	o.StoreID[0]++
	_, err := Open(o)
	var foreign *ForeignError
	if !errors.As(err, &foreign) || foreign.Got != testStore {
		t.Fatalf("opened with another id: %v", err)
	}
}

// Open removes what a crash left of unfinished work, and only that.
func TestOrphansAreRemovedAndStrangersStay(t *testing.T) {
	fs := smallIndex(t)
	before := files(t, fs)
	for _, name := range []string{runName(1 << 40), manifestTemp, "notes.txt", "x.run"} {
		writeFile(t, fs, fs.PathJoin(testDir, name), []byte("left behind"))
	}
	mustClose(t, mustOpen(t, fs, 4))
	if got := files(t, fs); len(got) != len(before)+2 {
		t.Fatalf("before %v, after %v", before, got)
	}
}

// A merge that meets damage loses nothing, reports it once, and stops merging;
// flushing and reading what is whole go on.
func TestMergeThatMeetsDamage(t *testing.T) {
	fs := vfs.NewMem()
	reported := make(chan error, 10)
	o := options(fs, 4)
	o.Fatal = func(err error) { reported <- err }
	x, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	fill(x, 0, 12)
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	bad := runFiles(t, fs)[0]
	data, err := fs.UnsafeGetFileDataBuffer(fs.PathJoin(testDir, bad))
	if err != nil {
		t.Fatal(err)
	}
	data[100] ^= 1
	fill(x, 12, 72)
	if err := x.settle(); !isDamage(err) {
		t.Fatalf("settle says %v", err)
	}
	if err := <-reported; !isDamage(err) || !strings.Contains(err.Error(), bad) {
		t.Fatalf("the owner got %v", err)
	}
	if err := x.Flush(); err != nil {
		t.Fatal(err)
	}
	if s := x.Stats(); !s.Halted || s.MergesDone != 0 || s.Entries != 72 {
		t.Fatalf("%+v", s)
	}
	for i := range 72 {
		f, err := x.Get(hashOf(uint64(i)))
		if (i < 4) != isDamage(err) || i >= 4 && f.Seq != uint64(i) {
			t.Fatalf("key %d: %+v %v", i, f, err)
		}
	}
	mustClose(t, x)
	if len(reported) > 0 {
		t.Fatalf("reported again: %v", <-reported)
	}
}

// The owner broke its promise and inserted a key twice: the merge that brings them
// together says so instead of choosing one.
func TestMergeOfAKeyInTwoRuns(t *testing.T) {
	x := mustOpen(t, vfs.NewMem(), 1)
	for i := range fanIn {
		x.Insert(Entry{Hash: hashOf(uint64(i % (fanIn - 1))), Seq: uint64(i)})
		x.Freeze(markOf(i + 1))
		x.Durable(markOf(i + 1))
	}
	if err := x.settle(); !isDamage(err) || !strings.Contains(err.Error(), "key in two runs") ||
		!strings.Contains(err.Error(), runName(fanIn)) {
		t.Fatalf("settle says %v", err)
	}
	mustClose(t, x)
}

// Two entries of a block have changed places, and its CRC is right all the same: a
// merge sorts what it takes, and must not sort this away.
func TestMergeOfAKeyOutOfOrder(t *testing.T) {
	fs := vfs.NewMem()
	x := mustOpen(t, fs, 2)
	fill(x, 0, 2*(fanIn-1))
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	bad := runFiles(t, fs)[3]
	data, err := fs.UnsafeGetFileDataBuffer(fs.PathJoin(testDir, bad))
	if err != nil {
		t.Fatal(err)
	}
	first := append([]byte(nil), data[:entryBytes]...)
	copy(data, data[entryBytes:2*entryBytes])
	copy(data[entryBytes:], first)
	number, _ := runNumber(bad)
	binary.LittleEndian.PutUint32(data[blockBytes-4:], blockCRC(number, 0, data[:blockBytes-4]))
	fill(x, 2*(fanIn-1), 2*fanIn)
	if err := x.settle(); !isDamage(err) || !strings.Contains(err.Error(), bad+" at offset 26: key out of order") {
		t.Fatalf("settle says %v", err)
	}
	mustClose(t, x)
}

// A run whose keys lie before or behind its range: merging it would hide them.
func TestMergeOfAKeyOutsideItsRange(t *testing.T) {
	for name, hi := range map[string]uint64{"before": 3<<58 + 1, "behind": 8 << 58} {
		x := mustOpen(t, vfs.NewMem(), 4)
		inside, outside := Entry{Hash: Hash{Hi: 5 << 58}}, Entry{Hash: Hash{Hi: hi}}
		entries := []Entry{inside, outside}
		if hi < inside.Hash.Hi {
			entries = []Entry{outside, inside}
		}
		w, err := x.newWriter(2, 4, 4, 2)
		if err != nil {
			t.Fatal(err)
		}
		r, err := x.finishRun(w, w.append(entries))
		if err != nil {
			t.Fatal(err)
		}
		if err := x.merge([]*run{r}); !isDamage(err) || !strings.Contains(err.Error(), "outside the range") {
			t.Errorf("%s: merge says %v", name, err)
		}
		if err := r.file.Close(); err != nil {
			t.Fatal(err)
		}
		mustClose(t, x)
	}
}
