package tree

import (
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// plainRoot is the definition of RFC 6962, section 2.1, over leaves that are hashed already.
func plainRoot(leaves []Hash) Hash {
	switch len(leaves) {
	case 0:
		return Hash(sha256Of())
	case 1:
		return leaves[0]
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	left, right := plainRoot(leaves[:k]), plainRoot(leaves[k:])
	return Hash(sha256Of([]byte{1}, left[:], right[:]))
}

// someLeaves are as different as the leaves of rows, and cheap.
func someLeaves(n int) []Hash {
	leaves := make([]Hash, n)
	for i := range leaves {
		leaves[i] = Hash(sha256Of(binary.BigEndian.AppendUint64(nil, uint64(i))))
	}
	return leaves
}

func grow(leaves []Hash) (Tree, []Tile) {
	var a Appender
	tiles := a.Append(leaves, nil)
	return a.Tree(), tiles
}

func TestRootsAreThoseOfTheDefinition(t *testing.T) {
	leaves := someLeaves(2*TileRows + 2)
	var a Appender
	for n := range len(leaves) + 1 {
		if got, want := a.Tree().Root(), plainRoot(leaves[:n]); got != want {
			t.Fatalf("root of %d leaves: %x, want %x", n, got, want)
		}
		if a.Tree().Size() != uint64(n) {
			t.Fatalf("size of %d leaves: %d", n, a.Tree().Size())
		}
		if n < len(leaves) {
			a.Append(leaves[n:n+1], nil)
		}
	}
}

// sizes are around powers of two and of 256, or anything small.
var sizes = rapid.OneOf(
	rapid.SampledFrom([]int{0, 1, 2, 3, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025}),
	rapid.IntRange(0, 1500),
)

func TestRunsOfAnyLengthGiveTheSameTree(t *testing.T) {
	leaves := someLeaves(1500)
	rapid.Check(t, func(t *rapid.T) {
		n := sizes.Draw(t, "size")
		want, wantTiles := grow(leaves[:n])
		if want.Root() != plainRoot(leaves[:n]) {
			t.Fatal("the root is not that of the definition")
		}
		var tree Tree
		var tiles []Tile
		var a Appender
		a.Append(leaves, nil) // of another tree, which must leave no trace
		for at := 0; at < n; {
			run := rapid.OneOf(rapid.IntRange(1, n-at), rapid.IntRange(1, min(5, n-at))).Draw(t, "run")
			a.Reset(tree)
			tiles = a.Append(leaves[at:at+run], tiles)
			tree = a.Tree()
			at += run
		}
		if tree != want || !slices.Equal(tiles, wantTiles) {
			t.Fatalf("%d leaves in runs give another tree or other tiles", n)
		}
		rebuilt, err := Rebuild(keep(leaves[:n], tiles), uint64(n))
		if err != nil || rebuilt != want {
			t.Fatalf("rebuild %d leaves: %v", n, err)
		}
	})
}

func TestFullEndsWithTheLastFullTile(t *testing.T) {
	leaves := someLeaves(3*TileRows + 1)
	for _, n := range []int{0, 1, TileRows - 1, TileRows, TileRows + 1, 2*TileRows + 77, 3 * TileRows, 3*TileRows + 1} {
		tree, _ := grow(leaves[:n])
		if want, _ := grow(leaves[:n/TileRows*TileRows]); tree.Full() != want {
			t.Errorf("the full tiles of %d leaves make a tree of %d", n, tree.Full().Size())
		}
	}
}

func TestTilesAreCompletedInOrder(t *testing.T) {
	leaves := someLeaves(TileRows*TileRows + TileRows)
	_, tiles := grow(leaves)
	for i, tile := range tiles {
		want := Tile{Level: 1, Index: uint64(i)}
		switch {
		case i == TileRows:
			want = Tile{Level: 2}
		case i > TileRows:
			want.Index--
		}
		first, last := want.Rows()
		if want.Hash = plainRoot(leaves[first-1 : last]); tile != want {
			t.Fatalf("tile %d is %+v, want %+v", i, tile, want)
		}
	}
	if len(tiles) != TileRows+2 {
		t.Fatalf("%d tiles, want %d", len(tiles), TileRows+2)
	}
}

// Whole tiles are to the tiles of the next level what leaves are to tiles. This reaches levels that no test could with
// leaves.
func TestAppendedTilesCompleteHigherOnes(t *testing.T) {
	hashes := someLeaves(TileRows*TileRows + 3)
	plain, plainTiles := grow(hashes)
	for _, level := range []int{1, 5} {
		var a Appender
		var tiles []Tile
		for _, h := range hashes {
			tiles = a.AppendTile(level, h, tiles)
		}
		tiles = slices.DeleteFunc(tiles, func(tile Tile) bool { return tile.Level == level })
		want := slices.Clone(plainTiles)
		for i := range want {
			want[i].Level += level
		}
		if !slices.Equal(tiles, want) {
			t.Fatalf("tiles of level %d complete other tiles than leaves do", level)
		}
		tree := a.Tree()
		if tree.Root() != plain.Root() || tree.Size() != plain.Size()<<(tileHeight*level) {
			t.Fatalf("tiles of level %d give another tree than leaves do", level)
		}
		all := keep(nil, tiles)
		for i, h := range hashes {
			all.tiles[[2]uint64{uint64(level), uint64(i)}] = h
		}
		if rebuilt, err := Rebuild(all, tree.Size()); err != nil || rebuilt != tree {
			t.Fatalf("rebuild from tiles of level %d: %v", level, err)
		}
	}
}

func mustPanic(t *testing.T, what string, do func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s is accepted", what)
		}
	}()
	do()
}
