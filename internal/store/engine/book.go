package engine

import (
	"maps"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// book is one tenant. What it holds in memory does not grow with its ledger.
type book struct {
	number uint32
	id     string

	// Decided, not yet necessarily durable. Guarded by Engine.mu.
	seq       uint64
	clock     calendar.Micros
	config    *config
	meters    map[uint32]state.Entity // by number, as the state shall hold them
	lastUsed  uint32                  // the meter whose use was noted last
	tallies   [recentTallies]*tally   // by meter number, as far as there is room; the rest is in Engine.tallies
	section   *sectionBuild           // of the group being decided, or nil
	undurable *group                  // the last group that changed this book, or nil
	dirty     []*cell                 // changed since the last checkpoint began; see cells
	saving    []*cell                 // that the checkpoint under way saves

	// Durable. The writer replaces them before it answers.
	published atomic.Pointer[published]
	preparers sync.Pool // *usage.Preparer, of any catalog

	// queued is this tenant's part of the queue; guarded by queue.mu.
	queued fifo

	// Where the sections are that the state does not know yet, in order. Guarded by placesMu.
	placesMu sync.RWMutex
	places   []state.Section
}

// published is what readers and admissions see of a book: only what is durable.
type published struct {
	head   ledger.Head
	config *config
}

// config is what a tenant's changes left behind. It is immutable; a change makes another.
type config struct {
	tenant  *tenant.Tenant
	keys    map[string]*tenant.APIKey
	meters  map[string]*meter.Meter
	periods map[calendar.Month]usage.Period
	horizon store.Horizon
	catalog *usage.Catalog

	plans      map[string]*quota.Rules
	thresholds int       // of one quota, at most
	ownPlan    string    // of the tenant itself; "" is none
	assigned   *assigned // plans of customers
}

func newBook(number uint32, id string) *book {
	b := &book{number: number, id: id, meters: map[uint32]state.Entity{}, config: &config{
		keys: map[string]*tenant.APIKey{}, meters: map[string]*meter.Meter{}, periods: map[calendar.Month]usage.Period{},
	}}
	b.published.Store(&published{config: b.config})
	return b
}

// with returns the config after one more change; the same one when the change concerns something else.
func (c *config) with(s ledger.State) *config {
	n := *c
	switch {
	case s.Tenant != nil:
		n.tenant = s.Tenant
	case s.Key != nil:
		n.keys = maps.Clone(c.keys)
		n.keys[s.Key.ID] = s.Key
	case s.Meter != nil:
		n.meters = maps.Clone(c.meters)
		n.meters[s.Meter.Slug] = s.Meter
	case s.Close != nil:
		n.periods = maps.Clone(c.periods)
		n.periods[s.Close.Month] = *s.Close
	case s.Floor != nil, s.Archive != nil:
		n.horizon = c.horizon.With(s)
	case s.Plan != nil:
		n.putPlan(s.Plan)
	case s.Assignment != nil && s.Assignment.Customer == "":
		n.ownPlan = s.Assignment.Plan
	case s.Assignment != nil:
		n.assigned = c.assigned.with(s.Assignment.Customer, s.Assignment.Plan)
	default:
		return c
	}
	if n.tenant != nil && (s.Tenant != nil || s.Meter != nil) {
		n.catalog = usage.NewCatalog(n.tenant.Salt, slices.Collect(maps.Values(n.meters)))
	}
	return &n
}

func (c *config) putPlan(p *quota.Plan) {
	plans := make(map[string]*quota.Rules, len(c.plans)+1)
	maps.Copy(plans, c.plans)
	plans[p.Name] = quota.Compile(p)
	c.plans, c.thresholds = plans, 0
	for _, r := range plans {
		c.thresholds = max(c.thresholds, r.Thresholds())
	}
}

func (c *config) closed(m calendar.Month) bool { return c.periods[m].Closed }

// place finds the section that holds a row among those that the state does not know.
func (b *book) place(seq uint64) (state.Section, bool) {
	b.placesMu.RLock()
	defer b.placesMu.RUnlock()
	i := sort.Search(len(b.places), func(i int) bool { return b.places[i].First > seq })
	if i == 0 || !b.places[i-1].Holds(seq) {
		return state.Section{}, false
	}
	return b.places[i-1], true
}

// placesFrom copies up to n places from the section with that first seq on.
func (b *book) placesFrom(first uint64, n int) []state.Section {
	b.placesMu.RLock()
	defer b.placesMu.RUnlock()
	i := sort.Search(len(b.places), func(i int) bool { return b.places[i].First >= first })
	return slices.Clone(b.places[i:min(len(b.places), i+n)])
}

func (b *book) addPlace(s state.Section) {
	b.placesMu.Lock()
	b.places = append(b.places, s)
	b.placesMu.Unlock()
}

// placesBefore lists the places of records before a position.
func (b *book) placesBefore(p journal.Position) []state.Section {
	b.placesMu.RLock()
	defer b.placesMu.RUnlock()
	return b.places[:sort.Search(len(b.places), func(i int) bool { return !b.places[i].Position.Less(p) })]
}

// dropPlaces forgets the first n places, which the state knows now.
func (b *book) dropPlaces(n int) {
	b.placesMu.Lock()
	b.places = append([]state.Section(nil), b.places[n:]...)
	b.placesMu.Unlock()
}
