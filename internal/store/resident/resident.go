// Package resident holds what every decision about a tenant needs, decoded: the entities of resident kinds, such as
// its meters, keys and plans. All stores share it. It reads nothing and knows no store.
package resident

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Set is a tenant's resident entities at one moment. It is immutable: a change makes another one.
type Set struct {
	kinds *entity.Kinds

	Horizon    store.Horizon
	Catalog    *usage.Catalog
	TreeKeys   *tree.Keys // of a tenant that exists
	Thresholds int        // of one quota, at most

	tenant  *tenant.Tenant
	keys    map[string]*tenant.APIKey
	meters  map[string]*meter.Meter
	periods map[calendar.Month]bool // closed
	plans   map[string]*quota.Rules
	raw     map[string][]*entity.Entity // by kind, in the order of ids
}

// Empty is a tenant that does not exist yet.
func Empty(kinds *entity.Kinds) *Set {
	s := &Set{kinds: kinds}
	s.arrange()
	return s
}

// Load makes a set of all resident entities of a tenant. Errors: Unavailable (a newer build wrote one).
func Load(kinds *entity.Kinds, entities []entity.Entity) (*Set, error) {
	s := &Set{
		kinds: kinds, keys: map[string]*tenant.APIKey{}, meters: map[string]*meter.Meter{},
		periods: map[calendar.Month]bool{}, plans: map[string]*quota.Rules{}, raw: map[string][]*entity.Entity{},
	}
	for i := range entities {
		e := &entities[i]
		if err := kinds.Check(e); err != nil {
			return nil, err
		}
		if !kinds.IsResident(e.Kind) {
			continue
		}
		s.raw[e.Kind] = append(s.raw[e.Kind], e)
		if err := s.take(e, false); err != nil {
			return nil, err
		}
	}
	for _, list := range s.raw {
		slices.SortFunc(list, func(a, b *entity.Entity) int { return strings.Compare(a.ID, b.ID) })
	}
	s.arrange()
	return s, nil
}

// With returns the set after a change; the same one when the change concerns something else. The entity's memory is
// kept. Errors: Conflict (the floor would move back), Unavailable (a newer build wrote it).
func (s *Set) With(e *entity.Entity) (*Set, error) {
	if !s.kinds.IsResident(e.Kind) {
		return s, nil
	}
	n := *s
	if err := n.take(e, true); err != nil {
		return nil, err
	}
	n.raw = maps.Clone(s.raw)
	if n.raw == nil {
		n.raw = map[string][]*entity.Entity{}
	}
	list := slices.Clone(s.raw[e.Kind])
	i, found := find(list, e.ID)
	if found {
		list[i] = e
	} else {
		list = slices.Insert(list, i, e)
	}
	n.raw[e.Kind] = list
	if e.Kind == tenant.Kind.Name || e.Kind == meter.Kind.Name {
		n.arrange()
	}
	return &n, nil
}

// take decodes an entity into the set, into a copy of the map that it belongs to when others share it.
func (s *Set) take(e *entity.Entity, shared bool) (err error) {
	switch e.Kind {
	case tenant.Kind.Name:
		err = s.takeTenant(e)
	case tenant.KeyKind.Name:
		var k tenant.APIKey
		k, err = tenant.KeyKind.Read(e)
		s.keys = set(s.keys, k.ID, &k, shared)
	case meter.Kind.Name:
		var m meter.Meter
		m, err = meter.Kind.Read(e)
		s.meters = set(s.meters, m.Slug, &m, shared)
	case usage.PeriodKind.Name:
		var p usage.Period
		p, err = usage.PeriodKind.Read(e)
		s.periods = set(s.periods, p.Month, true, shared)
	case quota.PlanKind.Name:
		var p quota.Plan
		p, err = quota.PlanKind.Read(e)
		s.putPlan(&p, shared)
	case ledger.FloorKind.Name, ledger.ArchiveKind.Name:
		before := s.Horizon.Floor
		s.Horizon, err = s.Horizon.With(e)
		if err == nil {
			err = checkFloor(e, before, s.Horizon.Floor)
		}
	}
	return err
}

func (s *Set) takeTenant(e *entity.Entity) error {
	t, err := tenant.Kind.Read(e)
	if err != nil {
		return err
	}
	if s.tenant == nil || !slices.Equal(s.tenant.TreeKeys, t.TreeKeys) {
		if s.TreeKeys, err = tree.NewKeys(t.TreeKeys); err != nil {
			return fmt.Errorf("tenant %s: %w", t.ID, err)
		}
	}
	s.tenant = &t
	return nil
}

// checkFloor refuses a floor that is lower than the one before: facts that were refused would be taken again.
func checkFloor(e *entity.Entity, before, after calendar.Micros) error {
	if e.Kind != ledger.FloorKind.Name {
		return nil
	}
	f, err := ledger.FloorKind.Read(e)
	if err != nil || f.At == after {
		return err
	}
	return problem.New(problem.Conflict, "the horizon is at %s and never moves back, to %s", before, f.At)
}

func (s *Set) putPlan(p *quota.Plan, shared bool) {
	s.plans = set(s.plans, p.Name, quota.Compile(p), shared)
	s.Thresholds = 0
	for _, r := range s.plans {
		s.Thresholds = max(s.Thresholds, r.Thresholds())
	}
}

func (s *Set) arrange() {
	var salt [32]byte
	if s.tenant != nil {
		salt = s.tenant.Salt
	}
	s.Catalog = usage.NewCatalog(salt, slices.Collect(maps.Values(s.meters)))
}

func set[K comparable, V any](m map[K]V, k K, v V, shared bool) map[K]V {
	if shared || m == nil {
		next := make(map[K]V, len(m)+1)
		maps.Copy(next, m)
		m = next
	}
	m[k] = v
	return m
}

func find(list []*entity.Entity, id string) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(e *entity.Entity, id string) int { return strings.Compare(e.ID, id) })
}

// Exists reports whether the tenant was created.
func (s *Set) Exists() bool { return s.tenant != nil }

// TenantID is the id of a tenant that exists.
func (s *Set) TenantID() string { return s.tenant.ID }

// TenantClosed reports whether the tenant takes nothing new.
func (s *Set) TenantClosed() bool { return s.tenant.Closed }

// CheckKeptHere refuses writes to a ledger that was moved away. Errors: Moved.
func (s *Set) CheckKeptHere() error { return s.tenant.CheckKeptHere() }

// Closed reports whether a month is closed.
func (s *Set) Closed(m calendar.Month) bool { return s.periods[m] }

// HasPlans reports whether the tenant has any plan.
func (s *Set) HasPlans() bool { return len(s.plans) > 0 }

// Limit is what a plan allows of a meter; nil: all.
func (s *Set) Limit(plan, slug string) *quota.Limit { return s.plans[plan].Limit(slug) }

// HasKey reports whether the tenant has an API key of that id.
func (s *Set) HasKey(keyID string) bool { return s.keys[keyID] != nil }

// Access returns the tenant and one of its keys. Errors: NotFound.
func (s *Set) Access(keyID string) (store.Access, error) {
	k := s.keys[keyID]
	if k == nil {
		return store.Access{}, store.NoEntity(tenant.KeyKind.Name, keyID)
	}
	t := *s.tenant
	t.AllowedOrigins = slices.Clone(t.AllowedOrigins)
	return store.Access{Tenant: t, Key: *k}, nil
}

// Entity returns an entity of a resident kind.
func (s *Set) Entity(kind, id string) (entity.Entity, bool) {
	i, found := find(s.raw[kind], id)
	if !found {
		return entity.Entity{}, false
	}
	return own(s.raw[kind][i]), true
}

// own gives the caller memory that it may do with as it likes.
func own(e *entity.Entity) entity.Entity {
	out := *e
	out.Data = slices.Clone(e.Data)
	return out
}

// Page lists entities of a resident kind.
func (s *Set) Page(kind string, p store.Page) []entity.Entity {
	list := s.raw[kind]
	i, found := find(list, p.After)
	var out []entity.Entity
	if p.Backward {
		if p.After == "" {
			i = len(list)
		}
		for i--; i >= 0 && len(out) < p.Limit; i-- {
			out = append(out, own(list[i]))
		}
		return out
	}
	if found {
		i++
	}
	for ; i < len(list) && len(out) < p.Limit; i++ {
		out = append(out, own(list[i]))
	}
	return out
}

// EffectOf reads what a change does to counters, and checks that the meters are there. Errors: NotFound.
func (s *Set) EffectOf(e *entity.Entity) (ledger.Effect, error) {
	f, err := ledger.EffectOf(e)
	if err != nil {
		return f, fmt.Errorf("read the effect of %s %q: %w", e.Kind, e.ID, err)
	}
	f.Touches(func(id usage.CounterID) {
		if err == nil && s.Catalog.Number(id.Meter) == nil {
			err = problem.New(problem.NotFound, "no meter of number %d", id.Meter)
		}
	})
	return f, err
}
