package postgres

import (
	"context"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

func errNoTenant(id string) error { return problem.New(problem.NotFound, "no tenant %q", id) }

// Record implements store.Store.
func (s *Store) Record(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := b.Check(); err != nil {
		return nil, err
	}
	set, err := s.someSet(ctx, b.Tenant)
	if err != nil {
		return nil, err
	}
	l, err := s.enter(b.Tenant)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	w := newWork(&b, set)
	if err := l.put(w); err != nil {
		return nil, err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if w.taken.CompareAndSwap(false, true) {
			return nil, ctx.Err()
		}
		<-w.done // the events are in use: they are the caller's again when the commit has ended
	}
	if w.err != nil {
		return nil, w.err
	}
	return w.verdicts, nil
}

func newWork(b *store.Batch, set *residentSet) *work {
	events := b.Events
	w := &work{by: b.By, atomic: b.Atomic, events: events, bytes: weigh(events),
		verdicts: make([]usage.Verdict, len(events)),
		facts:    make([]fact, len(events)), done: make(chan struct{})}
	w.prepare(set)
	return w
}

// prepare does all that needs no history.
func (w *work) prepare(set *residentSet) {
	p := usage.NewPreparer(set.Catalog)
	for i := range w.facts {
		f := &w.facts[i]
		p.Prepare(&w.events[i], &f.Fact)
		f.hash = hashKey(f.Key)
	}
	w.set = set
	w.forget()
}

// commitGroup runs the transaction of a group, again if it failed in passing. The turn is held.
func (l *lane) commitGroup(group []*work) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.s.options.StatementTimeout+l.s.options.LockTimeout)
	defer cancel()
	err := l.s.again(ctx, func() error {
		err := l.tryGroup(ctx, group)
		if err != nil {
			l.forget(group)
		}
		return err
	})
	return outOfTime(ctx, err)
}

// forget drops all that a transaction which failed had found or changed in memory. The rules have changed counters of
// which nothing was written, and what was read from a server that is gone need not be true of the one that takes its
// place.
func (l *lane) forget(group []*work) {
	l.cache.forget()
	l.s.sets.forget(l.tenantID)
	for _, w := range group {
		w.forget()
	}
}

func (l *lane) tryGroup(ctx context.Context, group []*work) error {
	c, err := l.s.lend(ctx)
	if err != nil {
		return err
	}
	defer c.giveBack(ctx)
	total := 0
	for _, w := range group {
		total += len(w.facts)
	}
	var h head
	past := newHistory(ctx, c, l.tenantID, group[0].set, &l.cache, &h, total)
	past.timed = total >= lookUpFrom || l.groups%timedShare == 0
	l.groups++
	known, err := l.lock(past, group, &h)
	if err != nil {
		return err
	}
	if err := past.set.CheckKeptHere(); err != nil {
		return err
	}
	for _, w := range group {
		if w.set.version != h.version {
			w.prepare(past.set)
		}
	}
	if err := l.complete(past, group, known); err != nil {
		return err
	}
	if past.timed {
		l.s.metrics.fetch.Observe(time.Since(past.locked).Seconds())
	}
	l.s.metrics.facts.Observe(float64(total))
	l.s.metrics.batches.Observe(float64(len(group)))
	out := l.s.transfer(ctx, c)
	out.timed = past.timed
	defer out.end()
	past.free = out.drain
	for _, w := range group {
		w.judge(past, out)
	}
	if past.fault != nil {
		return past.fault
	}
	if len(past.rows) == 0 {
		return nil
	}
	return l.seal(out, past, &h)
}

// lock takes the head and, in the same round trip, reads what the group will need as far as that is known before: the
// keys that nobody has searched yet, and the counters that the cache lacks. What it finds is the truth, because it came
// after the lock.
func (l *lane) lock(past *history, group []*work, h *head) (known foreseen, err error) {
	guess := l.s.now(calendar.FromTime(time.Now())) // of the time, for facts that name none
	past.now = guess
	set := past.set
	known.keys = map[*work]bool{}
	w := &wants{}
	for _, one := range group {
		if one.set != set {
			continue
		}
		if !one.looked {
			known.keys[one] = true
			one.want(w)
		}
		one.needs(past, w)
	}
	r := past.c.roundTrip(past.ctx)
	r.beginWriting(l.tenantID)
	began := time.Now()
	r.send(lockHead, l.s.headFrom(h), []byte(l.tenantID))
	if past.timed {
		r.then(func() { past.locked = time.Now() })
	}
	past.ask(r, w, func() bool { return h.version == set.version })
	if err := r.do(); err != nil {
		return known, err
	}
	if !h.exists {
		return known, errNoTenant(l.tenantID)
	}
	if past.timed {
		l.s.metrics.lock.Observe(past.locked.Sub(began).Seconds())
	}
	same := l.cache.at(h.Head)
	if h.version == set.version {
		past.follow(h)
		past.enter(w)
		if same && calendar.MonthOf(guess) == calendar.MonthOf(past.now) {
			known.counters = set
		}
		return known, nil
	}
	if set, err = l.s.loadSet(past.ctx, past.c, l.tenantID, h.version); err != nil {
		return known, err
	}
	l.s.sets.put(l.tenantID, set)
	timed, locked := past.timed, past.locked
	*past = *newHistory(past.ctx, past.c, l.tenantID, set, &l.cache, h, cap(past.rows))
	past.timed, past.locked = timed, locked
	return foreseen{}, nil
}

// foreseen is what was read together with the lock.
type foreseen struct {
	keys map[*work]bool // works whose keys were searched
	// counters are those of works that were prepared with this set, unless they are corrections; nil: of none.
	counters *residentSet
}

// complete reads all that is still missing, in one round trip if anything is.
func (l *lane) complete(past *history, group []*work, known foreseen) error {
	w := &wants{}
	for _, one := range group {
		if _, remembered := l.cache.since(one.lookedAt); !remembered {
			one.forget() // the search may have seen rows that are no longer there
		}
		for _, r := range one.found {
			past.found[r.Event.Key] = r
		}
	}
	for _, one := range group {
		if !known.keys[one] {
			l.lookAgain(past, one, w)
		}
		one.targets(past, w)
		if one.set != known.counters {
			one.needs(past, w)
		}
	}
	return past.fetch(w)
}

// lookAgain asks for the keys that the work's search did not find and that may have come since.
func (l *lane) lookAgain(past *history, one *work, w *wants) {
	spans, remembered := l.cache.since(one.lookedAt)
	remembered = remembered && one.looked
	look := func(k usage.Key, hash uint64) {
		if past.found[k] != nil {
			return
		}
		for i := range spans {
			if _, ok := spans[i].keys[hash]; ok {
				w.key(k)
				return
			}
		}
		if !remembered {
			w.key(k)
		}
	}
	if remembered && len(spans) == 0 {
		return
	}
	for i := range one.facts {
		f := &one.facts[i]
		if f.Key.Name == "" {
			continue
		}
		look(f.Key, f.hash)
		if f.Event.Corrects != "" {
			k := usage.KeyOfID(f.Event.Corrects)
			look(k, hashKey(k))
		}
	}
}

// targets asks for the counters and corrections that judging the work's corrections will touch.
func (w *work) targets(past *history, all *wants) {
	for i := range w.facts {
		if target := w.facts[i].Event.Corrects; target != "" {
			if r := past.found[usage.KeyOfID(target)]; r != nil {
				all.target(past, r.Event)
			}
		}
	}
}

// needs asks for the counters and members that judging the work's other facts will touch.
func (w *work) needs(past *history, all *wants) {
	for i := range w.facts {
		f := &w.facts[i]
		if f.Refusal != nil || f.Key.Name == "" || f.Event.Corrects != "" {
			continue
		}
		at := f.Event.Time
		if !f.Event.Has(usage.GivenTime) {
			at = past.now
		}
		all.row(past, f.Feeds(), usage.CounterID{Customer: f.Event.Customer, Month: calendar.MonthOf(at)})
	}
}

// judge decides the work's facts in order.
func (w *work) judge(past *history, out *transfer) {
	if w.atomic && w.refused(past) {
		return
	}
	alerts := 0
	for i := range w.facts {
		f := w.next(past, i)
		row := past.next()
		v := usage.Judge(past, &f.Fact, past.first+uint64(len(past.rows)), past.now, row)
		if v.Kept() {
			past.keep(row, f.hash, w.by)
			if past.set.Thresholds > 0 {
				alerts += past.alert(row, quota.MaxAlerts-alerts)
			}
			out.offer(past)
		}
		w.verdicts[i] = v
	}
}

// next makes a fact the one that is judged.
func (w *work) next(past *history, i int) *fact {
	f := &w.facts[i]
	past.hash = f.hash
	past.touched = past.touched[:0]
	return f
}

// refused reports whether an atomic batch must leave nothing behind.
func (w *work) refused(past *history) bool {
	refused, err := usage.Rehearse(past, func(i int) *usage.Fact { return &w.next(past, i).Fact },
		past.first+uint64(len(past.rows)), past.now, w.verdicts)
	return past.fail(err) != nil || refused
}

// seal writes and commits what was decided, and remembers it.
func (l *lane) seal(out *transfer, past *history, h *head) error {
	a := past.addition(h)
	after, version, err := out.commit(a)
	if err != nil {
		return err
	}
	past.written()
	l.cache.committed(span{from: h.Head, to: after, keys: past.seen})
	if a.moved {
		l.s.sets.put(l.tenantID, past.set.at(version))
	}
	return nil
}
