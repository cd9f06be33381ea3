package postgres

import (
	"bytes"
	"context"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// tx is a view inside a transaction that holds the head, with rows of its own that are not written yet.
type tx struct {
	view
	rows   []ledger.Row
	manual map[usage.CounterID]amount.Amount
	undone map[uint64]uint64 // reverted adjustments → their opposites

	assigned map[string]string // customer → plan
}

// Append implements store.Tx.
func (x *tx) Append(c ledger.Change) (uint64, error) {
	if err := x.config.tenant.CheckKeptHere(); err != nil {
		return 0, err
	}
	c.State = bytes.Clone(c.State)
	r := ledger.Row{Seq: x.head.Seq + 1, At: x.now, Change: &c}
	s, err := ledger.DecodeState(&r)
	if err != nil {
		return 0, err
	}
	if a := s.Adjustment; a != nil {
		if x.config.catalog.Number(a.Meter) == nil {
			return 0, problem.New(problem.NotFound, "no meter of number %d", a.Meter)
		}
		id := usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
		x.manual[id], _ = x.manual[id].Add(a.Amount)
		if seq, _, ok := usage.ParseAdjustmentID(a.Reverts); ok {
			x.undone[seq] = r.Seq
		}
	}
	if a := s.Assignment; a != nil && a.Customer != "" {
		x.assigned[a.Customer] = a.Plan
	}
	x.config = x.config.with(s)
	x.rows = append(x.rows, r)
	x.head.Seq = r.Seq
	return r.Seq, nil
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, tenantID string, fn func(store.Tx) error) error {
	var own error // of fn: it comes back as it is
	err := s.writing(ctx, tenantID, func(ctx context.Context, l *lane, c *session, h *head, cfg *config) error {
		x := &tx{manual: map[usage.CounterID]amount.Amount{}, undone: map[uint64]uint64{}, assigned: map[string]string{}}
		x.view = view{s: s, ctx: ctx, c: c, tenantID: tenantID, config: cfg, head: h.Head, now: h.now, base: h.Seq, tx: x}
		own = store.RunUpdate(fn, x)
		if x.fault != nil {
			own = nil // its reads failed; it may run again
			return x.fault
		}
		if own != nil {
			return nil //nolint:nilerr // nothing is committed, and own is returned in the end
		}
		if x.config.tenant == nil {
			return errNoTenant(tenantID)
		}
		if len(x.rows) == 0 {
			return nil
		}
		past := newHistory(ctx, c, tenantID, cfg, &l.book, h, len(x.rows))
		for i := range x.rows {
			if err := past.change(x.rows[i].Change); err != nil {
				return err
			}
		}
		return s.append(ctx, l, c, past, h)
	})
	if own != nil {
		return own
	}
	return err
}

// writing runs fn in a transaction that holds the tenant's turn and head, again if it failed in passing. A tenant that does
// not exist yet gets a head, which goes with the transaction unless fn commits.
func (s *Store) writing(ctx context.Context, tenantID string, fn func(ctx context.Context, l *lane, c *session, h *head, cfg *config) error) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if !clean(tenantID) || tenantID == "" {
		return errNoTenant(tenantID)
	}
	l, err := s.enter(tenantID)
	if err != nil {
		return err
	}
	defer l.leave()
	select {
	case <-l.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { l.turn <- struct{}{} }()
	// A caller that goes away does not cut a commit in two: what has begun is ended, which the timeouts bound.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.StatementTimeout+s.options.LockTimeout)
	defer cancel()
	return s.again(ctx, func() error {
		err := s.tryWriting(ctx, l, fn)
		if err != nil {
			l.forget(nil)
		}
		return err
	})
}

func (s *Store) tryWriting(ctx context.Context, l *lane, fn func(ctx context.Context, l *lane, c *session, h *head, cfg *config) error) error {
	c, err := s.lend(ctx)
	if err != nil {
		return err
	}
	defer c.giveBack(ctx)
	var h head
	id := []byte(l.tenantID)
	r := c.round(ctx)
	r.beginWriting(l.tenantID)
	r.send(lockHead, s.headFrom(&h), id)
	if err := r.do(); err != nil {
		return err
	}
	if !h.exists {
		if err := s.mayGrow(ctx, c, l.tenantID); err != nil {
			return err
		}
		r := c.round(ctx)
		r.send(makeHead, nil, id, h.Chain[:], timeParam(calendar.MinMicros))
		r.send(lockHead, s.headFrom(&h), id)
		if err := r.do(); err != nil {
			return err
		}
	}
	cfg, _ := s.configs.get(l.tenantID)
	switch {
	case h.Seq == 0:
		cfg = noConfig
	case cfg == nil || cfg.version != h.version:
		if cfg, err = c.loadConfig(ctx, l.tenantID, h.version); err != nil {
			return err
		}
	}
	l.book.at(h.Head)
	return fn(ctx, l, c, &h, cfg)
}

// mayGrow refuses new tenants of a deployment that was moved. It holds the operator's head until the transaction ends: whoever marks
// the deployment as moved waits for tenants that are being made, and finds them. Errors: Moved.
func (s *Store) mayGrow(ctx context.Context, c *session, tenantID string) error {
	if tenantID == tenant.Operator {
		return nil
	}
	var operator head
	r := c.round(ctx)
	r.send(enter, nil, []byte(roleServe), []byte(tenant.Operator), []byte(writerIdle))
	r.send(lockHead, s.headFrom(&operator), []byte(tenant.Operator))
	if err := r.do(); err != nil {
		return err
	}
	if operator.exists {
		cfg, err := c.loadConfig(ctx, tenant.Operator, operator.version)
		if err != nil {
			return err
		}
		if err := cfg.tenant.CheckKeptHere(); err != nil {
			return err
		}
	}
	return c.ask(ctx, enter, nil, []byte(roleServe), []byte(tenantID), []byte(writerIdle))
}

// change adds a change row and lets it take effect.
func (h *history) change(c *ledger.Change) error {
	r := ledger.Row{Seq: h.first + uint64(len(h.rows)), At: h.now, Change: c}
	s, err := ledger.DecodeState(&r)
	if err != nil {
		return err
	}
	h.config = h.config.with(s)
	h.rows = append(h.rows, r)
	if s.Alert != nil {
		return h.tell(s.Alert)
	}
	if a := s.Assignment; a != nil && a.Customer != "" {
		h.book.assigned[a.Customer] = a.Plan
	}
	a := s.Adjustment
	if a == nil {
		return nil
	}
	id := usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
	h.touched = h.touched[:0]
	counter, err := h.Counter(id)
	if err != nil {
		return err
	}
	counter.Adjust(a.Amount, h.config.catalog.Number(a.Meter).Aggregation, h.config.closed(a.Month))
	h.mark(h.touched[0])
	h.touched = h.touched[:0]
	return nil
}

// append commits the rows of an update or an import.
func (s *Store) append(ctx context.Context, l *lane, c *session, past *history, h *head) error {
	changed := false
	for i := range past.rows {
		changed = changed || past.rows[i].Change != nil
	}
	a := &addition{tenantID: l.tenantID, base: h.Head, at: past.now, rows: past.rows, links: past.links, config: past.config, changed: changed,
		cells: past.dirty, joined: past.joined, newlyUse: past.newlyUse, tallies: past.tallies}
	out := s.flow(ctx, c)
	defer out.end()
	after, version, err := out.commit(a)
	if err != nil {
		return err
	}
	past.written()
	l.book.committed(span{from: h.Head, to: after, keys: past.seen})
	if changed || len(a.newlyUse) > 0 {
		s.configs.put(l.tenantID, past.config.at(version))
	}
	return nil
}
