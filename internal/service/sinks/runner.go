package sinks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/store"
)

// Carriers makes the carrier of a sink.
type Carriers interface {
	Carrier(tenantID string, s *sink.Sink) (Carrier, error)
}

// RunnerOptions are those of a Runner. Render is required; zero values of the others stand for the defaults.
type RunnerOptions struct {
	// Owner names this node among those that share a store. Default: a random name.
	Owner string
	// Render writes rows as receivers see them.
	Render Render
	// Retries are the pauses after failed attempts; after one more failure a delivery is given up. Default: 1 s, 5 s,
	// 30 s, 2 min, 10 min, 1 h, 6 h, 16 h.
	Retries []time.Duration
	// AttemptTime bounds one attempt. Default: 30 s.
	AttemptTime time.Duration
	// ClaimTime is how long a node that died keeps others from its share. Default: 10 s.
	ClaimTime time.Duration
	// Scan is how often all ledgers are searched for sinks that do not follow them: those whose node died right after
	// they were made. It is done at the start, too. Default: 10 min.
	Scan time.Duration
	// Poll is how often rows that other nodes committed are looked for. Default: 1 s.
	Poll time.Duration
	// Pause is the least time between two looks. Default: 20 ms.
	Pause time.Duration
	// MaxWorkers is how many sinks of tenants this node delivers for at a time. Default: 1000.
	MaxWorkers int
	// KeepIdle is how long a carrier stays open when its sink has nothing to do. Default: 1 min.
	KeepIdle time.Duration
	// MaxIdle is how many carriers stay open so; the one that is idle for longest is closed for the next. Default: 100.
	MaxIdle int
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Failed gets errors that are no receiver's: of the store above all. Default: nothing is called.
	Failed func(tenantID, sinkID string, err error)
	// Metrics takes figures. Default: none.
	Metrics prometheus.Registerer
}

// DefaultRetries are the pauses between attempts.
func DefaultRetries() []time.Duration {
	return []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour,
		6 * time.Hour, 16 * time.Hour}
}

func (o RunnerOptions) withDefaults() RunnerOptions {
	if o.Owner == "" {
		o.Owner = fmt.Sprintf("node-%016x", rand.Uint64()) //nolint:gosec // it has to differ, not to be secret
	}
	if o.Retries == nil {
		o.Retries = DefaultRetries()
	}
	for _, d := range [...]struct {
		value   *time.Duration
		instead time.Duration
	}{
		{&o.AttemptTime, 30 * time.Second}, {&o.ClaimTime, 10 * time.Second}, {&o.Scan, 10 * time.Minute},
		{&o.Poll, time.Second}, {&o.Pause, 20 * time.Millisecond}, {&o.KeepIdle, keepIdle},
	} {
		if *d.value == 0 {
			*d.value = d.instead
		}
	}
	if o.MaxWorkers == 0 {
		o.MaxWorkers = 1000
	}
	if o.MaxIdle == 0 {
		o.MaxIdle = maxIdle
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Failed == nil {
		o.Failed = func(string, string, error) {}
	}
	return o
}

// Runner delivers the rows of all tenants to their sinks, as far as this node has the claims to do so. A sink that has
// nothing to do is claimed by nobody; the node that notices new rows first claims it, which is mostly the one that
// committed them. So nodes share the work, and what a node that died had claimed is taken over when its claims expire.
type Runner struct {
	store    store.Store
	carriers Carriers
	o        RunnerOptions
	owner    string
	metrics  *metrics
	failing  atomic.Pointer[map[string]bool] // tenants with a sink that is behind because it fails
	idle     idleCarriers

	mu      sync.Mutex // guards what follows
	running map[place]bool
	looked  map[place]uint64    // the ledger's last row when a sink had nothing left to do
	rest    map[place]time.Time // sinks that are left alone after an error of the store
	made    []place             // that do not follow their ledgers yet
	again   chan struct{}       // holds a token when there are some
	workers sync.WaitGroup
}

type place struct{ tenant, sink string }

// NewRunner works on a store.
func NewRunner(s store.Store, c Carriers, o RunnerOptions) *Runner {
	o = o.withDefaults()
	return &Runner{store: s, carriers: c, o: o, owner: o.Owner, metrics: newMetrics(o.Metrics),
		idle:    idleCarriers{most: o.MaxIdle},
		running: map[place]bool{}, looked: map[place]uint64{}, rest: map[place]time.Time{},
		again: make(chan struct{}, 1)}
}

func (r *Runner) micros() calendar.Micros { return calendar.FromTime(r.o.Now()) }

// jitter spreads attempts that failed together: a pause, up to a fifth longer.
func (r *Runner) jitter(d time.Duration) time.Duration {
	return d + rand.N(d/5+1) //nolint:gosec // spreads attempts over time, guards nothing
}

// Failing reports whether a sink of the tenant is behind because it fails, as far as this node knows.
func (r *Runner) Failing(tenantID string) bool {
	m := r.failing.Load()
	return m != nil && (*m)[tenantID]
}

// Committed has a sink that was just made follow its ledger. It gets every change that a service commits.
func (r *Runner) Committed(tenantID string, e audit.Event) {
	if e.EntityType != entityType || e.Type != entityType+".created" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = append(r.made, place{tenantID, e.EntityID})
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// scan finds sinks that do not follow their ledgers.
func (r *Runner) scan(ctx context.Context) error {
	return store.EachTenant(ctx, r.store, func(t *store.Listed) error {
		var all []sink.Sink
		err := r.store.View(ctx, t.ID, func(v store.View) error {
			return store.Each(v, &sink.Kind, func(s *sink.Sink) error {
				if !s.Deleted {
					all = append(all, *s)
				}
				return nil
			})
		})
		for i := range all {
			if err == nil {
				err = r.follow(ctx, t.ID, &all[i])
			}
		}
		return err
	})
}

// follow has a sink follow its ledger from its first row on, if it does not already.
func (r *Runner) follow(ctx context.Context, tenantID string, s *sink.Sink) error {
	return r.store.Follow(ctx, store.Following{Tenant: tenantID, Follower: sink.Follower(s.ID),
		Standing: store.Standing{Position: s.Start - 1}})
}

// begin has the sinks that were made follow their ledgers. One that cannot is found by the next scan.
func (r *Runner) begin(ctx context.Context) error {
	r.mu.Lock()
	made := r.made
	r.made = nil
	r.mu.Unlock()
	for _, p := range made {
		var s sink.Sink
		err := r.store.View(ctx, p.tenant, func(v store.View) (err error) {
			s, err = store.Get(v, &sink.Kind, p.sink)
			return err
		})
		if err == nil && !s.Deleted {
			err = r.follow(ctx, p.tenant, &s)
		}
		if err != nil {
			return fmt.Errorf("begin to follow: %w", err)
		}
	}
	return nil
}

// Run delivers until the context ends and everything under way has stopped.
func (r *Runner) Run(ctx context.Context) {
	defer func() {
		r.workers.Wait()
		r.closeIdle(r.o.Now()) // all of them: none began to be idle later
		r.workers.Wait()
	}()
	var scanned time.Time
	for {
		woken := r.store.Woken()
		began := time.Now()
		var err error
		if scanned.IsZero() || began.Sub(scanned) > r.o.Scan {
			if err = r.scan(ctx); err == nil {
				scanned = began
			}
		}
		if err = errors.Join(err, r.begin(ctx), r.look(ctx)); err != nil && ctx.Err() == nil {
			r.o.Failed("", "", err)
		}
		r.closeIdle(r.o.Now().Add(-r.o.KeepIdle))
		// A look at very many tenants takes its time: it shall not be all that the store does.
		if !pause(ctx, max(r.o.Pause, 5*time.Since(began))) {
			return
		}
		timer := time.NewTimer(r.o.Poll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-woken:
		case <-r.again:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// listPage is how many followings and heads are listed at a time.
const listPage = 1000

// look starts a worker for every sink that has something to do and nobody at work.
func (r *Runner) look(ctx context.Context) error {
	var due []store.Followed
	failing := map[string]bool{}
	for at := (store.Followed{}); ; {
		page, err := r.store.Followings(ctx, at.Tenant, at.Follower, listPage)
		if err != nil {
			return fmt.Errorf("list sinks: %w", err)
		}
		if len(page) == 0 {
			break
		}
		for i := range page {
			if f := &page[i]; f.Failing {
				failing[f.Tenant] = true
			}
			due = append(due, page[i])
		}
		at = page[len(page)-1]
	}
	r.failing.Store(&failing)
	if len(due) == 0 {
		return nil
	}
	heads, err := r.heads(ctx)
	if err != nil {
		return err
	}
	lag := uint64(0)
	for i := range due {
		id, ok := sink.OfFollower(due[i].Follower)
		if !ok {
			continue
		}
		head := heads[due[i].Tenant]
		lag = max(lag, head-min(head, due[i].Position))
		r.maybeStart(ctx, place{due[i].Tenant, id}, &due[i], head)
	}
	r.metrics.behind(lag)
	return nil
}

func (r *Runner) heads(ctx context.Context) (map[string]uint64, error) {
	heads := map[string]uint64{}
	for after := ""; ; {
		page, err := r.store.Heads(ctx, after, listPage)
		if err != nil {
			return nil, fmt.Errorf("list ledgers: %w", err)
		}
		if len(page) == 0 {
			return heads, nil
		}
		for _, g := range page {
			heads[g.Tenant] = g.Seq
		}
		after = page[len(page)-1].Tenant
	}
}

// maybeStart starts a worker for a sink unless it has nothing to do, or somebody is at work on it.
func (r *Runner) maybeStart(ctx context.Context, p place, f *store.Followed, head uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.Now()
	idle := head <= f.Position || head <= r.looked[p]
	if r.running[p] || f.Claimed || f.Due > calendar.FromTime(now) || now.Before(r.rest[p]) ||
		idle && f.Due == 0 || len(r.running) >= r.o.MaxWorkers {
		return
	}
	delete(r.rest, p)
	r.running[p] = true
	r.workers.Go(func() {
		w := &worker{r: r, tenantID: p.tenant, sinkID: p.sink}
		w.carrier, w.of = r.idle.take(p)
		r.ended(ctx, w, w.run(ctx))
	})
}

// enough is how much a worker reads at once. The more of them are at work, the less.
func (r *Runner) enough(batch int) enough {
	r.mu.Lock()
	defer r.mu.Unlock()
	return enough{rows: max(readAhead, batch), bytes: min(maxAhead, aheadOfAll/max(1, len(r.running)))}
}

// restAfter is how long a sink is left alone after an error that is not its receiver's.
const restAfter = time.Second

func (r *Runner) ended(ctx context.Context, w *worker, err error) {
	p := place{w.tenantID, w.sinkID}
	over := w.carrier
	if over != nil && err == nil && w.note.Under == nil {
		over = r.idle.add(idleCarrier{p, w.carrier, w.of, r.o.Now()})
	}
	if over != nil {
		defer func() { _ = over.Close() }() // nothing is under way on it
	}
	r.mu.Lock()
	delete(r.running, p)
	r.looked[p] = w.looked
	taken := problem.Is(err, problem.Busy) || problem.Is(err, problem.NotFound) || problem.Is(err, problem.Conflict)
	if err != nil {
		r.rest[p] = r.o.Now().Add(restAfter)
		r.looked[p] = 0
	}
	r.mu.Unlock()
	if err != nil && !taken && ctx.Err() == nil {
		r.o.Failed(w.tenantID, w.sinkID, err)
	}
}

// closeIdle closes the carriers that are idle since a time or longer, beside what else is done: a receiver may be slow
// to let go.
func (r *Runner) closeIdle(since time.Time) {
	for _, c := range r.idle.idleSince(since) {
		r.workers.Go(func() { _ = c.Close() }) // nothing is under way on it
	}
}

// pauseGone pauses a sink whose receiver wants no more.
func (r *Runner) pauseGone(ctx context.Context, tenantID, sinkID string) error {
	return r.store.Update(ctx, tenantID, func(tx store.Tx) error {
		s, err := store.Get(tx, &sink.Kind, sinkID)
		if err != nil || s.Paused || s.Deleted {
			return err
		}
		s.Paused = true
		return appendSink(tx, audit.ActorSystem, "paused", &s)
	})
}
