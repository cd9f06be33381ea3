package tree

import (
	"fmt"
	"strings"
)

// TileRows is how many rows a tile of level 1 covers, and how many tiles make one of the next level.
const TileRows = 1 << tileHeight

const (
	tileHeight = 8
	maxLevel   = maxPeaks / tileHeight
)

// Tile is the root of a perfect subtree of 256^Level rows. Its hash is kept for good as soon as all its rows are there.
type Tile struct {
	Level int    // from 1
	Index uint64 // from 0, among the tiles of its level
	Hash  Hash
}

// Rows are the sequence numbers of the first and the last row of a tile.
func (t Tile) Rows() (first, last uint64) {
	height := t.Level * tileHeight
	return t.Index<<height + 1, (t.Index + 1) << height
}

// Appender adds leaves to a tree. It allocates its buffers with the first longer run of leaves, then nothing but the
// tiles' slice when that is too short, and it can be used for one tree after the other. The zero value stands at the
// empty tree.
//
// Appending is the part of the work that has an order. It costs one hash a leaf, whatever the size of the tree; the
// leaves themselves are independent, so they can be hashed before, on several cores. The nodes of one level are
// independent too: those of a longer run are hashed side by side.
type Appender struct {
	size   uint64
	count  int // of peaks in use
	peaks  [maxPeaks]Hash
	levels *levels
}

// Reset makes t the tree that leaves are added to.
func (a *Appender) Reset(t Tree) {
	a.size, a.count = t.size, len(t.peaks)/HashSize
	for i := range a.count {
		a.peaks[i] = t.peak(i)
	}
}

// Tree is the tree with all that was added.
func (a *Appender) Tree() Tree {
	var b strings.Builder
	b.Grow(a.count * HashSize)
	for i := range a.count {
		b.Write(a.peaks[i][:])
	}
	return Tree{size: a.size, peaks: b.String()}
}

// Append adds the leaves of the next rows, in order, and appends the tiles that they complete to tiles: by their last
// row, the smaller of two with the same last row first.
func (a *Appender) Append(leaves []Hash, tiles []Tile) []Tile {
	for len(leaves) >= fewestInRun {
		// No run reaches into the next tile, so what is inside of a tile is all that a run can change.
		n := min(len(leaves), TileRows-int(a.size%TileRows))
		tiles = a.addRun(leaves[:n], tiles)
		leaves = leaves[n:]
	}
	for i := range leaves {
		tiles = a.add(leaves[i], 0, tiles)
	}
	return tiles
}

// AppendTile adds all rows of the next tile of a level at once, by its hash. It is how a tree is computed again whose
// rows were archived. The tree's size must be a multiple of what the tile covers. The tiles that this completes are
// appended to tiles, the added one included.
func (a *Appender) AppendTile(level int, hash Hash, tiles []Tile) []Tile {
	height := level * tileHeight
	if level < 1 || level > maxLevel || a.size&(1<<height-1) != 0 {
		panic(fmt.Sprintf("tree: a tile of level %d does not fit behind %d rows", level, a.size))
	}
	return a.add(hash, height, tiles)
}

// add puts a perfect subtree of 2^height leaves behind the last one, and joins it with its equals as in a binary
// addition with carry: a digit of the new size that is 0 says that there was a peak of that height.
func (a *Appender) add(h Hash, height int, tiles []Tile) []Tile {
	if a.size > MaxSize-1<<height {
		panic(fmt.Sprintf("tree: 2^%d leaves behind %d are more than a tree can have", height, a.size))
	}
	a.size += 1 << height
	for {
		if height > 0 && height%tileHeight == 0 {
			tiles = append(tiles, Tile{Level: height / tileHeight, Index: a.size>>height - 1, Hash: h})
		}
		if a.size>>height&1 == 1 {
			break
		}
		a.count--
		h = node(&a.peaks[a.count], &h)
		height++
	}
	a.peaks[a.count] = h
	a.count++
	return tiles
}
