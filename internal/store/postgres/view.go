package postgres

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// view reads one tenant inside a transaction: a reader's sees one moment, an update's holds the head, so that nothing
// moves.
type view struct {
	s        *Store
	ctx      context.Context
	c        *session
	tenantID string
	set      *residentSet
	head     ledger.Head // with the rows of an update
	now      calendar.Micros
	base     uint64 // the last row in the tables
	tx       *tx    // nil for a reader
	fault    error  // the first failure of a read: the transaction is lost
}

// View implements store.Store.
func (s *Store) View(ctx context.Context, tenantID string, fn func(store.View) error) error {
	return s.viewing(ctx, tenantID, func(v *view) error { return fn(v) })
}

func (s *Store) viewing(ctx context.Context, tenantID string, fn func(*view) error) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if !clean(tenantID) {
		return errNoTenant(tenantID)
	}
	var own error
	err := s.reading(ctx, roleServe, tenantID, func(ctx context.Context, c *session) error {
		var h head
		if err := c.ask(ctx, readHead, s.headFrom(&h), []byte(tenantID)); err != nil {
			return err
		}
		if !h.exists {
			return errNoTenant(tenantID)
		}
		set, _ := s.sets.get(tenantID)
		if set == nil || set.version != h.version {
			var err error
			if set, err = s.loadSet(ctx, c, tenantID, h.version); err != nil {
				return err
			}
			s.sets.put(tenantID, set)
		}
		own = fn(&view{s: s, ctx: ctx, c: c, tenantID: tenantID, set: set, head: h.Head, now: h.now, base: h.Seq})
		return nil
	})
	if own != nil {
		return own
	}
	return err
}

// ask runs a statement. A failure is returned as the port says it, and kept.
func (v *view) ask(st *statement, each func(*reader) error, params ...[]byte) error {
	if v.fault == nil {
		v.fault = v.c.ask(v.ctx, st, each, append([][]byte{[]byte(v.tenantID)}, params...)...)
	}
	return v.s.portError(v.ctx, v.fault)
}

func (v *view) Now() calendar.Micros { return v.now }
func (v *view) Head() ledger.Head    { return v.head }

// MeterUsed implements store.View.
func (v *view) MeterUsed(number uint32) (bool, error) { return v.set.used[number], nil }

func (v *view) Event(k usage.Key) (ledger.Row, []ledger.Row, error) {
	var row ledger.Row
	var by []ledger.Row
	found := false
	missing := problem.New(problem.NotFound, "no event %q", k.ID())
	if !clean(k.Name) {
		return row, nil, missing
	}
	key := textsParam([]string{string(rune(k.Space)) + k.Name})
	err := v.ask(eventsByKey, v.each(func(r *ledger.Row) { row, found = *r, true }), key)
	if err != nil {
		return row, nil, err
	}
	if !found {
		return row, nil, missing
	}
	err = v.ask(corrections, v.each(func(r *ledger.Row) { by = append(by, *r) }), textsParam([]string{k.ID()}))
	return row, by, err
}

// each reads events.
func (v *view) each(fn func(*ledger.Row)) func(*reader) error {
	return eachRow(func(in *reader) (ledger.Row, error) { return readEvent(in, v.set) }, fn)
}

func (v *view) Counter(id usage.CounterID) (usage.Counter, error) {
	c, err := v.cell(id)
	if err == nil {
		err = v.addPending(id, &c.Counter)
	}
	return c.Counter, err
}

// cell reads a counter as the table has it.
func (v *view) cell(id usage.CounterID) (*cell, error) {
	out := &cell{}
	m := v.set.Catalog.Number(id.Meter)
	if m == nil {
		return out, problem.New(problem.NotFound, "no meter of number %d", id.Meter)
	}
	if !clean(id.Customer) {
		return out, nil
	}
	var at placeArrays
	at.reset()
	at.add(store.CounterPlace{Month: id.Month, Meter: m.Slug, Customer: id.Customer})
	err := v.ask(countersByKey, func(in *reader) (err error) {
		out, err = readCounter(in)
		return err
	}, at.month.param(), at.meter.param(), at.customer.param())
	return out, err
}

// addPending adds what an update has changed and not written yet.
func (v *view) addPending(id usage.CounterID, c *usage.Counter) error {
	if v.tx == nil {
		return nil
	}
	for _, f := range v.tx.pending[id] {
		if err := f.Apply(pendingState{set: v.set, counter: c}); err != nil {
			return err
		}
	}
	return nil
}
