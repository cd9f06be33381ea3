package keyindex

import (
	"cmp"
	"math/bits"
	"slices"
)

const (
	// sortChunk is how many entries ascend gathers before it looks for a place
	// to cut: small enough that gather, sort and encode stay in the first caches.
	sortChunk = 1024
	// sortNearly is the longest chunk that is trusted to be almost in order.
	// Uniform hashes never make a longer one; hashes that share a long prefix do.
	sortNearly = 4 * sortChunk
)

// memTable is a hash table of entries that never holds a pointer: entries lie in
// arrival order in one slice, and slots hold positions in it. A slot is chosen by
// the top bits of the hash and collisions go to the next slot, so that walking the
// slots yields the entries almost sorted; flushing costs a gather, not a sort.
//
// A slot word is 0 when empty, else bits of Lo above idxMask and position+1 below,
// so a lookup of an absent key hardly ever touches the entries.
//
// Behind the home slots lies a spill area as long as the entries can become, which
// is why probing never wraps around and never needs a bound check of its own.
type memTable struct {
	entries  []Entry
	slots    []uint32
	homeBits uint
	idxMask  uint32
	top      int // highest slot in use: what reset has to clear

	mark   Mark   // set by Freeze: the journal position that covers every entry
	number uint64 // set by Freeze: 1 for the first table frozen since Open
}

func newMemTable(limit int) *memTable {
	// A quarter more than the limit, because the caller freezes at the next group
	// boundary and not in the middle of a group.
	room := limit + limit/4 + 16
	homeBits := uint(bits.Len(uint(2*limit - 1)))
	return &memTable{
		entries:  make([]Entry, 0, room),
		slots:    make([]uint32, 1<<homeBits+room+1),
		homeBits: homeBits,
		idxMask:  1<<bits.Len(uint(room)) - 1,
	}
}

func (t *memTable) find(h Hash) (Found, bool) {
	tag := uint32(h.Lo) &^ t.idxMask
	for s := h.Hi >> (64 - t.homeBits); ; s++ {
		w := t.slots[s]
		if w == 0 {
			return Found{}, false
		}
		if w&^t.idxMask != tag {
			continue
		}
		if e := &t.entries[w&t.idxMask-1]; e.Hash == h {
			return Found{Seq: e.Seq, Check: e.Check, OK: true}, true
		}
	}
}

func (t *memTable) insert(e Entry) {
	if len(t.entries) == cap(t.entries) {
		t.grow()
	}
	s := int(e.Hash.Hi >> (64 - t.homeBits))
	for t.slots[s] != 0 {
		s++
	}
	t.entries = append(t.entries, e)
	t.slots[s] = uint32(e.Hash.Lo)&^t.idxMask | uint32(len(t.entries))
	t.top = max(t.top, s)
}

// grow is for a group that overshoots the limit by more than a quarter.
func (t *memTable) grow() {
	bigger := newMemTable(2 * len(t.entries))
	for _, e := range t.entries {
		bigger.insert(e)
	}
	*t = *bigger
}

func (t *memTable) reset() {
	clear(t.slots[:t.top+1])
	t.entries = t.entries[:0]
	t.top, t.mark, t.number = 0, Mark{}, 0
}

func (t *memTable) bytes() int64 {
	return int64(cap(t.entries))*32 + int64(len(t.slots))*4
}

// ascend hands all entries to emit in ascending order of hash, in chunks that are
// valid until emit returns. An empty slot divides them: what lies before it has its
// home before it, and what lies after has its home after, else it would fill the slot.
func (t *memTable) ascend(emit func([]Entry) error) error {
	chunk := make([]Entry, 0, sortChunk+sortChunk/4)
	for _, w := range t.slots[:t.top+1] {
		if w != 0 {
			chunk = append(chunk, t.entries[w&t.idxMask-1])
			continue
		}
		if len(chunk) < sortChunk {
			continue
		}
		sortChunkEntries(chunk)
		if err := emit(chunk); err != nil {
			return err
		}
		chunk = chunk[:0]
	}
	if len(chunk) == 0 {
		return nil
	}
	sortChunkEntries(chunk)
	return emit(chunk)
}

func sortChunkEntries(c []Entry) {
	if len(c) > sortNearly {
		slices.SortFunc(c, func(a, b Entry) int { return a.Hash.compare(b.Hash) })
		return
	}
	for i := 1; i < len(c); i++ {
		if !c[i].Hash.less(c[i-1].Hash) {
			continue
		}
		e, j := c[i], i
		for ; j > 0 && e.Hash.less(c[j-1].Hash); j-- {
			c[j] = c[j-1]
		}
		c[j] = e
	}
}

func (h Hash) less(o Hash) bool {
	return h.Hi < o.Hi || h.Hi == o.Hi && h.Lo < o.Lo
}

func (h Hash) compare(o Hash) int {
	return cmp.Or(cmp.Compare(h.Hi, o.Hi), cmp.Compare(h.Lo, o.Lo))
}
