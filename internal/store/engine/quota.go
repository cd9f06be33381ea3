package engine

import (
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

func (h *history) Limit(slug, customer string) (*quota.Limit, error) {
	return h.b.config.limit(slug, customer), nil
}

// limit is what a customer's plan allows of a meter, or the tenant's own when customer is empty; nil: all.
func (c *config) limit(slug, customer string) *quota.Limit {
	if len(c.plans) == 0 {
		return nil
	}
	plan := c.ownPlan
	if customer != "" {
		plan = c.assigned.planOf(customer)
	}
	return c.plans[plan].Limit(slug)
}

// alert takes the alerts that a row makes due into its section, right behind it, and returns how many. Engine.mu is held.
func (e *Engine) alert(s *sectionBuild, h *history, row *usage.Row, most int) (int, error) {
	due, err := usage.Alerts(h, row, most, e.due[:0])
	if err != nil {
		return 0, err
	}
	for i := range due {
		c := ledger.AlertRow(&due[i])
		r := ledger.Row{Seq: s.first + uint64(len(s.rows)), At: s.at, Change: &c}
		s.rows = append(s.rows, r)
		s.place.Changes = true
		if err := e.applyChange(s.book, &r); err != nil {
			return 0, err
		}
	}
	clear(due) // they name customers in the memory of requests
	e.due = due
	return len(due), nil
}

// tell raises the mark of a threshold that a row told of.
func (e *Engine) tell(b *book, a *quota.Alert) error {
	if a.Customer == "" {
		t, err := e.tally(b, a.Meter, a.Month)
		if err != nil {
			return err
		}
		t.Told(a.Threshold)
		return nil
	}
	c, err := e.cell(b, usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}, hashCustomer(a.Customer))
	if err != nil {
		return err
	}
	e.cells.touch(c)
	c.Told(a.Threshold)
	return nil
}

// alertBound is the largest encoding of the alerts that a batch may leave behind, when a quota has so many thresholds at most.
func alertBound(facts []prepared, thresholds int) int {
	if thresholds == 0 {
		return 0
	}
	row := func(customer int) int { return changeOverhead + ledger.MaxAlertRow(customer) }
	all, longest := 0, 0
	for i := range facts {
		f := &facts[i]
		outcomes, customer := len(f.Feeds()), len(f.Event.Customer)
		switch {
		case f.Refusal != nil:
			continue
		case f.Event.Corrects != "" && f.Event.Quantity.Sign() > 0:
			outcomes, customer = 1, usage.MaxName // the customer is its target's, which is not known yet
		}
		// Each outcome may reach every threshold of the tenant's quota and of the customer's.
		all += outcomes * thresholds * (row(0) + row(customer))
		longest = max(longest, customer)
	}
	return min(all, quota.MaxAlerts*row(longest))
}

func (v *view) Plan(name string) (quota.Plan, error) {
	r := v.config.plans[name]
	if r == nil {
		return quota.Plan{}, problem.New(problem.NotFound, "no plan %q", name)
	}
	return r.Plan.Clone(), nil
}

func (v *view) Plans(after string, limit int) ([]quota.Plan, error) {
	var out []quota.Plan
	for _, name := range page(v.config.plans, after, limit) {
		out = append(out, v.config.plans[name].Plan.Clone())
	}
	return out, nil
}

func (v *view) Assignment(customer string) (quota.Assignment, error) {
	if customer == "" {
		return quota.Assignment{Plan: v.config.ownPlan}, nil
	}
	return quota.Assignment{Customer: customer, Plan: v.config.assigned.planOf(customer)}, nil
}

func (v *view) Assignments(after string, limit int) ([]quota.Assignment, error) {
	if err := store.CheckPlace(after); err != nil {
		return nil, err
	}
	return v.config.assigned.list(after, limit, nil), nil
}

func (v *view) Tally(meter uint32, m calendar.Month) (out usage.Tally, err error) {
	if v.config.catalog.Number(meter) == nil {
		return out, problem.New(problem.NotFound, "no meter of number %d", meter)
	}
	found := false
	err = v.settled(func() error {
		if t := v.e.tallies.all[tallyID{v.b, meter, m}]; t != nil {
			out, found = t.Tally, true
		}
		return nil
	})
	if err != nil || found {
		return out, err
	}
	return v.e.state.Tally(v.b.number, meter, m) // without the lock, like a counter
}
