package usage

import (
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
)

// cells holds what was folded, a cell for each window of each group that has rows.
//
// A report may have a cell for every few rows, so that finding one costs as much as folding. Cells are found through
// blocks of neighboring windows of one group: rows come mostly by customer and in order of time, and the block of the
// row before mostly is that of the next. A map of single cells took ten times as long.
type cells struct {
	max   int
	n     int
	pages [][]cell // full but for the last; cells do not move
	lasts []latest // by cell, only for the aggregation last

	blocks []block
	known  map[uint64]uint32 // group and number of the block → its index
	here   uint64            // the block of the row before
	at     *block
}

type cell struct {
	group, window uint32
	count         int64 // facts that count
	// their sum, minimum, maximum or last, or the number of their members, as the aggregation is
	value amount.Amount
}

// latest is where the last fact of a cell stands.
type latest struct {
	time calendar.Micros
	key  Key
}

const (
	pageBits  = 10
	blockBits = 4
)

// block has the cells of neighboring windows, by number and one up; zero: none yet.
type block [1 << blockBits]uint32

func newCells(limit int) cells { return cells{max: limit, known: map[uint64]uint32{}} }

// get returns a cell by its number.
func (c *cells) get(i uint32) *cell { return &c.pages[i>>pageBits][i&(1<<pageBits-1)] }

// find returns the number of a cell, which it makes if there is none. Errors: ErrTooMany.
func (c *cells) find(group, window uint32) (uint32, error) {
	name := uint64(group)<<32 | uint64(window>>blockBits)
	if c.at == nil || c.here != name {
		c.here, c.at = name, c.block(name)
	}
	slot := &c.at[window&(1<<blockBits-1)]
	if *slot != 0 {
		return *slot - 1, nil
	}
	if c.n == c.max {
		return 0, fmt.Errorf("%w: more than %d windows of groups", ErrTooMany, c.max)
	}
	if c.n&(1<<pageBits-1) == 0 {
		c.pages = append(c.pages, make([]cell, 0, 1<<pageBits))
	}
	page := &c.pages[len(c.pages)-1]
	*page = append(*page, cell{group: group, window: window})
	c.n++
	*slot = uint32(c.n)
	return *slot - 1, nil
}

// block finds or makes a block. Blocks are moved when there are more of them, so that no pointer to another outlives
// this.
func (c *cells) block(name uint64) *block {
	i, ok := c.known[name]
	if !ok {
		i = uint32(len(c.blocks))
		c.known[name] = i
		c.blocks = append(c.blocks, block{})
	}
	return &c.blocks[i]
}

// last takes a fact into a cell unless the cell has a later one.
func (c *cells) last(i uint32, v amount.Amount, t calendar.Micros, k Key, first bool) {
	for int(i) >= len(c.lasts) {
		c.lasts = append(c.lasts, latest{})
	}
	if l := &c.lasts[i]; first || later(t, k, l.time, l.key) {
		c.get(i).value = v
		l.time, l.key = t, Key{k.Space, strings.Clone(k.Name)}
	}
}

// later orders facts by time, then key.
func later(t calendar.Micros, k Key, than calendar.Micros, key Key) bool {
	if t != than {
		return t > than
	}
	if k.Space != key.Space {
		return k.Space > key.Space
	}
	return k.Name > key.Name
}

// sorted lists the cells in which any fact counts by window, then by the rank of their group. It sorts by counting,
// twice: the second time keeps the order of the first.
func (c *cells) sorted(ranks []uint32, windows int) []uint32 {
	order := make([]uint32, 0, c.n)
	for i := range uint32(c.n) {
		if c.get(i).count > 0 {
			order = append(order, i)
		}
	}
	order = countingSort(order, len(ranks), func(i uint32) uint32 { return ranks[c.get(i).group] })
	return countingSort(order, windows, func(i uint32) uint32 { return c.get(i).window })
}

func countingSort(list []uint32, keys int, key func(uint32) uint32) []uint32 {
	ends := make([]uint32, keys+1)
	for _, i := range list {
		ends[key(i)+1]++
	}
	for k := range keys {
		ends[k+1] += ends[k]
	}
	out := make([]uint32, len(list))
	for _, i := range list {
		k := key(i)
		out[ends[k]] = i
		ends[k]++
	}
	return out
}
