package verify_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
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
	plan     func(*quota.Plan) bool
	assigned func(*quota.Assignment) bool
	own      string
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

func (v *bentPlansView) Plans(after string, limit int) ([]quota.Plan, error) {
	list, err := v.View.Plans(after, limit)
	return bent(list, v.s.plan), err
}

func (v *bentPlansView) Assignments(after string, limit int) ([]quota.Assignment, error) {
	list, err := v.View.Assignments(after, limit)
	return bent(list, v.s.assigned), err
}

func (v *bentPlansView) Assignment(customer string) (quota.Assignment, error) {
	a, err := v.View.Assignment(customer)
	if customer == "" && v.s.own != "" {
		a.Plan = v.s.own
	}
	return a, err
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

// A store that forgets a plan, or has used more or less of it than its rows say, is found out.
func TestWrongPlansAndTalliesAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		bend bentPlans
		want string
	}{
		"right":                    {bentPlans{}, ""},
		"a plan is gone":           {bentPlans{plan: leaveOut[quota.Plan]}, "plan pro"},
		"a plan allows more":       {bentPlans{plan: func(p *quota.Plan) bool { p.Quotas[0].Limit = amount.FromInt(99); return true }}, "plan pro"},
		"a customer lost its plan": {bentPlans{assigned: leaveOut[quota.Assignment]}, `plan of customer "c"`},
		"a customer has another":   {bentPlans{assigned: func(a *quota.Assignment) bool { a.Plan = "basic"; return true }}, `plan of customer "c"`},
		"the tenant has another":   {bentPlans{own: "basic"}, `plan of customer ""`},
		"a tally is off":           {bentPlans{tally: func(t *usage.Tally) { t.Used = amount.Zero }}, "use of calls by all customers in 2026-11"},
		"a mark is off":            {bentPlans{tally: func(t *usage.Tally) { t.Alerted = 50 }}, "highest threshold told of"},
		"a customer's mark is off": {bentPlans{counter: func(c *usage.Counter) { c.Alerted = 0 }}, "read alone, highest threshold told of"},
	} {
		t.Run(name, func(t *testing.T) {
			s := naive.New(naive.Options{Now: storetest.NewClock().Now})
			limited(t, s)
			c.bend.Store = s
			r := examine(t, &c.bend)
			if c.want == "" {
				if !r.OK() {
					t.Errorf("differences: %v", r.Differences)
				}
				return
			}
			if !slices.ContainsFunc(r.Differences, func(d verify.Difference) bool { return strings.Contains(d.What, c.want) }) {
				t.Errorf("no difference about %q among %v", c.want, r.Differences)
			}
		})
	}
}

// limited is a ledger whose tenant and one customer have plans, and whose thresholds were told of.
func limited(t *testing.T, s store.Store) {
	t.Helper()
	if err := storetest.Create(s, acme, storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	err := s.Update(context.Background(), acme, func(tx store.Tx) error {
		if err := storetest.PutPlan(tx, quota.Plan{Name: "pro", Quotas: []quota.Quota{storetest.Hard("calls", "10")}}); err != nil {
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
	facts := []usage.Event{storetest.Fact("a", "calls", "c", storetest.Ago(0), "9"), storetest.Fact("b", "calls", "d", storetest.Ago(0), "1")}
	if _, err := s.Record(context.Background(), store.Batch{Tenant: acme, Events: facts}); err != nil {
		t.Fatal(err)
	}
}
