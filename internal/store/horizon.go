package store

import (
	"cmp"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// Horizon is what a tenant's ledger says about its own past. It is immutable; the zero value is a ledger that keeps
// everything.
type Horizon struct {
	// Floor is the time below which no fact is taken any more; zero: there is none. It is the first moment of a month.
	Floor calendar.Micros
	// Archives lists the months that are archived, in order. Their usage rows may have left, or not yet.
	Archives []ledger.Archive
}

// With returns the horizon after one more change; the same one when the change concerns something else. The floor never
// moves back, and what an archive holds never changes.
func (h Horizon) With(e *entity.Entity) (Horizon, error) {
	switch e.Kind {
	case ledger.FloorKind.Name:
		f, err := ledger.FloorKind.Read(e)
		if err != nil {
			return h, err
		}
		h.Floor = max(h.Floor, f.At)
	case ledger.ArchiveKind.Name:
		a, err := ledger.ArchiveKind.Read(e)
		if err != nil {
			return h, err
		}
		byMonth := func(a ledger.Archive, m calendar.Month) int { return cmp.Compare(a.Month, m) }
		if i, found := slices.BinarySearchFunc(h.Archives, a.Month, byMonth); !found {
			h.Archives = slices.Insert(slices.Clone(h.Archives), i, a)
		}
	}
	return h, nil
}

// Archive returns the archive of a month.
func (h Horizon) Archive(m calendar.Month) (ledger.Archive, bool) {
	for i := range h.Archives {
		if h.Archives[i].Month == m {
			return h.Archives[i], true
		}
	}
	return ledger.Archive{}, false
}

// Needed lists the archives of rows that a scan for the hinted rows above after is about. Adjusted rows never leave.
func (h Horizon) Needed(after uint64, hint RowHint) (out []ledger.Archive) {
	if !hint.Events || hint.Adjusted {
		return nil
	}
	for _, a := range h.Archives {
		if a.Last > after && (hint.From == 0 || a.Month.End() > hint.From) &&
			(hint.To == 0 || a.Month.Start() < hint.To) {
			out = append(out, a)
		}
	}
	return out
}

// Missing is the answer of a store that is asked for rows that have left. gone reports whether the row of a number is
// no longer there: the last row of a month leaves first, so it speaks for all.
func (h Horizon) Missing(after uint64, hint RowHint, gone func(seq uint64) (bool, error)) error {
	for _, a := range h.Needed(after, hint) {
		left, err := gone(a.Last)
		if err != nil {
			return err
		}
		if left {
			return Gone(a.Month)
		}
	}
	return nil
}

// Gone says that usage rows of a month have left.
func Gone(m calendar.Month) error {
	return problem.New(problem.Archived,
		"the usage rows of %s are archived; totals, periods and adjustments of that month can still be read here", m)
}

// GoneOf says that a row has left, whichever month it was of.
func (h Horizon) GoneOf(seq uint64) error {
	for _, a := range h.Archives {
		if seq >= a.First && seq <= a.Last {
			return Gone(a.Month)
		}
	}
	return problem.New(problem.Archived, "row %d is archived", seq)
}
