package tree

import (
	"testing"

	"pgregory.net/rapid"
)

func TestPruningKeepsWhatProofsNeed(t *testing.T) {
	leaves := someLeaves(3*TileRows + 40)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(1, len(leaves)), rapid.SampledFrom([]int{256, 512, 600})).Draw(t, "size")
		staying := map[uint64]bool{}
		for _, seq := range rapid.SliceOfN(rapid.IntRange(1, n), 0, 3).Draw(t, "staying") {
			staying[uint64(seq)] = true
		}
		stays := func(seq uint64) bool { return staying[seq] }
		tree, tiles := grow(leaves[:n])
		src := keep(nil, tiles)
		for seq := range staying {
			src.leaves[seq] = leaves[seq-1]
		}
		full := 0
		for index := range uint64(n-1)/TileRows + 1 {
			for _, seq := range KeptLeaves(index, uint64(n), stays) {
				if stays(seq) || (seq-1)/TileRows != index {
					t.Fatalf("row %d is kept for tile %d", seq, index)
				}
				src.leaves[seq] = leaves[seq-1]
			}
			// A tile's rows are there to the last one, or it is full and none is.
			first, last := Tile{Level: 1, Index: index}.Rows()
			_, err := src.Leaves(first, min(last, uint64(n)))
			if _, some := src.leaves[first]; some != (err == nil) || err != nil && last > uint64(n) {
				t.Fatalf("tile %d of %d rows lacks leaves: %v", index, n, err)
			}
			if err == nil {
				full++
			}
		}
		if len(staying) == 0 && full > 1 {
			t.Fatalf("no row stays and the leaves of %d tiles are kept", full)
		}
		if rebuilt, err := Rebuild(src, uint64(n)); err != nil || rebuilt != tree {
			t.Fatalf("rebuild after pruning: %v", err)
		}
		for seq := range staying {
			older, _ := grow(leaves[:(seq-1)/TileRows*TileRows+1])
			checkProofs(t, src, tree, older, seq, leaves[seq-1])
		}
	})
}
