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
	next  *cell  // with the same hash
	epoch uint64 // of the checkpoint that shall save it; clean when that one is done
	saved []byte // its value for the checkpoint under way, taken before it changed again
	seen  uint64 // when it was last used, counted in checkpoints
}

func (c *cell) place() store.CounterPlace {
	return store.CounterPlace{Month: c.id.Month, Meter: c.slug, Customer: c.id.Customer}
}

type cells struct {
	byHash map[uint64]*cell
	count  int
	max    int     // counters to keep
	epoch  uint64  // the checkpoint that changes from now on belong to; starts at 1
	done   uint64  // the last checkpoint that is complete
	dirty  []*cell // of the current epoch
	saving []*cell // of the checkpoint under way
}

func newCells(max int) *cells { return &cells{byHash: map[uint64]*cell{}, max: max, epoch: 1} }

// hashCustomer is the part of a cell's hash that can be computed before the month is known.
func hashCustomer(customer string) uint64 { return xxh3.HashString(customer) }

func cellHash(tenant uint32, id usage.CounterID, customer uint64) uint64 {
	h := customer ^ (uint64(tenant)<<32|uint64(id.Meter))*0x9E3779B97F4A7C15
	h = (h ^ h>>32) * 0xD6E8FEB86659FD93
	return h ^ uint64(id.Month)*0xC2B2AE3D27D4EB4F
}

// find returns the cell, or nil when it is not in memory.
func (cs *cells) find(b *book, id usage.CounterID, hash uint64) *cell {
	for c := cs.byHash[hash]; c != nil; c = c.next {
		if c.book == b && c.id == id {
			return c
		}
	}
	return nil
}

// add puts a counter into memory. The customer's name gets memory of its own.
func (cs *cells) add(b *book, id usage.CounterID, slug string, hash uint64, v state.Counter) *cell {
	id.Customer = strings.Clone(id.Customer)
	c := &cell{Counter: v, book: b, id: id, slug: slug, hash: hash, next: cs.byHash[hash], seen: cs.epoch}
	cs.byHash[hash] = c
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
	for hash, c := range cs.byHash {
		cs.byHash[hash] = cs.evict(c, epoch)
		if cs.byHash[hash] == nil {
			delete(cs.byHash, hash)
		}
	}
}

func (cs *cells) evict(c *cell, epoch uint64) *cell {
	if c == nil {
		return nil
	}
	c.next = cs.evict(c.next, epoch)
	if c.epoch <= cs.done && c.seen < epoch {
		cs.count--
		return c.next
	}
	return c
}
