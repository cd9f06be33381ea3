package tree

import "github.com/tallystick/tallystick/internal/core/sha256lanes"

// fewestInRun is how many leaves are added level by level and not one by one. Fewer give hardly any nodes that could be
// hashed side by side, and were measured to gain nothing.
const fewestInRun = 8

// levels computes one level of a tile from the level below it.
type levels struct {
	lanes sha256lanes.Hasher
	// nodes are those of the level from index 1 on. Index 0 is for the one that stood before them.
	nodes [1 + TileRows]Hash
}

// addRun puts leaves behind the last one, all in the same tile, with the result that add has for one after the other.
// It goes up level by level. Where the tree's size has the binary digit 1, there is a peak, which is the left half of
// the level's first new node. What is left over at the end of a level is a peak of the tree with the leaves.
func (a *Appender) addRun(leaves []Hash, tiles []Tile) []Tile {
	if a.levels == nil {
		a.levels = new(levels)
	}
	var peaks [tileHeight]Hash // the smallest first
	fresh := 0
	begin, end := 1, 1+copy(a.levels.nodes[1:], leaves)
	for height := 0; height < tileHeight && begin < end; height++ {
		if a.size>>height&1 == 1 {
			a.count--
			begin = 0
			a.levels.nodes[0] = a.peaks[a.count]
		}
		if (end-begin)%2 == 1 {
			end--
			peaks[fresh] = a.levels.nodes[end]
			fresh++
		}
		begin, end = 1, 1+a.levels.join(begin, end)
	}
	if begin < end {
		// The tile is full. The largest tree lacks one leaf of a full tile, so add refuses what is too much.
		a.size &^= TileRows - 1
		return a.add(a.levels.nodes[begin], tileHeight, tiles)
	}
	a.size += uint64(len(leaves))
	for fresh > 0 {
		fresh--
		a.peaks[a.count] = peaks[fresh]
		a.count++
	}
	return tiles
}

// join replaces nodes from begin to end by their parents, which it puts at 1. It returns how many they are. A parent is
// never written before its children are read: it stands where the second of them was, or before that.
func (l *levels) join(begin, end int) int {
	parents := 0
	for i := begin; i < end; i += 2 {
		parents++
		message := l.lanes.Next(nodeSize, (*[HashSize]byte)(&l.nodes[parents]))
		fillNode((*[nodeSize]byte)(message), &l.nodes[i], &l.nodes[i+1])
	}
	l.lanes.Flush()
	return parents
}
