package usage

import (
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
)

// Tally is what all customers of a tenant have used of one meter in one month: every kept row, adjusted ones too,
// corrections given back. It is kept whether a plan limits the meter or not, so that a plan holds from the moment it is
// put in force. What one customer has used is its counter's fold of all rows.
type Tally struct {
	Used    amount.Amount
	Alerted uint16 // the highest threshold, in percent, of the tenant's own quota that was reported
}

// AddsUp reports whether what customers use of a meter can be added up, and therefore limited.
func AddsUp(a meter.Aggregation) bool { return a == meter.Sum || a == meter.Count }

// adds is what an outcome adds to what is used.
func adds(a meter.Aggregation, o *Outcome) amount.Amount {
	if a == meter.Count {
		return amount.One
	}
	return o.Value
}

// moves is what a correction does to what is used, when it makes one effective quantity of a fact another.
func moves(a meter.Aggregation, from, to Effective) amount.Amount {
	if a == meter.Count {
		switch {
		case to.Counts && !from.Counts:
			return amount.One
		case from.Counts && !to.Counts:
			return amount.One.Neg()
		}
		return amount.Zero
	}
	d, _ := to.Quantity.Sub(from.Quantity) // what a correction of that size says, which fits
	return d
}

// ration reads the meter's tally and asks the tenant's limit, then the customer's, whether there is room for what a row
// adds. A row that takes away is never refused.
func (t *touch) ration(st State, m *meter.Meter, o *Outcome, id CounterID, add amount.Amount,
	now calendar.Micros) *problem.Error {
	var err error
	if t.tally, err = st.Tally(id.Meter, id.Month); err != nil {
		return unreadable(err)
	}
	for _, who := range [...]string{"", id.Customer} {
		l, err := st.Limit(m.Slug, who, now)
		if err != nil {
			return unreadable(err)
		}
		if l == nil {
			continue
		}
		used := t.tally.Used
		if who != "" {
			used = t.counter.All().Value(m.Aggregation)
		}
		switch l.Judge(used, add) {
		case quota.Refused:
			return exceeded(l, m, who, used, add, id.Month, now)
		case quota.Over:
			o.Overage = true
		}
	}
	var fits bool
	if t.used, fits = t.tally.Used.Add(add); !fits {
		return tallyFull(m, id.Month)
	}
	return nil
}

// maxQuotaWait bounds how long a refused caller is asked to wait. A plan may change at any time, and a month that is
// over has no time at which its quota resets.
const maxQuotaWait = time.Hour

// exceeded refuses a row that does not fit what a plan allows of its own month.
func exceeded(l *quota.Limit, m *meter.Meter, customer string, used, add amount.Amount, month calendar.Month,
	now calendar.Micros) *problem.Error {
	whose := "the tenant"
	if customer != "" {
		whose = "this customer"
	}
	p := problem.New(problem.QuotaExceeded,
		"plan %s allows %s of meter %s in %s for %s: %s is used and this adds %s; %s", l.Plan, l.Refuses(), m.Slug,
		month, whose, used, add,
		resetOf(month, now)).Discreetly("a quota has no room for this event")
	if month.End() <= now {
		return p.Retry(maxQuotaWait)
	}
	resets := month.End().Time()
	return p.Resets(resets, min(resets.Sub(now.Time()), maxQuotaWait))
}

// resetOf says when a month's limits reset: those of a month that is over never do.
func resetOf(month calendar.Month, now calendar.Micros) string {
	if month.End() <= now {
		return "the period is over and its limit does not reset"
	}
	return "it resets at " + month.End().String()
}

func tallyFull(m *meter.Meter, month calendar.Month) *problem.Error {
	return problem.New(problem.Overflow, "the use of meter %s by all customers in %s cannot be more than 10^26", m.Slug,
		month).Discreetly(doesNotFit)
}

// Alerts appends the thresholds that are due after a kept row, until there are most of them. A threshold is due when
// what is used has reached it and no row of this period names it or a higher one. Now is when the row was judged. The
// store keeps a row for each, which raises the mark. What takes away makes nothing due.
func Alerts(st State, row *Row, now calendar.Micros, most int, into []quota.Alert) ([]quota.Alert, error) {
	if row.Quantity.Sign() < 0 {
		return into, nil
	}
	month := row.Month()
	for i := range row.Outcomes {
		m := st.Catalog().Number(row.Outcomes[i].Meter)
		if !AddsUp(m.Aggregation) {
			continue
		}
		for _, who := range [...]string{"", row.Customer} {
			l, err := st.Limit(m.Slug, who, now)
			if err != nil {
				return into, err
			}
			if l == nil {
				continue
			}
			used, reported, err := standing(st, m, CounterID{m.Number, who, month})
			if err != nil {
				return into, err
			}
			var few [quota.MaxThresholds]uint16
			for _, percent := range l.Due(used, reported, few[:0]) {
				if len(into) >= most {
					return into, nil
				}
				into = append(into, quota.Alert{Meter: m.Number, Slug: m.Slug, Customer: who, Month: month,
					Threshold: percent, Plan: l.Plan, Limit: l.Limit, Used: used})
			}
		}
	}
	return into, nil
}

// standing is what is used and which threshold was reported; an empty customer asks for the tenant's.
func standing(st State, m *meter.Meter, id CounterID) (used amount.Amount, reported uint16, err error) {
	if id.Customer == "" {
		t, err := st.Tally(m.Number, id.Month)
		if err != nil {
			return used, 0, err
		}
		return t.Used, t.Alerted, nil
	}
	c, err := st.Counter(id)
	if err != nil {
		return used, 0, err
	}
	return c.All().Value(m.Aggregation), c.Alerted, nil
}

// Alert raises the mark of a threshold that a row reports.
func (t *Tally) Alert(percent uint16) { t.Alerted = max(t.Alerted, percent) }

// Alert raises the mark of a threshold that a row reports.
func (c *Counter) Alert(percent uint16) { c.Alerted = max(c.Alerted, percent) }

// CheckCustomer judges a customer's name where nothing else of an event is given.
func CheckCustomer(name string) *problem.Error {
	if name == "" || len(name) > MaxName || !cleanString(name) {
		return problem.At("customer", "1 to %d bytes of UTF-8 without NUL", MaxName)
	}
	return nil
}
