package windows_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/postgres"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// rolledUp is a store whose usage is added up now and then, and not when it likes.
type rolledUp struct{ *postgres.Store }

func (s rolledUp) Record(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	v, err := s.Store.Record(ctx, b)
	if err == nil && v[0].Seq%5 == 0 {
		err = s.RollUp(ctx)
	}
	return v, err
}

func TestWindowsOfPostgres(t *testing.T) {
	server := pgtest.Shared(t)
	url := ""
	start := func(t *rapid.T, clock *storetest.Clock) store.Store {
		s, err := postgres.Open(context.Background(), postgres.Options{URL: url, Now: clock.Now, MaxConns: 4,
			SkipMigrations: true, NoRollups: true, RollupRows: 4})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return rolledUp{s}
	}
	live(t, func(t *rapid.T, clock *storetest.Clock) store.Store {
		var err error
		if url, err = server.Migrated(postgres.Migrate); err != nil {
			t.Fatalf("make a database: %v", err)
		}
		return start(t, clock)
	}, func(t *rapid.T, s store.Store, clock *storetest.Clock) store.Store {
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		return start(t, clock)
	})
}
