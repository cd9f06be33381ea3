package storetest

import (
	"context"
	"reflect"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Compare wants the two stores to show the same of the tenants, to the last digit and byte. Both must be at rest.
func Compare(t TB, oracle, s store.Store, tenants ...string) {
	t.Helper()
	for _, id := range tenants {
		want, got := collect(t, oracle, id), collect(t, s, id)
		same(t, id+": head", got.Head, want.Head)
		same(t, id+": tenant", got.Tenant, want.Tenant)
		same(t, id+": rows", got.Rows, want.Rows)
		same(t, id+": sections", got.Sections, want.Sections)
		same(t, id+": meters", got.Meters, want.Meters)
		same(t, id+": API keys", got.Keys, want.Keys)
		same(t, id+": access", got.Access, want.Access)
		same(t, id+": periods", got.Periods, want.Periods)
		same(t, id+": events", got.Events, want.Events)
		same(t, id+": adjustments", got.Adjustments, want.Adjustments)
		same(t, id+": plans", got.Plans, want.Plans)
		same(t, id+": entities", got.Entities, want.Entities)
		compareCounters(t, id, want, got)
		CheckSlices(t, s, id)
	}
	same(t, "tenants", allTenants(t, s), allTenants(t, oracle))
}

// showing is everything that a tenant's ledger shows.
type showing struct {
	Head        ledger.Head
	Tenant      tenant.Tenant
	Rows        []ledger.Row
	Sections    []ledger.Section // without their rows
	Meters      []store.Meter
	Keys        []tenant.APIKey
	Access      []tenant.APIKey
	Periods     []usage.Period
	Events      []history
	Adjustments []usage.Adjustment
	Counters    []placed
	Plans       plans
	Entities    map[string][]entity.Entity // by kind, and by kind and term
}

type history struct {
	Row         ledger.Row
	Corrections []ledger.Row
}

type placed struct {
	Place   store.CounterPlace
	Counter usage.Counter
}

// many is a page that holds all that a test makes.
const many = 10_000

func collect(t TB, s store.Store, id string) showing {
	t.Helper()
	var p showing
	err := s.View(context.Background(), id, func(v store.View) (err error) {
		p = showing{Head: v.Head(), Rows: readRows(t, v, 0, everything), Meters: allMeters(t, v)}
		if p.Tenant, err = store.Tenant(v); err != nil {
			return err
		}
		if p.Keys, err = store.List(v, &tenant.KeyKind, store.Page{Limit: many}); err != nil {
			return err
		}
		if p.Periods, err = store.Periods(v, 0, many); err != nil {
			return err
		}
		err = v.Sections(1, func(s *ledger.Section) error {
			p.Sections = append(p.Sections, ledger.Section{First: s.First, At: s.At})
			return nil
		})
		if err != nil {
			return err
		}
		if p.Plans, err = collectPlans(v, p.Meters, p.Periods); err != nil {
			return err
		}
		if err := p.collectRows(v); err != nil {
			return err
		}
		if p.Entities, err = collectEntities(v); err != nil {
			return err
		}
		return v.Counters(store.CounterPlace{}, func(at store.CounterPlace, c *usage.Counter) bool {
			p.Counters = append(p.Counters, placed{
				store.CounterPlace{Month: at.Month, Meter: strings.Clone(at.Meter),
					Customer: strings.Clone(at.Customer)}, c.Clone()})
			return true
		})
	})
	if err != nil {
		t.Fatalf("view %s: %v", id, err)
	}
	for _, k := range p.Keys {
		one, err := s.Access(context.Background(), id, k.ID)
		if err != nil {
			t.Fatalf("access %s by %s: %v", id, k.ID, err)
		}
		p.Access = append(p.Access, one.Key)
	}
	return p
}

// collectRows looks every row up by what names it.
func (p *showing) collectRows(v store.View) error {
	for i := range p.Rows {
		r := &p.Rows[i]
		if r.Kind() != ledger.EventRow {
			e := r.Entity()
			a, err := usage.AdjustmentKind.ReadIf(&e)
			if err != nil {
				return err
			}
			if a == nil {
				continue
			}
			if err := p.collectAdjustment(v, a.ID); err != nil {
				return err
			}
			continue
		}
		row, by, err := v.Event(r.Event.Key)
		if err != nil {
			return err
		}
		p.Events = append(p.Events, history{row, by})
		for _, o := range r.Event.Outcomes {
			if o.Why == usage.OnTime {
				continue
			}
			if err := p.collectAdjustment(v, usage.LateID(r.Seq, o.Meter)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *showing) collectAdjustment(v store.View, id string) error {
	a, err := store.Adjustment(v, id)
	p.Adjustments = append(p.Adjustments, a)
	return err
}

func compareCounters(t TB, id string, want, got showing) {
	t.Helper()
	if len(got.Counters) != len(want.Counters) {
		t.Errorf("%s: %d counters, want %d", id, len(got.Counters), len(want.Counters))
		return
	}
	aggregations := map[string]meter.Aggregation{}
	for _, m := range want.Meters {
		aggregations[m.Slug] = m.Aggregation
	}
	for i := range want.Counters {
		w, g := &want.Counters[i], &got.Counters[i]
		if w.Place != g.Place {
			t.Errorf("%s: counter %d is %v, want %v", id, i, g.Place, w.Place)
			return
		}
		if !g.Counter.Equal(&w.Counter, aggregations[w.Place.Meter]) {
			t.Errorf("%s: counter %v is %s, want %s", id, w.Place, describe(&g.Counter), describe(&w.Counter))
		}
	}
}

func allMeters(t TB, v store.View) []store.Meter {
	t.Helper()
	ms, err := store.Meters(v, store.Page{Limit: many})
	if err != nil {
		t.Fatalf("list meters: %v", err)
	}
	return ms
}

func allTenants(t TB, s store.Store) []store.Listed {
	t.Helper()
	ts, err := s.Tenants(context.Background(), "", many)
	if err != nil {
		t.Fatalf("list tenants: %v", err)
	}
	return ts
}

// same compares two values of the port. Nothing and an empty list are the same.
func same(t TB, what string, got, want any) {
	t.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	exact := cmp.Comparer(func(a, b amount.Amount) bool { return a == b })
	trees := cmp.Comparer(func(a, b tree.Tree) bool { return a == b })
	if d := cmp.Diff(want, got, exact, trees, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", what, d)
	}
}
