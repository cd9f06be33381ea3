// Package quota decides whether a fact fits a plan's limit. It knows nothing of time or stores: who asks brings what was used.
package quota

import "github.com/tallystick/tallystick/internal/core/amount"

// Limit is a plan's bound on one meter for one period.
type Limit struct {
	Limit amount.Amount
	Soft  bool
	// HardCap is where even a soft limit refuses: limit × multiplier. Zero: a soft limit never refuses.
	HardCap amount.Amount
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
func (l Limit) Judge(used, add amount.Amount) Ruling {
	if add.Sign() <= 0 {
		return Within
	}
	after, ok := used.Add(add)
	if !ok {
		return Refused
	}
	switch {
	case after.Cmp(l.Limit) <= 0:
		return Within
	case !l.Soft:
		return Refused
	case l.HardCap.Sign() > 0 && after.Cmp(l.HardCap) > 0:
		return Refused
	}
	return Over
}

// Remaining is what still fits within the limit; never negative.
func (l Limit) Remaining(used amount.Amount) amount.Amount {
	left, ok := l.Limit.Sub(used)
	if !ok || left.Sign() < 0 {
		return amount.Zero
	}
	return left
}
