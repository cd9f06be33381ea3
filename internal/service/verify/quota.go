package verify

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// quotas is what the change rows leave behind of plans.
type quotas struct {
	assigned map[string]quota.Schedule // by customer; the tenant's own under the empty name
	alerted  map[usage.CounterID]uint16
}

func newQuotas() quotas {
	return quotas{assigned: map[string]quota.Schedule{}, alerted: map[usage.CounterID]uint16{}}
}

// note takes a change in. An alert of the tenant's own quota names no customer.
func (q *quotas) note(e *entity.Entity) error {
	a, err := quota.AssignmentKind.ReadIf(e)
	if err != nil {
		return err
	}
	if a != nil {
		q.assigned[a.Customer] = a.Plans
	}
	alert, err := quota.AlertKind.ReadIf(e)
	if err != nil || alert == nil {
		return err
	}
	id := usage.CounterID{Meter: alert.Meter, Customer: alert.Customer, Month: alert.Month}
	q.alerted[id] = max(q.alerted[id], alert.Threshold)
	return nil
}

// compareTallies adds the counters of each meter and month up and holds the sum against what quotas are judged by.
func (b *recount) compareTallies() error {
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
	for id, percent := range b.quotas.alerted {
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
