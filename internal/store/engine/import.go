package engine

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
)

// Import implements store.Store.
func (e *Engine) Import(ctx context.Context, id string, s ledger.Section) error {
	w := &work{tenantID: id, imported: &s, done: make(chan struct{}, 1), bound: importBound(s.Rows)}
	queued := &e.founding
	if b, ok := e.books.Load(id); ok {
		queued = &b.(*book).queued
	}
	return e.submit(ctx, queued, w)
}

func importBound(rows []ledger.Row) int {
	n := 0
	for i := range rows {
		n += maxRunOverhead + len(rows[i].By)
		switch rows[i].Kind() {
		case ledger.EventRow:
			n += eventBound(rows[i].Event)
		case ledger.EntryRow:
			n += entryBound(rows[i].Entry)
		case ledger.ChangeRow:
			n += changeBound(rows[i : i+1])
		}
	}
	return n
}

// eventBound is the largest encoding of an event.
func eventBound(r *usage.Row) int {
	n := maxRowOverhead + len(r.Key.Name) + len(r.ID) + len(r.Type) + len(r.Customer) + len(r.Resource)
	n += len(r.Properties) + len(r.Corrects) + len(r.Reason)
	for j := range r.Outcomes {
		n += maxOutcome + len(r.Outcomes[j].Member)
	}
	return n
}

// decideImport takes a section in as it is. Engine.mu is held.
func (e *Engine) decideImport(g *group, w *work) {
	b, err := e.bookOf(w.tenantID)
	if err != nil {
		w.err = err
		return
	}
	in := w.imported
	if b.section != nil && len(b.section.rows) > 0 {
		// A section keeps its own time and bounds, so it never shares a group with another of its tenant.
		w.err = problem.New(problem.Conflict,
			"tenant %s is being written to: import into a store that nothing else uses", w.tenantID)
		return
	}
	if in.First != b.seq+1 || len(in.Rows) == 0 {
		w.err = problem.New(problem.Conflict,
			"the ledger of %s ends with row %d: a section from %d on does not follow", w.tenantID, b.seq, in.First)
		return
	}
	if w.err = b.resident.CheckKeptHere(); w.err != nil {
		return
	}
	if w.err = e.checkImport(b, w.tenantID, in); w.err != nil {
		return
	}
	g.bound += w.bound
	if e.byID[w.tenantID] == nil {
		e.byID[w.tenantID] = b
		e.nextNumber++
	}
	s := g.sectionFor(e, b)
	s.at = in.At
	h := &history{e: e, b: b}
	for i := range in.Rows {
		if w.err = e.importRow(s, h, &in.Rows[i]); w.err != nil {
			w.err = e.halfDecided(w.err)
			return
		}
	}
	e.touched(g, s)
}

// checkImport refuses a section with changes that cannot take effect here, before any of its rows does. Engine.mu is
// held.
func (e *Engine) checkImport(b *book, id string, in *ledger.Section) error {
	set := b.resident
	for i := range in.Rows {
		if r := &in.Rows[i]; r.Kind() == ledger.ChangeRow && !r.Change.State.IsZero() {
			ent := r.Entity()
			next, err := e.checkChange(b, set, &ent)
			if err != nil {
				return err
			}
			set = next.resident
		}
		if !set.Exists() || set.TenantID() != id {
			return problem.New(problem.Conflict, "the first row of a ledger creates its tenant")
		}
	}
	return nil
}

func (e *Engine) importRow(s *sectionBuild, h *history, r *ledger.Row) error {
	switch r.Kind() {
	case ledger.ChangeRow:
		s.rows = append(s.rows, *r)
		s.place.Changes = true
		return e.applyChange(s.book, r)
	case ledger.EntryRow:
		s.rows = append(s.rows, *r)
		s.place.Entries = true
		return nil
	case ledger.EventRow:
	}
	return e.importEvent(s, h, r)
}

func (e *Engine) importEvent(s *sectionBuild, h *history, r *ledger.Row) error {
	row := s.slot()
	outcomes := append(row.Outcomes[:0], r.Event.Outcomes...)
	*row = *r.Event
	row.Outcomes = outcomes
	s.keep(r.By, row)
	seed := e.index.Seed()
	e.index.Insert(keyindex.Entry{
		Hash: h.hash.key(seed, s.book.number, row.Key), Seq: r.Seq,
		Check: h.hash.check(seed, &row.Event, row.Key.Space),
	})
	var err error
	s.links, err = e.fold(h, row, r.Seq, s.first, s.links)
	return err
}
