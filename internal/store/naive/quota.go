package naive

import (
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

func (t *book) Limit(slug, customer string, now calendar.Micros) (*quota.Limit, error) {
	a, err := store.Assignment(view{t, t.head.Clock}, customer)
	return t.resident.Limit(a.Plans.At(now).Plan, slug), err
}

// Day implements usage.State: hours are read off the rows.
func (t *book) Day(uint32, calendar.Day) (*usage.Day, error) { return nil, nil }

// Tally is the definition of a tally, read off the rows: of a sum meter all values, of a count meter the facts that are
// left.
func (t *book) Tally(number uint32, month calendar.Month) (*usage.Tally, error) {
	out := &usage.Tally{Alerted: t.alerted(usage.CounterID{Meter: number, Month: month}, t.head.Seq)}
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
		if t.Catalog().Number(number).Aggregation == meter.Count {
			e.Quantity = amount.One
		}
		out.Used = add(out.Used, e.Quantity)
	}
	return out, nil
}

// alerted is the highest threshold that rows up to seq report for a customer, or for the tenant when the id has none.
func (t *book) alerted(id usage.CounterID, upTo uint64) (highest uint16) {
	for _, i := range t.alerts[id] {
		if r := &t.rows[i]; r.Seq <= upTo {
			highest = max(highest, effectOf(r).Alert.Threshold)
		}
	}
	return highest
}

// alert keeps the alerts that a row makes due, and returns how many.
func (t *book) alert(row *usage.Row, now calendar.Micros, most int) int {
	due, err := ledger.Alerts(t, row, now, most, nil)
	if err != nil {
		panic(err) // nothing is read that could fail
	}
	for i := range due {
		t.keep(ledger.Row{At: now, Change: &due[i]})
	}
	return len(due)
}

// effectOf reads what a change does to counters. It was read before the row was kept.
func effectOf(r *ledger.Row) ledger.Effect {
	e := r.Entity()
	f, err := ledger.EffectOf(&e)
	if err != nil {
		panic(err)
	}
	return f
}

func (v view) Tally(number uint32, m calendar.Month) (usage.Tally, error) {
	if v.t.Catalog().Number(number) == nil {
		return usage.Tally{}, problem.New(problem.NotFound, "no meter of that number")
	}
	if !usage.AddsUp(v.t.Catalog().Number(number).Aggregation) {
		return usage.Tally{}, nil
	}
	t, err := v.t.Tally(number, m)
	return *t, err
}
