package usage

import (
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
)

// Arrival is what a counter's row brought, for deciding it again.
type Arrival struct {
	Seq      uint64
	Time     calendar.Micros
	Value    amount.Amount // of a correction: the signed change
	Key      Key
	Member   string
	Corrects string
}

// Replayed is a counter as other settings would have made it.
type Replayed struct {
	OnTime, All Fold
	Refused     int // facts that a meter that refuses late ones would not have kept
}

// Replay decides a counter's rows again, in the order they came, by the lateness and the refusal of m. Rows above
// closed came after the period was closed; zero: it is open. A fold of everything depends on lateness only where late
// facts are refused.
func Replay(rows []Arrival, m *meter.Meter, closed uint64) Replayed {
	r := replay{meter: m, closed: closed, facts: make(map[Key]*rejudged)}
	for i := range rows {
		if rows[i].Corrects != "" {
			r.facts[KeyOfID(rows[i].Corrects)] = &rejudged{}
		}
	}
	r.decide(rows)
	return r.fold(rows)
}

type replay struct {
	meter     *meter.Meter
	closed    uint64
	watermark Counter           // only its watermark moves
	why       []Why             // of each row
	refused   []bool            // likewise
	facts     map[Key]*rejudged // those that are corrected
}

type rejudged struct {
	why       Why
	refused   bool
	corrected Corrected
}

func (r *replay) decide(rows []Arrival) {
	r.why, r.refused = make([]Why, len(rows)), make([]bool, len(rows))
	for i := range rows {
		a := &rows[i]
		if a.Corrects != "" {
			r.correct(a)
			continue
		}
		switch {
		case r.closed != 0 && a.Seq > r.closed:
			r.why[i] = PeriodClosed
		case r.watermark.isLate(a.Time, r.meter):
			r.why[i] = TooLate
		default:
			r.watermark.Watermark, r.watermark.Started = max(r.watermark.Watermark, a.Time), true
		}
		r.refused[i] = r.why[i] != OnTime && r.meter.Late == meter.Reject
		if f := r.facts[a.Key]; f != nil {
			f.why, f.refused = r.why[i], r.refused[i]
		}
	}
}

// correct notes a correction, which shares its target's outcome.
func (r *replay) correct(a *Arrival) {
	f := r.facts[KeyOfID(a.Corrects)]
	o := Outcome{Value: a.Value, Why: f.why}
	if r.closed != 0 && a.Seq > r.closed {
		o.Why = PeriodClosed
	}
	f.corrected = f.corrected.with(&o)
}

func (r *replay) fold(rows []Arrival) (out Replayed) {
	onTime, anyhow := memberSet{}, memberSet{}
	for i := range rows {
		a := &rows[i]
		if a.Corrects != "" {
			continue
		}
		if r.refused[i] {
			out.Refused++
			continue
		}
		var c Corrected
		if f := r.facts[a.Key]; f != nil {
			c = f.corrected
		}
		anyhow.fold(&out.All, c.all(a.Value), a.Time, a.Key, a.Member)
		if r.why[i] == OnTime {
			onTime.fold(&out.OnTime, c.onTime(a.Value), a.Time, a.Key, a.Member)
		}
	}
	return out
}
