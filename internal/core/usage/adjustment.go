package usage

import (
	"strconv"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// MaxAdjustment bounds a person's adjustment so that its opposite and a sum of many still fit.
var MaxAdjustment = amount.FromInt(1_000_000_000_000_000_000)

// Adjustment is a change of a total that is not on-time usage: one that a person made, or the amount by which a row
// that came too late changed the total.
type Adjustment struct {
	ID       string
	Seq      uint64 // the row that made it
	At       calendar.Micros
	Meter    uint32
	Customer string
	Month    calendar.Month
	Amount   amount.Amount
	Reason   string
	Actor    string // empty for one that a late row made
	Event    string // the id of that late row
	Reverts  string // the id of the adjustment that this one undoes
	Reverted string // the id of the adjustment that undid this one
	Replay   string // the settings of the replay that made it, or whose adjustment it undoes
}

const adjustmentPrefix = "adj_"

// ManualID names a person's adjustment after its row.
func ManualID(seq uint64) string { return adjustmentPrefix + strconv.FormatUint(seq, 10) }

// LateID names the adjustment that a late row made to one of its meters.
func LateID(seq uint64, meter uint32) string {
	return ManualID(seq) + "_" + strconv.FormatUint(uint64(meter), 10)
}

// ParseAdjustmentID returns the row and, for a late row's adjustment, the meter's number.
func ParseAdjustmentID(id string) (seq uint64, meter uint32, ok bool) {
	rest, ok := strings.CutPrefix(id, adjustmentPrefix)
	if !ok {
		return 0, 0, false
	}
	first, second, late := strings.Cut(rest, "_")
	seq, err := strconv.ParseUint(first, 10, 64)
	if err != nil || seq == 0 {
		return 0, 0, false
	}
	if !late {
		return seq, 0, ManualID(seq) == id
	}
	n, err := strconv.ParseUint(second, 10, 32)
	return seq, uint32(n), err == nil && n > 0 && LateID(seq, uint32(n)) == id
}

// LateAdjustment is what an outcome outside the on-time fold did to the total, or false when it was on time.
func LateAdjustment(r *Row, o *Outcome, seq uint64, at calendar.Micros) (Adjustment, bool) {
	if o.Why == OnTime {
		return Adjustment{}, false
	}
	return Adjustment{
		ID: LateID(seq, o.Meter), Seq: seq, At: at, Meter: o.Meter, Customer: r.Customer, Month: r.Month(),
		Amount: o.Amount, Reason: o.Why.String(), Event: r.Key.ID(),
	}, true
}

// Check judges what a person asked for.
func (a *Adjustment) Check() *problem.Error {
	if a.Customer == "" || len(a.Customer) > MaxName || !cleanString(a.Customer) {
		return problem.At("customer", "1 to %d bytes of UTF-8 without NUL", MaxName)
	}
	if a.Reason == "" || len(a.Reason) > MaxReason || !cleanString(a.Reason) {
		return problem.At("reason", "required: 1 to %d bytes", MaxReason)
	}
	if a.Amount.IsZero() {
		return problem.At("amount", "an adjustment of zero changes nothing")
	}
	if abs := a.Amount; abs.Cmp(MaxAdjustment) >= 0 || abs.Neg().Cmp(MaxAdjustment) >= 0 {
		return problem.At("amount", "must be smaller than 10^18")
	}
	return nil
}

// Period is a calendar month of one tenant.
type Period struct {
	Month    calendar.Month
	Closed   bool
	ClosedAt calendar.Micros
	Seq      uint64 // the row that closed it
	Actor    string
}
