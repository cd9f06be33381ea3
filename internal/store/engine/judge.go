package engine

import (
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
	"github.com/tallystick/tallystick/internal/store/engine/state"
	"github.com/tallystick/tallystick/internal/store/resident"
)

// prepared is a fact with all that could be computed before its turn came.
type prepared struct {
	usage.Fact
	hash     keyindex.Hash
	found    keyindex.Found // in the runs, as of the work's epoch
	customer uint64
	cell     uint64 // hash of the counter, when the event says its time
	check    uint32
}

// hasher computes what prepared holds. It serves one goroutine at a time.
type hasher struct{ buf []byte }

// key hashes a fact's identity. The seed is secret and random, so nobody can make two keys collide on purpose.
func (h *hasher) key(seed uint64, tenant uint32, k usage.Key) keyindex.Hash {
	b := append(h.buf[:0], byte(tenant), byte(tenant>>8), byte(tenant>>16), byte(tenant>>24), byte(k.Space))
	b = append(b, k.Name...)
	h.buf = b
	sum := xxh3.Hash128Seed(b, seed)
	return keyindex.Hash{Hi: sum.Hi, Lo: sum.Lo}
}

// check is the short content fingerprint that the key index keeps.
func (h *hasher) check(seed uint64, e *usage.Event, space usage.Space) uint32 {
	h.buf = usage.AppendContent(h.buf[:0], e, space)
	return uint32(xxh3.HashSeed(h.buf, seed))
}

// history is one tenant's past as the rules see it while a fact is judged or a row is replayed. Engine.mu is held.
type history struct {
	e    *Engine
	b    *book
	fact *prepared // the one being judged, nil during replay
	at   keyindex.Epoch
	hash hasher
	last *cell // of the last call of Counter

	fetched *fetched                 // that the batch brought along, or nil
	plans   *fetchedPlans            // likewise
	targets map[usage.Key]*usage.Row // likewise

	replaying *section // whose rows no place names yet
	oneByOne  bool     // a counter is held until the next is asked for, and no longer
}

var _ usage.State = (*history)(nil)

func (h *history) Known(f *usage.Fact) (usage.Known, error) {
	found, err := h.e.index.Lookup(h.fact.hash, h.fact.found, h.at)
	if err != nil || !found.OK {
		return usage.Known{}, err
	}
	if f.Bucket || found.Check == h.fact.check {
		return usage.Known{Seq: found.Seq}, nil
	}
	row, err := h.e.rowForJudging(h.b, found.Seq)
	if problem.Is(err, problem.Archived) {
		return usage.Known{Seq: found.Seq, Other: true}, nil // 128 bits of its key are the same, the content is not
	}
	if err != nil {
		return usage.Known{}, err
	}
	if row.Kind() != ledger.EventRow || row.Event.Key != f.Key {
		return usage.Known{}, fmt.Errorf("key index points %q to row %d, which is another fact: run `tallystick "+
			"verify`", f.Key.ID(), found.Seq)
	}
	return usage.Known{Seq: found.Seq, Other: !usage.SameContent(f.Event, &row.Event.Event, f.Key.Space)}, nil
}

func (h *history) Floor() calendar.Micros { return h.b.resident.Horizon.Floor }

func (h *history) TenantClosed() bool { return h.b.resident.TenantClosed() }

func (h *history) Closed(m calendar.Month) bool { return h.b.resident.Closed(m) }

func (h *history) Catalog() *usage.Catalog { return h.b.resident.Catalog }

// Counter returns the live counter and marks it as changing; a fact that is refused later costs a needless save.
func (h *history) Counter(id usage.CounterID) (*usage.Counter, error) {
	var customer uint64
	if h.fact != nil && h.fact.Event.Corrects == "" {
		customer = h.fact.customer
	} else {
		customer = hashCustomer(id.Customer)
	}
	if h.oneByOne {
		h.e.cells.release()
	}
	c, err := h.e.cellOf(h.fetched, h.b, id, customer)
	if err != nil {
		return nil, err
	}
	h.e.cells.touch(c)
	h.last = c
	return &c.Counter.Counter, nil
}

// cell returns the counter's cell, bringing it into memory. Engine.mu is held for writing.
func (e *Engine) cell(b *book, id usage.CounterID, customer uint64) (*cell, error) {
	return e.cellOf(nil, b, id, customer)
}

// cellOf is cell for a batch that may have brought it along.
func (e *Engine) cellOf(f *fetched, b *book, id usage.CounterID, customer uint64) (*cell, error) {
	hash := cellHash(b.number, id, customer)
	if r := e.cells.find(b, id, hash); r != 0 {
		return e.cells.openCell(r), nil
	}
	if c := f.take(b, id, hash, e.cells.done.Load()); c != nil {
		return e.cells.add(c), nil
	}
	return e.loadCell(b, id, hash, b.resident.Catalog.Number(id.Meter).Slug)
}

// loadCell brings a counter into memory that is not there. Engine.mu is held for writing.
func (e *Engine) loadCell(b *book, id usage.CounterID, hash uint64, slug string) (*cell, error) {
	c, err := e.bring(b, id, slug, hash)
	if err != nil {
		return nil, err
	}
	e.metrics.coldReads.Inc()
	return e.cells.add(c), nil
}

func (h *history) Target(k usage.Key) (*usage.Row, error) {
	if row := h.targets[k]; row != nil {
		return row, nil
	}
	found, err := h.e.index.Get(h.hash.key(h.e.index.Seed(), h.b.number, k))
	if err != nil || !found.OK {
		return nil, err
	}
	row, err := h.e.rowForJudging(h.b, found.Seq)
	if err != nil {
		return nil, err
	}
	if row.Kind() != ledger.EventRow || row.Event.Key != k {
		return nil, fmt.Errorf("key index points %q to row %d, which is another fact: run `tallystick verify`", k.ID(),
			found.Seq)
	}
	return row.Event, nil
}

func (h *history) Corrected(target usage.Key, number uint32) (usage.Corrected, error) {
	k := factMeter{factKey{h.b, target}, number}
	for _, n := range h.e.notes {
		if c, ok := n.corrected[k]; ok {
			return c, nil
		}
	}
	return h.e.state.Corrected(h.b.number, target, number)
}

func (h *history) Correct(target usage.Key, number uint32, c usage.Corrected) {
	target.Name = strings.Clone(target.Name)
	h.e.notes[0].corrected[factMeter{factKey{h.b, target}, number}] = c
}

func (h *history) Member(id usage.CounterID, generation uint32, member string) (onTime, seen bool, err error) {
	k := memberKey{h.b, id, generation, member}
	for _, n := range h.e.notes {
		if onTime, ok := n.members[k]; ok {
			return onTime, true, nil
		}
	}
	return h.e.state.Member(h.b.number, id, generation, member)
}

func (h *history) AddMember(id usage.CounterID, generation uint32, member string, onTime bool) {
	id.Customer = strings.Clone(id.Customer)
	h.e.notes[0].members[memberKey{h.b, id, generation, strings.Clone(member)}] = onTime
}

// Slice walks the counter's chain of sections from the latest to the first.
func (h *history) Slice(id usage.CounterID, below uint64, fn func(*usage.Row, *usage.Outcome)) error {
	c, err := h.e.cell(h.b, id, hashCustomer(id.Customer))
	if err != nil {
		return err
	}
	section := c.Section
	if s := h.b.section; s != nil && section == s.first {
		// The group being decided is only in memory. The one before it may still be on its way to the disk.
		s.slice(id, below, fn)
		section = c.prev
	}
	if s := h.replaying; s != nil && section == s.first {
		s.slice(id, below, fn)
		section = c.prev
	}
	for section != 0 {
		if section, err = h.e.walkSection(h.b, section, id, below, fn); err != nil {
			return err
		}
	}
	return nil
}

// place finds where a row is. Only rows that were written have a place.
func (e *Engine) place(b *book, seq uint64) (state.Section, error) {
	if s, ok := b.place(seq); ok {
		return s, nil
	}
	s, ok, err := e.state.SectionOf(b.number, seq)
	if err != nil {
		return s, fmt.Errorf("find row %d: %w", seq, err)
	}
	if !ok {
		// A checkpoint may have moved it to the state between the two looks.
		if s, ok = b.place(seq); !ok {
			return s, fmt.Errorf("no section holds row %d of tenant %s: run `tallystick rebuild`", seq, b.id)
		}
	}
	return s, nil
}

// readSection reads the section that holds a row.
func (e *Engine) readSection(b *book, seq uint64, d *decoder, set *resident.Set) (section, error) {
	p, err := e.place(b, seq)
	if err != nil {
		return section{}, err
	}
	return e.readPlace(b, p, d, set)
}

func (e *Engine) readPlace(b *book, p state.Section, d *decoder, set *resident.Set) (section, error) {
	head, _, err := e.readHeadAt(b, p)
	if err != nil {
		return section{}, err
	}
	return d.decode(head, set)
}

// readHeadAt reads the record that holds a section, which shares its memory.
func (e *Engine) readHeadAt(b *book, p state.Section) (head sectionHead, payload []byte, err error) {
	if payload, _, err = e.journal.Read(p.Position, nil); err != nil {
		return head, nil, fmt.Errorf("read rows from %d on: %w", p.First, err)
	}
	if head, err = headAt(payload, b.number, p); err != nil {
		return head, nil, err
	}
	if head.tenant != b.number || head.first != p.First || head.rows != p.Rows {
		return head, nil, fmt.Errorf("rows from %d on of tenant %s are not where the state says: run `tallystick "+
			"rebuild`", p.First, b.id)
	}
	return head, payload, nil
}
