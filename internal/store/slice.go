package store

import (
	"errors"
	"math"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// SliceQuery names usage: what one meter took from the rows whose event times lie in [From, To).
type SliceQuery struct {
	Meter    uint32
	Customer string          // "": every customer
	From, To calendar.Micros // half open
	UpTo     uint64          // no row above this number; zero: no bound
	Wants    Columns         // beyond those that are always there
}

// Columns is a set of the optional columns of a Slice.
type Columns uint8

// The optional columns.
const (
	WantKeys Columns = 1 << iota
	WantResources
	WantProperties
	WantMembers
)

// Slice is a piece of usage by columns, all of one length and of one customer. A store fills the optional columns that
// were asked for and leaves the others nil.
type Slice struct {
	Customer string
	Seq      []uint64
	Time     []calendar.Micros
	Value    []amount.Amount // of a correction: the signed change
	Why      []usage.Why
	// Corrects names the facts that rows correct; nil when no row of the piece is a correction, else "" for those that
	// are none. Base is nil with it, else the corrected fact's own value.
	Corrects []string
	Base     []amount.Amount

	Key        []usage.Key
	Resource   []string
	Properties []string // canonical JSON objects, "" when absent
	Member     []string
}

// Len is the number of rows.
func (s *Slice) Len() int { return len(s.Seq) }

// SliceRows bounds the rows that a Gatherer holds before it hands them on.
const SliceRows = 64 << 10

// Gatherer makes slices of rows that come one by one, in any order.
type Gatherer struct {
	query     SliceQuery
	emit      func(*Slice) error
	limit     int // rows to hold
	customers map[string]*Slice
	order     []*Slice
	rows      int
}

// NewGatherer hands the pieces to emit, which must not keep them.
func NewGatherer(q SliceQuery, emit func(*Slice) error) *Gatherer {
	if q.UpTo == 0 {
		q.UpTo = math.MaxUint64
	}
	return &Gatherer{query: q, emit: emit, limit: SliceRows, customers: map[string]*Slice{}}
}

// Add takes what the query names of a row and copies what it keeps.
func (g *Gatherer) Add(r *ledger.Row) error {
	q := &g.query
	e := r.Event
	if e == nil || r.Seq > q.UpTo || e.Time < q.From || e.Time >= q.To || q.Customer != "" && e.Customer != q.Customer {
		return nil
	}
	for i := range e.Outcomes {
		if e.Outcomes[i].Meter == q.Meter {
			g.take(r.Seq, e, &e.Outcomes[i])
		}
	}
	if g.rows < g.limit {
		return nil
	}
	return g.Flush()
}

func (g *Gatherer) take(seq uint64, e *usage.Row, o *usage.Outcome) {
	s := g.customers[e.Customer]
	if s == nil {
		s = &Slice{Customer: strings.Clone(e.Customer)}
		g.customers[s.Customer] = s
		g.order = append(g.order, s)
	}
	g.rows++
	if e.IsCorrection() || s.Corrects != nil {
		s.correct(strings.Clone(e.Corrects), o.Base)
	}
	s.Seq = append(s.Seq, seq)
	s.Time = append(s.Time, e.Time)
	s.Value = append(s.Value, o.Value)
	s.Why = append(s.Why, o.Why)
	if g.query.Wants&WantKeys != 0 {
		s.Key = append(s.Key, usage.Key{Space: e.Key.Space, Name: strings.Clone(e.Key.Name)})
	}
	if g.query.Wants&WantResources != 0 {
		s.Resource = append(s.Resource, strings.Clone(e.Resource))
	}
	if g.query.Wants&WantProperties != 0 {
		s.Properties = append(s.Properties, strings.Clone(e.Properties))
	}
	if g.query.Wants&WantMembers != 0 {
		s.Member = append(s.Member, strings.Clone(o.Member))
	}
}

// correct appends to the columns that only pieces with corrections have.
func (s *Slice) correct(target string, base amount.Amount) {
	for len(s.Corrects) < len(s.Seq) {
		s.Corrects = append(s.Corrects, "")
		s.Base = append(s.Base, amount.Zero)
	}
	s.Corrects = append(s.Corrects, target)
	s.Base = append(s.Base, base)
}

// Flush hands on what was gathered.
func (g *Gatherer) Flush() error {
	order := g.order
	g.customers, g.order, g.rows = map[string]*Slice{}, nil, 0
	for _, s := range order {
		if err := g.emit(s); err != nil {
			return err
		}
	}
	return nil
}

// ScanSlice answers a query by reading rows in order: for a store, or a part of one, that has no better way.
func ScanSlice(v View, q SliceQuery, fn func(*Slice) error) error {
	g := NewGatherer(q, fn)
	upTo := q.UpTo
	if upTo == 0 {
		upTo = math.MaxUint64
	}
	hint := RowHint{From: q.From, To: q.To, Events: true}
	for after, end := uint64(0), false; !end && after < upTo; {
		var failed error
		last, ended, err := v.Rows(after, hint, func(r *ledger.Row) bool {
			failed = g.Add(r)
			return failed == nil && r.Seq < upTo
		})
		if err != nil || failed != nil {
			return errors.Join(failed, err)
		}
		after, end = last, ended
	}
	return g.Flush()
}
