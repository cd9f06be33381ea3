package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/store"
)

// The roller adds usage up by the hour beside the commits, one tenant after the other. Readers add what it has not come
// to, so that it may take its time: it lets rows gather, and rests between two transactions for as long as one takes.
const (
	// gatherFor is how long rows gather before they are added up. A reader finds no more than it can add up quickly.
	gatherFor = time.Second
	// lookEvery is how often it looks for ledgers whose node has died before it added up what it committed.
	lookEvery = 30 * time.Second
	// restAtMost bounds the rest between two transactions.
	restAtMost = time.Second
	// behindAtOnce is how many tenants are asked for at a time.
	behindAtOnce = 1000
)

// roller is nil where nothing is added up.
type roller struct {
	s     *Store
	ctx   context.Context //nolint:containedctx // it ends with the store
	end   context.CancelFunc
	ended chan struct{}
	woken chan struct{} // holds a token when something waits

	mu      sync.Mutex          // guards what follows
	waiting map[string]struct{} // tenants that this node has written for
}

func (s *Store) startRoller() {
	ctx, cancel := context.WithCancel(context.Background())
	s.roller = &roller{s: s, ctx: ctx, end: cancel, ended: make(chan struct{}), woken: make(chan struct{}, 1),
		waiting: map[string]struct{}{}}
	go s.roller.loop()
}

// stop ends the roller and waits for it.
func (r *roller) stop() {
	if r != nil {
		r.end()
		<-r.ended
	}
}

// wake takes note that a tenant's ledger has grown.
func (r *roller) wake(tenantID string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.waiting[tenantID] = struct{}{}
	r.mu.Unlock()
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

func (r *roller) take() map[string]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.waiting
	r.waiting = map[string]struct{}{}
	return out
}

func (r *roller) loop() {
	defer close(r.ended)
	looked := time.Time{}
	for r.ctx.Err() == nil {
		some := r.take()
		if time.Since(looked) >= lookEvery {
			looked = time.Now()
			if err := r.s.behind(r.ctx, func(id string) { some[id] = struct{}{} }); err != nil {
				r.s.metrics.rollFailures.Inc()
			}
		}
		for id := range some {
			r.catchUp(id)
		}
		select {
		case <-r.woken:
			r.rest(gatherFor)
		case <-time.After(lookEvery):
		case <-r.ctx.Done():
		}
	}
}

// catchUp adds up what a tenant has. What fails is tried again with the next commit, or when the roller looks around.
func (r *roller) catchUp(tenantID string) {
	for more := true; more && r.ctx.Err() == nil; {
		began := time.Now()
		rows, left, err := r.s.rollUp(r.ctx, tenantID)
		if err != nil {
			if r.ctx.Err() == nil {
				r.s.metrics.rollFailures.Inc()
			}
			return
		}
		r.s.metrics.rolled.Add(float64(rows))
		if more = left; more {
			r.rest(min(time.Since(began), restAtMost))
		}
	}
}

func (r *roller) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.ctx.Done():
	}
}

// behind lists the tenants with rows that were not added up.
func (s *Store) behind(ctx context.Context, fn func(tenantID string)) error {
	for after, n := "", behindAtOnce; n == behindAtOnce; {
		n = 0
		err := s.reading(ctx, roleDirectory, "", func(ctx context.Context, c *session) error {
			return c.ask(ctx, behind, func(in *reader) error {
				after = in.text()
				n++
				fn(after)
				return nil
			}, []byte(after), int8Param(behindAtOnce))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// RebuildHours drops what was added up and adds it up again. Report, unless nil, gets how many rows it has come to, of
// how many. Nodes that serve meanwhile read rows where hours are missing.
func (s *Store) RebuildHours(ctx context.Context, report func(done, total uint64)) error {
	if report == nil {
		report = func(uint64, uint64) {}
	}
	all, total, done := []store.Grown{}, uint64(0), uint64(0)
	for after := ""; ; {
		some, err := s.Heads(ctx, after, behindAtOnce)
		if err != nil {
			return err
		}
		if len(some) == 0 {
			break
		}
		all, after = append(all, some...), some[len(some)-1].Tenant
	}
	for _, g := range all {
		total += g.Seq
	}
	for _, g := range all {
		drop := func(r *roundTrip) { r.send(dropRollup, nil, []byte(g.Tenant)) }
		if err := s.moving(ctx, g.Tenant, drop); err != nil {
			return err
		}
		for more := true; more; {
			var rows int
			var err error
			if rows, more, err = s.rollUp(ctx, g.Tenant); err != nil {
				return err
			}
			done += uint64(rows)
			report(done, max(total, done))
		}
	}
	return nil
}

// RollUp adds up everything that was committed before it was called. Another node may be at it: what it does not wait
// for is added up by that one.
func (s *Store) RollUp(ctx context.Context) error {
	var ids []string
	if err := s.behind(ctx, func(id string) { ids = append(ids, id) }); err != nil {
		return err
	}
	for _, id := range ids {
		for more := true; more; {
			var err error
			if _, more, err = s.rollUp(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}
