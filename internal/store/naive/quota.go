package naive

import (
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

func (t *book) Limit(slug, customer string) (*quota.Limit, error) {
	p, ok := t.config.plans[t.config.assigned[customer]]
	if !ok {
		return nil, nil //nolint:nilnil // no limit is no fault
	}
	return quota.Compile(&p).Limit(slug), nil
}

// Tally is the definition of a tally, read off the rows: of a sum meter all values, of a count meter the facts that are left.
func (t *book) Tally(number uint32, month calendar.Month) (*usage.Tally, error) {
	out := &usage.Tally{Alerted: t.told(usage.CounterID{Meter: number, Month: month}, t.head.Seq)}
	left := map[usage.Key]usage.Effective{}
	for i := range t.rows {
		r := t.rows[i].Event
		if r == nil || r.Month() != month {
			continue
		}
		for _, o := range r.Outcomes {
			switch {
			case o.Meter != number:
			case r.IsCorrection():
				k := usage.KeyOfID(r.Corrects)
				q := add(left[k].Quantity, o.Value)
				left[k] = usage.Effective{Quantity: q, Counts: q.Sign() > 0}
			default:
				left[r.Key] = usage.Effective{Quantity: o.Value, Counts: true}
			}
		}
	}
	for _, e := range left {
		if !e.Counts {
			continue
		}
		if t.Meter(number).Aggregation == meter.Count {
			e.Quantity = amount.One
		}
		out.Used = add(out.Used, e.Quantity)
	}
	return out, nil
}

// told is the highest threshold that rows up to seq told of for a customer, or for the tenant when the id has none.
func (t *book) told(id usage.CounterID, upTo uint64) (highest uint16) {
	for i := range t.rows {
		r := &t.rows[i]
		if r.Change == nil || r.Seq > upTo || r.Change.EntityType != ledger.QuotaEntity {
			continue
		}
		s, err := ledger.DecodeState(r)
		if err != nil {
			panic(err) // the state was encoded by this very process
		}
		if a := s.Alert; a != nil && (usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}) == id {
			highest = max(highest, a.Threshold)
		}
	}
	return highest
}

// alert keeps the alerts that a row makes due, and returns how many.
func (t *book) alert(row *usage.Row, now calendar.Micros, most int) int {
	due, err := usage.Alerts(t, row, most, nil)
	if err != nil {
		panic(err) // nothing is read that could fail
	}
	for i := range due {
		c := ledger.AlertRow(&due[i])
		t.keep(ledger.Row{At: now, Change: &c})
	}
	return len(due)
}

func (v view) Plan(name string) (quota.Plan, error) {
	p, ok := v.t.config.plans[name]
	if !ok {
		return quota.Plan{}, problem.New(problem.NotFound, "no plan %q", name)
	}
	return p.Clone(), nil
}

func (v view) Plans(after string, limit int) ([]quota.Plan, error) {
	var out []quota.Plan
	for name, p := range v.t.config.plans {
		if name > after {
			out = append(out, p.Clone())
		}
	}
	slices.SortFunc(out, func(a, b quota.Plan) int { return strings.Compare(a.Name, b.Name) })
	return out[:min(limit, len(out))], nil
}

func (v view) Assignment(customer string) (quota.Assignment, error) {
	return quota.Assignment{Customer: customer, Plan: v.t.config.assigned[customer]}, nil
}

func (v view) Assignments(after string, limit int) ([]quota.Assignment, error) {
	if err := store.CheckPlace(after); err != nil {
		return nil, err
	}
	var out []quota.Assignment
	for customer, plan := range v.t.config.assigned {
		if customer > after && plan != "" {
			out = append(out, quota.Assignment{Customer: customer, Plan: plan})
		}
	}
	slices.SortFunc(out, func(a, b quota.Assignment) int { return strings.Compare(a.Customer, b.Customer) })
	return out[:min(limit, len(out))], nil
}

func (v view) Tally(number uint32, m calendar.Month) (usage.Tally, error) {
	if v.t.Meter(number) == nil {
		return usage.Tally{}, problem.New(problem.NotFound, "no meter of that number")
	}
	if !usage.AddsUp(v.t.Meter(number).Aggregation) {
		return usage.Tally{}, nil
	}
	t, err := v.t.Tally(number, m)
	return *t, err
}
