package verify

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// quotas is what the change rows leave behind of plans.
type quotas struct {
	plans    map[string]quota.Plan
	assigned map[string]string // customer → plan; the tenant's own under the empty name
	told     map[usage.CounterID]uint16
}

func newQuotas() quotas {
	return quotas{plans: map[string]quota.Plan{}, assigned: map[string]string{}, told: map[usage.CounterID]uint16{}}
}

// note takes a change in. An alert of the tenant's own quota names no customer.
func (q *quotas) note(s ledger.State) {
	switch {
	case s.Plan != nil:
		q.plans[s.Plan.Name] = *s.Plan
	case s.Assignment != nil && s.Assignment.Plan == "":
		delete(q.assigned, s.Assignment.Customer)
	case s.Assignment != nil:
		q.assigned[s.Assignment.Customer] = s.Assignment.Plan
	case s.Alert != nil:
		id := usage.CounterID{Meter: s.Alert.Meter, Customer: s.Alert.Customer, Month: s.Alert.Month}
		q.told[id] = max(q.told[id], s.Alert.Threshold)
	}
}

// comparePlans holds plans and their customers against the changes that made them.
func (b *book) comparePlans() error {
	plans, err := listed(b.v.Plans, func(p *quota.Plan) string { return p.Name })
	if err != nil {
		return fmt.Errorf("list plans: %w", err)
	}
	for _, name := range namesOf(b.quotas.plans, plans) {
		b.compareState("plan "+name, planState(b.quotas.plans, name), planState(plans, name))
	}
	customers, err := listed(b.v.Assignments, func(a *quota.Assignment) string { return a.Customer })
	if err != nil {
		return fmt.Errorf("list the customers that have plans: %w", err)
	}
	own, err := store.Assignment(b.v, "")
	if err != nil {
		return fmt.Errorf("read the tenant's plan: %w", err)
	}
	if own.Plan != "" {
		customers[""] = own
	}
	for _, name := range namesOf(b.quotas.assigned, customers) {
		if want, got := b.quotas.assigned[name], customers[name].Plan; want != got {
			b.differs(fmt.Sprintf("plan of customer %q", name), fmt.Sprintf("%q", want), fmt.Sprintf("%q", got))
		}
	}
	return nil
}

func planState(m map[string]quota.Plan, name string) ledger.State {
	if p, ok := m[name]; ok {
		return quota.PlanKind.State(&p)
	}
	return ledger.State{}
}

// compareTallies adds the counters of each meter and month up and holds the sum against what quotas are judged by.
func (b *book) compareTallies() error {
	type tallied struct {
		meter uint32
		month calendar.Month
	}
	want := map[tallied]usage.Tally{}
	for id, t := range b.counters {
		a := b.entities.numbers[id.Meter].Aggregation
		if !usage.AddsUp(a) {
			continue
		}
		at := tallied{id.Meter, id.Month}
		sum, err := add(want[at].Used, t.allRows().Value(a))
		if err != nil {
			return fmt.Errorf("add up the counters of a month: %w", err)
		}
		want[at] = usage.Tally{Used: sum}
	}
	for id, percent := range b.quotas.told {
		if id.Customer == "" {
			at := tallied{id.Meter, id.Month}
			want[at] = usage.Tally{Used: want[at].Used, Alerted: percent}
		}
	}
	for at, w := range want {
		got, err := b.v.Tally(at.meter, at.month)
		if err != nil {
			return fmt.Errorf("read a tally: %w", err)
		}
		what := fmt.Sprintf("use of %s by all customers in %s", b.entities.numbers[at.meter].Slug, at.month)
		if got.Used != w.Used {
			b.differs(what, w.Used, got.Used)
		}
		if got.Alerted != w.Alerted {
			b.differs(what+", highest threshold reported", w.Alerted, got.Alerted)
		}
	}
	return nil
}
