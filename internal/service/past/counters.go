package past

import (
	"errors"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Manual is what people had added to a counter.
type Manual struct {
	All     amount.Amount
	AtClose amount.Amount // by the close of the period
	Some    bool          // there was any, though it may have added up to nothing
}

// Manual adds up what people had adjusted of the counters that want names.
func (l *Ledger) Manual(want map[usage.CounterID]bool) (map[usage.CounterID]Manual, error) {
	out := map[usage.CounterID]Manual{}
	var failed error
	err := l.changes(func(s *ledger.State) {
		a := s.Adjustment
		if a == nil {
			return
		}
		id := usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
		if !want[id] {
			return
		}
		m := out[id]
		var fits bool
		if m.All, fits = m.All.Add(a.Amount); !fits {
			failed = fmt.Errorf("the adjustments up to row %d add up to more than fits", a.Seq)
		}
		if p := l.Period(a.Month); p.Closed && a.Seq <= p.Seq {
			m.AtClose = m.All
		}
		m.Some = true
		out[id] = m
	})
	return out, errors.Join(err, failed)
}

// Counter folds one counter's rows anew, up to the ledger's.
func (l *Ledger) Counter(m *meter.Meter, id usage.CounterID, manual Manual) (usage.Counter, error) {
	r := usage.NewRecount(m.Aggregation, l.Period(id.Month).Seq)
	q := store.SliceQuery{Meter: m.Number, Customer: id.Customer, From: id.Month.Start(), To: id.Month.End(), UpTo: l.Seq, Wants: store.WantKeys}
	if r.Needs() {
		q.Wants |= store.WantMembers
	}
	for again := true; again; again = r.Again() {
		err := l.view.Slice(q, func(s *store.Slice) error {
			r.Add(Piece(s))
			return nil
		})
		if err != nil {
			return usage.Counter{}, fmt.Errorf("read the rows of a counter: %w", err)
		}
	}
	return r.Counter(manual.All, manual.AtClose, manual.Some), nil
}

// Piece hands a store's slice to the rules.
func Piece(s *store.Slice) *usage.Piece {
	return &usage.Piece{
		Customer: s.Customer, Seq: s.Seq, Time: s.Time, Value: s.Value, Why: s.Why, Corrects: s.Corrects, Base: s.Base,
		Key: s.Key, Resource: s.Resource, Properties: s.Properties, Member: s.Member,
	}
}

var errFound = errors.New("found")

// Stirred reports whether the month had been closed, or had a counter. Adjusted are the months that people had adjusted.
func (l *Ledger) Stirred(m calendar.Month, adjusted map[calendar.Month]bool) (bool, error) {
	if l.Period(m).Closed || adjusted[m] {
		return true, nil
	}
	for _, one := range l.meters {
		q := store.SliceQuery{Meter: one.Number, From: m.Start(), To: m.End(), UpTo: l.Seq}
		err := l.view.Slice(q, func(s *store.Slice) error {
			if s.Len() > 0 {
				return errFound
			}
			return nil
		})
		if errors.Is(err, errFound) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("look for usage in %s: %w", m, err)
		}
	}
	return false, nil
}

// AdjustedMonths lists the months that people had adjusted.
func (l *Ledger) AdjustedMonths() (map[calendar.Month]bool, error) {
	out := map[calendar.Month]bool{}
	err := l.changes(func(s *ledger.State) {
		if s.Adjustment != nil {
			out[s.Adjustment.Month] = true
		}
	})
	return out, err
}
