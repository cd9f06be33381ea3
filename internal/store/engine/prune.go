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
)

// Prune implements store.Store. Segment by segment it replaces those that hold rows of archived months by what is left of them; that
// a month is archived was committed before, and with it the base that replaces its rows.
//
// It begins with the last of these segments. A crash then leaves the later ones pruned and the earlier ones not, and a replay folds the
// rows that it meets first and none that come after; the base puts the counters right. The other way round it would have to
// fold rows without those before them.
//
// Keys stay in the index until it is made again. That is always safe: a key that is known too long refuses what would be refused anyway.
func (e *Engine) Prune(ctx context.Context, tell func(done, total uint64)) (uint64, error) {
	if err := e.hold(ctx); err != nil {
		return 0, err
	}
	defer e.letGo()
	p := &pruner{e: e, books: map[uint32]*prunedBook{}}
	if err := p.find(); err != nil {
		return 0, err
	}
	if err := p.plan(ctx); err != nil {
		return 0, err
	}
	if len(p.segments) == 0 {
		return 0, nil
	}
	if s := e.slicer; s != nil {
		s.working.Lock()
		defer s.nudge()
		defer s.working.Unlock()
		if err := s.set.Forget(p.months()); err != nil {
			return 0, err
		}
	}
	for i := len(p.segments) - 1; i >= 0; i-- {
		if err := p.rewrite(ctx, &p.segments[i]); err != nil {
			return p.gone, fmt.Errorf("prune journal segment %d: %w", p.segments[i].number, err)
		}
		if tell != nil {
			tell(uint64(len(p.segments)-i), uint64(len(p.segments)))
		}
	}
	return p.gone, nil
}

// pruner is a run of Prune.
type pruner struct {
	e        *Engine
	books    map[uint32]*prunedBook // by number
	segments []prunedSegment
	heads    []sectionHead
	decoder  decoder
	hasher   ledger.Hasher
	writer   recordWriter
	dropped  uint64 // rows that were left out so far, also when nothing was written
	gone     uint64
}

// prunedBook is a tenant with archived months whose rows have not all left.
type prunedBook struct {
	*book
	months map[calendar.Month]bool
	last   uint64 // the last row of them
	chain  [32]byte
	passed bool // the plan has come to the last row
}

// prunedSegment is one that holds rows of archived months, and the chains where it begins.
type prunedSegment struct {
	number uint32
	chains map[uint32][32]byte
}

// find lists the tenants that have something to prune. The first row of a month leaves last.
func (p *pruner) find() error {
	for _, b := range p.e.booksByNumber() {
		now := b.published.Load()
		v := &view{e: p.e, b: b, from: &p.e.state.Reader, resident: now.resident, head: now.head}
		out := &prunedBook{book: b, months: map[calendar.Month]bool{}}
		for _, a := range now.resident.Horizon.Archives {
			if a.First == 0 {
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

// plan reads the journal from its first segment on, which gives the chains, until the last row that can leave.
func (p *pruner) plan(ctx context.Context) error {
	for number := uint32(1); !p.passed(); number++ {
		if number > p.e.journal.Sealed() {
			// What is left to prune is in the segment that is still written to.
			if err := p.e.journal.Seal(); err != nil {
				return err
			}
		}
		s := prunedSegment{number: number, chains: map[uint32][32]byte{}}
		for n, b := range p.books {
			s.chains[n] = b.chain
		}
		some := false
		err := p.scan(ctx, number, func(_ journal.Position, left []byte) { some = some || left != nil })
		if err != nil {
			return fmt.Errorf("read journal segment %d: %w", number, err)
		}
		if some {
			p.segments = append(p.segments, s)
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

func (p *pruner) passed() bool {
	for _, b := range p.books {
		if !b.passed {
			return false
		}
	}
	return true
}

// scan tells what would be left of each record of a segment.
func (p *pruner) scan(ctx context.Context, number uint32, fn func(pos journal.Position, left []byte)) error {
	from, to := journal.Position{Segment: number}, journal.Position{Segment: number + 1}
	return p.e.journal.Scan(from, to, func(pos, _ journal.Position, payload []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.e.closed.Load() {
			return errClosed()
		}
		left, err := p.record(payload)
		if err != nil {
			return fmt.Errorf("record at %s: %w", pos, err)
		}
		fn(pos, left)
		return nil
	})
}

// rewrite prunes one sealed segment.
func (p *pruner) rewrite(ctx context.Context, s *prunedSegment) error {
	for n, chain := range s.chains {
		p.books[n].chain = chain
	}
	before := p.dropped
	changed := map[uint32][]byte{}
	err := p.scan(ctx, s.number, func(pos journal.Position, left []byte) {
		if left != nil {
			changed[pos.Offset] = left
		}
	})
	if err != nil {
		return err
	}
	err = p.e.journal.Rewrite(s.number, func(pos journal.Position, payload []byte) ([]byte, error) {
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
	s, err := p.decoder.decode(*h, b.published.Load().resident)
	if err != nil {
		return nil, err
	}
	b.chain = s.after(b.chain, &p.hasher)
	b.passed = b.passed || s.first+uint64(s.count())-1 >= b.last
	out := &section{tenant: s.tenant, first: s.first, at: s.at, had: s.count(), chain: b.chain}
	changed, links := false, s.links
	for i := range s.rows {
		r := &s.rows[i]
		archived := s.isArchived(i)
		if r.Event != nil {
			own := links[:len(r.Event.Outcomes)]
			links = links[len(own):]
			if b.months[r.Event.Month()] && r.Event.Status() != usage.Adjusted {
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
	if !changed {
		return nil, nil //nolint:nilnil // nothing changes
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
	return v.Remains(first, func(s *ledger.Section) error {
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
