package engine

import (
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// Counters live in cells. A cell that changed since the last checkpoint is dirty and must stay; a clean one may be let go, since
// the state has it. A checkpoint saves the cells that were dirty when it began with the values they had then. It
// does so beside the committer: a cell that the committer is about to change before the checkpoint came to it is
// encoded first and keeps those bytes until they are fetched. So nothing stops while a checkpoint is written.
//
// All of this is guarded by Engine.mu: changed under the lock, read under its read half.

// maxCells bounds, unless Options.Counters does, the counters in memory; about 450 bytes each.
const maxCells = 400_000

// maxDirty starts a checkpoint, and twice as many refuse new facts until it is done.
func (cs *cells) maxDirty() int { return cs.max * 3 / 8 }

type cell struct {
	state.Counter
	prev  uint64 // the section that touched it before Counter.Section did
	book  *book
	id    usage.CounterID
	slug  string
	hash  uint64
	epoch uint64 // of the checkpoint that shall save it; clean when that one is done
	saved []byte // its value for the checkpoint under way, taken before it changed again
	seen  uint64 // when it was last used, counted in checkpoints
}

func (c *cell) place() store.CounterPlace {
	return store.CounterPlace{Month: c.id.Month, Meter: c.slug, Customer: c.id.Customer}
}

// cells finds counters by hash in a table of its own: open addressing with the hash beside the pointer, so that looking one up is
// a load that can be made ahead of time (warm). Half of what deciding a fact costs is waiting for memory.
type cells struct {
	slots  []cellSlot // a power of two of them, at most half in use
	count  int
	max    int     // counters to keep
	epoch  uint64  // the checkpoint that changes from now on belong to; starts at 1
	done   uint64  // the last checkpoint that is complete
	dirty  []*cell // of the current epoch
	saving []*cell // of the checkpoint under way
}

type cellSlot struct {
	hash uint64
	cell *cell
}

const minSlots = 1024

func newCells(limit int) *cells {
	return &cells{slots: make([]cellSlot, minSlots), max: limit, epoch: 1}
}

// hashCustomer is the part of a cell's hash that can be computed before the month is known.
func hashCustomer(customer string) uint64 { return xxh3.HashString(customer) }

func cellHash(tenant uint32, id usage.CounterID, customer uint64) uint64 {
	h := customer ^ (uint64(tenant)<<32|uint64(id.Meter))*0x9E3779B97F4A7C15
	h = (h ^ h>>32) * 0xD6E8FEB86659FD93
	return h ^ uint64(id.Month)*0xC2B2AE3D27D4EB4F
}

// find returns the cell, or nil when it is not in memory.
func (cs *cells) find(b *book, id usage.CounterID, hash uint64) *cell {
	for i := hash; ; i++ {
		s := &cs.slots[i&uint64(len(cs.slots)-1)]
		if s.cell == nil {
			return nil
		}
		if s.hash == hash && s.cell.book == b && s.cell.id == id {
			return s.cell
		}
	}
}

func (cs *cells) put(c *cell) {
	for i := c.hash; ; i++ {
		if s := &cs.slots[i&uint64(len(cs.slots)-1)]; s.cell == nil {
			*s = cellSlot{c.hash, c}
			return
		}
	}
}

// resize makes the table anew with the cells that keep says yes to.
func (cs *cells) resize(slots int, keep func(*cell) bool) {
	old := cs.slots
	cs.slots, cs.count = make([]cellSlot, slots), 0
	for i := range old {
		if c := old[i].cell; c != nil && keep(c) {
			cs.put(c)
			cs.count++
		}
	}
}

// warm loads what judging a batch will need: first the slots, then the cells, each load independent of the others, so that the
// processor makes many at once instead of waiting for one after the other. It decides nothing; the sum keeps the loads alive.
func (cs *cells) warm(facts []prepared) (sum uint64) {
	mask := uint64(len(cs.slots) - 1)
	for i := range facts {
		sum += cs.slots[facts[i].cell&mask].hash
	}
	for i := range facts {
		if c := cs.slots[facts[i].cell&mask].cell; c != nil {
			sum += c.seen + uint64(c.OnTime.Count) + uint64(c.OnTime.LastTime) + uint64(len(c.id.Customer))
		}
	}
	return sum
}

// add puts a counter into memory. The customer's name gets memory of its own.
func (cs *cells) add(b *book, id usage.CounterID, slug string, hash uint64, v state.Counter) *cell {
	id.Customer = strings.Clone(id.Customer)
	c := &cell{Counter: v, book: b, id: id, slug: slug, hash: hash, seen: cs.epoch}
	if 2*(cs.count+1) > len(cs.slots) {
		cs.resize(2*len(cs.slots), func(*cell) bool { return true })
	}
	cs.put(c)
	cs.count++
	return c
}

// touch is called before a cell changes.
func (cs *cells) touch(c *cell) {
	c.seen = cs.epoch
	if c.epoch == cs.epoch {
		return
	}
	if c.epoch > cs.done && c.saved == nil {
		c.saved = state.AppendCounter(nil, &c.Counter)
	}
	c.epoch = cs.epoch
	cs.dirty = append(cs.dirty, c)
}

// freeze begins a checkpoint: what is dirty belongs to it.
func (cs *cells) freeze() uint64 {
	cs.saving, cs.dirty = cs.dirty, nil
	cs.epoch++
	return cs.epoch - 1
}

// value is what the checkpoint under way saves of a cell.
func (cs *cells) value(c *cell) []byte {
	if c.saved != nil {
		return c.saved
	}
	return state.AppendCounter(nil, &c.Counter)
}

// finish ends the checkpoint and lets go of cells that were not used lately when there are too many.
func (cs *cells) finish(epoch uint64) {
	for _, c := range cs.saving {
		c.saved = nil
	}
	cs.saving, cs.done = nil, epoch
	if cs.count <= cs.max {
		return
	}
	cs.resize(len(cs.slots), func(c *cell) bool { return c.epoch > cs.done || c.seen >= epoch })
}
