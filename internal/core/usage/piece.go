package usage

import (
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
)

// Piece is a part of what one meter took from rows of one customer, by columns of one length. Whoever folds pieces says
// which columns it needs; Corrects and Base are nil when no row of the piece is a correction.
type Piece struct {
	Customer   string
	Seq        []uint64
	Time       []calendar.Micros
	Value      []amount.Amount // of a correction: the signed change
	Why        []Why
	Corrects   []string // the ids of the facts that rows correct, "" for those that are no corrections
	Base       []amount.Amount
	Key        []Key
	Resource   []string
	Properties []string // canonical
	Member     []string
}

// corrects returns the id of the fact that a row corrects, or "".
func (p *Piece) corrects(i int) string {
	if p.Corrects == nil {
		return ""
	}
	return p.Corrects[i]
}

// target is the key of the fact that a row corrects, with memory of its own.
func (p *Piece) target(i int) Key { return KeyOfID(strings.Clone(p.Corrects[i])) }
