package engine

import (
	"errors"
	"math"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/slice"
)

// Slice implements store.View. Rows of records before what is covered are in the slices, or in holes of them; holes,
// files that cannot be read, and everything after are read from the journal. The slices may already know rows that
// the view does not: their numbers show it.
func (v *view) Slice(q store.SliceQuery, fn func(*store.Slice) error) error {
	m := v.resident.Catalog.Number(q.Meter)
	if m == nil {
		return problem.New(problem.NotFound, "no meter of that number")
	}
	hint := store.RowHint{From: q.From, To: q.To, Events: true}
	if err := v.resident.Horizon.Missing(0, hint, v.hasLeft); err != nil {
		return err
	}
	s := v.e.slicer
	if s == nil {
		return store.ScanSlice(v, q, fn)
	}
	written := v.written()
	n := s.set.Acquire()
	defer n.Release()
	upTo := written
	if q.UpTo != 0 {
		upTo = min(upTo, q.UpTo)
	}
	missed, err := n.Read(slice.Query{
		Tenant: v.b.id, Meter: m.Slug, Customer: q.Customer, From: q.From, To: q.To, UpTo: upTo, Wants: q.Wants,
	}, fn)
	if err != nil {
		return err
	}
	for i := range missed {
		s.set.Report(missed[i].Err)
		s.nudge()
		if err := v.scanHole(q, &missed[i], written, fn); err != nil {
			return err
		}
	}
	for _, h := range n.Holes {
		if err := v.scanHole(q, &slice.Missed{Hole: h}, written, fn); err != nil {
			return err
		}
	}
	all := func(*ledger.Row) bool { return true }
	return v.scanSpan(q, slice.Span{From: n.Covered, To: endOfTime}, written, all, fn)
}

// scanHole reads from the journal what the files do not have of a month.
func (v *view) scanHole(q store.SliceQuery, m *slice.Missed, written uint64, fn func(*store.Slice) error) error {
	q.From, q.To = max(q.From, m.Month.Start()), min(q.To, m.Month.End())
	if q.From >= q.To {
		return nil
	}
	return v.scanSpan(q, m.Span, written, func(r *ledger.Row) bool {
		return r.Kind() != ledger.EventRow || m.Has(r.Event.Customer, r.Event.Time, r.Seq)
	}, fn)
}

var endOfTime = journal.Position{Segment: math.MaxUint32, Offset: math.MaxUint32}

// written is the number of the last row that is in the journal, as far as the view sees.
func (v *view) written() uint64 {
	if v.tx == nil {
		return v.head.Seq
	}
	v.e.drain()
	return v.tx.section.first - 1
}

// scanSpan reads those rows of a span of the journal that wanted names. A span that never ends includes what a
// transaction has not written yet.
func (v *view) scanSpan(
	q store.SliceQuery, span slice.Span, written uint64, wanted func(*ledger.Row) bool, fn func(*store.Slice) error,
) error {
	after, err := v.before(span.From, written)
	if err != nil {
		return err
	}
	last := uint64(math.MaxUint64)
	if span.To != endOfTime {
		if last, err = v.before(span.To, written); err != nil {
			return err
		}
	}
	if q.UpTo != 0 {
		last = min(last, q.UpTo)
	}
	g := store.NewGatherer(q, fn)
	hint := store.RowHint{From: q.From, To: q.To, Events: true}
	for end := false; !end && after < last; {
		var failed error
		after, end, err = v.Rows(after, hint, func(r *ledger.Row) bool {
			if r.Seq <= last && wanted(r) {
				failed = g.Add(r)
			}
			return failed == nil && r.Seq < last
		})
		if err != nil || failed != nil {
			return errors.Join(failed, err)
		}
	}
	return g.Flush()
}

// before is the number of the last row whose record lies before a position, or zero.
func (v *view) before(p journal.Position, written uint64) (uint64, error) {
	lo, hi := uint64(0), written // rows up to lo lie before it, those above hi do not
	for at := hi; lo < hi; at = (lo + hi + 1) / 2 {
		s, err := v.e.place(v.b, at)
		if err != nil {
			return 0, err
		}
		if s.Position.Less(p) {
			lo = s.First + uint64(s.Rows) - 1
		} else {
			hi = s.First - 1
		}
	}
	return lo, nil
}
