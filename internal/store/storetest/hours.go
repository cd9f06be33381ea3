package storetest

import (
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

const (
	anHour = calendar.Micros(time.Hour / time.Microsecond)
	// askedAlone is how many hours of a meter are also asked for by themselves.
	askedAlone = 1
)

// hourOf names an hour of a customer; that of all of them has no customer.
type hourOf struct {
	customer string
	begin    calendar.Micros
}

// leftFact is a fact with what its corrections left of it.
type leftFact struct {
	row   *usage.Row
	value amount.Amount
	times int // that it was corrected
}

// checkHours wants the hours that a store has added up to be what the rows give. One that it calls lost says nothing.
func (b *books) checkHours() {
	b.Helper()
	for number, m := range b.meters {
		facts := b.leftFacts(number)
		for _, each := range []bool{false, true} {
			want := plainHours(facts, m.Aggregation, each)
			got, kept := b.readHours(store.HourQuery{Meter: number, EachCustomer: each, To: calendar.MaxMicros + 1})
			if !kept {
				continue
			}
			for name, h := range got {
				if w := want[name]; !h.Lost && (w.Count != h.Count || w.Value != h.Value) {
					b.Fatalf("%s: hour %v of %s is %d facts, %s, want %d, %s", b.id, name, m.Slug, h.Count, h.Value,
						w.Count, w.Value)
				}
			}
			alone := 0
			for name, w := range want {
				if got[name] == nil {
					b.Fatalf("%s: hour %v of %s with %d facts is missing", b.id, name, m.Slug, w.Count)
				}
				if alone++; alone <= askedAlone {
					b.checkOneHour(number, each, name, got[name])
				}
			}
		}
	}
}

// checkOneHour asks for an hour alone, which must be as it is among others.
func (b *books) checkOneHour(number uint32, each bool, name hourOf, want *usage.Hour) {
	b.Helper()
	got, _ := b.readHours(store.HourQuery{Meter: number, EachCustomer: each, Customer: name.customer, From: name.begin,
		To: name.begin + anHour})
	if h := got[name]; len(got) != 1 || h == nil || h.Count != want.Count || h.Value != want.Value ||
		h.Lost != want.Lost {
		b.Fatalf("%s: hour %v of meter %d alone is %v, among others %+v", b.id, name, number, got, *want)
	}
}

func (b *books) readHours(q store.HourQuery) (out map[hourOf]*usage.Hour, kept bool) {
	b.Helper()
	out = map[hourOf]*usage.Hour{}
	upTo, kept, err := b.v.Hours(q, func(h *store.Hour) error {
		name := hourOf{h.Customer, h.Begin}
		if out[name] != nil {
			return fmt.Errorf("hour %v comes twice", name)
		}
		out[name] = h.Hour
		return nil
	})
	if err != nil {
		b.Fatalf("%s: hours of %+v: %v", b.id, q, err)
	}
	if kept && upTo != b.head.Seq {
		b.Fatalf("%s: hours are of row %d, the ledger ends at %d", b.id, upTo, b.head.Seq)
	}
	return out, kept
}

func (b *books) leftFacts(number uint32) map[usage.Key]*leftFact {
	out := map[usage.Key]*leftFact{}
	for i := range b.rows {
		r := b.rows[i].Event
		if r == nil {
			continue
		}
		for _, o := range r.Outcomes {
			switch {
			case o.Meter != number:
			case r.IsCorrection():
				f := out[usage.KeyOfID(r.Corrects)]
				f.value, _ = f.value.Add(o.Value)
				f.times++
			default:
				out[r.Key] = &leftFact{row: r, value: o.Value}
			}
		}
	}
	return out
}

// plainHours is the definition of an hour: the facts that are left in it.
func plainHours(facts map[usage.Key]*leftFact, a meter.Aggregation, each bool) map[hourOf]usage.Hour {
	out, last := map[hourOf]usage.Hour{}, map[hourOf]*usage.Row{}
	for _, f := range facts {
		if f.times > 0 && f.value.Sign() <= 0 {
			continue
		}
		name := hourOf{begin: f.row.Time - f.row.Time%anHour}
		if each {
			name.customer = f.row.Customer
		}
		h := out[name]
		h.Count++
		switch {
		case a == meter.Sum || a == meter.Avg:
			h.Value, _ = h.Value.Add(f.value)
		case a == meter.Min && (h.Count == 1 || f.value.Cmp(h.Value) < 0),
			a == meter.Max && (h.Count == 1 || f.value.Cmp(h.Value) > 0):
			h.Value = f.value
		case a == meter.Last && (h.Count == 1 || comesLater(f.row, last[name])):
			h.Value, last[name] = f.value, f.row
		}
		out[name] = h
	}
	return out
}

func comesLater(a, b *usage.Row) bool {
	if a.Time != b.Time {
		return a.Time > b.Time
	}
	if a.Key.Space != b.Key.Space {
		return a.Key.Space > b.Key.Space
	}
	return a.Key.Name > b.Key.Name
}
