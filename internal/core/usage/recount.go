package usage

import (
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
)

// Recount makes a counter anew from the rows that folded into it up to some row: the counter as it was then.
//
// Like Windows it hopes for no corrections and asks for a second pass if there were some.
type Recount struct {
	aggregation meter.Aggregation
	closed      uint64 // the row that closed the period, or zero

	counter        Counter
	all            Fold
	sealed         Fold // of the rows up to the close
	onTime, anyhow memberSet
	atClose        memberSet
	corrections    map[Key]correctedThen
	second         bool
}

// memberSet holds the members of a unique meter that a fold has seen.
type memberSet map[string]struct{}

// correctedThen is what corrections did to a fact by the end, and by the close.
type correctedThen struct{ end, close Corrected }

// NewRecount starts. Closed is the number of the row that closed the counter's period, zero if it was open.
func NewRecount(a meter.Aggregation, closed uint64) *Recount {
	r := &Recount{aggregation: a, closed: closed, corrections: map[Key]correctedThen{}}
	r.reset()
	return r
}

func (r *Recount) reset() {
	r.counter, r.all, r.sealed = Counter{}, Fold{}, Fold{}
	r.onTime, r.anyhow, r.atClose = memberSet{}, memberSet{}, memberSet{}
}

// Needs says whether pieces must have members; keys they always need.
func (r *Recount) Needs() (members bool) { return r.aggregation == meter.Unique }

// Add takes one piece, of which nothing is kept.
func (r *Recount) Add(p *Piece) {
	for i := range p.Time {
		if p.corrects(i) == "" {
			r.fact(p, i)
		} else if !r.second {
			r.correct(p, i)
		}
	}
}

func (r *Recount) correct(p *Piece, i int) {
	k := KeyOfID(p.Corrects[i])
	then, seen := r.corrections[k]
	if !seen {
		k = p.target(i)
	}
	o := Outcome{Value: p.Value[i], Why: p.Why[i]}
	then.end = then.end.with(&o)
	if p.Seq[i] <= r.closed {
		then.close = then.close.with(&o)
	}
	r.corrections[k] = then
}

func (r *Recount) fact(p *Piece, i int) {
	then := r.corrections[p.Key[i]]
	value, at, key, member := p.Value[i], p.Time[i], p.Key[i], ""
	if p.Member != nil {
		member = p.Member[i]
	}
	if p.Why[i] == OnTime {
		if !r.counter.Started || at > r.counter.Watermark {
			r.counter.Watermark, r.counter.Started = at, true
		}
		r.onTime.fold(&r.counter.OnTime, then.end.onTime(value), at, key, member)
	}
	r.anyhow.fold(&r.all, then.end.all(value), at, key, member)
	if p.Seq[i] <= r.closed {
		r.atClose.fold(&r.sealed, then.close.all(value), at, key, member)
	}
}

func (m memberSet) fold(f *Fold, e Effective, at calendar.Micros, k Key, member string) {
	if !e.Counts {
		return
	}
	f.Add(e.Quantity, at, k)
	if member == "" {
		return
	}
	if _, seen := m[member]; !seen {
		m[strings.Clone(member)] = struct{}{}
		f.Members++
	}
}

// Again ends a pass. When it returns true all pieces must be added once more.
func (r *Recount) Again() bool {
	if r.second || len(r.corrections) == 0 {
		return false
	}
	r.second = true
	r.reset()
	return true
}

// Counter is what the rows and people's adjustments gave; manualAtClose are those of them that came before the close.
func (r *Recount) Counter(manual, manualAtClose amount.Amount, adjusted bool) Counter {
	c := r.counter
	c.Late, c.Manual, c.Adjusted = &r.all, manual, adjusted
	if r.closed > 0 {
		then := Counter{Late: &r.sealed, Manual: manualAtClose}
		c.Sealed, c.SealedAt = true, then.Total(r.aggregation)
	}
	return c
}
