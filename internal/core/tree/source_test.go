package tree

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// kept is what a store keeps of a tree, and no more. It refuses what a store with size rows could not answer.
type kept struct {
	leaves map[uint64]Hash
	tiles  map[[2]uint64]Hash
	size   uint64
}

func keep(leaves []Hash, tiles []Tile) kept {
	k := kept{leaves: map[uint64]Hash{}, tiles: map[[2]uint64]Hash{}, size: MaxSize}
	for i, leaf := range leaves {
		k.leaves[uint64(i+1)] = leaf
	}
	for _, t := range tiles {
		k.tiles[[2]uint64{uint64(t.Level), t.Index}] = t.Hash
	}
	return k
}

func (k kept) Leaves(first, last uint64) ([]Hash, error) {
	if first > last || (first-1)/TileRows != (last-1)/TileRows {
		return nil, errors.New("the rows are not in one tile")
	}
	var out []Hash
	for seq := first; seq <= last; seq++ {
		leaf, ok := k.leaves[seq]
		if !ok || seq > k.size {
			return nil, fmt.Errorf("no leaf of row %d", seq)
		}
		out = append(out, leaf)
	}
	return out, nil
}

func (k kept) Tiles(level int, first, last uint64) ([]Hash, error) {
	if first > last || first/TileRows != last/TileRows {
		return nil, errors.New("the tiles are not in one tile")
	}
	var out []Hash
	for index := first; index <= last; index++ {
		h, ok := k.tiles[[2]uint64{uint64(level), index}]
		if _, end := (Tile{Level: level, Index: index}).Rows(); !ok || end > k.size {
			return nil, fmt.Errorf("no tile %d of level %d", index, level)
		}
		out = append(out, h)
	}
	return out, nil
}

// reader lets tlog make its proofs from what is kept.
func reader(src Source) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			height, n := tlog.SplitStoredHashIndex(index)
			h, err := Subtree(src, height, uint64(n))
			if err != nil {
				return nil, err
			}
			out[i] = tlog.Hash(h)
		}
		return out, nil
	})
}

// checkProofs lets tlog compute the root, prove a leaf and prove growth, all from what is kept of a tree.
func checkProofs(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, src Source, tree, older Tree, seq uint64, leaf Hash) {
	t.Helper()
	size, root := int64(tree.Size()), tlog.Hash(tree.Root())
	if got, err := tlog.TreeHash(size, reader(src)); err != nil || got != root {
		t.Fatalf("tlog's root of %d leaves: %v, %v, want %v", size, got, err, root)
	}
	proof, err := tlog.ProveRecord(size, int64(seq-1), reader(src))
	if err != nil {
		t.Fatalf("prove row %d in %d: %v", seq, size, err)
	}
	if err := tlog.CheckRecord(proof, size, root, int64(seq-1), tlog.Hash(leaf)); err != nil {
		t.Fatalf("check row %d in %d: %v", seq, size, err)
	}
	grown, err := tlog.ProveTree(size, int64(older.Size()), reader(src))
	if err != nil {
		t.Fatalf("prove that %d rows became %d: %v", older.Size(), size, err)
	}
	if err := tlog.CheckTree(grown, size, root, int64(older.Size()), tlog.Hash(older.Root())); err != nil {
		t.Fatalf("check that %d rows became %d: %v", older.Size(), size, err)
	}
}

func TestWhatIsKeptSufficesForProofs(t *testing.T) {
	leaves := someLeaves(1500)
	rapid.Check(t, func(t *rapid.T) {
		n := max(1, sizes.Draw(t, "size"))
		tree, tiles := grow(leaves[:n])
		older, _ := grow(leaves[:rapid.IntRange(1, n).Draw(t, "older")])
		seq := rapid.IntRange(1, n).Draw(t, "seq")
		checkProofs(t, keep(leaves[:n], tiles), tree, older, uint64(seq), leaves[seq-1])
	})
}

func TestProofsAcrossTilesOfTheSecondLevel(t *testing.T) {
	leaves := someLeaves(2*TileRows*TileRows + 1)
	hashes := storedHashes(t, leaves)
	var tiles []Tile
	var a Appender
	trees := make([]Tree, 1, len(leaves)+1)
	for i := range leaves {
		tiles = a.Append(leaves[i:i+1], tiles)
		trees = append(trees, a.Tree())
	}
	src := keep(leaves, tiles)
	for _, n := range []int{65535, 65536, 65537, 65791, 65792, 65793, 131071, 131072, 131073} {
		src.size = uint64(n)
		if want, err := tlog.TreeHash(int64(n), hashes); err != nil || tlog.Hash(trees[n].Root()) != want {
			t.Fatalf("root of %d leaves: %x, want %v, %v", n, trees[n].Root(), want, err)
		}
		if rebuilt, err := Rebuild(src, uint64(n)); err != nil || rebuilt != trees[n] {
			t.Fatalf("rebuild %d leaves: %v", n, err)
		}
		for _, seq := range []int{1, 256, 257, 65281, n / 2, n - 1, n} {
			checkProofs(t, src, trees[n], trees[seq], uint64(seq), leaves[seq-1])
		}
	}
}

// storedHashes is tlog's own way to keep a tree: every node of it.
func storedHashes(t *testing.T, leaves []Hash) tlog.HashReader {
	t.Helper()
	var stored []tlog.Hash
	all := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			out[i] = stored[index]
		}
		return out, nil
	})
	for i, leaf := range leaves {
		more, err := tlog.StoredHashesForRecordHash(int64(i), tlog.Hash(leaf), all)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, more...)
	}
	return all
}

func TestRebuildSeesWhatWasChanged(t *testing.T) {
	leaves := someLeaves(2*TileRows + 7)
	tree, tiles := grow(leaves)
	changed := func(change func(kept)) (Tree, error) {
		src := keep(leaves, tiles)
		change(src)
		return Rebuild(src, tree.Size())
	}
	for name, change := range map[string]func(kept){
		"a leaf of the open end": func(k kept) { k.leaves[tree.Size()] = Hash{1} },
		"a tile":                 func(k kept) { k.tiles[[2]uint64{1, 1}] = Hash{1} },
	} {
		if rebuilt, err := changed(change); err != nil || rebuilt == tree {
			t.Errorf("%s was changed and the tree is the same (%v)", name, err)
		}
	}
	for name, change := range map[string]func(kept){
		"a leaf of the open end": func(k kept) { delete(k.leaves, tree.Size()) },
		"a tile":                 func(k kept) { delete(k.tiles, [2]uint64{1, 1}) },
	} {
		if _, err := changed(change); err == nil {
			t.Errorf("%s is missing and nothing is said", name)
		}
	}
	if Perfect(leaves[:TileRows]) != tiles[0].Hash {
		t.Error("a tile is not what its leaves give")
	}
	if Perfect(append([]Hash{{1}}, leaves[1:TileRows]...)) == tiles[0].Hash {
		t.Error("a leaf inside a tile was changed and the tile is the same")
	}
}

// short returns one hash less than it was asked for.
type short struct{ Source }

func (s short) Leaves(first, last uint64) ([]Hash, error) {
	h, err := s.Source.Leaves(first, last)
	return h[1:], err
}

func (s short) Tiles(level int, first, last uint64) ([]Hash, error) {
	h, err := s.Source.Tiles(level, first, last)
	return h[1:], err
}

func TestASourceThatReturnsLessIsRefused(t *testing.T) {
	leaves := someLeaves(TileRows + 3)
	_, tiles := grow(leaves)
	src := short{keep(leaves, tiles)}
	for _, size := range []uint64{3, TileRows, TileRows + 3} {
		if _, err := Rebuild(src, size); err == nil {
			t.Errorf("a tree of %d leaves was rebuilt from too few hashes", size)
		}
	}
	for height := range tileHeight + 1 {
		if _, err := Subtree(src, height, 0); err == nil {
			t.Errorf("a subtree of height %d was computed from too few hashes", height)
		}
	}
}

// anything has every leaf and every tile.
type anything struct{}

func (anything) Leaves(first, last uint64) ([]Hash, error) { return make([]Hash, last-first+1), nil }

func (anything) Tiles(_ int, first, last uint64) ([]Hash, error) {
	return make([]Hash, last-first+1), nil
}

func TestOutOfBounds(t *testing.T) {
	src := anything{}
	for _, c := range []struct {
		height int
		index  uint64
	}{{-1, 0}, {0, MaxSize}, {62, 1}, {63, 0}, {8, MaxSize >> 8}} {
		if _, err := Subtree(src, c.height, c.index); err == nil {
			t.Errorf("a subtree of height %d at %d", c.height, c.index)
		}
	}
	for _, height := range []int{0, 7, 8, 61, 62} {
		if _, err := Subtree(src, height, MaxSize>>height-1); err != nil {
			t.Errorf("the last subtree of height %d: %v", height, err)
		}
	}
	if tree, err := Rebuild(src, MaxSize); err != nil || tree.Size() != MaxSize {
		t.Errorf("rebuild the largest tree: size %d, %v", tree.Size(), err)
	}
	if _, err := Rebuild(src, MaxSize+1); err == nil {
		t.Error("a tree larger than the largest")
	}
	full := AppendBinary(nil, Tree{size: MaxSize, peaks: string(make([]byte, maxPeaks*HashSize))})
	largest, _, err := ReadBinary(full)
	if err != nil {
		t.Fatal(err)
	}
	var a Appender
	a.Reset(largest)
	mustPanic(t, "a leaf behind the largest tree", func() { a.Append(make([]Hash, 1), nil) })
	mustPanic(t, "a tile that does not fit", func() {
		var a Appender
		a.Append(make([]Hash, 1), nil)
		a.AppendTile(1, Hash{}, nil)
	})
	mustPanic(t, "a tile of level 0", func() { new(Appender).AppendTile(0, Hash{}, nil) })
	mustPanic(t, "a tile of level 8", func() { new(Appender).AppendTile(maxLevel+1, Hash{}, nil) })
	mustPanic(t, "a perfect subtree of none", func() { Perfect(nil) })
	mustPanic(t, "a perfect subtree of three", func() { Perfect(make([]Hash, 3)) })
}
