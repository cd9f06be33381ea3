// Package quota holds plans and what they allow: which fact fits a limit, which is overage, which is refused, and which
// thresholds a period has reached. It knows nothing of time or stores: who asks brings what was used.
package quota

import "github.com/tallystick/tallystick/internal/core/amount"

// Limit is a plan's bound on one meter for one period.
type Limit struct {
	Plan  string // whose limit it is
	Limit amount.Amount
	Soft  bool
	// HardCap is where even a soft limit refuses. A soft limit without one never does.
	Capped  bool
	HardCap amount.Amount

	marks []mark
}

// mark is a threshold and the least use that reaches it.
type mark struct {
	percent uint16
	at      amount.Amount
}

// Ruling is what a limit says of one fact.
type Ruling uint8

// The rulings, from kindest to strictest.
const (
	Within Ruling = iota
	Over          // kept, as overage
	Refused
)

// Judge rules on adding to what is used. A fact that adds nothing is always within. The fact that crosses the limit is
// already over it: a limit of 10 admits exactly 10.
func (l *Limit) Judge(used, add amount.Amount) Ruling {
	if add.Sign() <= 0 {
		return Within
	}
	after, fits := used.Add(add)
	switch {
	case fits && after.Cmp(l.Limit) <= 0:
		return Within
	case !l.Soft:
		return Refused
	case l.Capped && (!fits || after.Cmp(l.HardCap) > 0):
		return Refused
	}
	return Over // what does not fit a number is for the counters to refuse
}

// Refuses is the bound that a refused fact ran into: the limit, or the cap of a soft one.
func (l *Limit) Refuses() amount.Amount {
	if l.Soft {
		return l.HardCap
	}
	return l.Limit
}

// Remaining is what still fits within the limit; never negative.
func (l *Limit) Remaining(used amount.Amount) amount.Amount {
	left, ok := l.Limit.Sub(used)
	if !ok || left.Sign() < 0 {
		return amount.Zero
	}
	return left
}

// Standing is where a period's use stands.
type Standing uint8

// The standings of the contract.
const (
	WithinLimit Standing = iota // more fits
	OverLimit                   // the limit is reached or passed, and more is kept as overage
	Exhausted                   // whatever adds is refused
)

func (s Standing) String() string { return [...]string{"within", "over", "exhausted"}[s] }

// Standing judges what is used by what would become of the smallest fact to come.
func (l *Limit) Standing(used amount.Amount) Standing {
	switch l.Judge(used, amount.Smallest) {
	case Refused:
		return Exhausted
	case Over:
		return OverLimit
	}
	return WithinLimit
}

// Due lists the thresholds that are reached and lie above the highest one that was reported. Nothing used reaches
// nothing.
func (l *Limit) Due(used amount.Amount, reported uint16, into []uint16) []uint16 {
	if used.Sign() <= 0 {
		return into
	}
	for i := range l.marks {
		if m := &l.marks[i]; m.percent > reported && used.Cmp(m.at) >= 0 {
			into = append(into, m.percent)
		}
	}
	return into
}
