package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/resident"
)

// Prune implements store.Store. Segment by segment it replaces those that hold rows of archived months by what is left
// of them; that a month is archived was committed before, and with it the base that replaces its rows.
//
// It begins with the last of these segments. A crash then leaves the later ones pruned and the earlier ones not, and a
// replay folds the rows that it meets first and none that come after; the base puts the counters right. The other way
// round it would have to fold rows without those before them.
//
// The leaf of a row that leaves is kept where the row was, so that the tree can be computed at every moment. A tile
// that leaves whole needs its own hash alone, but only when its last row has left: the leaves of one that lies in
// several segments are taken away in a second pass. A crash before that leaves more than is needed.
//
// Keys stay in the index until it is made again. That is always safe: a key that is known too long refuses what would
// be refused anyway.
func (e *Engine) Prune(ctx context.Context, report func(done, total uint64)) (uint64, error) {
	if err := e.hold(ctx); err != nil {
		return 0, err
	}
	defer e.letGo()
	p := &pruner{e: e, books: map[uint32]*prunedBook{}}
	if err := p.find(); err != nil {
		return 0, err
	}
	segments, err := p.plan(ctx)
	if err != nil || len(segments) == 0 {
		return 0, err
	}
	if s := e.slicer; s != nil {
		s.working.Lock()
		defer s.nudge()
		defer s.working.Unlock()
		if err := s.set.Forget(p.months()); err != nil {
			return 0, err
		}
	}
	if err := p.rewriteAll(ctx, segments, report); err != nil {
		return p.gone, err
	}
	if segments, err = p.plan(ctx); err != nil {
		return p.gone, err
	}
	return p.gone, p.rewriteAll(ctx, segments, nil)
}

// pruner is a run of Prune.
type pruner struct {
	e       *Engine
	books   map[uint32]*prunedBook // by number
	heads   []sectionHead
	decoder decoder
	hasher  ledger.Hasher
	writer  recordWriter
	dropped uint64 // rows that were left out so far, also when nothing was written
	gone    uint64
}

// prunedBook is a tenant with archived months whose rows have not all left.
type prunedBook struct {
	*view
	months map[calendar.Month]bool
	last   uint64 // the last row of them
	passed bool   // the plan has come to the last row
	tile   plannedTile
	whole  bitSet // tiles that need nothing but their hash, by index
}

// leaves reports whether an event is one that leaves: adjusted ones stay.
func (b *prunedBook) leaves(r *ledger.Row) bool {
	return r.Kind() == ledger.EventRow && b.months[r.Event.Month()] && r.Event.Status() != usage.Adjusted
}

// now is what every row so far can be read and hashed with: rows may name meters that came since.
func (b *prunedBook) now() *resident.Set { return b.b.published.Load().resident }

// find lists the tenants that have something to prune. The first row of a month leaves last.
func (p *pruner) find() error {
	for _, b := range p.e.booksByNumber() {
		now := b.published.Load()
		v := &view{e: p.e, b: b, from: &p.e.state.Reader, resident: now.resident, head: now.head}
		out := &prunedBook{view: v, months: map[calendar.Month]bool{}}
		needed, held := p.e.followers.Hold(b.id)
		for _, a := range now.resident.Horizon.Archives {
			if a.First == 0 || held && a.Last >= needed {
				continue
			}
			left, err := v.hasLeft(a.First)
			if err != nil {
				return fmt.Errorf("tenant %s: %w", b.id, err)
			}
			out.months[a.Month] = true
			if !left {
				out.last = max(out.last, a.End)
			}
		}
		if out.last > 0 {
			p.books[b.number] = out
		}
	}
	return nil
}

// months lists those whose rows leave, of any tenant.
func (p *pruner) months() map[calendar.Month]bool {
	out := map[calendar.Month]bool{}
	for _, b := range p.books {
		maps.Copy(out, b.months)
	}
	return out
}

// scan reads the records of a segment.
func (p *pruner) scan(ctx context.Context, number uint32, fn func(pos journal.Position, payload []byte) error) error {
	from, to := journal.Position{Segment: number}, journal.Position{Segment: number + 1}
	return p.e.journal.Scan(from, to, func(pos, _ journal.Position, payload []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.e.closed.Load() {
			return errClosed()
		}
		if err := fn(pos, payload); err != nil {
			return fmt.Errorf("record at %s: %w", pos, err)
		}
		return nil
	})
}

// rewriteAll prunes segments, the last one first.
func (p *pruner) rewriteAll(ctx context.Context, segments []uint32, report func(done, total uint64)) error {
	for i := len(segments) - 1; i >= 0; i-- {
		if err := p.rewrite(ctx, segments[i]); err != nil {
			return fmt.Errorf("prune journal segment %d: %w", segments[i], err)
		}
		if report != nil {
			report(uint64(len(segments)-i), uint64(len(segments)))
		}
	}
	return nil
}

// rewrite prunes one sealed segment.
func (p *pruner) rewrite(ctx context.Context, number uint32) error {
	before := p.dropped
	changed := map[uint32][]byte{}
	err := p.scan(ctx, number, func(pos journal.Position, payload []byte) error {
		left, err := p.record(payload)
		if left != nil {
			changed[pos.Offset] = left
		}
		return err
	})
	if err != nil {
		return err
	}
	err = p.e.journal.Rewrite(number, func(pos journal.Position, payload []byte) ([]byte, error) {
		if left, ok := changed[pos.Offset]; ok {
			return left, nil
		}
		return payload, nil
	})
	if err == nil {
		p.gone += p.dropped - before
	}
	return err
}

// record returns what is left of a record, or nil when all of it is.
func (p *pruner) record(payload []byte) (out []byte, err error) {
	if p.heads, err = readHeads(payload, p.heads); err != nil {
		return nil, err
	}
	for i := range p.heads {
		h := &p.heads[i]
		s, err := p.section(h)
		if err != nil {
			return nil, err
		}
		if s == nil && out == nil {
			continue
		}
		if out == nil {
			out = []byte{prunedVersion}
			for j := range p.heads[:i] {
				out = p.heads[j].copy(out)
			}
		}
		if s != nil {
			out = p.writer.pruned(out, s)
		} else {
			out = h.copy(out)
		}
	}
	return out, nil
}

// section returns what is left of a section, or nil when it stays as it is.
func (p *pruner) section(h *sectionHead) (*section, error) {
	b := p.books[h.tenant]
	if b == nil {
		return nil, nil //nolint:nilnil // nothing changes
	}
	s, err := p.decoder.decode(*h, b.now())
	if err != nil {
		return nil, err
	}
	out := &section{tenant: s.tenant, first: s.first, at: s.at, had: s.count()}
	changed, links := false, s.links
	for i := range s.rows {
		r := &s.rows[i]
		archived := s.isArchived(i)
		if r.Kind() == ledger.EventRow {
			own := links[:len(r.Event.Outcomes)]
			links = links[len(own):]
			if b.leaves(r) {
				changed = true
				p.dropped++
				continue
			}
			if b.months[r.Event.Month()] {
				changed = changed || !archived
				archived = true
				own = slices.Repeat([]link{linkNone}, len(own))
			}
			out.links = append(out.links, own...)
		}
		out.rows = append(out.rows, *r)
		out.archived = append(out.archived, archived)
	}
	more, err := p.keep(b, &s, out)
	if err != nil || !changed && !more {
		return nil, err
	}
	return out, nil
}

func (v *view) Horizon() store.Horizon { return v.resident.Horizon }

// hasLeft reports whether a usage row is no longer in the journal.
func (v *view) hasLeft(seq uint64) (bool, error) {
	var d decoder
	s, err := v.e.readSection(v.b, seq, &d, v.resident)
	if err != nil {
		return false, err
	}
	return s.row(seq) == nil, nil
}

// Sections implements store.View.
func (v *view) Sections(first uint64, fn func(*ledger.Section) error) error {
	return v.PrunedSections(first, func(s *ledger.Section) error {
		if s.Gone == 0 {
			return fn(s)
		}
		for i := range s.Rows {
			if want := s.First + uint64(i); s.Rows[i].Seq != want {
				return v.resident.Horizon.GoneOf(want)
			}
		}
		return v.resident.Horizon.GoneOf(s.First + uint64(len(s.Rows)))
	})
}
