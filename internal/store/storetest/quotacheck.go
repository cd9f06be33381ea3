package storetest

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// checkTallies wants every tally to be the sum over the counters of its meter and month, and every threshold to be told of once.
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
	told := map[quota.Alert]uint64{}
	for i := range b.rows {
		a := alertOf(b, &b.rows[i])
		if a == nil {
			continue
		}
		if first := told[*a]; first != 0 {
			b.Errorf("%s: rows %d and %d tell of the same threshold", b.id, first, b.rows[i].Seq)
		}
		told[*a] = b.rows[i].Seq
		if a.Customer == "" {
			t := at(a.Meter, a.Month)
			t.Alerted = max(t.Alerted, a.Threshold)
		}
	}
	for id, t := range want {
		got, err := b.v.Tally(id.Meter, id.Month)
		if err != nil || got != *t {
			b.Errorf("%s: the tally of %s in %s is %+v, %v, its rows give %+v", b.id, b.meters[id.Meter].Slug, id.Month, got, err, *t)
		}
	}
}

// alertOf is the threshold that a row tells of, or nil.
func alertOf(t TB, r *ledger.Row) *quota.Alert {
	t.Helper()
	if r.Change == nil {
		return nil
	}
	s, err := ledger.DecodeState(r)
	if err != nil {
		t.Fatalf("row %d: %v", r.Seq, err)
	}
	return s.Alert
}

// plans is what a tenant's ledger shows of its plans.
type plans struct {
	Plans       []quota.Plan
	Own         quota.Assignment
	Assignments []quota.Assignment
	Tallies     []usage.Tally // of each meter in each period
}

func paintPlans(v store.View, meters []store.Meter, periods []usage.Period) (p plans, err error) {
	if p.Plans, err = v.Plans("", many); err != nil {
		return p, err
	}
	if p.Own, err = v.Assignment(""); err != nil {
		return p, err
	}
	if p.Assignments, err = v.Assignments("", many); err != nil {
		return p, err
	}
	for _, a := range p.Assignments {
		if one, err := v.Assignment(a.Customer); err != nil || one != a {
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
