package postgres

import (
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// maxTail is how many rows a reader adds up itself, because the roller has not come to them. Beyond it folding what is
// asked for is no slower.
const maxTail = 200_000

// Hours implements store.View: what the roller has added up, and the rows since.
func (v *view) Hours(q store.HourQuery, fn func(*store.Hour) error) (upTo uint64, kept bool, err error) {
	m := v.set.Catalog.Number(q.Meter)
	if m == nil {
		return 0, false, problem.New(problem.NotFound, "no meter of that number")
	}
	if v.tx != nil || !usage.RollsUp(m.Aggregation) || !clean(q.Customer) {
		return 0, false, nil
	}
	hint := store.RowHint{From: q.From, To: q.To, Events: true}
	if err := v.set.Horizon.Missing(0, hint, v.hasLeft); err != nil {
		return 0, false, err
	}
	rolled := uint64(0)
	err = v.ask(readRollup, func(in *reader) error {
		rolled = uint64(in.int8())
		return nil
	})
	if err != nil || v.base-rolled > maxTail {
		return 0, false, err
	}
	h := hours{view: v, query: &q, tail: foldings{set: v.set}, emit: fn}
	if err := h.readTail(rolled); err != nil {
		return 0, false, err
	}
	return v.base, true, h.read()
}

// hours is an answer under way.
type hours struct {
	*view
	query *store.HourQuery
	tail  foldings
	emit  func(*store.Hour) error
}

// readTail reads the rows that the roller has not come to.
func (h *hours) readTail(rolled uint64) error {
	if rolled < h.base {
		if err := h.tail.read(h.ask, rolled, h.base); err != nil {
			return err
		}
	}
	first, last := h.query.Days()
	h.tail.plan(func(n dayName) bool {
		return n.meter == h.query.Meter && n.day >= first && n.day <= last && h.wants(n.customer)
	})
	return nil
}

func (h *hours) wants(customer string) bool {
	switch {
	case h.query.Customer != "":
		return customer == h.query.Customer
	case h.query.EachCustomer:
		return customer != ""
	}
	return customer == ""
}

// read gives the days that the table has, each with the tail, and then those that only the tail has.
func (h *hours) read() error {
	first, last := h.query.Days()
	for month, end := calendar.MonthOf(first.Hour(0)), calendar.MonthOf(last.Hour(0)); month <= end; month++ {
		found := false
		err := h.ask(nextMonth, func(in *reader) error {
			month, found = in.month(), true
			return nil
		}, monthParam(month))
		if err != nil {
			return err
		}
		if !found || month > end {
			break
		}
		if err := h.readMonth(month); err != nil {
			return err
		}
	}
	for n := range h.tail.days {
		if err := h.give(n, &usage.Day{}); err != nil {
			return err
		}
	}
	return nil
}

func (h *hours) readMonth(month calendar.Month) error {
	first, last := h.query.Days()
	var own error
	each := func(in *reader) error {
		n, d, err := readDay(in)
		if err == nil && own == nil && n.day >= first && n.day <= last {
			own = h.give(n, d)
		}
		return err
	}
	meter, on := int4Param(int32(h.query.Meter)), monthParam(month)
	var err error
	if h.query.EachCustomer && h.query.Customer == "" {
		err = h.ask(daysOfAll, each, meter, on)
	} else {
		err = h.ask(daysOfCustomer, each, meter, on, []byte(h.query.Customer))
	}
	if own != nil {
		return own
	}
	return err
}

// give adds the tail to a day and shows its hours.
func (h *hours) give(n dayName, d *usage.Day) error {
	h.tail.fold(n, d)
	delete(h.tail.days, n)
	return h.query.Each(n.customer, n.day, d, h.emit)
}
