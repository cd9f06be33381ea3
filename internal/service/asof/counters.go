package asof

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
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
	if len(want) == 0 {
		return out, nil
	}
	var found []usage.Adjustment
	err := l.adjustments(func(a *usage.Adjustment) {
		if want[counterOf(a)] {
			found = append(found, *a)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, a := range slices.Backward(found) {
		p, err := l.Period(a.Month)
		if err != nil {
			return nil, err
		}
		m := out[counterOf(&a)]
		var fits bool
		if m.All, fits = m.All.Add(a.Amount); !fits {
			return nil, fmt.Errorf("the adjustments up to row %d add up to more than fits", a.Seq)
		}
		if p.Closed && a.Seq <= p.Seq {
			m.AtClose = m.All
		}
		m.Some = true
		out[counterOf(&a)] = m
	}
	return out, nil
}

func counterOf(a *usage.Adjustment) usage.CounterID {
	return usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
}

// adjustmentsAtOnce is how many adjustments are listed at a time.
const adjustmentsAtOnce = 1000

// adjustments calls fn for what people had adjusted, the last first.
func (l *Ledger) adjustments(fn func(*usage.Adjustment)) error {
	q := store.AuditQuery{EntityType: usage.AdjustmentKind.Name, Before: l.Seq + 1, Limit: adjustmentsAtOnce}
	for {
		rows, err := l.view.AuditEvents(q)
		if err != nil {
			return fmt.Errorf("list adjustments up to row %d: %w", l.Seq, err)
		}
		for i := range rows {
			q.Before = rows[i].Seq
			a, err := store.Adjustment(l.view, usage.ManualID(rows[i].Seq))
			if err != nil {
				return fmt.Errorf("read the adjustment in row %d: %w", rows[i].Seq, err)
			}
			fn(&a)
		}
		if len(rows) < q.Limit {
			return nil
		}
	}
}

// Counter folds one counter's rows anew, up to the ledger's.
func (l *Ledger) Counter(m *meter.Meter, id usage.CounterID, manual Manual) (usage.Counter, error) {
	p, err := l.Period(id.Month)
	if err != nil {
		return usage.Counter{}, err
	}
	r := usage.NewRecount(m.Aggregation, p.Seq)
	q := store.SliceQuery{Meter: m.Number, Customer: id.Customer, From: id.Month.Start(), To: id.Month.End(),
		UpTo: l.Seq, Wants: store.WantKeys}
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

// Stirred reports whether the month had been closed, or had a counter. Adjusted are the months that people had
// adjusted.
func (l *Ledger) Stirred(m calendar.Month, adjusted map[calendar.Month]bool) (bool, error) {
	p, err := l.Period(m)
	if err != nil || p.Closed || adjusted[m] {
		return err == nil, err
	}
	for after := ""; ; {
		meters, err := store.Meters(l.view, store.Page{After: after, Limit: metersAtOnce})
		if err != nil {
			return false, fmt.Errorf("list meters: %w", err)
		}
		for i := range meters {
			after = meters[i].Slug
			some, err := l.used(meters[i].Number, m)
			if err != nil || some {
				return some, err
			}
		}
		if len(meters) < metersAtOnce {
			return false, nil
		}
	}
}

// metersAtOnce is how many meters are listed at a time. One that came later has no rows then.
const metersAtOnce = 100

// used reports whether a meter had any rows in a month.
func (l *Ledger) used(number uint32, m calendar.Month) (bool, error) {
	if l.Seq == 0 {
		return false, nil // before the first row; a query that is bounded by 0 has no bound
	}
	q := store.SliceQuery{Meter: number, From: m.Start(), To: m.End(), UpTo: l.Seq}
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
	return false, nil
}

// AdjustedMonths lists the months that people had adjusted.
func (l *Ledger) AdjustedMonths() (map[calendar.Month]bool, error) {
	out := map[calendar.Month]bool{}
	err := l.adjustments(func(a *usage.Adjustment) { out[a.Month] = true })
	return out, err
}
