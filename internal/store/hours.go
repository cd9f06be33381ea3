package store

import (
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// HourQuery names usage by the hour: what one meter took from the rows whose event times lie in [From, To), which are
// whole hours of UTC.
type HourQuery struct {
	Meter        uint32
	Customer     string // "": all customers
	EachCustomer bool   // by themselves, not together
	From, To     calendar.Micros
}

// ByCustomer reports whether the query asks for hours of customers, or else for those of all together.
func (q *HourQuery) ByCustomer() bool { return q.EachCustomer || q.Customer != "" }

// Days are the first and the last day of the query.
func (q *HourQuery) Days() (first, last calendar.Day) {
	first, _ = calendar.DayOf(max(q.From, calendar.MinMicros))
	last, _ = calendar.DayOf(min(max(q.To, calendar.MinMicros+1)-1, calendar.MaxMicros))
	return first, last
}

// Hour is an hour of a customer, or of all of them: Customer is then "".
type Hour struct {
	Customer string
	Begin    calendar.Micros
	*usage.Hour
}

// Each calls fn for the hours of a day that the query names.
func (q *HourQuery) Each(customer string, on calendar.Day, d *usage.Day, fn func(*Hour) error) error {
	for i := range calendar.HoursPerDay {
		h, begin := d.Hour(i), on.Hour(i)
		if h == nil || begin < q.From || begin >= q.To {
			continue
		}
		if err := fn(&Hour{customer, begin, h}); err != nil {
			return err
		}
	}
	return nil
}
