package naive

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/ledger"
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
	for _, t := range s.tenants {
		for i := range t.rows {
			e := t.rows[i].Event
			if e == nil || e.Status() == usage.Adjusted || t.gone[t.rows[i].Seq] {
				continue
			}
			if _, ok := t.resident.Horizon.Archive(e.Month()); ok {
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

// Remains implements store.View. The chain is hashed anew from the first row on, over all that ever was.
func (v view) Remains(first uint64, fn func(*ledger.Section) error) error {
	var h ledger.Hasher
	var chain [32]byte
	return v.sections(1, func(s *ledger.Section) error {
		chain = h.Next(chain, s.Rows)
		if s.First+uint64(len(s.Rows)) <= first {
			return nil
		}
		out := ledger.Section{First: s.First, At: s.At}
		for i := range s.Rows {
			if !v.t.gone[s.Rows[i].Seq] {
				out.Rows = append(out.Rows, s.Rows[i])
			}
		}
		if out.Gone = len(s.Rows) - len(out.Rows); out.Gone > 0 {
			out.Chain = chain
		}
		return fn(&out)
	})
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
