package tree

import "fmt"

// Source gives what a store has of a tree. Ranges include both ends and are never empty. A store that lacks a part of
// a range returns an error, never less than was asked for.
type Source interface {
	// Leaves returns the leaves of rows first to last, which lie in one tile of level 1: hashed from the rows again,
	// or kept where a row has left (see KeptLeaves).
	Leaves(first, last uint64) ([]Hash, error)
	// Tiles returns the hashes of full tiles of a level, by their indexes. All lie in one tile of the next level.
	Tiles(level int, first, last uint64) ([]Hash, error)
}

// Rebuild computes the tree of the first size rows from what the store has: from tiles where they are full, and from
// leaves at the open end. A store is sound if this equals the tree that it keeps, each tile of level 1 equals Perfect
// of its leaves, and each other tile equals Perfect of its 256 tiles.
func Rebuild(src Source, size uint64) (Tree, error) {
	if size > MaxSize {
		return Tree{}, fmt.Errorf("a tree of %d rows is larger than any can be", size)
	}
	var a Appender
	for level := maxLevel; level >= 1; level-- {
		height := level * tileHeight
		first, end := size>>height&^(TileRows-1), size>>height
		if first == end {
			continue
		}
		tiles, err := readTiles(src, level, first, end-1)
		if err != nil {
			return Tree{}, err
		}
		for i := range tiles {
			a.AppendTile(level, tiles[i], nil)
		}
	}
	if a.size < size {
		leaves, err := readLeaves(src, a.size+1, size)
		if err != nil {
			return Tree{}, err
		}
		a.Append(leaves, nil)
	}
	return a.Tree(), nil
}

// Subtree is the root of the perfect subtree of 2^height leaves at an index: that of rows index·2^height + 1 to
// (index+1)·2^height, all of which the ledger must have. It reads tiles of one level, or leaves of one tile.
func Subtree(src Source, height int, index uint64) (Hash, error) {
	if height < 0 || height >= maxPeaks || index >= MaxSize>>height {
		return Hash{}, fmt.Errorf("no tree has a subtree of height %d at index %d", height, index)
	}
	level, above := height/tileHeight, height%tileHeight
	first, end := index<<above, (index+1)<<above
	var parts []Hash
	var err error
	if level == 0 {
		parts, err = readLeaves(src, first+1, end)
	} else {
		parts, err = readTiles(src, level, first, end-1)
	}
	if err != nil {
		return Hash{}, err
	}
	return Perfect(parts), nil
}

// Perfect is the root over the hashes of equal subtrees, or over leaves. There must be a power of two of them.
func Perfect(hashes []Hash) Hash {
	n := len(hashes)
	if n == 0 || n&(n-1) != 0 {
		panic(fmt.Sprintf("tree: a perfect subtree of %d parts", n))
	}
	if n == 1 {
		return hashes[0]
	}
	left, right := Perfect(hashes[:n/2]), Perfect(hashes[n/2:])
	return node(&left, &right)
}

func readLeaves(src Source, first, last uint64) ([]Hash, error) {
	leaves, err := src.Leaves(first, last)
	if err != nil {
		return nil, fmt.Errorf("read leaves of rows %d to %d: %w", first, last, err)
	}
	if uint64(len(leaves)) != last-first+1 {
		return nil, fmt.Errorf("read leaves of rows %d to %d: got %d", first, last, len(leaves))
	}
	return leaves, nil
}

func readTiles(src Source, level int, first, last uint64) ([]Hash, error) {
	tiles, err := src.Tiles(level, first, last)
	if err != nil {
		return nil, fmt.Errorf("read tiles %d to %d of level %d: %w", first, last, level, err)
	}
	if uint64(len(tiles)) != last-first+1 {
		return nil, fmt.Errorf("read tiles %d to %d of level %d: got %d", first, last, level, len(tiles))
	}
	return tiles, nil
}
