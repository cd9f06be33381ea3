package keyindex

import (
	"math"
	"slices"
)

// maxHash is not below any hash.
var maxHash = Hash{Hi: math.MaxUint64, Lo: math.MaxUint64}

// cursor walks a run in order, checking the CRC of every block it passes. Its entries
// are taken from rest, from the front; more makes sure that there is one.
type cursor struct {
	r     *run
	buf   []byte // blocks read at once
	rest  []byte // entries of the current block not yet passed
	block uint64 // number of the block behind the current one
	first uint64 // number of the first block in buf
	next  uint64 // first block not yet read
	end   uint64 // block behind the last to read
	// reach is the last hash in buf, or the highest there is once buf holds the last
	// block: no entry up to it is still to be read.
	reach Hash
}

func newCursor(r *run) *cursor { return &cursor{r: r, end: r.blocks()} }

// newRangeCursor walks the blocks that may hold keys from one Hi to another, and reads
// them into buf if that is large enough.
func newRangeCursor(r *run, from, last uint64, buf []byte) *cursor {
	begin, end := r.blocksBetween(from, last)
	return &cursor{r: r, buf: buf, block: begin, next: begin, end: end}
}

// more reports whether there is an entry left, in rest.
func (c *cursor) more() (bool, error) {
	if len(c.rest) > 0 {
		return true, nil
	}
	if c.block == c.end {
		return false, nil
	}
	if c.block == c.next {
		if err := c.load(); err != nil {
			return false, err
		}
	}
	c.rest = c.entries(c.block)
	c.block++
	return true, nil
}

// entries are those of a block in buf.
func (c *cursor) entries(block uint64) []byte {
	at := (block - c.first) * blockBytes
	return c.buf[at : at+uint64(c.r.keysIn(block))*entryBytes]
}

func (c *cursor) load() error {
	n := min(readBlocks, c.end-c.next)
	c.buf = slices.Grow(c.buf[:0], int(n*blockBytes))[:n*blockBytes]
	at := int64(c.next) * blockBytes
	if got, err := c.r.file.ReadAt(c.buf, at); got < len(c.buf) {
		return readFailure(c.r.name, at+int64(got), err)
	}
	for i := range n {
		if err := c.r.checkBlock(c.next+i, c.buf[i*blockBytes:(i+1)*blockBytes]); err != nil {
			return err
		}
	}
	c.first, c.next = c.next, c.next+n
	c.reach = maxHash
	if c.next < c.end {
		last := c.entries(c.next - 1)
		c.reach = entryHash(last[len(last)-entryBytes:])
	}
	return nil
}

// offset is where the first entry of rest lies in the file.
func (c *cursor) offset() int64 {
	block := c.block - 1
	return int64(block)*blockBytes + int64(c.r.keysIn(block)*entryBytes-len(c.rest))
}
