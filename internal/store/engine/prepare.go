package engine

import (
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
	"github.com/tallystick/tallystick/internal/store/resident"
)

// scratch is memory that preparing needs and the next call can use again.
type scratch struct {
	hashes []keyindex.Hash
	found  []keyindex.Found
	hash   hasher
}

// prepare does for a batch, in the caller's goroutine, all that needs no order: checks, keys, hashes, the search in the
// runs of the key index, and the reading of counters that are not in memory.
func (e *Engine) prepare(b *book, by string, events []usage.Event) (*work, error) {
	if err := e.reads.enter(); err != nil { // of counters
		return nil, err
	}
	defer e.reads.leave()
	w, ok := e.works.Get().(*work)
	if !ok {
		w = &work{done: make(chan struct{}, 1)}
	}
	w.book, w.by, w.events, w.verdicts = b, by, events, make([]usage.Verdict, len(events))
	w.facts = sized(w.facts, len(events))
	s := e.scratch()
	set := b.published.Load().resident
	err := e.prepareWith(w, s, set)
	if err == nil {
		e.fetchTargets(w, s, set)
	}
	e.pool.Put(s)
	return w, err
}

func (e *Engine) scratch() *scratch {
	if s, ok := e.pool.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}

func (e *Engine) prepareWith(w *work, s *scratch, set *resident.Set) error {
	catalog := set.Catalog
	p, ok := w.book.preparers.Get().(*usage.Preparer)
	if !ok || p.Catalog() != catalog {
		p = usage.NewPreparer(catalog)
	}
	seed := e.index.Seed()
	s.hashes, s.found = sized(s.hashes, len(w.facts)), sized(s.found, len(w.facts))
	for i := range w.facts {
		f := &w.facts[i]
		p.Prepare(&w.events[i], &f.Fact)
		if f.Key.Name == "" {
			s.hashes[i] = keyindex.Hash{}
			continue
		}
		f.hash = s.hash.key(seed, w.book.number, f.Key)
		f.check = s.hash.check(seed, f.Event, f.Key.Space)
		f.customer = hashCustomer(f.Event.Customer)
		if feeds := f.Feeds(); len(feeds) > 0 && f.Event.Has(usage.GivenTime) {
			id := usage.CounterID{Meter: feeds[0].Meter.Number, Month: calendar.MonthOf(f.Event.Time)}
			f.cell = cellHash(w.book.number, id, f.customer)
		}
		s.hashes[i] = f.hash
	}
	w.book.preparers.Put(p)
	epoch, err := e.index.Probe(s.hashes, s.found)
	if err != nil {
		return problem.Wrap(problem.Unavailable, err, "the key index cannot be read: nothing was recorded")
	}
	for i := range w.facts {
		w.facts[i].found = s.found[i]
	}
	w.epoch, w.catalog, w.thresholds = epoch, catalog, set.Thresholds
	w.bound = maxRunOverhead + len(w.by) + batchBound(w.facts) + alertBound(w.facts, set.Thresholds, len(w.by))
	e.fetch(w)
	e.fetchPlans(w, set.HasPlans())
	return nil
}

// recycle keeps the memory of answered work and forgets what it pointed to.
func (e *Engine) recycle(w *work) {
	clear(w.facts)
	e.unfetch(w)
	w.plans = fetchedPlans{}
	w.book, w.by, w.atomic, w.events, w.verdicts, w.catalog, w.err = nil, "", false, nil, nil, nil, nil
	w.taken.Store(false)
	e.works.Put(w)
}
