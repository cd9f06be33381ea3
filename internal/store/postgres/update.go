package postgres

import (
	"bytes"
	"context"
	"maps"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// tx is a view inside a transaction that holds the head, with rows of its own that are not written yet.
type tx struct {
	view
	rows    []ledger.Row
	overlay *store.Overlay
	effects []ledger.Effect // of the rows
	// pending are those of the effects that a reader of the counter must see. A base changes nothing while the rows
	// under it are there.
	pending map[usage.CounterID][]ledger.Effect
	// refreshed are entities whose terms this build knows better than the tables. The commit brings some of them up to
	// date.
	refreshed map[entityName]keptEntity
}

// maxRefreshed bounds the entities that one commit brings up to date beside its own.
const maxRefreshed = 1000

func (x *tx) refresh(k keptEntity) {
	if len(x.refreshed) < maxRefreshed && k.Indexed > 0 {
		x.refreshed[entityName{k.Kind, k.ID}] = k
	}
}

// Append implements store.Tx.
func (x *tx) Append(c ledger.Change) (uint64, error) {
	if err := x.set.CheckKeptHere(); err != nil {
		return 0, err
	}
	c.State.Data = bytes.Clone(c.State.Data)
	r := ledger.Row{Seq: x.head.Seq + 1, At: x.now, Change: &c}
	if !c.State.IsZero() {
		if err := x.take(r.Entity()); err != nil {
			return 0, err
		}
	}
	x.rows = append(x.rows, r)
	x.head.Seq = r.Seq
	return r.Seq, nil
}

// take lets reads of the transaction see a change.
func (x *tx) take(e entity.Entity) error {
	next, err := x.set.with(&e)
	if err != nil {
		return err
	}
	effect, err := next.EffectOf(&e)
	if err != nil {
		return err
	}
	if err := x.overlay.Put(e); err != nil {
		return err
	}
	x.set = next
	x.effects = append(x.effects, effect)
	if effect.Base == nil {
		effect.Touches(func(id usage.CounterID) {
			if id.Customer != "" {
				x.pending[id] = append(x.pending[id], effect)
			}
		})
	}
	return nil
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, tenantID string, fn func(store.Tx) error) error {
	var own error // of fn: it comes back as it is
	err := s.writing(ctx, tenantID, func(ctx context.Context, l *lane, c *session, h *head, set *residentSet) error {
		x := &tx{overlay: store.NewOverlay(set.kinds), pending: map[usage.CounterID][]ledger.Effect{},
			refreshed: map[entityName]keptEntity{}}
		x.view = view{s: s, ctx: ctx, c: c, tenantID: tenantID, set: set, head: h.Head, now: h.now, base: h.Seq, tx: x}
		own = store.RunUpdate(fn, x)
		if x.fault != nil {
			own = nil // its reads failed; it may run again
			return x.fault
		}
		if own != nil {
			return nil //nolint:nilerr // nothing is committed, and own is returned in the end
		}
		if !x.set.Exists() {
			return errNoTenant(tenantID)
		}
		if len(x.rows) == 0 {
			return nil
		}
		past := newHistory(ctx, c, tenantID, set, &l.cache, h, len(x.rows))
		if err := past.takeUpdate(x); err != nil {
			return err
		}
		return s.append(ctx, l, c, past, h)
	})
	if own != nil {
		return own
	}
	return err
}

// takeUpdate adds the rows of an update.
func (h *history) takeUpdate(x *tx) error {
	err := h.foresee(x.set, func(w *wants) error {
		for i := range x.effects {
			w.effect(h, &x.effects[i])
		}
		return nil
	})
	if err != nil {
		return err
	}
	maps.Copy(h.entities, x.refreshed)
	for i := range x.rows {
		if err := h.change(x.rows[i].Change); err != nil {
			return err
		}
	}
	return nil
}

// writeFunc is what is done under the lock of a tenant's head.
type writeFunc func(ctx context.Context, l *lane, c *session, h *head, set *residentSet) error

// writing runs fn in a transaction that holds the tenant's turn and head, again if it failed in passing. A tenant that
// does not exist yet gets a head, which goes with the transaction unless fn commits.
func (s *Store) writing(ctx context.Context, tenantID string, fn writeFunc) error {
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
	err = s.again(ctx, func() error {
		err := s.tryWriting(ctx, l, fn)
		if err != nil {
			l.forget(nil)
		}
		return err
	})
	return outOfTime(ctx, err)
}

func (s *Store) tryWriting(ctx context.Context, l *lane, fn writeFunc) error {
	c, err := s.lend(ctx)
	if err != nil {
		return err
	}
	defer c.giveBack(ctx)
	var h head
	id := []byte(l.tenantID)
	r := c.roundTrip(ctx)
	r.beginWriting(l.tenantID)
	r.send(lockHead, s.headFrom(&h), id)
	if err := r.do(); err != nil {
		return err
	}
	if !h.exists {
		if err := s.mayGrow(ctx, c, l.tenantID); err != nil {
			return err
		}
		r := c.roundTrip(ctx)
		r.send(makeHead, nil, id, tree.AppendBinary(nil, h.Tree), timeParam(calendar.MinMicros))
		r.send(lockHead, s.headFrom(&h), id)
		if err := r.do(); err != nil {
			return err
		}
	}
	set, _ := s.sets.get(l.tenantID)
	switch {
	case h.Seq == 0:
		set = emptySet(s.options.Kinds)
	case set == nil || set.version != h.version:
		if set, err = s.loadSet(ctx, c, l.tenantID, h.version); err != nil {
			return err
		}
	}
	l.cache.at(h.Head)
	return fn(ctx, l, c, &h, set)
}

// mayGrow refuses new tenants of a deployment that was moved. It holds the operator's head until the transaction ends:
// whoever marks the deployment as moved waits for tenants that are being made, and finds them. Errors: Moved.
func (s *Store) mayGrow(ctx context.Context, c *session, tenantID string) error {
	if tenantID == tenant.Operator {
		return nil
	}
	var operator head
	r := c.roundTrip(ctx)
	r.nameTenant(tenant.Operator)
	r.send(lockHead, s.headFrom(&operator), []byte(tenant.Operator))
	if err := r.do(); err != nil {
		return err
	}
	if operator.exists {
		set, err := s.loadSet(ctx, c, tenant.Operator, operator.version)
		if err != nil {
			return err
		}
		if err := set.CheckKeptHere(); err != nil {
			return err
		}
	}
	r = c.roundTrip(ctx)
	r.nameTenant(tenantID)
	return r.do()
}

// append commits the rows of an update or an import.
func (s *Store) append(ctx context.Context, l *lane, c *session, past *history, h *head) error {
	out := s.transfer(ctx, c)
	defer out.end()
	return l.seal(out, past, h)
}
