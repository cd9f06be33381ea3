package keyindex

import (
	"math"
	"math/bits"
	"slices"
)

const (
	// pieceBits: a piece has up to 2^pieceBits entries if hashes are uniform, and is
	// spread over as many buckets. So a piece stays in the nearest caches, and well
	// below sortNearly.
	pieceBits = 11
	buckets   = 1 << pieceBits
)

// merger yields the entries of several runs in ascending order, piece by piece: it
// takes from each run what lies in the next small range and sorts that. Hashes are
// uniform, so dropping entries into equal buckets sorts them but for neighbors, and
// no comparison between the heads of sixteen runs has to be guessed by the processor.
// Other hashes are merged correctly too, only slower; a piece never goes beyond what
// the cursors have read, which bounds it.
type merger struct {
	cursors []*cursor // that have entries left
	last    []Hash    // passed by the cursor of the same index
	mask    uint64    // a piece lies between multiples of mask+1
	shift   uint      // (Hi & mask) >> shift is the bucket
	counts  [buckets]uint32
	taken   []Entry
	sorted  []Entry
}

// newMerger merges runs of the same range, whose first Hi is from; pieces are no wider
// than a partition.
func newMerger(inputs []*run, from uint64, pshift uint) (*merger, error) {
	m := &merger{}
	var keys uint64
	for _, r := range inputs {
		c := newCursor(r)
		if _, err := c.more(); err != nil {
			return nil, err
		}
		if entryHi(c.rest) < from {
			return nil, outsideItsRange(c)
		}
		m.cursors = append(m.cursors, c)
		m.last = append(m.last, Hash{})
		keys += r.Count
	}
	width := 64 - inputs[0].shift
	if pieces := uint(bits.Len64(keys >> pieceBits)); pieces < width {
		width -= pieces
	}
	width = min(width, pshift)
	m.mask = 1<<width - 1
	m.shift = max(width, pieceBits) - pieceBits
	return m, nil
}

// has reports whether an entry up to the given Hi is left.
func (m *merger) has(last uint64) bool {
	return len(m.cursors) > 0 && m.least() <= last
}

func (m *merger) least() uint64 {
	least := uint64(math.MaxUint64)
	for _, c := range m.cursors {
		least = min(least, entryHi(c.rest))
	}
	return least
}

// next is the next piece, valid until it is called again; empty when no entry up to the
// given Hi is left.
func (m *merger) next(last uint64) ([]Entry, error) {
	m.taken = m.taken[:0]
	if !m.has(last) {
		return nil, nil
	}
	bound := Hash{Hi: min(last, m.least()|m.mask), Lo: math.MaxUint64}
	for _, c := range m.cursors {
		if c.reach.less(bound) {
			bound = c.reach
		}
	}
	clear(m.counts[:])
	done := false
	for i, c := range m.cursors {
		if err := m.take(i, c, bound); err != nil {
			return nil, err
		}
		done = done || len(c.rest) == 0
	}
	if done {
		m.dropEmpty()
	}
	return m.sort(), nil
}

// take moves the entries of a cursor up to the bound to the piece.
func (m *merger) take(i int, c *cursor, bound Hash) error {
	last := m.last[i]
	for {
		more, err := c.more()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		rest := c.rest
		for len(rest) > 0 {
			e := decodeEntry(rest)
			if bound.less(e.Hash) {
				break
			}
			if !last.less(e.Hash) && last != (Hash{}) {
				c.rest = rest
				return &Damage{File: c.r.name, Offset: c.offset(), Reason: "key out of order"}
			}
			last = e.Hash
			m.counts[e.Hash.Hi&m.mask>>m.shift]++
			m.taken = append(m.taken, e)
			rest = rest[entryBytes:]
		}
		if c.rest = rest; len(rest) > 0 {
			break
		}
	}
	m.last[i] = last
	return nil
}

// dropEmpty forgets cursors at their end.
func (m *merger) dropEmpty() {
	n := 0
	for i, c := range m.cursors {
		if len(c.rest) > 0 {
			m.cursors[n], m.last[n] = c, m.last[i]
			n++
		}
	}
	m.cursors, m.last = m.cursors[:n], m.last[:n]
}

func (m *merger) sort() []Entry {
	at := uint32(0)
	for b, n := range m.counts {
		m.counts[b] = at
		at += n
	}
	m.sorted = slices.Grow(m.sorted[:0], len(m.taken))[:len(m.taken)]
	for i := range m.taken {
		e := &m.taken[i]
		b := e.Hash.Hi & m.mask >> m.shift
		m.sorted[m.counts[b]] = *e
		m.counts[b]++
	}
	sortChunkEntries(m.sorted)
	return m.sorted
}

func outsideItsRange(c *cursor) error {
	return &Damage{File: c.r.name, Offset: c.offset(), Reason: "key outside the range of its run"}
}
