package postgres

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// seed makes the hashes of keys unforeseeable, so that nobody can make two keys collide on purpose.
var seed = maphash.MakeSeed()

func hashKey(k usage.Key) uint64 {
	return maphash.String(seed, k.Name) ^ uint64(k.Space)
}

// history is one tenant's past as the rules see it inside one transaction, and what the rules add to it. Everything
// that a batch may need was fetched before; what was not foreseen is read when it is asked for.
type history struct {
	ctx      context.Context
	c        *session
	tenantID string
	began    *residentSet // of the head that is followed
	set      *residentSet // after the rows that are added
	cache    *cache
	now      calendar.Micros
	timed    bool      // the parts of the transaction are measured
	locked   time.Time // when the head was, if they are
	first    uint64    // the number of the first row that is added

	found     map[usage.Key]*ledger.Row // in the tables
	corrected map[factMeter]usage.Corrected
	asked     map[usage.Key]bool // whose corrections were fetched
	members   map[memberKey]bool // → by an on-time row
	looked    map[memberName]bool

	rows    []ledger.Row // that are added
	links   []uint64     // of their outcomes
	slab    []usage.Row
	seen    map[uint64]int32    // hash of a key → index of its row
	clashed map[usage.Key]int32 // rows whose hash another key has
	touched []*cell             // by the fact being judged
	dirty   []*cell
	joined  map[memberKey]bool
	tallies []*tallyCell // that changed
	kept    int          // events among the rows
	hash    uint64       // of the key of the fact being judged
	fault   error        // why the transaction cannot go on

	entities      map[entityName]keptEntity // that changed, as they are after the last row
	newlyUsed     []uint32                  // meters
	newlyCritical []criticalKind

	lastTally *tallyCell // that was asked for last

	// free ends what is under way on the connection, before it is read from; nil: nothing ever is.
	free func() error
}

type factMeter struct {
	key   usage.Key
	meter uint32
}

type memberName struct {
	id     usage.CounterID
	member string
}

type memberKey struct {
	memberName
	generation uint32
}

var _ usage.State = (*history)(nil)

// Day implements usage.State: hours are added up after the commit, see roller.
func (h *history) Day(uint32, calendar.Day) (*usage.Day, error) { return nil, nil }

// newHistory begins with the head under the lock. Up to n rows will be added.
func newHistory(ctx context.Context, c *session, tenantID string, set *residentSet, b *cache, h *head, n int) *history {
	return &history{ctx: ctx, c: c, tenantID: tenantID, began: set, set: set, cache: b, now: h.now, first: h.Seq + 1,
		found: map[usage.Key]*ledger.Row{}, corrected: map[factMeter]usage.Corrected{}, asked: map[usage.Key]bool{},
		members: map[memberKey]bool{}, looked: map[memberName]bool{}, joined: map[memberKey]bool{},
		entities: map[entityName]keptEntity{}, rows: make([]ledger.Row, 0, n), links: make([]uint64, 0, n),
		slab: make([]usage.Row, n), seen: make(map[uint64]int32, n)}
}

// follow makes the history one that follows the head.
func (h *history) follow(head *head) { h.now, h.first = head.now, head.Seq+1 }

// fail keeps the first fault. Once a read has failed the transaction is lost, so all that follows fails too.
func (h *history) fail(err error) error {
	if err != nil && h.fault == nil {
		h.fault = err
	}
	return err
}

// freed makes the connection free to read.
func (h *history) freed() error {
	if h.free == nil {
		return nil
	}
	return h.fail(h.free())
}

// next is the memory for the row that the next fact may become.
func (h *history) next() *usage.Row { return &h.slab[h.kept] }

// keep adds the row that was just judged or replayed, and who brought it.
func (h *history) keep(r *usage.Row, hash uint64, by string) {
	i := int32(len(h.rows))
	h.rows = append(h.rows, ledger.Row{Seq: h.first + uint64(i), At: h.now, By: by, Event: r})
	if other, ok := h.seen[hash]; ok && h.rows[other].Event.Key != r.Key {
		if h.clashed == nil {
			h.clashed = map[usage.Key]int32{}
		}
		h.clashed[r.Key] = i
	} else {
		h.seen[hash] = i
	}
	for j := range r.Outcomes {
		h.link(r.Outcomes[j].Meter, h.rows[i].Seq)
		h.use(r.Outcomes[j].Meter)
	}
	for _, c := range h.touched {
		h.mark(c)
	}
	h.touched = h.touched[:0]
	h.tallied(r)
	h.kept++
}

// link appends the row to the chain of the counter that it was folded into.
func (h *history) link(meter uint32, seq uint64) {
	for _, c := range h.touched {
		if c.id.Meter == meter {
			h.links = append(h.links, c.tail)
			c.tail = seq
			return
		}
	}
	_ = h.fail(fmt.Errorf("row %d was not folded into the meter of number %d that it names: %w", seq, meter, errDefect))
	h.links = append(h.links, 0)
}

// written notes that the tables have what was changed.
func (h *history) written() {
	for _, c := range h.dirty {
		c.written()
	}
	for _, c := range h.tallies {
		c.dirty = false
	}
}

func (h *history) mark(c *cell) {
	if !c.dirty {
		c.dirty = true
		h.dirty = append(h.dirty, c)
	}
}

func (h *history) use(number uint32) {
	if h.set.used[number] {
		return
	}
	h.set = h.set.using(number)
	h.newlyUsed = append(h.newlyUsed, number)
}

// added finds a row among those that this transaction adds.
func (h *history) added(k usage.Key, hash uint64) *ledger.Row {
	if i, ok := h.seen[hash]; ok {
		if r := &h.rows[i]; r.Event.Key == k {
			return r
		}
	}
	if i, ok := h.clashed[k]; ok {
		return &h.rows[i]
	}
	return nil
}

func (h *history) row(k usage.Key, hash uint64) *ledger.Row {
	if r := h.added(k, hash); r != nil {
		return r
	}
	if len(h.found) == 0 {
		return nil
	}
	return h.found[k]
}

func (h *history) Known(f *usage.Fact) (usage.Known, error) {
	if h.fault != nil {
		return usage.Known{}, h.fault
	}
	r := h.row(f.Key, h.hash)
	if r == nil {
		return usage.Known{}, nil
	}
	same := f.Bucket || usage.SameContent(f.Event, &r.Event.Event, f.Key.Space)
	return usage.Known{Seq: r.Seq, Other: !same}, nil
}

func (h *history) Floor() calendar.Micros { return h.set.Horizon.Floor }

func (h *history) TenantClosed() bool { return h.set.TenantClosed() }

func (h *history) Closed(m calendar.Month) bool { return h.set.Closed(m) }

func (h *history) Catalog() *usage.Catalog { return h.set.Catalog }

func (h *history) Target(k usage.Key) (*usage.Row, error) {
	if r := h.row(k, hashKey(k)); r != nil {
		return r.Event, nil
	}
	return nil, nil
}

func (h *history) Counter(id usage.CounterID) (*usage.Counter, error) {
	c := h.cache.cells[id]
	if c == nil {
		w := &wants{}
		w.counter(h, id)
		if err := h.fetch(w); err != nil {
			return nil, err
		}
		c = h.cache.cells[id]
	}
	h.touched = append(h.touched, c)
	return &c.Counter, nil
}

func (h *history) place(id usage.CounterID) store.CounterPlace {
	return store.CounterPlace{Month: id.Month, Meter: h.set.Catalog.Number(id.Meter).Slug, Customer: id.Customer}
}

func (h *history) Corrected(target usage.Key, number uint32) (usage.Corrected, error) {
	// A target that was added in this transaction has no corrections but those that were added too.
	if !h.asked[target] && h.added(target, hashKey(target)) == nil {
		w := &wants{}
		w.corrections(h, target)
		if err := h.fetch(w); err != nil {
			return usage.Corrected{}, err
		}
	}
	return h.corrected[factMeter{target, number}], nil
}

func (h *history) Correct(target usage.Key, number uint32, c usage.Corrected) {
	h.corrected[factMeter{target, number}] = c
}

func (h *history) Member(id usage.CounterID, generation uint32, member string) (onTime, seen bool, err error) {
	name := memberName{id, member}
	if onTime, ok := h.joined[memberKey{name, generation}]; ok {
		return onTime, true, nil
	}
	if !h.looked[name] {
		w := &wants{}
		w.member(h, name)
		if err := h.fetch(w); err != nil {
			return false, false, err
		}
	}
	onTime, seen = h.members[memberKey{name, generation}]
	return onTime, seen, nil
}

func (h *history) AddMember(id usage.CounterID, generation uint32, member string, onTime bool) {
	h.joined[memberKey{memberName{id, member}, generation}] = onTime
}

// Slice reads the counter's rows from the table, and those that this transaction adds from memory.
func (h *history) Slice(id usage.CounterID, below uint64, fn func(*usage.Row, *usage.Outcome)) error {
	if h.fault != nil {
		return h.fault
	}
	each := func(r *ledger.Row) {
		if r.Kind() != ledger.EventRow {
			return
		}
		e := r.Event
		if r.Seq >= below || e.Customer != id.Customer || e.Month() != id.Month {
			return
		}
		for j := range e.Outcomes {
			if e.Outcomes[j].Meter == id.Meter {
				fn(e, &e.Outcomes[j])
			}
		}
	}
	for i := range h.rows {
		each(&h.rows[i])
	}
	base := h.cache.cells[id].base
	if base == 0 {
		return nil
	}
	if err := h.freed(); err != nil {
		return err
	}
	// Rows of this transaction may be in the table already, so the chain is read from where it was before.
	before := base
	err := h.c.ask(h.ctx, eventsOfCounter, func(in *reader) error {
		r, err := readEvent(in, h.set)
		if err == nil {
			each(&r)
			before = in.link()
		}
		return err
	}, []byte(h.tenantID), int8Param(int64(base)), int8Param(int64(id.Meter)))
	if err == nil && before != 0 {
		err = fmt.Errorf("row %d of tenant %s is not in its table: %w", before, h.tenantID, errDefect)
	}
	if err != nil {
		return h.fail(fmt.Errorf("read the rows of a counter: %w", err))
	}
	return nil
}

// owned gives a counter's id memory of its own: its customer may belong to a request.
func owned(id usage.CounterID) usage.CounterID {
	id.Customer = strings.Clone(id.Customer)
	return id
}
