package engine

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/store/engine/slab"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// cell is a counter that is open: decoded, for the rules to change.
type cell struct {
	state.Counter
	prev    uint64 // the section that touched it before Counter.Section did
	ref     slab.Ref
	changed bool     // since it was opened
	number  uint32   // of the cell
	stamp   uint64   // when it was last asked for
	key     [48]byte // the memory of OnTime.LastKey, unless that is longer
}

// openCells are the cells. Each counter has a few of them to choose from; the one that was not asked for for longest is
// closed. The rules hold on to several counters while they judge one fact: cells that were asked for since release was
// called last stay open, and when there is no other a cell is made for the time being.
type openCells struct {
	sets   []*cellSet // made when they are needed; a power of two of them
	extras []*cell
	calls  uint64
	held   uint64 // calls when release was called last
	buf    []byte // for a counter's bytes
}

const (
	cellWays = 8
	// maxOpen is how many cells there are, 288 bytes each.
	maxOpen = 1 << 18
)

type cellSet [cellWays]cell

func newCellSet(first uint32) *cellSet {
	s := new(cellSet)
	for i := range s {
		s[i].number = first + uint32(i)
		s[i].OnTime.LastKey = s[i].key[:0]
	}
	return s
}

// at returns a cell by its number, which begins with 1.
func (o *openCells) at(number uint32) *cell {
	n := int(number - 1)
	if set := n / cellWays; set < len(o.sets) {
		return &o.sets[set][n%cellWays]
	}
	return o.extras[n-len(o.sets)*cellWays]
}

// release says that no counter is held that was asked for before.
func (cs *cells) release() {
	o := &cs.open
	o.held = o.calls
	for _, c := range o.extras {
		cs.close(c)
	}
	o.extras = o.extras[:0]
}

// openCell returns the cell of a counter. It is valid until the call of release after the next.
func (cs *cells) openCell(r slab.Ref) *cell {
	o := &cs.open
	o.calls++
	e := cs.entry(r)
	if n := e.u32(fieldOpen); n != 0 {
		c := o.at(n)
		c.stamp = o.calls
		return c
	}
	c := cs.freeCell(e.u32(fieldTag))
	v := e.value()
	if e.has(flagWide) {
		v = cs.wide[r]
	}
	if err := state.DecodeCounter(&c.Counter, v); err != nil {
		panic(fmt.Sprintf("engine: a counter in memory does not decode: %v", err)) // memory is broken
	}
	c.prev, c.ref, c.changed, c.stamp = e.prev(), r, false, o.calls
	e.set32(fieldOpen, c.number)
	return c
}

// freeCell returns a cell that is in no use, closing one if it must.
func (cs *cells) freeCell(tag uint32) *cell {
	o := &cs.open
	i := tag & uint32(len(o.sets)-1)
	if o.sets[i] == nil {
		o.sets[i] = newCellSet(i*cellWays + 1)
	}
	set := o.sets[i]
	oldest := &set[0]
	for j := range set {
		if c := &set[j]; c.stamp < oldest.stamp {
			oldest = c
		}
	}
	if oldest.stamp <= o.held {
		cs.close(oldest)
		return oldest
	}
	c := &cell{number: uint32(len(o.sets)*cellWays + len(o.extras) + 1)}
	o.extras = append(o.extras, c)
	return c
}

func (cs *cells) closeEntry(e entry) {
	if n := e.u32(fieldOpen); n != 0 {
		cs.close(cs.open.at(n))
	}
}

// close writes a cell back into its entry.
func (cs *cells) close(c *cell) {
	if c.ref == 0 {
		return
	}
	e := cs.entry(c.ref)
	if c.changed {
		cs.open.buf = state.AppendCounter(cs.open.buf[:0], &c.Counter)
		cs.usual += len(cs.open.buf) - cs.usual/usualParts
		cs.setValue(c.ref, e, cs.open.buf)
		e.setPrev(c.prev)
	}
	e.set32(fieldOpen, 0)
	c.ref, c.stamp = 0, 0
	c.OnTime.LastKey, c.Late = c.key[:0], nil // the rules may have put memory of others there
}

// usualParts is what the usual length is counted in, and how many values it is a mean of.
const usualParts = 64

func (cs *cells) setValue(r slab.Ref, e entry, v []byte) {
	if room := e.room(); len(v) <= min(len(room), maxValue) {
		if e.has(flagWide) {
			e[fieldFlags] &^= flagWide
			delete(cs.wide, r)
		}
		e.set16(fieldValue, uint16(copy(room, v)))
		return
	}
	e[fieldFlags] |= flagWide
	cs.wide[r] = append(cs.wide[r][:0], v...)
}
