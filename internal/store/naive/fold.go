package naive

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// The rules reach history through these methods. Counters are folded anew at every call and thrown away, so the changes
// that the rules make to them are checked against the rows that follow, never trusted.
var _ usage.State = (*book)(nil)

func (t *book) Known(f *usage.Fact) (usage.Known, error) {
	i, ok := t.keys[f.Key]
	if !ok {
		return usage.Known{}, nil
	}
	r := &t.rows[i]
	same := f.Bucket || usage.SameContent(f.Event, &r.Event.Event, f.Key.Space)
	return usage.Known{Seq: r.Seq, Other: !same}, nil
}

func (t *book) Floor() calendar.Micros { return t.resident.Horizon.Floor }

func (t *book) TenantClosed() bool { return t.resident.TenantClosed() }

func (t *book) Closed(m calendar.Month) bool { return t.resident.Closed(m) }

func (t *book) Catalog() *usage.Catalog { return t.resident.Catalog }

func (t *book) Target(k usage.Key) (*usage.Row, error) {
	if i, ok := t.keys[k]; ok {
		return t.rows[i].Event, nil
	}
	return nil, nil
}

func (t *book) Corrected(target usage.Key, number uint32) (usage.Corrected, error) {
	var c usage.Corrected
	for _, i := range t.corrections[target.ID()] {
		r := t.rows[i].Event
		if r == nil {
			continue
		}
		for _, o := range r.Outcomes {
			if o.Meter != number {
				continue
			}
			c.Times++
			c.All = add(c.All, o.Value)
			if o.Why == usage.OnTime {
				c.TimesOnTime++
				c.OnTime = add(c.OnTime, o.Value)
			}
		}
	}
	return c, nil
}

func (t *book) Correct(usage.Key, uint32, usage.Corrected) {}

func (t *book) AddMember(usage.CounterID, uint32, string, bool) {}

func (t *book) Member(id usage.CounterID, _ uint32, member string) (onTime, seen bool, err error) {
	for _, f := range t.facts(id, t.head.Seq) {
		if f.member == member {
			seen = seen || f.all.Counts
			onTime = onTime || f.onTime.Counts
		}
	}
	return onTime, seen, nil
}

func (t *book) Slice(id usage.CounterID, below uint64, fn func(*usage.Row, *usage.Outcome)) error {
	for _, i := range t.counters[id] {
		r := &t.rows[i]
		if r.Kind() != ledger.EventRow || r.Seq >= below {
			continue
		}
		for j := range r.Event.Outcomes {
			if r.Event.Outcomes[j].Meter == id.Meter {
				fn(r.Event, &r.Event.Outcomes[j])
			}
		}
	}
	return nil
}

func (t *book) Counter(id usage.CounterID) (*usage.Counter, error) {
	c := t.fold(id, t.head.Seq)
	if closed, ok := t.resident.Entity(usage.PeriodKind.Name, id.Month.String()); ok {
		at := t.fold(id, closed.Seq)
		c.Sealed, c.SealedAt = true, at.Total(t.Catalog().Number(id.Meter).Aggregation)
	}
	return c, nil
}

// fact is a row that is no correction, with what all corrections up to some row have left of it in each fold.
type fact struct {
	key         usage.Key
	time        calendar.Micros
	member      string
	all, onTime usage.Effective
}

// facts lists the counter's facts among the rows up to seq.
func (t *book) facts(id usage.CounterID, upTo uint64) []fact {
	var out []fact
	for _, i := range t.counters[id] {
		r := &t.rows[i]
		if r.Seq > upTo || r.Kind() != ledger.EventRow || r.Event.IsCorrection() {
			continue
		}
		for _, o := range r.Event.Outcomes {
			if o.Meter == id.Meter {
				out = append(out, t.left(id, r, o, upTo))
			}
		}
	}
	return out
}

func (t *book) left(id usage.CounterID, r *ledger.Row, o usage.Outcome, upTo uint64) fact {
	all, onTime := usage.Effective{Quantity: o.Value, Counts: true},
		usage.Effective{Quantity: o.Value, Counts: o.Why == usage.OnTime}
	for _, i := range t.corrections[r.Event.Key.ID()] {
		c := &t.rows[i]
		if c.Seq > upTo || c.Kind() != ledger.EventRow {
			continue
		}
		for _, co := range c.Event.Outcomes {
			if co.Meter != id.Meter {
				continue
			}
			all.Quantity = add(all.Quantity, co.Value)
			all.Counts = all.Quantity.Sign() > 0
			if co.Why == usage.OnTime {
				onTime.Quantity = add(onTime.Quantity, co.Value)
				onTime.Counts = onTime.Quantity.Sign() > 0
			}
		}
	}
	return fact{r.Event.Key, r.Event.Time, o.Member, all, onTime}
}

// fold is the definition of a counter, read off the rows up to seq.
func (t *book) fold(id usage.CounterID, upTo uint64) *usage.Counter {
	c := &usage.Counter{Late: &usage.Fold{}}
	facts := t.facts(id, upTo)
	slices.SortFunc(facts, func(a, b fact) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.key.Space, b.key.Space),
			strings.Compare(a.key.Name, b.key.Name))
	})
	members, onTimeMembers := map[string]bool{}, map[string]bool{}
	for _, f := range facts {
		if f.all.Counts {
			take(c.Late, f, f.all.Quantity, members)
		}
		if f.onTime.Counts {
			take(&c.OnTime, f, f.onTime.Quantity, onTimeMembers)
		}
	}
	c.Alerted = t.alerted(id, upTo)
	for _, i := range t.counters[id] {
		r := &t.rows[i]
		if r.Seq > upTo {
			continue
		}
		if r.Kind() == ledger.ChangeRow {
			c.Manual, c.Adjusted = add(c.Manual, effectOf(r).Adjustment.Amount), true
			continue
		}
		for _, o := range r.Event.Outcomes {
			if o.Meter == id.Meter && o.Why == usage.OnTime && !r.Event.IsCorrection() {
				c.Started, c.Watermark = true, max(c.Watermark, r.Event.Time)
			}
		}
	}
	return c
}

// take folds facts that come in order of time, then key: the last one taken is the latest.
func take(f *usage.Fold, x fact, q amount.Amount, members map[string]bool) {
	f.Count++
	f.Sum = add(f.Sum, q)
	if f.Count == 1 || q.Cmp(f.Min) < 0 {
		f.Min, f.AtMin = q, 0
	}
	if f.Count == 1 || q.Cmp(f.Max) > 0 {
		f.Max, f.AtMax = q, 0
	}
	if q == f.Min {
		f.AtMin++
	}
	if q == f.Max {
		f.AtMax++
	}
	f.Last, f.LastTime, f.LastKey = q, x.time, append([]byte{byte(x.key.Space)}, x.key.Name...)
	if x.member != "" {
		members[x.member] = true
		f.Members = int64(len(members))
	}
}

func add(a, b amount.Amount) amount.Amount {
	s, ok := a.Add(b)
	if !ok {
		panic("naive: a sum that the rules let through overflows")
	}
	return s
}
