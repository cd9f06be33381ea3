package tree

// KeptLeaves returns, in order, the rows of one tile of level 1 whose leaves must be kept when only the rows that
// stays reports remain. Of a tile in which any row stays, these are all others: without them the tile could not be
// hashed again. The same holds for a tile that is not full yet, as nothing else of it is kept. A full tile that leaves
// whole keeps its own hash alone; what it kept before can go.
func KeptLeaves(index, size uint64, stays func(seq uint64) bool) []uint64 {
	first, last := Tile{Level: 1, Index: index}.Rows()
	needed := last > size
	var leaving []uint64
	for seq := first; seq <= min(last, size); seq++ {
		if stays(seq) {
			needed = true
			continue
		}
		leaving = append(leaving, seq)
	}
	if !needed {
		return nil
	}
	return leaving
}
