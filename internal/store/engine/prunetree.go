package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// bitSet grows as needed.
type bitSet []uint64

func (s *bitSet) add(i uint64) {
	for uint64(len(*s)) <= i/64 {
		*s = append(*s, 0)
	}
	(*s)[i/64] |= 1 << (i % 64)
}

func (s bitSet) has(i uint64) bool { return i/64 < uint64(len(s)) && s[i/64]&(1<<(i%64)) != 0 }

// plannedTile is the tile of a tenant that the plan is in.
type plannedTile struct {
	index    uint64
	left     int      // rows that have left or will
	leaving  bool     // some of them are still there
	segments []uint32 // that have a row of it
	open     []uint32 // of these, those that do not say that it left whole
}

// plan reads the journal from its first segment on, until the last row that can leave. It returns the segments to
// rewrite, in order, and marks the tiles of which nothing but the hash is needed.
func (p *pruner) plan(ctx context.Context) ([]uint32, error) {
	for _, b := range p.books {
		b.passed, b.tile, b.whole = false, plannedTile{}, nil
	}
	changed := map[uint32]bool{}
	for number := uint32(1); !p.passed(); number++ {
		if number > p.e.journal.Sealed() {
			// What is left to prune is in the segment that is still written to.
			if err := p.e.journal.Seal(); err != nil {
				return nil, err
			}
		}
		err := p.scan(ctx, number, func(_ journal.Position, payload []byte) error {
			return p.planRecord(number, payload, changed)
		})
		if err != nil {
			return nil, fmt.Errorf("read journal segment %d: %w", number, err)
		}
	}
	return slices.Sorted(maps.Keys(changed)), nil
}

func (p *pruner) passed() bool {
	for _, b := range p.books {
		if !b.passed {
			return false
		}
	}
	return true
}

func (p *pruner) planRecord(segment uint32, payload []byte, changed map[uint32]bool) (err error) {
	if p.heads, err = readHeads(payload, p.heads); err != nil {
		return err
	}
	for i := range p.heads {
		b := p.books[p.heads[i].tenant]
		if b == nil {
			continue
		}
		s, err := p.decoder.decode(p.heads[i], b.now())
		if err != nil {
			return err
		}
		b.planSection(segment, &s, changed)
		b.passed = b.passed || s.first+uint64(s.count())-1 >= b.last
	}
	return nil
}

func (b *prunedBook) planSection(segment uint32, s *section, changed map[uint32]bool) {
	row := 0
	for seq := s.first; seq < s.first+uint64(s.count()); seq++ {
		t := &b.tile
		if tileOf(seq) != t.index {
			*t = plannedTile{index: tileOf(seq), segments: t.segments[:0], open: t.open[:0]}
		}
		t.segments = appendNew(t.segments, segment)
		if !s.isWhole(seq) {
			t.open = appendNew(t.open, segment)
		}
		switch {
		case row == len(s.rows) || s.rows[row].Seq != seq:
			t.left++
		case b.leaves(&s.rows[row]):
			t.left++
			t.leaving = true
			changed[segment] = true
			row++
		default:
			// An adjusted row of an archived month stays, marked as such.
			r := &s.rows[row]
			if r.Kind() == ledger.EventRow && b.months[r.Event.Month()] && !s.isArchived(row) {
				changed[segment] = true
			}
			row++
		}
		if seq%tree.TileRows == 0 {
			b.endTile(changed)
		}
	}
}

// endTile marks a tile of which nothing but its hash is needed: none of its rows is there any more when the first of
// its sections is rewritten without leaves, or all of them are rewritten at once.
func (b *prunedBook) endTile(changed map[uint32]bool) {
	t := &b.tile
	if t.left < tree.TileRows || t.leaving && len(t.segments) > 1 {
		return
	}
	b.whole.add(t.index)
	for _, segment := range t.open {
		changed[segment] = true
	}
}

// appendNew appends a number unless it is the last already.
func appendNew(to []uint32, n uint32) []uint32 {
	if len(to) > 0 && to[len(to)-1] == n {
		return to
	}
	return append(to, n)
}

// keep gives what is left of a section what it must keep of the tree, and reports whether that is another part of it
// than before: a tile that has left whole by now keeps no leaves.
func (p *pruner) keep(b *prunedBook, s, out *section) (changed bool, err error) {
	first, last := s.first, s.first+uint64(s.count())-1
	out.kept = newKept(first, uint64(s.count()))
	for tile := tileOf(first); tile <= tileOf(last); tile++ {
		was := s.kept.isWhole(tile - tileOf(first))
		if !was && !b.whole.has(tile) {
			continue
		}
		changed = changed || !was
		out.kept.setWhole(tile - tileOf(first))
		if (tile+1)*tree.TileRows > last {
			continue
		}
		hash, ok := s.tileHash(tile)
		if !ok {
			tiles, err := b.Tree().Tiles(1, tile, tile)
			if err != nil {
				return false, err
			}
			hash = tiles[0]
		}
		out.kept.tiles = append(out.kept.tiles, hash[:]...)
	}
	return changed, p.keepLeaves(b, s, out)
}

// keepLeaves keeps the leaves of rows that have left or leave now, but for those of tiles that leave whole.
func (p *pruner) keepLeaves(b *prunedBook, s, out *section) error {
	own, stays := make([]tree.Hash, len(s.rows)), 0
	for i := range s.rows {
		if stays < len(out.rows) && out.rows[stays].Seq == s.rows[i].Seq {
			stays++
		} else if !out.isWhole(s.rows[i].Seq) {
			own[i] = p.hasher.Leaf(b.now().TreeKeys, &s.rows[i])
		}
	}
	stays = 0
	return s.eachLeaf(own, func(seq uint64, leaf *tree.Hash) error {
		switch {
		case stays < len(out.rows) && out.rows[stays].Seq == seq:
			stays++
		case !out.isWhole(seq):
			out.kept.leaves = append(out.kept.leaves, leaf[:]...)
		}
		return nil
	})
}
