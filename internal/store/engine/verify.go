package engine

import (
	"context"
	"fmt"

	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// Verify reads all files again: every journal record with its checks, every key against the row it stands for, every run of
// the key index and every table of the state. It proves that a fact sent again would be recognized, and that no key is there
// without a fact, which would refuse a new one as a duplicate. That the counters are the fold of the rows is the port's
// business and not looked at here. The engine must be at rest. progress, if not nil, is told bytes.
func (e *Engine) Verify(ctx context.Context, tell func(done, total int64)) error {
	if err := e.reads.enter(); err != nil {
		return err
	}
	defer e.reads.leave()
	if _, err := identify(e.options.FS, e.options.Dir); err != nil {
		return err
	}
	end := e.journal.End()
	c := keyCheck{e: e, books: e.booksByNumber(), slices: e.newSliceCheck()}
	defer c.slices.release()
	index := e.index.Stats().DiskBytes
	p := e.newProgress(journal.Position{}, tell)
	p.extra = index + c.slices.bytes()
	err := e.journal.Scan(journal.Position{}, end, func(pos, next journal.Position, payload []byte) error {
		if err := ctx.Err(); err != nil {
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
	// Keys of rows that have left stay until the index is made again: they can only refuse what would be refused anyway.
	if entries := e.keys(); entries < c.events || entries > c.events+c.gone {
		return fmt.Errorf("the key index has %d keys for %d facts: run `tallystick rebuild`", entries, c.events)
	}
	read := p.total() - p.extra
	err = e.index.Verify(func(done, _ int64) {
		if tell != nil {
			tell(read+min(done, index), p.total())
		}
	})
	if err != nil {
		return err
	}
	if err := e.state.Verify(); err != nil {
		return &state.DamageError{Dir: stateDir, Err: err}
	}
	read += index
	err = c.slices.compare(ctx, func(bytes int64) {
		if read += bytes; tell != nil {
			tell(read, p.total())
		}
	})
	if err != nil {
		return err
	}
	p.end()
	return nil
}

// keys is how many keys the index has. Freezing the active table, to have it counted with the others, would cost a table of memory for
// each run.
func (e *Engine) keys() int64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.index.Keys()
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
	books   map[uint32]*book
	heads   []sectionHead
	decoder decoder
	hash    hasher
	events  int64
	slices  *sliceCheck
	gone    int64 // rows that have left
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
		if p.First != head.first || p.Rows != head.rows || p.Position != pos || p.Offset != head.offset && payload[0] == recordVersion {
			return fmt.Errorf("rows from %d on of tenant %s are here, but the state says otherwise: run `tallystick rebuild`", head.first, b.id)
		}
		s, err := c.decoder.decode(head, b.published.Load().config.catalog)
		if err != nil {
			return err
		}
		c.gone += int64(head.rows - head.left)
		if err := c.keys(b, &s); err != nil {
			return err
		}
		c.slices.rows(b, pos, &s)
	}
	return nil
}

func (c *keyCheck) keys(b *book, s *section) error {
	c.e.mu.RLock()
	defer c.e.mu.RUnlock()
	seed := c.e.index.Seed()
	for i := range s.rows {
		r := s.rows[i].Event
		if r == nil {
			continue
		}
		c.events++
		found, err := c.e.index.Get(c.hash.key(seed, b.number, r.Key))
		if err != nil {
			return err
		}
		if !found.OK || found.Seq != s.rows[i].Seq || found.Check != c.hash.check(seed, &r.Event, r.Key.Space) {
			return fmt.Errorf("the key index does not know row %d of tenant %s: run `tallystick rebuild`", s.rows[i].Seq, b.id)
		}
	}
	return nil
}
