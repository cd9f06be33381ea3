package versus

import (
	"context"
	"sync"

	"github.com/tallystick/tallystick/internal/load"
)

// pgCoalesced is the best that PostgreSQL was seen to do: writers that each take all requests that wait and insert them
// as one set.
type pgCoalesced struct {
	*pgSubject
	waiting chan *pending
	writers sync.WaitGroup
}

// pending is a request that waits for its set.
type pending struct {
	batch    *load.Batch
	accepted int
	err      error
	done     chan struct{}
}

const (
	// coalescedWriters: while one waits for the disk the other fills the processor. More of them make smaller sets.
	coalescedWriters = 2
	// maxSet bounds the events of a set; beyond it a larger one gains nothing.
	maxSet = 10_000
)

func openPgCoalesced(ctx context.Context, b *bench, c Cell) (subject, error) {
	return coalesce(ctx, b, byCustomer, c)
}

func openPgCoalescedPlain(ctx context.Context, b *bench, c Cell) (subject, error) {
	return coalesce(ctx, b, plain, c)
}

func coalesce(ctx context.Context, b *bench, schema string, c Cell) (subject, error) {
	pg, err := openPg(ctx, b, schema, coalescedWriters)
	if err != nil {
		return nil, err
	}
	s := &pgCoalesced{pgSubject: pg, waiting: make(chan *pending, c.Submitters)}
	for range coalescedWriters {
		s.writers.Go(func() { s.write(ctx) })
	}
	return s, nil
}

func (s *pgCoalesced) submitter(context.Context) (func(*load.Batch) error, error) {
	p := &pending{done: make(chan struct{}, 1)}
	return func(b *load.Batch) error {
		p.batch, p.accepted, p.err = b, 0, nil
		s.waiting <- p
		<-p.done
		if p.err != nil {
			return p.err
		}
		return expect(b, p.accepted)
	}, nil
}

func (s *pgCoalesced) write(ctx context.Context) {
	var c columns
	var set []*pending
	for first := range s.waiting {
		set = append(set[:0], first)
		for events := len(first.batch.Facts); events < maxSet; {
			next, ok := s.next()
			if !ok {
				break
			}
			set = append(set, next)
			events += len(next.batch.Facts)
		}
		s.insertAll(ctx, set, &c)
	}
}

// next returns what waits now, if anything does.
func (s *pgCoalesced) next() (*pending, bool) {
	select {
	case p, ok := <-s.waiting:
		return p, ok
	default:
		return nil, false
	}
}

// insertAll inserts the requests as one set and answers each with how many of its events were new.
func (s *pgCoalesced) insertAll(ctx context.Context, set []*pending, c *columns) {
	c.reset()
	for _, p := range set {
		c.add(s.b.w, s.ids[p.batch.Tenant], p.batch)
	}
	owners := make(map[identity]*pending, len(c.ids))
	at := 0
	for _, p := range set {
		for range p.batch.Facts {
			owners[identity{c.tenants[at], c.ids[at]}] = p
			at++
		}
	}
	inserted, err := s.insert(ctx, c)
	for _, id := range inserted {
		owners[id].accepted++
	}
	for _, p := range set {
		p.err = err
		p.done <- struct{}{}
	}
}

func (s *pgCoalesced) close() error {
	close(s.waiting)
	s.writers.Wait()
	return s.pgSubject.close()
}
