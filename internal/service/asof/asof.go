// Package asof shows a tenant's ledger as it was at an earlier row: which meters there were, which periods were closed,
// what people had adjusted, and what its counters and usage were made of.
//
// It reads rows and folds them by the rules of the core. It keeps nothing: the ledger is the only memory of what was.
package asof

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

// Seq is the number of the last row that the point shows; zero when there was none yet. Errors: Invalid (the ledger has
// not got there).
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

// lastBy finds the last row that was committed at the time or before. Times of rows never fall, so that halving finds
// it.
func lastBy(v store.View, t calendar.Micros, head uint64) (uint64, error) {
	var failed error
	n := sort.Search(int(head), func(i int) bool {
		at := calendar.Micros(0)
		err := v.PrunedSections(uint64(i)+1, func(s *ledger.Section) error {
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
//
// An entity is read as it was, adjustments are listed in the audit log, and a period is closed once, by a row that it
// names. So an answer reads the rows of what it is about, however many other changes the ledger holds.
type Ledger struct {
	Seq  uint64
	view store.View
}

// Open finds the moment. Errors: Invalid (the ledger has not got there).
func Open(v store.View, p Point) (*Ledger, error) {
	seq, err := p.Seq(v)
	if err != nil {
		return nil, err
	}
	return &Ledger{Seq: seq, view: v}, nil
}

// Meter returns a meter as it was. Errors: NotFound.
func (l *Ledger) Meter(slug string) (meter.Meter, error) {
	m, err := store.GetAt(l.view, &meter.Kind, slug, l.Seq)
	if problem.Is(err, problem.NotFound) {
		return meter.Meter{}, problem.New(problem.NotFound, "there was no meter %q then", slug)
	}
	if err != nil {
		return meter.Meter{}, fmt.Errorf("read meter %s: %w", slug, err)
	}
	return m, nil
}

// Period returns a month as it was: open unless it had been closed.
func (l *Ledger) Period(m calendar.Month) (usage.Period, error) {
	p, err := store.Period(l.view, m)
	if err != nil {
		return usage.Period{}, fmt.Errorf("read period %s: %w", m, err)
	}
	if p.Closed && p.Seq > l.Seq {
		return usage.Period{Month: m}, nil
	}
	return p, nil
}
