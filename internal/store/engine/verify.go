package engine

import (
	"context"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// Verify reads all files again: every journal record with its checks, every key against the row it stands for, every
// run of the key index and every table of the state. It proves that a fact sent again would be recognized, and that no
// key is there without a fact, which would refuse a new one as a duplicate. That the counters are the fold of the rows
// is the port's business and not looked at here.
//
// It may run beside everything else and proves it for what was decided when it began. It gives way to the committer,
// holds no lock for longer than a few keys take, and its memory does not grow with the store. Only Prune waits for its
// end, and it for that of Prune. It ends when ctx ends. report, if not nil, is called with bytes.
func (e *Engine) Verify(ctx context.Context, report func(done, total int64)) error {
	if err := e.hold(ctx); err != nil {
		return err
	}
	defer e.letGo()
	if _, err := identify(e.options.FS, e.options.Dir); err != nil {
		return err
	}
	c, err := e.newKeyCheck(ctx)
	if err != nil {
		return err
	}
	defer c.slices.release()
	index := e.index.Stats().DiskBytes
	p := e.newProgress(journal.Position{}, report)
	p.fixed = e.journal.SizeBefore(c.end) + index + c.slices.bytes()
	err = e.journal.Scan(journal.Position{}, c.end, func(pos, next journal.Position, payload []byte) error {
		if err := c.pacer.going(ctx); err != nil {
			return err
		}
		if err := c.record(pos, payload); err != nil {
			return fmt.Errorf("record at %s: %w", pos, err)
		}
		p.reached(next)
		return nil
	})
	if err != nil {
		return err
	}
	// Keys of rows that have left stay until the index is made again: they can only refuse what would be refused
	// anyway.
	if c.keys < c.events || c.keys > c.events+c.gone {
		return fmt.Errorf("the key index has %d keys for %d facts: run `tallystick rebuild`", c.keys, c.events)
	}
	going := func() error { return c.pacer.going(ctx) }
	before := e.journal.SizeBefore(c.end)
	err = e.index.Verify(func(done, _ int64) error {
		p.at(before + min(done, index))
		return going()
	})
	if err != nil {
		return err
	}
	if err := e.state.Verify(going); err != nil {
		if ended := going(); ended != nil {
			return ended
		}
		return &state.DamageError{Dir: stateDir, Err: err}
	}
	before += index
	err = c.slices.compare(going, func(bytes int64) {
		before += bytes
		p.at(before)
	})
	if err != nil {
		return err
	}
	p.end()
	return nil
}

// newKeyCheck notes how many keys there are, and for which rows, and waits until all of these are durable: then the
// journal up to its end holds every row of them.
func (e *Engine) newKeyCheck(ctx context.Context) (*keyCheck, error) {
	c := &keyCheck{e: e, last: map[uint32]uint64{}, pacer: pacer{e: e, stop: ctx.Done()}}
	var undurable []*group
	e.mu.RLock()
	c.keys = e.index.Entries()
	for _, b := range e.byID {
		if c.last[b.number] = b.seq; b.undurable != nil {
			undurable = append(undurable, b.undurable)
		}
	}
	e.mu.RUnlock()
	for _, g := range undurable {
		select {
		case <-g.done:
		case <-e.failed:
			return nil, e.errFailed()
		}
	}
	c.slices = e.newSliceCheck()
	c.end, c.books = unpack(e.durable.Load()), e.booksByNumber()
	c.pacer.begin()
	return c, nil
}

func (e *Engine) booksByNumber() map[uint32]*book {
	out := map[uint32]*book{}
	e.books.Range(func(_, v any) bool {
		b, _ := v.(*book)
		out[b.number] = b
		return true
	})
	return out
}

// keyCheck holds records against the index and the state.
type keyCheck struct {
	e       *Engine
	end     journal.Position  // of what is read
	keys    int64             // in the index, when the check began
	last    map[uint32]uint64 // the last row of each tenant then
	books   map[uint32]*book
	pacer   pacer
	heads   []sectionHead
	decoder decoder
	scratch scratch
	checks  []uint32
	seqs    []uint64
	slices  *sliceCheck
	events  int64 // rows up to the last
	gone    int64 // likewise, of those that have left
}

func (c *keyCheck) record(pos journal.Position, payload []byte) (err error) {
	if c.heads, err = readHeads(payload, c.heads); err != nil {
		return err
	}
	for _, head := range c.heads {
		b := c.books[head.tenant]
		if b == nil {
			return fmt.Errorf("tenant number %d is not in the state: run `tallystick rebuild`", head.tenant)
		}
		p, err := c.e.place(b, head.first)
		if err != nil {
			return err
		}
		if p.First != head.first || p.Rows != head.rows || p.Position != pos ||
			p.Offset != head.offset && payload[0] == recordVersion {
			return fmt.Errorf("rows from %d on of tenant %s are here, but the state says otherwise: run `tallystick "+
				"rebuild`", head.first, b.id)
		}
		s, err := c.decoder.decode(head, b.published.Load().resident)
		if err != nil {
			return err
		}
		if err := c.section(b, &s); err != nil {
			return err
		}
		c.slices.rows(b, pos, &s)
	}
	return nil
}

// section counts the rows of a section that were decided when the check began, and finds the keys of all.
func (c *keyCheck) section(b *book, s *section) error {
	last := c.last[b.number]
	if s.first <= last {
		c.gone += int64(min(last-s.first+1, uint64(s.count())))
	}
	seed := c.e.index.Seed()
	c.scratch.hashes, c.checks, c.seqs = c.scratch.hashes[:0], c.checks[:0], c.seqs[:0]
	for i := range s.rows {
		if s.rows[i].Seq <= last {
			c.gone--
		}
		if s.rows[i].Kind() != ledger.EventRow {
			continue
		}
		r := s.rows[i].Event
		if s.rows[i].Seq <= last {
			c.events++
		}
		c.scratch.hashes = append(c.scratch.hashes, c.scratch.hash.key(seed, b.number, r.Key))
		c.checks = append(c.checks, c.scratch.hash.check(seed, &r.Event, r.Key.Space))
		c.seqs = append(c.seqs, s.rows[i].Seq)
	}
	return c.find(b)
}

// keysAtOnce is how many keys are looked up in memory before the committer gets its turn again.
const keysAtOnce = 256

// find looks the keys up as Record does: in the files first, without a lock.
func (c *keyCheck) find(b *book) error {
	hashes := c.scratch.hashes
	c.scratch.found = sized(c.scratch.found, len(hashes))
	epoch, err := c.e.index.Probe(hashes, c.scratch.found)
	if err != nil {
		return err
	}
	for at := 0; at < len(hashes); at += keysAtOnce {
		if err := c.lookup(b, at, min(at+keysAtOnce, len(hashes)), epoch); err != nil {
			return err
		}
	}
	return nil
}

func (c *keyCheck) lookup(b *book, from, to int, epoch keyindex.Epoch) error {
	c.e.mu.RLock()
	defer c.e.mu.RUnlock()
	for i := from; i < to; i++ {
		found, err := c.e.index.Lookup(c.scratch.hashes[i], c.scratch.found[i], epoch)
		if err != nil {
			return err
		}
		if !found.OK || found.Seq != c.seqs[i] || found.Check != c.checks[i] {
			return fmt.Errorf("the key index does not know row %d of tenant %s: run `tallystick rebuild`", c.seqs[i],
				b.id)
		}
	}
	return nil
}
