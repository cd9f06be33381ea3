// Package past shows a tenant's ledger as it was at an earlier row: which meters there were, which periods were closed, what
// people had adjusted, and what its counters and usage were made of.
//
// It reads rows and folds them by the rules of the core. It keeps nothing: the ledger is the only memory of what was.
package past

import (
	"errors"
	"fmt"
	"sort"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Point names a moment of a ledger. The zero value is the present.
type Point struct {
	kind pointKind
	seq  uint64
	time calendar.Micros
}

type pointKind uint8

const (
	present pointKind = iota
	bySeq
	byTime
)

// AtSeq is the moment at which the row of that number had been committed, and none after it.
func AtSeq(seq uint64) Point { return Point{kind: bySeq, seq: seq} }

// AtTime is the moment at which everything had been committed that was committed at that time or before.
func AtTime(t calendar.Micros) Point { return Point{kind: byTime, time: t} }

// IsPresent reports whether the point is the present.
func (p Point) IsPresent() bool { return p.kind == present }

// Seq is the number of the last row that the point shows; zero when there was none yet. Errors: Invalid (the ledger has not got there).
func (p Point) Seq(v store.View) (uint64, error) {
	head := v.Head()
	switch p.kind {
	case bySeq:
		if p.seq > head.Seq {
			return 0, problem.At("as_of", "the ledger ends with row %d: row %d is not there yet", head.Seq, p.seq)
		}
		return p.seq, nil
	case byTime:
		if now := v.Now(); p.time > now {
			return 0, problem.At("as_of", "lies in the future: the ledger's clock shows %s", now)
		}
		if p.time >= head.Clock {
			return head.Seq, nil
		}
		return lastBy(v, p.time, head.Seq)
	}
	return head.Seq, nil
}

var errSeen = errors.New("seen")

// lastBy finds the last row that was committed at the time or before. Times of rows never fall, so that halving finds it.
func lastBy(v store.View, t calendar.Micros, head uint64) (uint64, error) {
	var failed error
	n := sort.Search(int(head), func(i int) bool {
		at := calendar.Micros(0)
		err := v.Remains(uint64(i)+1, func(s *ledger.Section) error {
			at = s.At
			return errSeen
		})
		if !errors.Is(err, errSeen) {
			failed = fmt.Errorf("read the time of row %d: %w", i+1, err)
		}
		return failed != nil || at > t
	})
	return uint64(n), failed
}

// Ledger is a tenant's ledger as it was when the row Seq had been committed.
type Ledger struct {
	Seq     uint64
	view    store.View
	meters  map[string]meter.Meter
	periods map[calendar.Month]usage.Period
}

// Open reads what the ledger's changes had made of meters and periods. Errors: Invalid (the ledger has not got there).
func Open(v store.View, p Point) (*Ledger, error) {
	seq, err := p.Seq(v)
	if err != nil {
		return nil, err
	}
	l := &Ledger{Seq: seq, view: v, meters: map[string]meter.Meter{}, periods: map[calendar.Month]usage.Period{}}
	err = l.changes(func(s *ledger.State) {
		switch {
		case s.Meter != nil:
			l.meters[s.Meter.Slug] = *s.Meter
		case s.Close != nil:
			l.periods[s.Close.Month] = *s.Close
		}
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// changes calls fn for the states that changes left behind, in order.
func (l *Ledger) changes(fn func(*ledger.State)) error {
	for after := uint64(0); after < l.Seq; {
		var failed error
		last, end, err := l.view.Rows(after, store.RowHint{Changes: true}, func(r *ledger.Row) bool {
			if r.Seq > l.Seq {
				return false
			}
			if r.Change == nil || len(r.Change.State) == 0 {
				return true
			}
			s, err := ledger.DecodeState(r)
			if err != nil {
				failed = err
				return false
			}
			fn(&s)
			return true
		})
		if failed == nil {
			failed = err
		}
		if failed != nil {
			return fmt.Errorf("read changes up to row %d: %w", l.Seq, failed)
		}
		if end {
			return nil
		}
		after = last
	}
	return nil
}

// Meter returns a meter as it was. Errors: NotFound.
func (l *Ledger) Meter(slug string) (meter.Meter, error) {
	m, ok := l.meters[slug]
	if !ok {
		return meter.Meter{}, problem.New(problem.NotFound, "there was no meter %q then", slug)
	}
	return m, nil
}

// Period returns a month as it was: open unless it had been closed.
func (l *Ledger) Period(m calendar.Month) usage.Period {
	if p, ok := l.periods[m]; ok {
		return p
	}
	return usage.Period{Month: m}
}
