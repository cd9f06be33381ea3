package quota

import (
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// MaxAssignments bounds the dated plans of one customer, or of the tenant: years of a change each day.
const MaxAssignments = 1000

// Assignment says which plan is in force from when on, for a customer, or for the tenant itself when Customer is empty.
type Assignment struct {
	Customer string
	Plans    Schedule
}

// Schedule is dated plans in the order of their times, no two of one time. It is not changed in place.
type Schedule []Dated

// Dated is a plan that is in force from a moment on, until the next one is. An empty Plan is none.
type Dated struct {
	From calendar.Micros
	Plan string
}

// At is what is in force at a moment; the zero Dated before the first.
func (s Schedule) At(now calendar.Micros) Dated {
	for i := len(s) - 1; i >= 0; i-- { // most ask for the last, or the one before
		if s[i].From <= now {
			return s[i]
		}
	}
	return Dated{}
}

// With returns the schedule with one more; one of the same time is replaced.
func (s Schedule) With(d Dated) Schedule {
	i, found := slices.BinarySearchFunc(s, d.From, func(e Dated, from calendar.Micros) int {
		return int(min(1, max(-1, e.From-from)))
	})
	out := slices.Clone(s)
	if found {
		out[i] = d
		return out
	}
	return slices.Insert(out, i, d)
}

// Settled returns the schedule without those plans that ended, by now, on the day on which they began: a day is billed
// by the plan at its end. It is for a schedule that is full, so that a plan can always be put in force now.
func (s Schedule) Settled(now calendar.Micros) Schedule {
	const day = calendar.Micros(24 * time.Hour / time.Microsecond)
	var out Schedule
	for i, d := range s {
		if i+1 < len(s) && s[i+1].From <= now && s[i+1].From/day == d.From/day {
			continue
		}
		out = append(out, d)
	}
	return out
}

// Until is when what is in force at a moment ends, by the next one; the end of all times if there is none.
func (s Schedule) Until(now calendar.Micros) calendar.Micros {
	for i := range s {
		if s[i].From > now {
			return s[i].From
		}
	}
	return calendar.MaxMicros
}

// Equal reports whether two schedules say the same.
func (s Schedule) Equal(o Schedule) bool { return slices.Equal(s, o) }

// HasPlan reports whether any plan is in force at any time.
func (s Schedule) HasPlan() bool {
	return slices.ContainsFunc(s, func(d Dated) bool { return d.Plan != "" })
}

// Check refuses a schedule that is too long. Errors: Conflict.
func (s Schedule) Check() *problem.Error {
	if len(s) > MaxAssignments {
		return problem.New(problem.Conflict, "there are %d dated plans already, the most there can be: "+
			"replace one by naming its from", MaxAssignments)
	}
	return nil
}
