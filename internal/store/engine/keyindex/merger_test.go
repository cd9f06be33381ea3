package keyindex

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Whatever the hashes, pieces come out in order, whole, and no larger than what the
// cursors hold: also when every key shares its Hi, and when one run is far longer.
func TestPiecesAreSortedAndBounded(t *testing.T) {
	for name, hash := range map[string]func(uint64) Hash{
		"uniform": hashOf,
		"one Hi":  func(i uint64) Hash { return Hash{Hi: 7 << 40, Lo: mix(i)} },
		"cluster": func(i uint64) Hash { return Hash{Hi: mix(i) >> 40, Lo: i} },
		"ends":    func(i uint64) Hash { return Hash{Hi: -(i & 1), Lo: i} },
	} {
		x := mustOpen(t, vfs.NewMem(), 4)
		var inputs []*run
		var want []Hash
		for r, n := range []uint64{1, 200, 2 * readBlocks * blockKeys, 3*readBlocks*blockKeys + 5} {
			var entries []Entry
			for i := range n {
				entries = append(entries, Entry{Hash: hash(uint64(r)<<32 + i), Seq: i})
			}
			slices.SortFunc(entries, func(a, b Entry) int { return a.Hash.compare(b.Hash) })
			for _, e := range entries {
				want = append(want, e.Hash)
			}
			w, err := x.newWriter(0, 0, x.partitions, int64(n))
			if err != nil {
				t.Fatal(err)
			}
			in, err := x.finishRun(w, w.append(entries))
			if err != nil {
				t.Fatal(err)
			}
			defer in.file.Close()
			inputs = append(inputs, in)
		}
		slices.SortFunc(want, Hash.compare)
		m, err := newMerger(inputs, 0, x.pshift)
		if err != nil {
			t.Fatal(err)
		}
		var got []Hash
		for {
			piece, err := m.next(maxHash.Hi)
			if err != nil {
				t.Fatal(err)
			}
			if len(piece) == 0 {
				break
			}
			if len(piece) > len(inputs)*readBlocks*blockKeys {
				t.Fatalf("%s: a piece of %d entries", name, len(piece))
			}
			for _, e := range piece {
				got = append(got, e.Hash)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %d keys of %d, or not in order", name, len(got), len(want))
		}
		mustClose(t, x)
	}
}
