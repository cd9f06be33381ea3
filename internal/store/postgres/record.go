package postgres

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

func errNoTenant(id string) error { return problem.New(problem.NotFound, "no tenant %q", id) }

func errTenantClosed(id string) error {
	return problem.New(problem.TenantClosed, "tenant %s is closed: it refuses writes", id)
}

// Record implements store.Store.
func (s *Store) Record(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	config, err := s.config(ctx, b.Tenant)
	if err != nil {
		return nil, err
	}
	if len(b.Events) > store.MaxBatch {
		if config.tenant.Closed {
			return nil, errTenantClosed(b.Tenant)
		}
		return nil, problem.New(problem.TooLarge, "at most %d events in a batch, this has %d", store.MaxBatch, len(b.Events))
	}
	l, err := s.enter(b.Tenant)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	w := &work{events: b.Events, verdicts: make([]usage.Verdict, len(b.Events)), facts: make([]fact, len(b.Events)), done: make(chan struct{})}
	w.prepare(config)
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

// prepare does all that needs no history.
func (w *work) prepare(c *config) {
	p := usage.NewPreparer(c.catalog)
	for i := range w.facts {
		f := &w.facts[i]
		p.Prepare(&w.events[i], &f.Fact)
		f.hash = hashKey(f.Key)
	}
	w.config, w.looked, w.found = c, false, nil
}

// commitGroup runs the transaction of a group, again if it failed in passing. The turn is held.
func (l *lane) commitGroup(group []*work) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.s.options.StatementTimeout+l.s.options.LockTimeout)
	defer cancel()
	return l.s.again(ctx, func() error {
		err := l.tryGroup(ctx, group)
		if err != nil {
			l.book.forget() // the rules have changed counters of which nothing was written
		}
		return err
	})
}

func (l *lane) tryGroup(ctx context.Context, group []*work) error {
	c, err := l.s.lend(ctx)
	if err != nil {
		return err
	}
	defer c.giveBack(ctx)
	var h head
	under, err := l.lock(ctx, c, group, &h)
	if err != nil {
		return err
	}
	if !h.exists {
		return errNoTenant(l.tenantID)
	}
	config := group[0].config
	if config.version != h.version {
		if config, err = c.loadConfig(ctx, l.tenantID, h.version); err != nil {
			return err
		}
		l.s.configs.put(l.tenantID, config)
	}
	if config.tenant.Closed {
		return errTenantClosed(l.tenantID)
	}
	l.book.at(h.Seq)
	total := 0
	for _, w := range group {
		if w.config.version != config.version {
			w.prepare(config)
		}
		total += len(w.facts)
	}
	past := newHistory(ctx, c, l.tenantID, config, &l.book, &h, total)
	if err := l.complete(past, group, under); err != nil {
		return err
	}
	out := l.s.flow(ctx, c)
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

// lock takes the head and, in the same round trip, searches the keys of works that nobody has searched yet. It returns what that
// search found, which is the truth: it came after the lock.
func (l *lane) lock(ctx context.Context, c *session, group []*work, h *head) (map[*work]bool, error) {
	r := c.round(ctx)
	r.beginWriting(l.tenantID)
	r.send(lockHead, l.s.headFrom(h), []byte(l.tenantID))
	var w wants
	under, config := map[*work]bool{}, group[0].config
	for _, one := range group {
		if !one.looked && one.config == config {
			under[one] = true
			one.want(&w)
		}
	}
	found := map[usage.Key]*ledger.Row{}
	if w.keyCount > 0 {
		r.send(eventsByKey, func(in *reader) error {
			if h.version != config.version {
				return nil // the works are prepared anew, and their keys searched again
			}
			row, err := readEvent(in, config)
			if err == nil {
				found[row.Event.Key] = &row
			}
			return err
		}, []byte(l.tenantID), w.keys.param())
	}
	if err := r.do(); err != nil {
		return nil, err
	}
	if h.version != config.version {
		return nil, nil
	}
	for one := range under {
		one.saw(h.Seq, found)
	}
	return under, nil
}

// complete reads all that is still missing, in one round trip.
func (l *lane) complete(past *history, group []*work, under map[*work]bool) error {
	w := &wants{}
	for _, one := range group {
		if one.lookedAt >= past.first {
			one.looked, one.found = false, nil // the search saw rows that are no longer there
		}
		for _, r := range one.found {
			past.found[r.Event.Key] = r
		}
	}
	for _, one := range group {
		if !under[one] {
			l.lookAgain(past, one, w)
		}
		one.needs(past, w)
	}
	return past.fetch(w)
}

// lookAgain asks for the keys that the work's search did not find and that may have come since.
func (l *lane) lookAgain(past *history, one *work, w *wants) {
	spans, remembered := l.book.since(one.lookedAt)
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

// needs asks for the counters, members and corrections that judging the work's facts will touch.
func (w *work) needs(past *history, all *wants) {
	for i := range w.facts {
		f := &w.facts[i]
		if f.Event.Corrects != "" {
			if r := past.found[usage.KeyOfID(f.Event.Corrects)]; r != nil {
				all.target(past, r.Event)
			}
			continue
		}
		if f.Refusal != nil || f.Key.Name == "" {
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
func (w *work) judge(past *history, out *flow) {
	for i := range w.facts {
		f := &w.facts[i]
		past.hash = f.hash
		past.touched = past.touched[:0]
		row := past.next()
		v := usage.Judge(past, &f.Fact, past.first+uint64(len(past.rows)), past.now, row)
		if v.Status == usage.Accepted || v.Status == usage.Adjusted || v.Status == usage.Overage {
			past.keep(row, f.hash)
			out.offer(past.tenantID, past.rows, past.now)
		}
		w.verdicts[i] = v
	}
}

// seal writes and commits what was decided, and remembers it.
func (l *lane) seal(out *flow, past *history, h *head) error {
	a := &addition{tenantID: l.tenantID, base: h.Head, at: past.now, rows: past.rows, config: past.config, cells: past.dirty, joined: past.joined, newlyUse: past.newlyUse}
	after, err := out.commit(a)
	if err != nil {
		return err
	}
	for _, c := range past.dirty {
		c.dirty = false
	}
	l.book.committed(span{from: h.Seq, to: after.Seq, keys: past.seen})
	if len(a.newlyUse) > 0 {
		l.s.configs.put(l.tenantID, past.config.at(after.Seq))
	}
	return nil
}
