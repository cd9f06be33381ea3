package retention

import (
	"context"
	"errors"
	"io"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Reading is a store whose views read rows that have left from the archive. It changes nothing else about the store.
// Rows that cannot be read from the archive either are answered with Archived.
type Reading struct {
	store.Store
	storage Storage
}

// NewReading reads what has left s from the storage.
func NewReading(s store.Store, storage Storage) *Reading { return &Reading{s, storage} }

// View implements store.Store.
func (s *Reading) View(ctx context.Context, tenantID string, fn func(store.View) error) error {
	return s.Store.View(ctx, tenantID, func(v store.View) error { return fn(&view{v, ctx, s.storage}) })
}

type view struct {
	store.View
	ctx     context.Context
	storage Storage
}

// errEnough ends a walk over sections that has shown enough.
var errEnough = errors.New("enough")

// maxScan is how many rows one call of Rows shows when it reads archives.
const maxScan = 100_000

// Rows implements store.View.
func (v *view) Rows(after uint64, hint store.RowHint, fn func(*ledger.Row) bool) (last uint64, end bool, err error) {
	last, end, err = v.View.Rows(after, hint, fn)
	if !problem.Is(err, problem.Archived) {
		return last, end, err
	}
	sources := v.open(v.Horizon().Needed(after, hint), after)
	defer sources.close()
	last, shown := after, 0
	err = v.PrunedSections(after+1, func(s *ledger.Section) error {
		rows, err := sources.fill(s)
		if err != nil {
			return err
		}
		for i := range rows {
			if rows[i].Seq <= last {
				continue
			}
			last = rows[i].Seq
			if shown++; !fn(&rows[i]) {
				return errEnough
			}
		}
		if last = max(last, s.First+uint64(s.Count())-1); shown >= maxScan {
			return errEnough
		}
		return v.ctx.Err()
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return last, err == nil && last >= v.Head().Seq, err
}

// Sections implements store.View.
func (v *view) Sections(first uint64, fn func(*ledger.Section) error) error {
	first = max(first, 1)
	sources := v.open(v.Horizon().Archives, 0)
	defer sources.close()
	started := false
	return v.PrunedSections(first, func(s *ledger.Section) error {
		if !started {
			started = true
			sources.seek(s.First - 1)
		}
		if s.Gone == 0 {
			return fn(s)
		}
		rows, err := sources.fill(s)
		if err != nil {
			return err
		}
		if len(rows) != s.Count() {
			return v.Horizon().GoneOf(s.First)
		}
		return fn(&ledger.Section{First: s.First, At: s.At, Rows: rows})
	})
}

// Slice implements store.View.
func (v *view) Slice(q store.SliceQuery, fn func(*store.Slice) error) error {
	begun := false
	err := v.View.Slice(q, func(s *store.Slice) error {
		begun = true
		return fn(s)
	})
	if begun || !problem.Is(err, problem.Archived) {
		return err
	}
	return store.ScanSlice(v, q, fn)
}

// Event implements store.View.
func (v *view) Event(k usage.Key) (ledger.Row, []ledger.Row, error) {
	row, by, err := v.View.Event(k)
	if !problem.Is(err, problem.Archived) {
		return row, by, err
	}
	for _, a := range v.Horizon().Archives {
		found, corrections, err := v.eventIn(&a, k)
		if err != nil {
			return row, nil, err
		}
		if found.Event != nil {
			return found, corrections, nil
		}
	}
	return row, nil, err
}

// eventIn looks through one archive: a fact and its corrections are of one month.
func (v *view) eventIn(a *ledger.Archive, k usage.Key) (found ledger.Row, by []ledger.Row, err error) {
	src := &source{v: v, archive: *a}
	defer src.close()
	for {
		r, err := src.next()
		if errors.Is(err, io.EOF) {
			return found, by, nil
		}
		if err != nil {
			return found, nil, err
		}
		switch e := r.Event; {
		case e.Key == k:
			found = *r
		case e.Corrects == k.ID():
			by = append(by, *r)
		}
	}
}

// open gets ready to read archives from a row on. Nothing is read before it is needed.
func (v *view) open(archives []ledger.Archive, after uint64) *sources {
	out := &sources{}
	for _, a := range archives {
		out.all = append(out.all, &source{v: v, archive: a, after: after})
	}
	return out
}

// sources are archives read side by side.
type sources struct{ all []*source }

func (s *sources) seek(after uint64) {
	for _, src := range s.all {
		src.after = after
	}
}

func (s *sources) close() {
	for _, src := range s.all {
		src.close()
	}
}

// fill puts the rows of a section that have left among those that remain.
func (s *sources) fill(sec *ledger.Section) ([]ledger.Row, error) {
	if sec.Gone == 0 {
		return sec.Rows, nil
	}
	have := map[uint64]*ledger.Row{}
	for i := range sec.Rows {
		have[sec.Rows[i].Seq] = &sec.Rows[i]
	}
	end := sec.First + uint64(sec.Count())
	for _, src := range s.all {
		if src.archive.Last < sec.First || src.archive.First >= end {
			continue
		}
		for {
			r, err := src.peek()
			if errors.Is(err, io.EOF) || err == nil && r.Seq >= end {
				break
			}
			if err != nil {
				return nil, err
			}
			if r.Seq >= sec.First && have[r.Seq] == nil {
				have[r.Seq] = r
			}
			src.taken()
		}
	}
	rows := make([]ledger.Row, 0, len(have))
	for seq := sec.First; seq < end; seq++ {
		if r := have[seq]; r != nil {
			rows = append(rows, *r)
		}
	}
	return rows, nil
}

// source reads one archive from a row on.
type source struct {
	v       *view
	archive ledger.Archive
	after   uint64
	rows    *rowsOf
	ahead   *ledger.Row
}

// peek returns the next row without taking it.
func (s *source) peek() (*ledger.Row, error) {
	if s.ahead != nil {
		return s.ahead, nil
	}
	var err error
	s.ahead, err = s.next()
	return s.ahead, err
}

func (s *source) taken() { s.ahead = nil }

// next reads a row. An archive that cannot be read leaves its month archived.
func (s *source) next() (*ledger.Row, error) {
	if s.rows == nil {
		m, err := openManifest(s.v.ctx, s.v.storage, s.archive.Manifest, s.archive.Sum)
		if err != nil {
			return nil, s.unreadable(err)
		}
		s.rows = openRows(s.v.ctx, s.v.storage, &m, s.after, false)
	}
	rec, err := s.rows.next()
	if errors.Is(err, io.EOF) {
		return nil, err
	}
	if err != nil {
		return nil, s.unreadable(err)
	}
	row, err := rec.row()
	if err != nil {
		return nil, s.unreadable(err)
	}
	return &row, nil
}

func (s *source) unreadable(err error) error {
	if s.v.ctx.Err() != nil {
		return s.v.ctx.Err()
	}
	return problem.Wrap(problem.Archived, err, "the usage rows of %s are archived, and the archive cannot be read now",
		s.archive.Month)
}

func (s *source) close() {
	if s.rows != nil {
		_ = s.rows.close() // was only read
	}
}
