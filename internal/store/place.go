package store

import (
	"strings"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// CounterPlace is a counter's place in the listing order.
type CounterPlace struct {
	Month    calendar.Month
	Meter    string // slug
	Customer string
}

// InNextMeter is the first place that a customer can have behind all counters of this place's meter, whatever the next
// meter is called.
func (p CounterPlace) InNextMeter(customer string) CounterPlace {
	// No slug has a byte this low, and a place with a lower one would be none: see CheckPlace.
	return CounterPlace{Month: p.Month, Meter: p.Meter + "\x01", Customer: customer}
}

// CheckPlace refuses names that a list cannot go on from, because nothing can be called so. All stores ask it, so that
// what one of them cannot compare is refused by each. Errors: Malformed.
func CheckPlace(names ...string) error {
	for _, name := range names {
		if !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0 {
			return problem.New(problem.Malformed, "a place in a list is UTF-8 without NUL")
		}
	}
	return nil
}
