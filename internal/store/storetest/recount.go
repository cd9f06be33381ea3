package storetest

import (
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// recount folds the rows up to a number into counters, from what the rows say and nothing else. A store's counters must
// be exactly this.
func recount(t TB, rows []ledger.Row, upTo uint64) map[usage.CounterID]*usage.Counter {
	t.Helper()
	r := recounting{counters: map[usage.CounterID]*usage.Counter{}, facts: map[factID]*fact{}}
	for i := range rows {
		if rows[i].Seq > upTo {
			break
		}
		r.row(t, &rows[i])
	}
	r.fold()
	return r.counters
}

type recounting struct {
	counters map[usage.CounterID]*usage.Counter
	facts    map[factID]*fact
	order    []*fact
}

type factID struct {
	key   usage.Key
	meter uint32
}

// fact is one fact in one meter, with what its corrections left of it.
type fact struct {
	counter                  usage.CounterID
	key                      usage.Key
	time                     calendar.Micros
	member                   string
	inTime                   bool
	all, onTime              amount.Amount
	corrected, correctedTime bool
}

func (r *recounting) counter(id usage.CounterID) *usage.Counter {
	if r.counters[id] == nil {
		r.counters[id] = &usage.Counter{Late: &usage.Fold{}}
	}
	return r.counters[id]
}

func (r *recounting) row(t TB, row *ledger.Row) {
	switch row.Kind() {
	case ledger.EntryRow:
		return
	case ledger.ChangeRow:
		if a := stateOf(t, &usage.AdjustmentKind, row); a != nil {
			c := r.counter(usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month})
			c.Manual = plus(t, c.Manual, a.Amount)
		}
		if a := stateOf(t, &quota.AlertKind, row); a != nil && a.Customer != "" {
			r.counter(usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}).Alert(a.Threshold)
		}
		return
	}
	for _, o := range row.Event.Outcomes {
		id := usage.CounterID{Meter: o.Meter, Customer: row.Event.Customer, Month: row.Event.Month()}
		c := r.counter(id)
		if row.Event.IsCorrection() {
			r.correct(t, row, o)
			continue
		}
		f := &fact{counter: id, key: row.Event.Key, time: row.Event.Time, member: o.Member,
			inTime: o.Why == usage.OnTime, all: o.Value, onTime: o.Value}
		r.facts[factID{f.key, o.Meter}] = f
		r.order = append(r.order, f)
		if f.inTime {
			c.Watermark, c.Started = max(c.Watermark, f.time), true
		}
	}
}

func (r *recounting) correct(t TB, row *ledger.Row, o usage.Outcome) {
	f := r.facts[factID{usage.KeyOfID(row.Event.Corrects), o.Meter}]
	if f == nil {
		t.Fatalf("row %d corrects %q, which no row before it holds", row.Seq, row.Event.Corrects)
	}
	f.all, f.corrected = plus(t, f.all, o.Value), true
	if o.Why == usage.OnTime {
		f.onTime, f.correctedTime = plus(t, f.onTime, o.Value), true
	}
}

// fold counts what is left of each fact. A corrected fact counts while it is above zero.
func (r *recounting) fold() {
	type member struct {
		counter usage.CounterID
		name    string
	}
	all, onTime := map[member]bool{}, map[member]bool{}
	for _, f := range r.order {
		c, m := r.counters[f.counter], member{f.counter, f.member}
		if !f.corrected || f.all.Sign() > 0 {
			c.Late.Add(f.all, f.time, f.key)
			if f.member != "" && !all[m] {
				all[m] = true
				c.Late.Members++
			}
		}
		if f.inTime && (!f.correctedTime || f.onTime.Sign() > 0) {
			c.OnTime.Add(f.onTime, f.time, f.key)
			if f.member != "" && !onTime[m] {
				onTime[m] = true
				c.OnTime.Members++
			}
		}
	}
}

func plus(t TB, a, b amount.Amount) amount.Amount {
	s, ok := a.Add(b)
	if !ok {
		t.Fatalf("the ledger holds %s and %s, whose sum does not fit", a, b)
	}
	return s
}
