package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// alerts wants a row for every threshold that a fact reached, right behind the fact. It follows the rows of the first
// pass and knows at each of them what was used so far, which plans were in force and what had been reported. Alerts
// beyond those that are due are let pass: the mark that they raise is held against the store's own.
//
// A batch leaves quota.MaxAlerts alerts at most, and the rest to later facts. Where a batch ends is not in the
// ledger, so that fewer are let pass once a section has that many.
type alerts struct {
	follows bool // the tenant has plans
	rules   map[string]*quota.Rules
	used    map[usage.CounterID]amount.Amount // of the tenant itself under the empty name
	rest    map[factID]amount.Amount          // what is left of corrected facts of meters that count
	due     []quota.Alert                     // behind the last fact
	missed  map[usage.CounterID]uint16        // the highest threshold that no row reports
	section int                               // alerts in this section
}

func newAlerts(follows bool) alerts {
	return alerts{
		follows: follows, rules: map[string]*quota.Rules{}, used: map[usage.CounterID]amount.Amount{},
		rest: map[factID]amount.Amount{}, missed: map[usage.CounterID]uint16{},
	}
}

// followAlerts takes a row in, when it was noted.
func (b *recount) followAlerts(r *ledger.Row) error {
	a := &b.alerts
	if !a.follows {
		return nil
	}
	if r.Kind() == ledger.EventRow {
		b.missedAlerts()
		return b.followEvent(r)
	}
	e := r.Entity()
	got, err := quota.AlertKind.ReadIf(&e)
	if err != nil {
		return err
	}
	if got != nil {
		a.section++
		a.due = slices.DeleteFunc(a.due, func(d quota.Alert) bool {
			same := d.Meter == got.Meter && d.Customer == got.Customer && d.Month == got.Month
			return same && d.Threshold == got.Threshold
		})
		return nil
	}
	b.missedAlerts()
	p, err := quota.PlanKind.ReadIf(&e)
	if err == nil && p != nil {
		a.rules[p.Name] = quota.Compile(p)
	}
	return err
}

// endSection ends what one commit may have left behind.
func (b *recount) endSection() {
	b.missedAlerts()
	b.alerts.section = 0
}

// missedAlerts reports what was due and did not come.
func (b *recount) missedAlerts() {
	due := b.alerts.due
	b.alerts.due = nil
	if b.alerts.section >= quota.MaxAlerts {
		return
	}
	for i := range due {
		d := &due[i]
		id := usage.CounterID{Meter: d.Meter, Customer: strings.Clone(d.Customer), Month: d.Month}
		b.alerts.missed[id] = max(b.alerts.missed[id], d.Threshold)
		whose := "all customers"
		if d.Customer != "" {
			whose = fmt.Sprintf("%q", d.Customer)
		}
		what := fmt.Sprintf("alert at %d %% of %s for %s in %s", d.Threshold, d.Slug, whose, d.Month)
		b.differs(what, fmt.Sprintf("one at %s", d.Used), "none")
	}
}

// followEvent adds to what is used, and lists the alerts that the fact makes due.
func (b *recount) followEvent(r *ledger.Row) error {
	a, e := &b.alerts, r.Event
	for i := range e.Outcomes {
		o := &e.Outcomes[i]
		m := b.entities.numbers[o.Meter]
		if !usage.AddsUp(m.Aggregation) {
			continue
		}
		change, err := b.uses(e, o, m.Aggregation)
		if err != nil {
			return err
		}
		for _, who := range [...]string{"", e.Customer} {
			id := usage.CounterID{Meter: o.Meter, Customer: who, Month: e.Month()}
			sum, err := add(a.used[id], change)
			if err != nil {
				return err
			}
			if _, known := a.used[id]; !known {
				id.Customer = strings.Clone(who)
			}
			a.used[id] = sum
		}
	}
	if e.IsCorrection() {
		return nil
	}
	for i := range e.Outcomes {
		m := b.entities.numbers[e.Outcomes[i].Meter]
		for _, who := range [...]string{"", e.Customer} {
			b.wantAlerts(&m, usage.CounterID{Meter: m.Number, Customer: who, Month: e.Month()}, r.At)
		}
	}
	return nil
}

// uses is what an outcome adds to what is used. A corrected fact counts while it is above zero.
func (b *recount) uses(e *usage.Row, o *usage.Outcome, a meter.Aggregation) (amount.Amount, error) {
	if a == meter.Sum {
		return o.Value, nil
	}
	if !e.IsCorrection() {
		return amount.One, nil
	}
	id := factID{clone(usage.KeyOfID(e.Corrects)), o.Meter}
	before, corrected := b.alerts.rest[id]
	if !corrected {
		before = o.Base
	}
	after, err := add(before, o.Value)
	b.alerts.rest[id] = after
	counted, counts := !corrected || before.Sign() > 0, after.Sign() > 0
	switch {
	case counted && !counts:
		return amount.One.Neg(), err
	case !counted && counts:
		return amount.One, err
	}
	return amount.Zero, err
}

func (b *recount) wantAlerts(m *meter.Meter, id usage.CounterID, at calendar.Micros) {
	a := &b.alerts
	l := a.rules[b.quotas.assigned[id.Customer].At(at).Plan].Limit(m.Slug)
	if l == nil || !usage.AddsUp(m.Aggregation) {
		return
	}
	used := a.used[id]
	for _, percent := range l.Due(used, max(b.quotas.alerted[id], a.missed[id]), nil) {
		a.due = append(a.due, quota.Alert{Meter: m.Number, Slug: m.Slug, Customer: id.Customer, Month: id.Month,
			Threshold: percent, Used: used})
	}
}
