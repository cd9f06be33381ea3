package keyindex

// cursor walks a run in order, checking the CRC of every block it passes.
type cursor struct {
	r     *run
	buf   []byte
	left  uint64 // entries not yet passed, the current one excluded
	at    int    // offset of the current entry in buf
	inBlk int    // entries of the current block up to and including the current one
	block uint64 // number of the first block in buf
	next  uint64 // first block not yet read
	hash  Hash
	rec   []byte
}

func newCursor(r *run) *cursor {
	return &cursor{r: r, left: r.Count, buf: make([]byte, 0, min(writeBlocks, r.blocks())*blockBytes)}
}

// advance moves to the next entry; false at the end or on an error.
func (c *cursor) advance() (bool, error) {
	if c.left == 0 {
		return false, nil
	}
	switch c.inBlk {
	case 0: // before the first entry
		if err := c.load(); err != nil {
			return false, err
		}
	case blockKeys:
		c.at += blockBytes - (blockKeys-1)*entryBytes
		c.inBlk = 0
		if c.at == len(c.buf) {
			if err := c.load(); err != nil {
				return false, err
			}
		}
	default:
		c.at += entryBytes
	}
	c.inBlk++
	c.left--
	c.rec = c.buf[c.at : c.at+entryBytes]
	c.hash = entryHash(c.rec)
	return true, nil
}

func (c *cursor) load() error {
	n := min(writeBlocks, c.r.blocks()-c.next)
	c.buf = c.buf[:n*blockBytes]
	at := int64(c.next) * blockBytes
	if got, err := c.r.file.ReadAt(c.buf, at); got < len(c.buf) {
		return readFailure(c.r.name, at+int64(got), err)
	}
	for i := range n {
		if err := c.r.checkBlock(c.next+i, c.buf[i*blockBytes:(i+1)*blockBytes]); err != nil {
			return err
		}
	}
	c.block, c.next, c.at = c.next, c.next+n, 0
	return nil
}

// offset is where the current entry lies in the file.
func (c *cursor) offset() int64 { return int64(c.block)*blockBytes + int64(c.at) }
