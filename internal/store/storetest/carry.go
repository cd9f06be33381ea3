package storetest

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store"
)

// Carry imports every tenant's ledger into an empty store, section by section, and compares the two. On the way it
// tries what must be refused: a section twice, and one after a gap. A ledger of which rows have left cannot be carried;
// then it does nothing.
func Carry(t TB, from, to store.Store) {
	t.Helper()
	ctx := context.Background()
	tenants, err := from.Tenants(ctx, "", 1000)
	if err != nil {
		t.Fatalf("list tenants: %v", err)
	}
	var ids []string
	for _, tn := range tenants {
		err := from.View(ctx, tn.ID, func(v store.View) error {
			return v.Sections(1,
				func(*ledger.Section) error { return nil })
		})
		if problem.Is(err, problem.Archived) {
			return
		}
		if err != nil {
			t.Fatalf("read %s: %v", tn.ID, err)
		}
		ids = append(ids, tn.ID)
	}
	for _, tn := range tenants {
		err := from.View(ctx, tn.ID, func(v store.View) error {
			return v.Sections(1, func(s *ledger.Section) error {
				gap := *s
				gap.First += 7
				if err := to.Import(ctx, tn.ID, gap); !problem.Is(err, problem.Conflict) {
					t.Errorf("a section after a gap: %v, want a conflict", err)
				}
				if err := to.Import(ctx, tn.ID, *s); err != nil {
					return err
				}
				if err := to.Import(ctx, tn.ID, *s); !problem.Is(err, problem.Conflict) {
					t.Errorf("a section twice: %v, want a conflict", err)
				}
				return nil
			})
		})
		if err != nil {
			t.Fatalf("import %s: %v", tn.ID, err)
		}
	}
	Compare(t, from, to, ids...)
}
