package postgres

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Import implements store.Store.
func (s *Store) Import(ctx context.Context, tenantID string, in ledger.Section) error {
	return s.writing(ctx, tenantID, func(ctx context.Context, l *lane, c *session, h *head, set *residentSet) error {
		if in.First != h.Seq+1 || len(in.Rows) == 0 {
			return problem.New(problem.Conflict,
				"the ledger of %s ends with row %d: a section from %d on does not follow", tenantID, h.Seq, in.First)
		}
		if err := set.CheckKeptHere(); err != nil {
			return err
		}
		h.now = in.At
		past := newHistory(ctx, c, tenantID, set, &l.cache, h, len(in.Rows))
		if err := past.foreseeRows(in.Rows); err != nil {
			return err
		}
		for i := range in.Rows {
			if err := past.replay(&in.Rows[i]); err != nil {
				return err
			}
		}
		if !past.set.Exists() || past.set.TenantID() != tenantID {
			return problem.New(problem.Conflict, "the first row of a ledger creates its tenant")
		}
		return s.append(ctx, l, c, past, h)
	})
}

// foreseeRows reads all that replaying the rows will touch. The rows may bring the meters that they feed, so it looks
// through the set that they lead to.
func (h *history) foreseeRows(rows []ledger.Row) error {
	set := h.set
	var effects []ledger.Effect
	for i := range rows {
		e := rows[i].Entity()
		if e.IsZero() {
			continue
		}
		next, err := set.with(&e)
		if err != nil {
			return err
		}
		effect, err := next.EffectOf(&e)
		if err != nil {
			return err
		}
		set, effects = next, append(effects, effect)
	}
	return h.foresee(set, func(w *wants) error {
		for i := range effects {
			w.effect(h, &effects[i])
		}
		return w.replayed(h, rows)
	})
}

// foresee reads what is wanted of meters that the rows to come may bring.
func (h *history) foresee(after *residentSet, ask func(*wants) error) error {
	before := h.set
	h.set = after
	defer func() { h.set = before }()
	w := &wants{}
	if err := ask(w); err != nil {
		return err
	}
	return h.fetch(w)
}

// replayed asks for all that usage rows which were decided elsewhere touch.
func (w *wants) replayed(h *history, rows []ledger.Row) error {
	for i := range rows {
		if rows[i].Kind() != ledger.EventRow {
			continue
		}
		r := rows[i].Event
		if r.IsCorrection() {
			w.corrections(h, usage.KeyOfID(r.Corrects))
		}
		for j := range r.Outcomes {
			o := &r.Outcomes[j]
			if h.set.Catalog.Number(o.Meter) == nil {
				return problem.New(problem.Conflict, "row %d names a meter that the ledger does not have", rows[i].Seq)
			}
			id := usage.CounterID{Meter: o.Meter, Customer: r.Customer, Month: r.Month()}
			w.counter(h, id)
			w.tally(h, tallyID{o.Meter, id.Month})
			if o.Member != "" {
				w.member(h, memberName{id, o.Member})
			}
		}
	}
	return nil
}

// replay adds a row that was decided elsewhere.
func (h *history) replay(r *ledger.Row) error {
	switch r.Kind() {
	case ledger.ChangeRow:
		return h.change(r.Change)
	case ledger.EntryRow:
		return h.entry(r)
	case ledger.EventRow:
	}
	h.touched = h.touched[:0]
	if err := usage.Apply(h, r.Event, h.first+uint64(len(h.rows))); err != nil {
		return err
	}
	h.keep(r.Event, hashKey(r.Event.Key), r.By)
	return nil
}
