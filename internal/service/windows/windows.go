// Package windows answers how much of a meter was used, when and by whom: usage cut into windows of time and grouped by
// what rows say of themselves.
//
// It takes the hours that the store has added up, reads slices of the ledger for what they do not give, and folds both
// by the rules of the core; what it answers for a UTC month and a customer
// equals the fold of all rows of that counter to the last digit. Adjustments by people are no usage and not in it. It
// changes nothing.
package windows

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/asof"
	"github.com/tallystick/tallystick/internal/store"
)

// Bounds of one answer. They keep the memory of a fold to some 200 MB at the very worst.
const (
	MaxCells     = 1_000_000 // windows of groups, and windows alone
	MaxMembers   = 4_000_000 // distinct members of a unique meter, over all windows of groups
	maxCorrected = 1_000_000 // facts with corrections
)

// MaxGroupBy bounds the dimensions of a query.
const MaxGroupBy = 8

// folds is how many answers are made at once; others wait their turn. A fold keeps a core busy, and holds memory.
const folds = 4

// Service reads usage. It is safe for concurrent use.
type Service struct {
	store    store.Store
	maxCells int // MaxCells but in tests
	turns    chan struct{}
}

// New works on a store.
func New(s store.Store) *Service {
	return &Service{store: s, maxCells: MaxCells, turns: make(chan struct{}, folds)}
}

// Query says which usage is wanted.
type Query struct {
	Meter    string
	Customer string // "": every customer
	// From and To are the range. Nil: from the beginning of the current month in the zone, to the end of it.
	From, To *calendar.Micros
	Step     calendar.Step
	Zone     *time.Location
	GroupBy  []usage.Dimension
	Where    []usage.Condition
	AsOf     asof.Point
	// Fill asks for the windows too in which nothing counts, of every group that has any usage in the range; without
	// groups, of the total.
	Fill bool
}

// Report is an answer.
type Report struct {
	Seq         uint64 // the last row that it takes into account
	Aggregation meter.Aggregation
	Windows     iter.Seq[usage.Window]
	Next        *Place // where the next page begins; nil at the end
}

// Place is where a page begins: in a window, after some groups of it. All pages show the ledger at one row.
type Place struct {
	Seq   uint64
	From  calendar.Micros
	Given uint64
}

// Usage answers a query whole. Errors: NotFound (tenant or meter), Invalid (no meter, the range, or too much for one
// answer), Overflow.
func (s *Service) Usage(ctx context.Context, tenantID string, q Query) (Report, error) {
	var out Report
	err := s.view(ctx, tenantID, func(v store.View) error {
		f, err := s.begin(ctx, v, &q, nil)
		if err != nil {
			return err
		}
		all, err := f.whole()
		if err != nil {
			return q.tooMuch(err)
		}
		out = Report{Seq: f.seq, Aggregation: f.meter.Aggregation, Windows: all}
		return nil
	})
	if err != nil {
		return Report{}, err
	}
	return out, nil
}

// Page answers a query from a place on, nil being the beginning, with as many windows of groups as the limit says.
// Errors are those of Usage, and Invalid (no such place).
func (s *Service) Page(ctx context.Context, tenantID string, q Query, from *Place, limit int) (Report, error) {
	var out Report
	err := s.view(ctx, tenantID, func(v store.View) error {
		f, err := s.begin(ctx, v, &q, from)
		if err != nil {
			return err
		}
		items, next, err := f.page(from, limit)
		if err != nil {
			return q.tooMuch(err)
		}
		out = Report{Seq: f.seq, Aggregation: f.meter.Aggregation, Windows: slices.Values(items), Next: next}
		return nil
	})
	if err != nil {
		return Report{}, err
	}
	return out, nil
}

// tooMuch says what can be done about a report that is too large, at the parameter that makes it so.
func (q *Query) tooMuch(err error) error {
	if !errors.Is(err, usage.ErrTooMany) {
		return err
	}
	path := "from"
	switch {
	case len(q.GroupBy) > 0:
		path = "group_by"
	case q.Step != calendar.StepNone:
		path = "window"
	}
	return problem.At(path, "%v: shorten the range, take larger windows, filter more, or group by less", err)
}

func (s *Service) view(ctx context.Context, tenantID string, fn func(v store.View) error) error {
	if tenant.CheckID("id", tenantID, tenant.MaxID) != nil {
		return problem.New(problem.NotFound, "no such tenant")
	}
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turns }()
	return s.store.View(ctx, tenantID, fn)
}

// fold is a query under way.
type fold struct {
	ctx   context.Context
	view  store.View
	query *Query
	meter meter.Meter
	seq   uint64
	cuts  []calendar.Micros
	from  plan // where all of it is read
	cells int
}

// begin finds the meter and cuts the range.
func (s *Service) begin(ctx context.Context, v store.View, q *Query, from *Place) (*fold, error) {
	f := &fold{ctx: ctx, view: v, query: q, cells: s.maxCells}
	if err := f.find(from); err != nil {
		return nil, err
	}
	begin, end := q.bounds(v.Now())
	if begin >= end {
		return nil, problem.At("to", "%s does not come after from, which is %s", end, begin)
	}
	var fits bool
	if f.cuts, fits = calendar.Cut(begin, end, q.Step, q.Zone, s.maxCells); !fits {
		return nil, problem.At("window", "the range has more than %d windows: shorten it, or take larger windows",
			s.maxCells)
	}
	var err error
	f.from, err = f.plan(from != nil || !q.AsOf.IsPresent())
	return f, err
}

// find looks the meter up as it was. A page after the first has seen it: there are rows, and what matters of the meter
// is fixed.
func (f *fold) find(from *Place) error {
	if f.query.Meter == "" {
		return problem.At("meter", "required: name the meter whose usage is wanted")
	}
	if from == nil && !f.query.AsOf.IsPresent() {
		l, err := asof.Open(f.view, f.query.AsOf)
		if err != nil {
			return err
		}
		f.seq = l.Seq
		f.meter, err = l.Meter(f.query.Meter)
		return err
	}
	m, err := store.GetMeter(f.view, f.query.Meter)
	if err != nil {
		return err
	}
	f.meter, f.seq = m.Meter, f.view.Head().Seq
	if from == nil {
		return nil
	}
	if from.Seq == 0 || from.Seq > f.seq {
		return problem.At("cursor", "shows a row that the ledger does not have")
	}
	f.seq = from.Seq
	return nil
}

// bounds are the range, or what stands for its missing ends.
func (q *Query) bounds(now calendar.Micros) (from, to calendar.Micros) {
	if q.From != nil {
		from = *q.From
	}
	if q.To != nil {
		to = *q.To
	}
	if q.From != nil && q.To != nil {
		return from, to
	}
	year, month, _ := now.Time().In(q.Zone).Date()
	// Two days around the month reach over any offset; the cut within them is where the zone's calendar first shows it.
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	cuts, _ := calendar.Cut(calendar.FromTime(first.AddDate(0, 0, -2)), calendar.FromTime(first.AddDate(0, 1, 2)),
		calendar.StepMonth, q.Zone, 4)
	if q.From == nil {
		from = cuts[1]
	}
	if q.To == nil {
		to = cuts[2]
	}
	return from, to
}

// whole folds all windows.
func (f *fold) whole() (iter.Seq[usage.Window], error) {
	w, err := f.windows(f.cuts, f.meter.Aggregation)
	if err != nil {
		return nil, err
	}
	if !f.query.Fill {
		return w.All(), nil
	}
	groups := f.filled(w)
	if err := f.fits(groups); err != nil {
		return nil, err
	}
	return w.Filled(groups), nil
}

// windows folds the usage of some windows.
func (f *fold) windows(cuts []calendar.Micros, a meter.Aggregation) (*usage.Windows, error) {
	w := usage.NewWindows(usage.Grid{
		Cuts: cuts, Aggregation: a, GroupBy: f.query.GroupBy, Where: f.query.Where,
		MaxCells: f.cells, MaxMembers: MaxMembers, MaxCorrected: maxCorrected,
	})
	from := f.from.within(span{cuts[0], cuts[len(cuts)-1]})
	for again := true; again; again = w.Again() {
		if err := f.add(w, &from); err != nil {
			return nil, fmt.Errorf("fold usage of meter %s: %w", f.meter.Slug, err)
		}
	}
	return w, nil
}

// add folds hours and rows.
func (f *fold) add(w *usage.Windows, from *plan) error {
	for i := range from.hours {
		h := &from.hours[i]
		if err := w.AddHour(h.Customer, h.Begin, h.Hour); err != nil {
			return err
		}
	}
	for _, s := range from.rows {
		q := store.SliceQuery{Meter: f.meter.Number, Customer: f.query.Customer, From: s.from, To: s.to, UpTo: f.seq,
			Wants: wants(w)}
		err := f.view.Slice(q, func(s *store.Slice) error {
			if err := f.ctx.Err(); err != nil {
				return err
			}
			return w.Add(asof.Piece(s))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func wants(w *usage.Windows) (c store.Columns) {
	keys, resources, properties, members := w.Needs()
	for _, need := range [...]struct {
		is     bool
		column store.Columns
	}{{keys, store.WantKeys}, {resources, store.WantResources}, {properties, store.WantProperties},
		{members, store.WantMembers}} {
		if need.is {
			c |= need.column
		}
	}
	return c
}
