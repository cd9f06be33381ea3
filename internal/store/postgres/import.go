package postgres

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Import implements store.Store.
func (s *Store) Import(ctx context.Context, tenantID string, in ledger.Section) error {
	return s.writing(ctx, tenantID, func(ctx context.Context, l *lane, c *session, h *head, cfg *config) error {
		if in.First != h.Seq+1 || len(in.Rows) == 0 {
			return problem.New(problem.Conflict, "the ledger of %s ends with row %d: a section from %d on does not follow", tenantID, h.Seq, in.First)
		}
		if err := cfg.tenant.CheckKeptHere(); err != nil {
			return err
		}
		h.now = in.At
		past := newHistory(ctx, c, tenantID, cfg, &l.book, h, len(in.Rows))
		if err := past.foresee(in.Rows); err != nil {
			return err
		}
		for i := range in.Rows {
			if err := past.replay(&in.Rows[i]); err != nil {
				return err
			}
		}
		if past.config.tenant == nil || past.config.tenant.ID != tenantID {
			return problem.New(problem.Conflict, "the first row of a ledger creates its tenant")
		}
		return s.append(ctx, l, c, past, h)
	})
}

// foresee reads all that replaying the rows will touch. The rows may bring the meters that they feed, so it looks through the
// configuration that they lead to.
func (h *history) foresee(rows []ledger.Row) error {
	before := h.config
	defer func() { h.config = before }()
	for i := range rows {
		if rows[i].Change == nil {
			continue
		}
		s, err := ledger.DecodeState(&rows[i])
		if err != nil {
			return err
		}
		h.config = h.config.with(s)
	}
	w := &wants{}
	for i := range rows {
		r := rows[i].Event
		if r == nil {
			continue
		}
		if r.IsCorrection() {
			w.corrections(h, usage.KeyOfID(r.Corrects))
		}
		for j := range r.Outcomes {
			o := &r.Outcomes[j]
			if h.Meter(o.Meter) == nil {
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
	return h.fetch(w)
}

// replay adds a row that was decided elsewhere.
func (h *history) replay(r *ledger.Row) error {
	if r.Change != nil {
		return h.change(r.Change)
	}
	h.touched = h.touched[:0]
	if err := usage.Apply(h, r.Event, h.first+uint64(len(h.rows))); err != nil {
		return err
	}
	h.keep(r.Event, hashKey(r.Event.Key))
	return nil
}
