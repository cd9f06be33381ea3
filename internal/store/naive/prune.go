package naive

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Prune implements store.Store.
func (s *Store) Prune(ctx context.Context, _ func(done, total uint64)) (pruned uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	for id, t := range s.tenants {
		needed, held := s.followers.Hold(id)
		for i := range t.rows {
			e := t.rows[i].Event
			if e == nil || e.Status() == usage.Adjusted || t.gone[t.rows[i].Seq] {
				continue
			}
			if a, ok := t.resident.Horizon.Archive(e.Month()); ok && (!held || a.Last < needed) {
				t.gone[t.rows[i].Seq] = true
				delete(t.keys, e.Key)
				pruned++
			}
		}
	}
	return pruned, nil
}

func (t *book) hasLeft(seq uint64) (bool, error) { return t.gone[seq], nil }

func (v view) Horizon() store.Horizon { return v.t.resident.Horizon }

// PrunedSections implements store.View.
func (v view) PrunedSections(first uint64, fn func(*ledger.Section) error) error {
	return v.sections(first, func(s *ledger.Section) error {
		out := ledger.Section{First: s.First, At: s.At}
		for i := range s.Rows {
			if !v.t.gone[s.Rows[i].Seq] {
				out.Rows = append(out.Rows, s.Rows[i])
			}
		}
		out.Gone = len(s.Rows) - len(out.Rows)
		return fn(&out)
	})
}

// Tree implements store.View. It hashes every row that ever was.
func (v view) Tree() tree.Source { return v }

// Leaves implements tree.Source.
func (v view) Leaves(first, last uint64) ([]tree.Hash, error) {
	var h ledger.Hasher
	return h.Leaves(v.t.resident.TreeKeys, v.t.rows[first-1:last], nil), nil
}

// Tiles implements tree.Source.
func (v view) Tiles(level int, first, last uint64) (out []tree.Hash, err error) {
	for i := first; i <= last; i++ {
		out = append(out, v.t.tiles[tileName{level, i}])
	}
	return out, nil
}

// Sections implements store.View.
func (v view) Sections(first uint64, fn func(*ledger.Section) error) error {
	return v.sections(first, func(s *ledger.Section) error {
		for i := range s.Rows {
			if v.t.gone[s.Rows[i].Seq] {
				return v.t.resident.Horizon.GoneOf(s.Rows[i].Seq)
			}
		}
		return fn(s)
	})
}
