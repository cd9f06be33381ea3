package engine

import (
	"cmp"
	"math/bits"
	"strings"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/slab"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// # Counters in memory
//
// A counter in memory is an entry: its bytes as the state keeps them, behind a few fields, in memory that the collector
// does not look at (slab). The rules change a counter in a cell, where it is decoded; there are few cells, for the
// counters that are in use most, and one that is needed for another counter is closed: written back into its entry
// (open.go).
//
// A counter that changed since the last checkpoint is dirty and must stay; a clean one may be let go, since the state
// has it. A checkpoint saves the counters that were dirty when it began with the values they had then. It does so
// beside the committer: a counter that the committer is about to change before the checkpoint came to it is copied
// first. So nothing stops while a checkpoint is written.
//
// All of this is guarded by Engine.mu: changed under the lock, read under its read half. The exceptions are done and
// the slots of the table, which fetching reads without the lock (fetch.go).

// maxCounterBytes bounds, unless Options.CounterBytes does, the memory for counters: about 120 bytes each.
const maxCounterBytes = 512 << 20

// maxDirty is how many changed counters start a checkpoint, where not so much journal does: a start after a crash reads
// as many from the state, one by one. Four times as many refuse new facts until the checkpoint is done.
const (
	maxDirty    = 150_000
	refuseDirty = 4
)

// cells are the counters in memory, dirty or clean.
type cells struct {
	slab    *slab.Slab
	shards  [shardCount]shard // that find entries by tag
	series  seriesTable
	open    openCells
	warming []uint32            // what warm has found
	wide    map[slab.Ref][]byte // values that their entries have no room for
	usual   int                 // how long values are of late, in sixty-fourths of a byte

	count int
	max   int           // bytes of entries to keep
	most  int           // dirty ones that start a checkpoint
	epoch uint64        // the checkpoint that changes from now on belong to; starts at 1
	done  atomic.Uint64 // the last checkpoint that is complete
	hand  slab.Ref      // the entry that letting go looks at next

	// The dirty entries are listed by book: those of the current epoch in book.dirty, those that a checkpoint saves in
	// book.saving.
	dirty  int     // entries of the current epoch
	books  []*book // that have them
	saving []*book // that have entries of the checkpoint under way
	kept   map[slab.Ref][]byte
}

// shard is a part of the table: open addressing with the tag beside the place of the entry, so that looking one up is a
// load that can be made ahead of time (warm). Half of what deciding a fact costs is waiting for memory. Many small
// tables grow in short steps where a large one would stop the committer.
type shard struct {
	slots  []atomic.Uint64 // the tag and the entry's place, or 0; a power of two of them, at most three quarters in use
	shared atomic.Pointer[[]atomic.Uint64]
	count  int
}

const (
	shardBits  = 8
	shardCount = 1 << shardBits
	minSlots   = 16
)

func newCells(limit, dirty, open int) *cells {
	cs := &cells{slab: slab.New(), max: limit, most: dirty, epoch: 1, wide: map[slab.Ref][]byte{},
		kept: map[slab.Ref][]byte{}}
	cs.series.numbers = map[seriesID]uint32{}
	cs.open.sets = make([]*cellSet, 1<<bits.Len(uint((open-1)/cellWays)))
	for i := range cs.shards {
		cs.shards[i].use(minSlots)
	}
	return cs
}

func (s *shard) use(n int) {
	slots := make([]atomic.Uint64, n)
	s.slots = slots
	s.shared.Store(&slots)
}

// hashCustomer is the part of a counter's hash that can be computed before the month is known.
func hashCustomer(customer string) uint64 { return xxh3.HashString(customer) }

func cellHash(tenant uint32, id usage.CounterID, customer uint64) uint64 {
	h := customer ^ (uint64(tenant)<<32|uint64(id.Meter))*0x9E3779B97F4A7C15
	h = (h ^ h>>32) * 0xD6E8FEB86659FD93
	return h ^ uint64(id.Month)*0xC2B2AE3D27D4EB4F
}

// tagOf is what a slot keeps of a hash.
func tagOf(hash uint64) uint32 { return uint32(hash ^ hash>>32) }

func (cs *cells) shard(tag uint32) *shard { return &cs.shards[tag>>(32-shardBits)] }

func slotOf(tag uint32, r slab.Ref) uint64 { return uint64(tag)<<32 | uint64(r) }

func (cs *cells) entry(r slab.Ref) entry { return entry(cs.slab.Bytes(r)) }

// find returns the entry, or 0 when it is not in memory.
func (cs *cells) find(b *book, id usage.CounterID, hash uint64) slab.Ref {
	tag := tagOf(hash)
	s := cs.shard(tag)
	for i := tag; ; i++ {
		slot := s.slots[i&uint32(len(s.slots)-1)].Load()
		if slot == 0 {
			return 0
		}
		if r := slab.Ref(slot); uint32(slot>>32) == tag && cs.is(r, b, id) {
			return r
		}
	}
}

func (cs *cells) is(r slab.Ref, b *book, id usage.CounterID) bool {
	e := cs.entry(r)
	of := &cs.series.all[e.u32(fieldSeries)]
	return of.book == b && of.meter == id.Meter && of.month == id.Month && string(e.customer()) == id.Customer
}

// likely reports whether a counter seems to be in memory. It needs no lock and may be wrong either way.
func (cs *cells) likely(hash uint64) bool {
	tag := tagOf(hash)
	slots := *cs.shard(tag).shared.Load()
	for i := range uint32(len(slots)) {
		slot := slots[(tag+i)&uint32(len(slots)-1)].Load()
		if slot == 0 || uint32(slot>>32) == tag {
			return slot != 0
		}
	}
	return false
}

func (s *shard) put(slot uint64) {
	for i := uint32(slot >> 32); ; i++ {
		if at := &s.slots[i&uint32(len(s.slots)-1)]; at.Load() == 0 {
			at.Store(slot)
			return
		}
	}
}

// add puts an entry into the table, which it may make anew with twice the slots.
func (s *shard) add(slot uint64) {
	if s.count++; 4*s.count > 3*len(s.slots) {
		old := s.slots
		s.use(2 * len(old))
		for i := range old {
			if v := old[i].Load(); v != 0 {
				s.put(v)
			}
		}
	}
	s.put(slot)
}

// remove takes an entry out and moves up those behind it that would no longer be found.
func (s *shard) remove(slot uint64) {
	mask := uint32(len(s.slots) - 1)
	i := uint32(slot>>32) & mask
	for s.slots[i].Load() != slot {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; ; j = (j + 1) & mask {
		v := s.slots[j].Load()
		if v == 0 {
			break
		}
		if home := uint32(v>>32) & mask; (j-home)&mask >= (j-i)&mask {
			s.slots[i].Store(v)
			i = j
		}
	}
	s.slots[i].Store(0)
	s.count--
}

// warm loads what judging a batch will need: first the slots, then the entries, then the cells, each load independent
// of the others, so that the processor makes many at once instead of waiting for one after the other. It decides
// nothing; the sum keeps the loads alive.
func (cs *cells) warm(facts []prepared) (sum uint64) {
	cs.warming = sized(cs.warming, len(facts))
	for i := range facts {
		tag := tagOf(facts[i].cell)
		s := cs.shard(tag)
		cs.warming[i] = uint32(s.slots[tag&uint32(len(s.slots)-1)].Load())
	}
	for i, r := range cs.warming {
		if r != 0 {
			e := cs.entry(slab.Ref(r))
			cs.warming[i] = e.u32(fieldOpen)
			sum += uint64(e[min(len(e)-1, 64)])
		}
	}
	for _, n := range cs.warming {
		if n != 0 {
			c := cs.open.at(n)
			sum += c.stamp + uint64(c.OnTime.Count) + uint64(c.Watermark) + uint64(c.key[0])
		}
	}
	return sum
}

// add puts a counter into memory, in an open cell.
func (cs *cells) add(in *brought) *cell {
	value := state.AppendCounter(cs.open.buf[:0], &in.Counter)
	cs.open.buf = value
	r := cs.slab.Take(entrySize(len(in.id.Customer), max(len(value), cs.usual/usualParts)))
	e := cs.entry(r)
	clear(e[slab.Head:headBytes])
	tag := tagOf(in.hash)
	e.set32(fieldTag, tag)
	e.set32(fieldSeries, cs.series.take(seriesID{in.book, in.id.Meter, in.id.Month}, in.slug))
	e.set16(fieldSeen, uint16(cs.epoch))
	e.set16(fieldCustomer, uint16(len(in.id.Customer)))
	copy(e[headBytes:], in.id.Customer)
	cs.setValue(r, e, value)
	cs.shard(tag).add(slotOf(tag, r))
	cs.count++
	return cs.openCell(r)
}

// move gives a clean counter that has outgrown its entry another one.
func (cs *cells) move(r slab.Ref) {
	old := cs.entry(r)
	cs.closeEntry(old)
	v, wide := cs.wide[r]
	if !wide {
		return // it has become shorter since it was opened
	}
	customer := len(old.customer())
	to := cs.slab.Take(entrySize(customer, len(v)))
	e := cs.entry(to)
	copy(e[slab.Head:], old[slab.Head:headBytes+customer])
	e[fieldFlags] &^= flagWide
	cs.setValue(to, e, v)
	s := cs.shard(e.u32(fieldTag))
	s.remove(slotOf(e.u32(fieldTag), r))
	s.add(slotOf(e.u32(fieldTag), to))
	delete(cs.wide, r)
	cs.slab.Free(r)
}

// drop takes a clean counter out of memory.
func (cs *cells) drop(r slab.Ref) {
	e := cs.entry(r)
	cs.closeEntry(e)
	cs.shard(e.u32(fieldTag)).remove(slotOf(e.u32(fieldTag), r))
	cs.series.release(e.u32(fieldSeries))
	delete(cs.wide, r)
	cs.slab.Free(r)
	cs.count--
}

// value appends a counter's bytes as they are now.
func (cs *cells) value(into []byte, r slab.Ref) []byte {
	e := cs.entry(r)
	switch n := e.u32(fieldOpen); {
	case n != 0:
		return state.AppendCounter(into, &cs.open.at(n).Counter)
	case e.has(flagWide):
		return append(into, cs.wide[r]...)
	}
	return append(into, e.value()...)
}

// read returns a counter that shares no memory with what may change.
func (cs *cells) read(r slab.Ref) (usage.Counter, error) {
	e := cs.entry(r)
	if n := e.u32(fieldOpen); n != 0 {
		return cs.open.at(n).Counter.Counter.Clone(), nil
	}
	v := e.value()
	if e.has(flagWide) {
		v = cs.wide[r]
	}
	c, err := state.ReadCounter(v)
	return c.Counter, err
}

// touch is called before the counter of a cell changes.
func (cs *cells) touch(c *cell) {
	e := cs.entry(c.ref)
	c.changed = true
	e.set16(fieldSeen, uint16(cs.epoch))
	epoch := uint64(e.u32(fieldEpoch))
	if epoch == cs.epoch {
		return
	}
	if epoch > cs.done.Load() && !e.has(flagKept) {
		e[fieldFlags] |= flagKept
		cs.kept[c.ref] = state.AppendCounter(nil, &c.Counter)
	}
	e.set32(fieldEpoch, uint32(cs.epoch))
	b := cs.series.all[e.u32(fieldSeries)].book
	if len(b.dirty) == 0 {
		cs.books = append(cs.books, b)
	}
	b.dirty = append(b.dirty, c.ref)
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

// saved appends what the checkpoint under way saves of a counter.
func (cs *cells) saved(into []byte, r slab.Ref) []byte {
	if cs.entry(r).has(flagKept) {
		return append(into, cs.kept[r]...)
	}
	return cs.value(into, r)
}

// finish ends the checkpoint.
func (cs *cells) finish(epoch uint64) {
	for r := range cs.kept {
		cs.entry(r)[fieldFlags] &^= flagKept
	}
	for _, b := range cs.saving {
		b.saving = nil
	}
	clear(cs.kept)
	cs.saving = nil
	cs.done.Store(epoch)
}

// ages are how long ago, in checkpoints, a counter must have been used to be let go, in the first round over the
// memory, the second and the last. Each round is for those that the ones before did not find enough in.
var ages = [...]int16{3, 1, 0}

// letGo looks at the next entries, in so many units of memory, and while there are too many lets go of those that the
// state has and that were not used lately. It returns how many units are left to look at in all rounds, of which it was
// given the number; 0 ends it.
func (cs *cells) letGo(left, units int) int {
	for units > 0 && left > 0 && cs.slab.Used() > cs.max {
		round := min(len(ages)-1, (left-1)/max(1, cs.slab.Units()))
		r, n, used := cs.slab.Walk(&cs.hand)
		if used && cs.mayGo(cs.entry(r), ages[len(ages)-1-round]) {
			cs.drop(r)
		}
		left, units = left-n, units-n
	}
	if cs.slab.Used() <= cs.max {
		return 0
	}
	return max(0, left)
}

func (cs *cells) mayGo(e entry, age int16) bool {
	done := cs.done.Load()
	return uint64(e.u32(fieldEpoch)) <= done && int16(uint16(done)-e.u16(fieldSeen)) >= age
}

// rounds is how many units of memory letting go may look at.
func (cs *cells) rounds() int { return len(ages) * cs.slab.Units() }

// before reports whether a counter stands before a place among its book's counters.
func (cs *cells) before(r slab.Ref, p store.CounterPlace) bool {
	e := cs.entry(r)
	of := &cs.series.all[e.u32(fieldSeries)]
	if c := cmp.Or(cmp.Compare(of.month, p.Month), strings.Compare(of.slug, p.Meter)); c != 0 {
		return c < 0
	}
	return string(e.customer()) < p.Customer
}

// place says where among its book's counters one is.
func (cs *cells) place(r slab.Ref) store.CounterPlace {
	e := cs.entry(r)
	of := &cs.series.all[e.u32(fieldSeries)]
	return store.CounterPlace{Month: of.month, Meter: of.slug, Customer: string(e.customer())}
}

func (cs *cells) meter(r slab.Ref) uint32 { return cs.series.all[cs.entry(r).u32(fieldSeries)].meter }

// seriesID is what the counters of all customers share.
type seriesID struct {
	book  *book
	meter uint32
	month calendar.Month
}

type series struct {
	seriesID
	slug  string
	count int // of entries; unused when 0
}

// seriesTable numbers series, so that an entry names its own in a few bytes.
type seriesTable struct {
	all     []series
	numbers map[seriesID]uint32
	unused  []uint32
}

func (t *seriesTable) take(id seriesID, slug string) uint32 {
	n, ok := t.numbers[id]
	if !ok {
		if last := len(t.unused) - 1; last >= 0 {
			n, t.unused = t.unused[last], t.unused[:last]
		} else {
			n = uint32(len(t.all))
			t.all = append(t.all, series{})
		}
		t.all[n] = series{seriesID: id, slug: strings.Clone(slug)}
		t.numbers[id] = n
	}
	t.all[n].count++
	return n
}

func (t *seriesTable) release(n uint32) {
	s := &t.all[n]
	if s.count--; s.count == 0 {
		delete(t.numbers, s.seriesID)
		*s = series{}
		t.unused = append(t.unused, n)
	}
}
