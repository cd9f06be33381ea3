package verify

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// hourSum is an hour as the rows give it: of a customer, or of all of them.
type hourSum struct {
	meter    uint32
	begin    calendar.Micros
	count    int64
	value    amount.Amount
	at       int64           // facts at the minimum or the maximum
	time     calendar.Micros // of the last
	key      string          // likewise
	tooLarge bool            // the sum does not fit
}

// hours are those of one tenant, by what they are of. A hash stands for a name that would be too long to keep for each.
type hours map[identity]*hourSum

// hourName hashes whose hour it is; customer is "" for that of all.
func (b *recount) hourName(number uint32, customer string, begin calendar.Micros) identity {
	return b.names.of('h', fmt.Sprint(number, " ", int64(begin)), customer)
}

// foldHours adds what is left of a fact to the hour of its customer and to that of all.
func (b *recount) foldHours(o *usage.Outcome, e *usage.Row, p part) {
	a := b.entities.numbers[o.Meter].Aggregation
	if !p.counts || !usage.RollsUp(a) {
		return
	}
	day, hour := calendar.DayOf(e.Time)
	begin := day.Hour(hour)
	for _, customer := range [...]string{"", e.Customer} {
		name := b.hourName(o.Meter, customer, begin)
		h := b.hours[name]
		if h == nil {
			h = &hourSum{meter: o.Meter, begin: begin}
			b.hours[name] = h
		}
		h.fold(a, p.quantity, e)
	}
}

// fold adds one quantity. It is written down here once more, on purpose: a proof by the code under test proves nothing.
func (h *hourSum) fold(a meter.Aggregation, q amount.Amount, e *usage.Row) {
	h.count++
	key := string(rune(e.Key.Space)) + e.Key.Name
	switch a {
	case meter.Sum, meter.Avg:
		sum, ok := h.value.Add(q)
		h.value, h.tooLarge = sum, h.tooLarge || !ok
	case meter.Min, meter.Max:
		sign := q.Cmp(h.value)
		if a == meter.Min {
			sign = -sign
		}
		if h.count == 1 || sign > 0 {
			h.value, h.at = q, 0
		}
		if q == h.value {
			h.at++
		}
	case meter.Last:
		if h.count == 1 || e.Time > h.time || e.Time == h.time && key > h.key {
			h.value, h.time, h.key = q, e.Time, key
		}
	}
}

// compareHours holds the hours that the store has added up against the rows. One that the store calls lost, and answers
// from the rows, has nothing to compare.
func (b *recount) compareHours() error {
	type month struct {
		meter uint32
		calendar.Month
	}
	months := map[month]bool{}
	for id := range b.counters {
		if !b.bygone.left[id.Month] && usage.RollsUp(b.entities.numbers[id.Meter].Aggregation) {
			months[month{id.Meter, id.Month}] = true
		}
	}
	ofAll, ofEach := map[identity]bool{}, map[identity]bool{} // that the store has shown
	keptAll, keptEach := false, false
	for m := range months {
		q := store.HourQuery{Meter: m.meter, From: m.Start(), To: m.End()}
		kept, err := b.compareMonthOfHours(q, ofAll)
		if err != nil {
			return err
		}
		keptAll = keptAll || kept
		q.EachCustomer = true
		if kept, err = b.compareMonthOfHours(q, ofEach); err != nil {
			return err
		}
		keptEach = keptEach || kept
	}
	for name, h := range b.hours {
		all := name == b.hourName(h.meter, "", h.begin)
		if all && keptAll && !ofAll[name] || !all && keptEach && !ofEach[name] {
			b.differs(b.hourPlace(h.meter, "", h.begin, all), fmt.Sprintf("%d facts", h.count), "none")
		}
	}
	return nil
}

func (b *recount) compareMonthOfHours(q store.HourQuery, shown map[identity]bool) (kept bool, err error) {
	a := b.entities.numbers[q.Meter].Aggregation
	_, kept, err = b.v.Hours(q, func(got *store.Hour) error {
		name := b.hourName(q.Meter, got.Customer, got.Begin)
		shown[name] = true
		want := b.hours[name]
		if want == nil {
			want = &hourSum{}
		}
		if got.Lost || want.tooLarge {
			return b.ctx.Err()
		}
		what := b.hourPlace(q.Meter, got.Customer, got.Begin, got.Customer == "")
		if got.Count != want.count {
			b.differs(what+", facts", want.count, got.Count)
		}
		if got.Value != want.value {
			b.differs(what+", "+a.String(), want.value, got.Value)
		}
		if got.At != want.at {
			b.differs(what+", facts at the "+a.String(), want.at, got.At)
		}
		return b.ctx.Err()
	})
	if err != nil {
		return kept, fmt.Errorf("read hours: %w", err)
	}
	return kept, nil
}

func (b *recount) hourPlace(number uint32, customer string, begin calendar.Micros, all bool) string {
	whose := fmt.Sprintf("%q", customer)
	switch {
	case all:
		whose = "all customers"
	case customer == "":
		whose = "a customer"
	}
	return fmt.Sprintf("hour of %s by %s from %s on", b.entities.numbers[number].Slug, whose, begin)
}
