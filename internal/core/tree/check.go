package tree

// Check computes a tree again, row by row, from what a store has, and holds the store's tiles against it. Rows that are
// there give their leaves; of rows that have left the store gives what it kept: single leaves, or the hash of a tile of
// which every row has left.
type Check struct {
	src     Source
	differs func(want Tile, got Hash)
	tree    Appender
	open    [TileRows]Hash // of the tile that is not full yet
	gone    [TileRows]bool // rows of it that have left
	count   int
	left    int
}

// NewCheck begins at the first row. differs is called for each full tile of the store that is not what its rows give.
func NewCheck(src Source, differs func(want Tile, got Hash)) *Check {
	return &Check{src: src, differs: differs}
}

// Add takes the leaf of the next row.
func (c *Check) Add(leaf Hash) error {
	c.open[c.count] = leaf
	return c.next()
}

// Gone passes over rows that have left.
func (c *Check) Gone(rows int) error {
	for range rows {
		c.gone[c.count] = true
		c.left++
		if err := c.next(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Check) next() error {
	if c.count++; c.count < TileRows {
		return nil
	}
	if c.left == TileRows {
		hash, err := c.tile(1, c.tree.size>>tileHeight)
		if err != nil {
			return err
		}
		return c.append(c.tree.AppendTile(1, hash, nil))
	}
	if err := c.fill(); err != nil {
		return err
	}
	return c.append(c.tree.Append(c.open[:], nil))
}

// append ends a tile and compares those that it completed.
func (c *Check) append(tiles []Tile) error {
	c.count, c.left, c.gone = 0, 0, [TileRows]bool{}
	for _, want := range tiles {
		got, err := c.tile(want.Level, want.Index)
		if err != nil {
			return err
		}
		if got != want.Hash {
			c.differs(want, got)
		}
	}
	return nil
}

func (c *Check) tile(level int, index uint64) (Hash, error) {
	tiles, err := readTiles(c.src, level, index, index)
	if err != nil {
		return Hash{}, err
	}
	return tiles[0], nil
}

// fill reads the leaves of the rows that have left.
func (c *Check) fill() error {
	for i := 0; i < c.count; i++ {
		if !c.gone[i] {
			continue
		}
		end := i
		for end+1 < c.count && c.gone[end+1] {
			end++
		}
		leaves, err := readLeaves(c.src, c.tree.size+uint64(i)+1, c.tree.size+uint64(end)+1)
		if err != nil {
			return err
		}
		copy(c.open[i:], leaves)
		i = end
	}
	return nil
}

// Tree is the tree of all rows so far. Nothing can be added after it.
func (c *Check) Tree() (Tree, error) {
	if err := c.fill(); err != nil {
		return Tree{}, err
	}
	c.tree.Append(c.open[:c.count], nil)
	return c.tree.Tree(), nil
}
