package storetest

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// checkTallies wants every tally to be the sum over the counters of its meter and month, and every threshold to be
// reported of once.
func (b *books) checkTallies() {
	b.Helper()
	want := map[usage.CounterID]*usage.Tally{}
	at := func(number uint32, m calendar.Month) *usage.Tally {
		id := usage.CounterID{Meter: number, Month: m}
		if want[id] == nil {
			want[id] = &usage.Tally{}
		}
		return want[id]
	}
	for id, c := range recount(b, b.rows, b.head.Seq) {
		if a := b.meters[id.Meter].Aggregation; usage.AddsUp(a) {
			t := at(id.Meter, id.Month)
			t.Used = plus(b, t.Used, c.All().Value(a))
		}
	}
	reported := map[quota.Alert]uint64{}
	for i := range b.rows {
		a := alertOf(b, &b.rows[i])
		if a == nil {
			continue
		}
		if first := reported[*a]; first != 0 {
			b.Errorf("%s: rows %d and %d report the same threshold", b.id, first, b.rows[i].Seq)
		}
		reported[*a] = b.rows[i].Seq
		if a.Customer == "" {
			t := at(a.Meter, a.Month)
			t.Alerted = max(t.Alerted, a.Threshold)
		}
	}
	for id, t := range want {
		got, err := b.v.Tally(id.Meter, id.Month)
		if err != nil || got != *t {
			b.Errorf("%s: the tally of %s in %s is %+v, %v, its rows give %+v", b.id, b.meters[id.Meter].Slug, id.Month,
				got, err, *t)
		}
	}
}

// allowances is what a ledger's plans allowed and what was used, as of some row.
type allowances struct {
	plans    map[string]quota.Plan
	assigned map[string]quota.Schedule
	left     map[factID]amount.Amount
	used     map[usage.CounterID]amount.Amount // by all customers under the empty name
}

// checkQuotas wants every row that adds to what is used to be within what the plans of its moment allowed, and to say
// so when it is over a soft limit.
func (b *books) checkQuotas() {
	b.Helper()
	a := allowances{map[string]quota.Plan{}, map[string]quota.Schedule{}, map[factID]amount.Amount{},
		map[usage.CounterID]amount.Amount{}}
	for i := range b.rows {
		r := &b.rows[i]
		if r.Kind() != ledger.EventRow {
			if p := stateOf(b, &quota.PlanKind, r); p != nil {
				a.plans[p.Name] = *p
			}
			if to := stateOf(b, &quota.AssignmentKind, r); to != nil {
				a.assigned[to.Customer] = to.Plans
			}
			continue
		}
		for j := range r.Event.Outcomes {
			b.checkAllowed(&a, r, &r.Event.Outcomes[j])
		}
	}
}

func (b *books) checkAllowed(a *allowances, r *ledger.Row, o *usage.Outcome) {
	b.Helper()
	m, over := b.meters[o.Meter], false
	if !usage.AddsUp(m.Aggregation) {
		return
	}
	adds := a.take(b, r.Event, o, m.Aggregation)
	for _, who := range []string{"", r.Event.Customer} {
		id := usage.CounterID{Meter: o.Meter, Customer: who, Month: r.Event.Month()}
		a.used[id] = plus(b, a.used[id], adds)
		plan, planned := a.plans[a.assigned[who].At(r.At).Plan]
		if !planned || adds.Sign() <= 0 {
			continue
		}
		for _, q := range plan.Quotas {
			if q.Meter != m.Slug || a.used[id].Cmp(q.Limit) <= 0 {
				continue
			}
			bound, _, fits := q.Limit.Mul(q.Multiplier)
			if over = true; !q.Soft || !q.Multiplier.IsZero() && fits && a.used[id].Cmp(bound) > 0 {
				b.Errorf("%s: row %d takes what %q used of %s to %s, and plan %s allows %s", b.id, r.Seq, who, m.Slug,
					a.used[id], plan.Name, q.Limit)
			}
		}
	}
	if over != o.Overage {
		b.Errorf("%s: row %d says overage %t of %s, want %t", b.id, r.Seq, o.Overage, m.Slug, over)
	}
}

// take notes what a row leaves of its fact, and returns what it adds to what is used.
func (a *allowances) take(t TB, r *usage.Row, o *usage.Outcome, of meter.Aggregation) amount.Amount {
	t.Helper()
	if !r.IsCorrection() {
		a.left[factID{r.Key, o.Meter}] = o.Value
		if of == meter.Count {
			return amount.One
		}
		return o.Value
	}
	k := factID{usage.KeyOfID(r.Corrects), o.Meter}
	before := a.left[k]
	a.left[k] = plus(t, before, o.Value)
	switch {
	case of != meter.Count:
		return o.Value
	case before.IsZero() && !a.left[k].IsZero():
		return amount.One
	case !before.IsZero() && a.left[k].IsZero():
		return amount.One.Neg()
	}
	return amount.Zero
}

// alertOf is the threshold that a row reports, or nil.
func alertOf(t TB, r *ledger.Row) *quota.Alert {
	t.Helper()
	return stateOf(t, &quota.AlertKind, r)
}

// plans is what a tenant's ledger shows of its plans.
type plans struct {
	Plans       []quota.Plan
	Own         quota.Assignment
	Assignments []quota.Assignment
	Tallies     []usage.Tally // of each meter in each period
}

func collectPlans(v store.View, meters []store.Meter, periods []usage.Period) (p plans, err error) {
	if p.Plans, err = store.List(v, &quota.PlanKind, store.Page{Limit: many}); err != nil {
		return p, err
	}
	if p.Own, err = store.Assignment(v, ""); err != nil {
		return p, err
	}
	if p.Assignments, err = store.Assignments(v, "", many); err != nil {
		return p, err
	}
	for _, a := range p.Assignments {
		if one, err := store.Assignment(v, a.Customer); err != nil || !one.Plans.Equal(a.Plans) {
			return p, fmt.Errorf("%q alone has %+v, listed %+v, %w", a.Customer, one, a, err)
		}
	}
	for _, m := range meters {
		for _, in := range periods {
			t, err := v.Tally(m.Number, in.Month)
			if err != nil {
				return p, err
			}
			p.Tallies = append(p.Tallies, t)
		}
	}
	return p, nil
}
