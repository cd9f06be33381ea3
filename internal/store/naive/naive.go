// Package naive is the store that is too simple to be wrong: each tenant is a list of rows in memory, and everything else is a
// plain fold over that list, made anew whenever it is asked for. It is the oracle of every test and never a product.
package naive

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Options of a naive store.
type Options struct {
	Now func() time.Time // default: time.Now
}

// Store keeps everything in memory.
type Store struct {
	now func() time.Time

	closed atomic.Bool

	mu      sync.RWMutex // guards all below
	tenants map[string]*book
}

var _ store.Store = (*Store)(nil)

// New makes an empty store.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{now: o.Now, tenants: map[string]*book{}}
}

// book is one tenant's ledger: the rows, where the sections begin, and what the changes among the rows say.
type book struct {
	rows     []ledger.Row
	sections []uint64 // first seq of each
	head     ledger.Head
	hasher   ledger.Hasher
	config   config
	// Three indexes keep tests of some thousand rows quick. They hold nothing that a scan would not find.
	keys        map[usage.Key]int
	counters    map[usage.CounterID][]int
	corrections map[string][]int // by the id of the corrected fact
	// gone are the rows that have left: nobody is shown them any more. Folds still see them, so that the oracle needs no base.
	gone map[uint64]bool
}

// config is what the change rows leave behind.
type config struct {
	tenant  *tenant.Tenant
	keys    map[string]tenant.APIKey
	meters  map[string]*meter.Meter
	periods map[calendar.Month]usage.Period
	plans   map[string]quota.Plan
	horizon store.Horizon
	// assigned is the plan of each customer, the tenant's own under the empty name.
	assigned map[string]string
}

func newBook() *book {
	return &book{
		keys: map[usage.Key]int{}, counters: map[usage.CounterID][]int{}, corrections: map[string][]int{}, gone: map[uint64]bool{},
		config: config{keys: map[string]tenant.APIKey{}, meters: map[string]*meter.Meter{}, periods: map[calendar.Month]usage.Period{},
			plans: map[string]quota.Plan{}, assigned: map[string]string{}},
	}
}

func notFound(id string) error { return problem.New(problem.NotFound, "no tenant %q", id) }

func (s *Store) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return problem.New(problem.Unavailable, "the store is closed")
	}
	return nil
}

// Record implements store.Store.
func (s *Store) Record(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	t := s.tenants[b.Tenant]
	if t == nil {
		return nil, notFound(b.Tenant)
	}
	if err := t.config.tenant.CheckKeptHere(); err != nil {
		return nil, err
	}
	if len(b.Events) > store.MaxBatch {
		return nil, problem.New(problem.TooLarge, "at most %d events in a batch, this has %d", store.MaxBatch, len(b.Events))
	}
	now, from := t.tick(s.now()), len(t.rows)
	prepare := usage.NewPreparer(t.catalog())
	verdicts, alerts := make([]usage.Verdict, len(b.Events)), 0
	for i := range b.Events {
		var f usage.Fact
		prepare.Prepare(&b.Events[i], &f)
		row := &usage.Row{}
		verdicts[i] = usage.Judge(t, &f, t.head.Seq+1, now, row)
		if st := verdicts[i].Status; st == usage.Accepted || st == usage.Adjusted || st == usage.Overage {
			t.keep(ledger.Row{At: now, Event: row.Clone()})
			alerts += t.alert(row, now, quota.MaxAlerts-alerts)
		}
	}
	t.seal(from)
	return verdicts, nil
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return err
	}
	t, err := s.bookOf(id)
	if err != nil {
		return err
	}
	before, from, head := t.config.clone(), len(t.rows), t.head
	now := t.tick(s.now())
	err = store.RunUpdate(fn, &tx{view{t, now}})
	if err == nil && t.config.tenant == nil {
		err = notFound(id)
	}
	if err != nil {
		t.rows, t.config, t.head = t.rows[:from], before, head
		t.reindex()
		return err
	}
	t.seal(from)
	s.tenants[id] = t
	return nil
}

// bookOf returns a tenant's ledger, a new one for a tenant that is not there yet. A deployment that was moved takes no new tenants.
func (s *Store) bookOf(id string) (*book, error) {
	if t := s.tenants[id]; t != nil {
		return t, nil
	}
	if operator := s.tenants[tenant.Operator]; operator != nil {
		if err := operator.config.tenant.CheckKeptHere(); err != nil {
			return nil, err
		}
	}
	return newBook(), nil
}

// Import implements store.Store.
func (s *Store) Import(ctx context.Context, id string, sec ledger.Section) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return err
	}
	t, err := s.bookOf(id)
	if err != nil {
		return err
	}
	if sec.First != t.head.Seq+1 || len(sec.Rows) == 0 {
		return problem.New(problem.Conflict, "the ledger of %s ends with row %d: a section from %d on does not follow", id, t.head.Seq, sec.First)
	}
	if err := t.config.tenant.CheckKeptHere(); err != nil {
		return err
	}
	from := len(t.rows)
	for _, r := range sec.Rows {
		if r.Event != nil {
			t.keep(ledger.Row{At: sec.At, Event: r.Event.Clone()})
			continue
		}
		c := *r.Change
		c.State = slices.Clone(c.State)
		t.keep(ledger.Row{At: sec.At, Change: &c})
	}
	if t.config.tenant == nil {
		return notFound(id)
	}
	t.seal(from)
	s.tenants[id] = t
	return nil
}

// View implements store.Store.
func (s *Store) View(ctx context.Context, id string, fn func(store.View) error) error {
	if err := s.ready(ctx); err != nil { // before a Close that waits for other Views
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.ready(ctx); err != nil {
		return err
	}
	t := s.tenants[id]
	if t == nil {
		return notFound(id)
	}
	return fn(view{t, max(t.head.Clock, calendar.FromTime(s.now()))})
}

// Access implements store.Store.
func (s *Store) Access(ctx context.Context, id, keyID string) (tn tenant.Tenant, k tenant.APIKey, err error) {
	err = s.View(ctx, id, func(v store.View) error {
		if tn, err = v.Tenant(); err != nil {
			return err
		}
		k, err = v.APIKey(keyID)
		return err
	})
	return tn, k, err
}

// Tenants implements store.Store.
func (s *Store) Tenants(ctx context.Context, after string, limit int) ([]tenant.Tenant, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckPlace(after); err != nil {
		return nil, err
	}
	var out []tenant.Tenant
	for id, t := range s.tenants {
		if id > after && id != tenant.Operator {
			out = append(out, *t.config.tenant)
		}
	}
	slices.SortFunc(out, func(a, b tenant.Tenant) int { return strings.Compare(a.ID, b.ID) })
	return out[:min(limit, len(out))], nil
}

// Ready implements store.Store.
func (s *Store) Ready(ctx context.Context) error { return s.ready(ctx) }

// Close implements store.Store. What was recorded is gone with the store.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.mu.Lock() // when the last View has ended
	defer s.mu.Unlock()
	return nil
}

// tick is the time that this commit sees: never before the last one's.
func (t *book) tick(now time.Time) calendar.Micros {
	return max(t.head.Clock, calendar.FromTime(now))
}

// keep numbers a row, appends it and takes note of what it says.
func (t *book) keep(r ledger.Row) {
	t.head.Seq++
	r.Seq = t.head.Seq
	t.rows = append(t.rows, r)
	t.index(len(t.rows) - 1)
}

func (t *book) index(i int) {
	r := &t.rows[i]
	if r.Event != nil {
		if !t.gone[r.Seq] {
			t.keys[r.Event.Key] = i
			if r.Event.IsCorrection() {
				t.corrections[r.Event.Corrects] = append(t.corrections[r.Event.Corrects], i)
			}
		}
		for _, o := range r.Event.Outcomes {
			id := usage.CounterID{Meter: o.Meter, Customer: r.Event.Customer, Month: r.Event.Month()}
			t.counters[id] = append(t.counters[id], i)
		}
		return
	}
	state, err := ledger.DecodeState(r)
	if err != nil {
		panic(err) // the state was encoded by this very process
	}
	t.config.horizon = t.config.horizon.With(state)
	switch {
	case state.Tenant != nil:
		t.config.tenant = state.Tenant
	case state.Key != nil:
		t.config.keys[state.Key.ID] = *state.Key
	case state.Meter != nil:
		t.config.meters[state.Meter.Slug] = state.Meter
	case state.Close != nil:
		t.config.periods[state.Close.Month] = *state.Close
	case state.Adjustment != nil:
		a := state.Adjustment
		id := usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
		t.counters[id] = append(t.counters[id], i)
	case state.Plan != nil:
		t.config.plans[state.Plan.Name] = *state.Plan
	case state.Assignment != nil:
		t.config.assigned[state.Assignment.Customer] = state.Assignment.Plan
	}
}

// reindex forgets rows that a failed update had appended.
func (t *book) reindex() {
	before := t.config
	fresh := newBook()
	t.keys, t.counters, t.corrections, t.config = fresh.keys, fresh.counters, fresh.corrections, fresh.config
	for i := range t.rows {
		t.index(i)
	}
	t.config = before
}

// seal ends the section that began at row index from.
func (t *book) seal(from int) {
	if from == len(t.rows) {
		return
	}
	rows := t.rows[from:]
	t.sections = append(t.sections, rows[0].Seq)
	t.head.Chain = t.hasher.Next(t.head.Chain, rows)
	t.head.Clock = rows[0].At
}

func (t *book) catalog() *usage.Catalog {
	var ms []*meter.Meter
	for _, m := range t.config.meters {
		ms = append(ms, m)
	}
	return usage.NewCatalog(t.config.tenant.Salt, ms)
}

func (c config) clone() config {
	out := newBook().config
	out.tenant, out.horizon = c.tenant, c.horizon
	for k, v := range c.keys {
		out.keys[k] = v
	}
	for k, v := range c.meters {
		out.meters[k] = v
	}
	for k, v := range c.periods {
		out.periods[k] = v
	}
	for k, v := range c.plans {
		out.plans[k] = v
	}
	for k, v := range c.assigned {
		out.assigned[k] = v
	}
	return out
}

func byPlace(a, b store.CounterPlace) int {
	return cmp.Or(cmp.Compare(a.Month, b.Month), strings.Compare(a.Meter, b.Meter), strings.Compare(a.Customer, b.Customer))
}
