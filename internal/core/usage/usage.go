// Package usage holds the rules of usage events: identity, content, folding, lateness, corrections and the verdict on
// each fact. Everything here is a pure function of its arguments; what must be remembered between two facts is
// reached through the State that a store implements, so that every store judges alike.
package usage

import (
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// Status is the verdict on one event.
type Status uint8

// The verdicts of the contract.
const (
	Accepted Status = iota + 1
	Duplicate
	Adjusted // kept, too late for the on-time fold
	Overage  // kept, over a soft limit
	Conflict
	Rejected
	Withheld // not recorded, with nothing wrong: another event of its atomic batch was refused
)

var statusNames = [...]string{Accepted: "accepted", Duplicate: "duplicate", Adjusted: "adjusted", Overage: "overage",
	Conflict: "conflict", Rejected: "rejected",
	Withheld: "withheld"}

func (s Status) String() string { return statusNames[s] }

// ParseStatus reads the name of a status that a kept row can have.
func ParseStatus(s string) (Status, bool) {
	for _, st := range [...]Status{Accepted, Adjusted, Overage} {
		if st.String() == s {
			return st, true
		}
	}
	return 0, false
}

// Verdict answers one event. Seq is the row's own, or for a duplicate or conflict that of the row already there.
type Verdict struct {
	Key     Key // zero when the event was refused before it had one
	Problem *problem.Error
	Seq     uint64
	Status  Status
	Overage bool // with Adjusted: also over a soft limit
}

// Kept reports whether the event became a row.
func (v *Verdict) Kept() bool {
	return v.Status == Accepted || v.Status == Adjusted || v.Status == Overage
}

// Refused reports whether something is wrong with the event.
func (v *Verdict) Refused() bool { return v.Status == Conflict || v.Status == Rejected }

// Why says why a row stands outside the on-time fold.
type Why uint8

// The reasons of an adjusted outcome.
const (
	OnTime       Why = iota
	TooLate          // older than the watermark less the lateness window
	PeriodClosed     // its month was closed when it arrived
	TargetWas        // a correction shares the outcome of an adjusted target
)

func (w Why) String() string {
	return [...]string{"on_time", "late", "period_closed", "target_adjusted"}[w]
}

// Outcome is what one row did to one meter. The row stores it, so that a replay decides nothing again.
type Outcome struct {
	Meter   uint32        // its number
	Value   amount.Amount // what the meter folded; of a correction, the signed change
	Base    amount.Amount // of a correction: the target's own value
	Member  string        // of a unique meter
	Why     Why
	Overage bool
	Amount  amount.Amount // when adjusted: the change of the counter's total
}

// Row is a usage event as the ledger keeps it: what was sent, completed with what the server decided.
type Row struct {
	Event
	Key      Key
	Outcomes []Outcome // by slug of the meter
}

// Status is the verdict that the row was kept with.
func (r *Row) Status() Status {
	s := Accepted
	for i := range r.Outcomes {
		if r.Outcomes[i].Why != OnTime {
			return Adjusted
		}
		if r.Outcomes[i].Overage {
			s = Overage
		}
	}
	return s
}

// Over reports whether any meter counted the row as overage.
func (r *Row) Over() bool {
	for i := range r.Outcomes {
		if r.Outcomes[i].Overage {
			return true
		}
	}
	return false
}

// IsCorrection reports whether the row corrects another.
func (r *Row) IsCorrection() bool { return r.Corrects != "" }

// Month is the period that the row is billed in.
func (r *Row) Month() calendar.Month { return calendar.MonthOf(r.Time) }

// Clone gives the row memory of its own: its strings may belong to a request or to a file's buffer.
func (r *Row) Clone() *Row {
	c := *r
	for _, s := range [...]*string{&c.ID, &c.Meter, &c.Type, &c.Customer, &c.Resource, &c.Properties, &c.Corrects,
		&c.Reason, &c.Key.Name} {
		*s = strings.Clone(*s)
	}
	c.Outcomes = slices.Clone(r.Outcomes)
	for i := range c.Outcomes {
		c.Outcomes[i].Member = strings.Clone(c.Outcomes[i].Member)
	}
	return &c
}

// CounterID names a counter within its tenant.
type CounterID struct {
	Meter    uint32
	Customer string
	Month    calendar.Month
}
