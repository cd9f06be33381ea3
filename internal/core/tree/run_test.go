package tree

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/sha256lanes"
)

// oneByOne adds leaves without any run.
func oneByOne(a *Appender, leaves []Hash, tiles []Tile) []Tile {
	for i := range leaves {
		tiles = a.add(leaves[i], 0, tiles)
	}
	return tiles
}

func everyKernel(t *testing.T, test func(t *testing.T, kernel sha256lanes.Kernel)) {
	for _, kernel := range sha256lanes.Kernels() {
		t.Run(kernel.String(), func(t *testing.T) { test(t, kernel) })
	}
}

func TestARunIsItsLeavesOneByOne(t *testing.T) {
	leaves := someLeaves(1500)
	lengths := rapid.OneOf(rapid.IntRange(0, 1), rapid.IntRange(0, 40), rapid.IntRange(0, 1500),
		rapid.SampledFrom([]int{254, 255, 256, 257, 258, 512, 768, 1024}))
	everyKernel(t, func(t *testing.T, kernel sha256lanes.Kernel) {
		var a, plain Appender // for all trees, so that one must leave no trace in the next
		a.Use(kernel)
		rapid.Check(t, func(t *rapid.T) {
			a.Reset(Tree{})
			plain.Reset(Tree{})
			var tiles, plainTiles []Tile
			for at := 0; at < len(leaves); {
				run := leaves[at:min(len(leaves), at+1+lengths.Draw(t, "length"))]
				at += len(run)
				tiles = a.Append(run, tiles)
				plainTiles = oneByOne(&plain, run, plainTiles)
				if a.Tree() != plain.Tree() || !slices.Equal(tiles, plainTiles) {
					t.Fatalf("%d leaves of which the last %d are a run give another tree or other tiles", at, len(run))
				}
			}
		})
	})
}

// Every run inside a tile: from each number of rows before it, to each after it.
func TestEveryRunInATile(t *testing.T) {
	leaves := someLeaves(TileRows + 1)
	trees := []Tree{{}}
	var plain Appender
	for i := range leaves {
		oneByOne(&plain, leaves[i:i+1], nil)
		trees = append(trees, plain.Tree())
	}
	everyKernel(t, func(t *testing.T, kernel sha256lanes.Kernel) {
		var a Appender
		a.Use(kernel)
		var tiles []Tile
		for from := range TileRows {
			// All ends near the begin, and some of the others.
			for to := from + 1; to <= len(leaves); to += 1 + (to-from)/40*7 {
				a.Reset(trees[from])
				tiles = a.Append(leaves[from:to], tiles[:0])
				if a.Tree() != trees[to] {
					t.Fatalf("leaves %d to %d give another tree", from, to)
				}
				if full := to >= TileRows; full != (len(tiles) == 1) {
					t.Fatalf("leaves %d to %d complete %d tiles", from, to, len(tiles))
				}
			}
		}
	})
}

// A run that completes tiles of several levels at once, far from the tree's begin.
func TestARunCompletesHigherTiles(t *testing.T) {
	leaves := someLeaves(2 * TileRows)
	everyKernel(t, func(t *testing.T, kernel sha256lanes.Kernel) {
		for _, missing := range []int{1, 7, 8, 100, TileRows} {
			var a, plain Appender
			a.Use(kernel)
			// All but the last tile of the last tile of level 2, in a tree that lacks one tile of a tile of level 3.
			for range TileRows - 1 {
				plain.AppendTile(2, leaves[0], nil)
			}
			for range TileRows - 1 {
				plain.AppendTile(1, leaves[1], nil)
			}
			oneByOne(&plain, leaves[:TileRows-missing], nil)
			a.Reset(plain.Tree())
			tiles := a.Append(leaves[TileRows-missing:], nil)
			plainTiles := oneByOne(&plain, leaves[TileRows-missing:], nil)
			if a.Tree() != plain.Tree() || !slices.Equal(tiles, plainTiles) {
				t.Fatalf("%d leaves before a full tile give another tree or other tiles", missing)
			}
			if len(tiles) != 4 || tiles[2].Level != 3 {
				t.Fatalf("completed tiles: %+v", tiles)
			}
		}
	})
}

func TestARunBehindTheLargestTree(t *testing.T) {
	before := Tree{size: MaxSize - 15, peaks: string(make([]byte, (maxPeaks-4)*HashSize))}
	everyKernel(t, func(t *testing.T, kernel sha256lanes.Kernel) {
		var a, plain Appender
		a.Use(kernel)
		a.Reset(before)
		plain.Reset(before)
		a.Append(someLeaves(15), nil)
		oneByOne(&plain, someLeaves(15), nil)
		if a.Tree() != plain.Tree() || a.Tree().Size() != MaxSize {
			t.Fatalf("a run up to the largest tree gives another tree of %d leaves", a.Tree().Size())
		}
		a.Reset(before)
		mustPanic(t, "a run beyond the largest tree", func() { a.Append(make([]Hash, 16), nil) })
	})
}

func TestManyLeavesAreThoseOfSingleRows(t *testing.T) {
	everyKernel(t, func(t *testing.T, kernel sha256lanes.Kernel) {
		var single, many Hasher
		many.Use(kernel)
		rapid.Check(t, func(t *rapid.T) {
			first := rapid.Uint64Range(1, 100).Draw(t, "first")
			keys := mustKeys(t, Key{FromSeq: 1, Secret: [32]byte{1}},
				Key{FromSeq: rapid.Uint64Range(2, 150).Draw(t, "second key"), Secret: [32]byte{2}})
			sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(150, 250), rapid.IntRange(0, 1200)), 0, 100).Draw(t,
				"sizes")
			rows, leaves := make([][]byte, len(sizes)), make([]Hash, len(sizes))
			for i, size := range sizes {
				rows[i] = slices.Repeat([]byte{byte(i), byte(size)}, size/2+1)[:size]
			}
			many.Leaves(keys, first, rows, leaves)
			for i, row := range rows {
				if leaves[i] != single.Leaf(keys, first+uint64(i), row) {
					t.Fatalf("the leaf of row %d, number %d of %d, is another", first+uint64(i), i, len(rows))
				}
			}
		})
	})
	var h Hasher
	keys := mustKeys(t, Key{FromSeq: 1})
	mustPanic(t, "one leaf for two rows", func() { h.Leaves(keys, 1, make([][]byte, 2), make([]Hash, 1)) })
	mustPanic(t, "a row 0", func() { h.Leaves(keys, 0, make([][]byte, 2), make([]Hash, 2)) })
}
