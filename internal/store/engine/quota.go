package engine

import (
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// alert takes the alerts that a row makes due into its section, right behind it, and returns how many. Engine.mu is
// held.
func (e *Engine) alert(s *sectionBuild, h *history, row *usage.Row, most int) (int, error) {
	due, err := ledger.Alerts(h, row, s.at, most, e.due[:0])
	if err != nil {
		return 0, err
	}
	for i := range due {
		c := due[i]
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

// alertBound is the largest encoding of the alerts that a batch may leave behind, when a quota has so many thresholds
// at most. Behind each the rows begin a new run of those that somebody of a name of that length brought.
func alertBound(facts []prepared, thresholds, by int) int {
	if thresholds == 0 {
		return 0
	}
	row := func(customer int) int {
		return changeOverhead + ledger.MaxAlertRow(customer) + maxRunOverhead + by
	}
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

func (v *view) Tally(meter uint32, m calendar.Month) (out usage.Tally, err error) {
	if v.resident.Catalog.Number(meter) == nil {
		return out, problem.New(problem.NotFound, "no meter of number %d", meter)
	}
	if v.tx != nil {
		if t := v.tx.tallies[tallyID{v.b, meter, m}]; t != nil {
			return *t, nil
		}
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
