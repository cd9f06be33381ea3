package engine

import (
	"strings"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// Counters live in cells. A cell that changed since the last checkpoint is dirty and must stay; a clean one may be let
// go, since the state has it. A checkpoint saves the cells that were dirty when it began with the values they had then.
// It does so beside the committer: a cell that the committer is about to change before the checkpoint came to it is
// encoded first and keeps those bytes until they are fetched. So nothing stops while a checkpoint is written.
//
// All of this is guarded by Engine.mu: changed under the lock, read under its read half. The exceptions are done and
// the hashes in the table, which fetching reads without the lock (fetch.go).

// maxCells bounds, unless Options.Counters does, the counters in memory; about 450 bytes each.
const maxCells = 400_000

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

// cells finds counters by hash in a table of its own: open addressing with the hash beside the pointer, so that looking
// one up is a load that can be made ahead of time (warm). Half of what deciding a fact costs is waiting for memory.
type cells struct {
	slots  []cellSlot // a power of two of them, at most half in use
	shared atomic.Pointer[[]cellSlot]
	count  int
	max    int           // counters to keep
	most   int           // dirty ones that start a checkpoint; twice as many refuse new facts until it is done
	epoch  uint64        // the checkpoint that changes from now on belong to; starts at 1
	done   atomic.Uint64 // the last checkpoint that is complete
	hand   int           // the slot that letting go looks at next

	// The dirty cells are listed by book: those of the current epoch in book.dirty, those that a checkpoint saves in
	// book.saving.
	dirty  int     // cells of the current epoch
	books  []*book // that have them
	saving []*book // that have cells of the checkpoint under way
	kept   []*cell // that have bytes in saved
}

// cellSlot is empty when its hash is 0. The cell is read under the lock only.
type cellSlot struct {
	hash atomic.Uint64
	cell *cell
}

const minSlots = 1024

func newCells(limit, dirty int) *cells {
	cs := &cells{max: limit, most: dirty, epoch: 1}
	cs.useSlots(minSlots)
	return cs
}

func (cs *cells) useSlots(n int) {
	slots := make([]cellSlot, n)
	cs.slots = slots
	cs.shared.Store(&slots)
}

// hashCustomer is the part of a cell's hash that can be computed before the month is known.
func hashCustomer(customer string) uint64 { return xxh3.HashString(customer) }

// cellHash is never 0.
func cellHash(tenant uint32, id usage.CounterID, customer uint64) uint64 {
	h := customer ^ (uint64(tenant)<<32|uint64(id.Meter))*0x9E3779B97F4A7C15
	h = (h ^ h>>32) * 0xD6E8FEB86659FD93
	return max(1, h^uint64(id.Month)*0xC2B2AE3D27D4EB4F)
}

// find returns the cell, or nil when it is not in memory.
func (cs *cells) find(b *book, id usage.CounterID, hash uint64) *cell {
	for i := hash; ; i++ {
		s := &cs.slots[i&uint64(len(cs.slots)-1)]
		if s.cell == nil {
			return nil
		}
		if s.hash.Load() == hash && s.cell.book == b && s.cell.id == id {
			return s.cell
		}
	}
}

// likely reports whether a cell seems to be in memory. It needs no lock and may be wrong either way.
func (cs *cells) likely(hash uint64) bool {
	slots := *cs.shared.Load()
	for i := range uint64(len(slots)) {
		switch slots[(hash+i)&uint64(len(slots)-1)].hash.Load() {
		case hash:
			return true
		case 0:
			return false
		}
	}
	return false
}

func (s *cellSlot) set(c *cell) {
	s.cell = c
	if c == nil {
		s.hash.Store(0)
	} else {
		s.hash.Store(c.hash)
	}
}

func (cs *cells) put(c *cell) {
	for i := c.hash; ; i++ {
		if s := &cs.slots[i&uint64(len(cs.slots)-1)]; s.cell == nil {
			s.set(c)
			return
		}
	}
}

// grow makes the table anew with twice the slots.
func (cs *cells) grow() {
	old := cs.slots
	cs.useSlots(2 * len(old))
	for i := range old {
		if c := old[i].cell; c != nil {
			cs.put(c)
		}
	}
}

// removeAt empties a slot and moves up those behind it that would no longer be found.
func (cs *cells) removeAt(i int) {
	mask := len(cs.slots) - 1
	for j := i; ; {
		j = (j + 1) & mask
		c := cs.slots[j].cell
		if c == nil {
			break
		}
		if home := int(c.hash) & mask; (j-home)&mask >= (j-i)&mask {
			cs.slots[i].set(c)
			i = j
		}
	}
	cs.slots[i].set(nil)
	cs.count--
}

// warm loads what judging a batch will need: first the slots, then the cells, each load independent of the others, so
// that the processor makes many at once instead of waiting for one after the other. It decides nothing; the sum keeps
// the loads alive.
func (cs *cells) warm(facts []prepared) (sum uint64) {
	mask := uint64(len(cs.slots) - 1)
	for i := range facts {
		sum += cs.slots[facts[i].cell&mask].hash.Load()
	}
	for i := range facts {
		if c := cs.slots[facts[i].cell&mask].cell; c != nil {
			sum += c.seen + uint64(c.OnTime.Count) + uint64(c.OnTime.LastTime) + uint64(len(c.id.Customer))
		}
	}
	return sum
}

// newCell is a counter that can be put into memory. The customer's name gets memory of its own.
func newCell(b *book, id usage.CounterID, slug string, hash uint64, v state.Counter) *cell {
	id.Customer = strings.Clone(id.Customer)
	return &cell{Counter: v, book: b, id: id, slug: slug, hash: hash}
}

// add puts a counter into memory.
func (cs *cells) add(c *cell) *cell {
	if 2*(cs.count+1) > len(cs.slots) {
		cs.grow()
	}
	c.seen = cs.epoch
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
	if c.epoch > cs.done.Load() && c.saved == nil {
		c.saved = state.AppendCounter(nil, &c.Counter)
		cs.kept = append(cs.kept, c)
	}
	c.epoch = cs.epoch
	if len(c.book.dirty) == 0 {
		cs.books = append(cs.books, c.book)
	}
	c.book.dirty = append(c.book.dirty, c)
	cs.dirty++
}

// freeze begins a checkpoint: what is dirty belongs to it.
func (cs *cells) freeze() uint64 {
	cs.saving, cs.books, cs.dirty = cs.books, nil, 0
	for _, b := range cs.saving {
		b.saving, b.dirty = b.dirty, nil
	}
	cs.epoch++
	return cs.epoch - 1
}

// value appends what the checkpoint under way saves of a cell.
func (cs *cells) value(into []byte, c *cell) []byte {
	if c.saved != nil {
		return append(into, c.saved...)
	}
	return state.AppendCounter(into, &c.Counter)
}

// finish ends the checkpoint.
func (cs *cells) finish(epoch uint64) {
	for _, c := range cs.kept {
		c.saved = nil
	}
	for _, b := range cs.saving {
		b.saving = nil
	}
	cs.kept, cs.saving = nil, nil
	cs.done.Store(epoch)
}

// ages are how long ago, in checkpoints, a cell must have been used to be let go, in the first round over the table,
// the second and the last. Each round is for those that the ones before did not find enough in.
var ages = [...]uint64{3, 1, 0}

// letGo looks at the next slots and, while there are too many counters, lets go of those that the state has and that
// were not used lately. It returns how many slots are left to look at in all rounds, of which it was given the number;
// 0 ends it.
func (cs *cells) letGo(left, slots int) int {
	for ; slots > 0 && left > 0 && cs.count > cs.max; slots-- {
		round := min(len(ages)-1, (left-1)/len(cs.slots))
		cs.hand &= len(cs.slots) - 1
		if c := cs.slots[cs.hand].cell; c != nil && cs.mayGo(c, ages[len(ages)-1-round]) {
			cs.removeAt(cs.hand) // and look at what has moved up
			continue
		}
		cs.hand++
		left--
	}
	if cs.count <= cs.max {
		return 0
	}
	return left
}

func (cs *cells) mayGo(c *cell, age uint64) bool {
	done := cs.done.Load()
	return c.epoch <= done && c.seen+age <= done
}

// rounds is how many slots letting go may look at.
func (cs *cells) rounds() int { return len(ages) * len(cs.slots) }
