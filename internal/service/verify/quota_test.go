package verify_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// bentPlans shows plans and tallies other than they are.
type bentPlans struct {
	store.Store
	entities func([]entity.Entity) []entity.Entity
	byTerm   func([]entity.Entity) []entity.Entity
	tally    func(*usage.Tally)
	counter  func(*usage.Counter)
}

func (s *bentPlans) View(ctx context.Context, id string, fn func(store.View) error) error {
	return s.Store.View(ctx, id, func(v store.View) error { return fn(&bentPlansView{v, s}) })
}

type bentPlansView struct {
	store.View
	s *bentPlans
}

func (v *bentPlansView) Entities(kind string, p store.Page) ([]entity.Entity, error) {
	list, err := v.View.Entities(kind, p)
	if v.s.entities != nil {
		list = v.s.entities(list)
	}
	return list, err
}

func (v *bentPlansView) EntitiesBy(kind string, t entity.Term, p store.Page) ([]entity.Entity, error) {
	list, err := v.View.EntitiesBy(kind, t, p)
	if v.s.byTerm != nil {
		list = v.s.byTerm(list)
	}
	return list, err
}

func (v *bentPlansView) Tally(number uint32, m calendar.Month) (usage.Tally, error) {
	t, err := v.View.Tally(number, m)
	if v.s.tally != nil {
		v.s.tally(&t)
	}
	return t, err
}

func (v *bentPlansView) Counter(id usage.CounterID) (usage.Counter, error) {
	c, err := v.View.Counter(id)
	if v.s.counter != nil {
		v.s.counter(&c)
	}
	return c, err
}

// wrongPlans show plans, tallies or marks in one wrong way each.
var wrongPlans = map[string]bentPlans{
	"right":                    {},
	"a plan is gone":           {entities: bend(&quota.PlanKind, leaveOut[quota.Plan])},
	"a plan allows more":       {entities: bend(&quota.PlanKind, allowMore)},
	"a customer lost its plan": {entities: bend(&quota.AssignmentKind, leaveOut[quota.Assignment])},
	"a customer has another":   {entities: bend(&quota.AssignmentKind, otherPlan(false))},
	"the tenant has another":   {entities: bend(&quota.AssignmentKind, otherPlan(true))},
	"a list misses a customer": {byTerm: bend(&quota.AssignmentKind, leaveOut[quota.Assignment])},
	"a tally is off":           {tally: func(t *usage.Tally) { t.Used = amount.Zero }},
	"a mark is too low":        {tally: func(t *usage.Tally) { t.Alerted = 50 }},
	"a mark is too high":       {tally: func(t *usage.Tally) { t.Alerted = 120 }},
	"no mark":                  {tally: func(t *usage.Tally) { t.Alerted = 0 }},
	"a customer has no mark":   {counter: func(c *usage.Counter) { c.Alerted = 0 }},
	"a customer's is too high": {counter: func(c *usage.Counter) { c.Alerted = 100 }},
}

// otherPlan changes the plan of the tenant, or of customers.
func otherPlan(tenants bool) func(*quota.Assignment) bool {
	return func(a *quota.Assignment) bool {
		if tenants == (a.Customer == "") {
			a.Plans = quota.Schedule{{From: 1, Plan: "basic"}}
		}
		return true
	}
}

func allowMore(p *quota.Plan) bool {
	p.Quotas[0].Limit = amount.FromInt(99)
	return true
}

// A store that forgets a plan, or has used more or less of it than its rows say, is found out, by exactly these
// differences.
func TestWrongPlansAndTalliesAreReported(t *testing.T) {
	reported(t, "testdata/plans", slices.Sorted(maps.Keys(wrongPlans)), func(name string) verify.Report {
		s := naive.New(naive.Options{Now: storetest.NewClock().Now})
		limited(t, s)
		bent := wrongPlans[name]
		bent.Store = s
		return examine(t, &bent)
	})
}

// Given a ledger in which thresholds were reached and some of the alerts were never recorded, in a store that agrees
// with its ledger otherwise, then each that is missing is reported, and no other.
func TestMissingAlertsAreReported(t *testing.T) {
	drop := map[string]func(a *quota.Alert) bool{
		"none":                      func(*quota.Alert) bool { return false },
		"all":                       func(*quota.Alert) bool { return true },
		"the tenant's":              func(a *quota.Alert) bool { return a.Customer == "" },
		"the customer's":            func(a *quota.Alert) bool { return a.Customer == "c" },
		"the last of the tenant's":  func(a *quota.Alert) bool { return a.Customer == "" && a.Threshold == 100 },
		"of the meter that counts":  func(a *quota.Alert) bool { return a.Meter == 2 },
		"the first of the tenant's": func(a *quota.Alert) bool { return a.Customer == "" && a.Threshold == 80 },
	}
	reported(t, "testdata/alerts", slices.Sorted(maps.Keys(drop)), func(name string) verify.Report {
		now := storetest.NewClock().Now
		from, to := naive.New(naive.Options{Now: now}), naive.New(naive.Options{Now: now})
		limited(t, from)
		reached(t, from)
		without(t, from, to, drop[name])
		return examine(t, to)
	})
}

// reached goes on: a meter that counts, with a fact that is taken back and given again, and a plan that changes.
func reached(t *testing.T, s store.Store) {
	t.Helper()
	update := func(fn func(tx store.Tx) error) {
		t.Helper()
		if err := s.Update(context.Background(), acme, fn); err != nil {
			t.Fatal(err)
		}
	}
	record := func(events ...usage.Event) {
		t.Helper()
		if _, err := s.Record(context.Background(), store.Batch{Tenant: acme, Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx store.Tx) error {
		if err := storetest.PutMeter(tx, storetest.NewMeter("visits", meter.Count)); err != nil {
			return err
		}
		return storetest.PutPlan(tx, allows("1000"))
	})
	for i := range 7 {
		record(storetest.Fact(fmt.Sprint("v", i), "visits", "c", storetest.Ago(0), "1"))
		if i == 6 {
			record(storetest.Correction("back", "v6", "-1"))
		}
	}
	update(func(tx store.Tx) error {
		return storetest.PutPlan(tx, allows("8"))
	})
	record(storetest.Correction("again", "v6", "1"), storetest.Fact("v8", "visits", "c", storetest.Ago(0), "1"))
	record(storetest.Fact("v9", "visits", "d", storetest.Ago(0), "1")) // refused
}

// allows is the plan with a limit on visits.
func allows(visits string) quota.Plan {
	return quota.Plan{Name: "pro", Quotas: []quota.Quota{storetest.Hard("calls", "10"),
		storetest.Hard("visits", visits)}}
}

// without carries a ledger over, all but some alerts.
func without(t *testing.T, from, to store.Store, drop func(*quota.Alert) bool) {
	t.Helper()
	next := uint64(1)
	err := from.View(context.Background(), acme, func(v store.View) error {
		return v.Sections(1, func(s *ledger.Section) error {
			out := ledger.Section{First: next, At: s.At}
			for _, r := range s.Rows {
				if r.Change != nil {
					e := r.Entity()
					a, err := quota.AlertKind.ReadIf(&e)
					if err != nil {
						return err
					}
					if a != nil && drop(a) {
						continue
					}
				}
				r.Seq = next
				next++
				out.Rows = append(out.Rows, r)
			}
			return to.Import(context.Background(), acme, out)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// limited is a ledger whose tenant and one customer have plans, and whose thresholds were reported.
func limited(t *testing.T, s store.Store) {
	t.Helper()
	if err := storetest.Create(s, acme, storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	err := s.Update(context.Background(), acme, func(tx store.Tx) error {
		if err := storetest.PutPlan(tx, quota.Plan{Name: "pro",
			Quotas: []quota.Quota{storetest.Hard("calls", "10")}}); err != nil {
			return err
		}
		for _, customer := range []string{"", "c"} {
			if err := storetest.Assign(tx, customer, "pro"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	facts := []usage.Event{storetest.Fact("a", "calls", "c", storetest.Ago(0), "9"),
		storetest.Fact("b", "calls", "d", storetest.Ago(0), "1")}
	if _, err := s.Record(context.Background(), store.Batch{Tenant: acme, Events: facts}); err != nil {
		t.Fatal(err)
	}
}
