package windows_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/postgres"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

func TestWindowsOfPostgres(t *testing.T) {
	server := pgtest.Shared(t)
	url := ""
	start := func(t *rapid.T, clock *storetest.Clock) store.Store {
		s, err := postgres.Open(context.Background(), postgres.Options{URL: url, Now: clock.Now, MaxConns: 4,
			SkipMigrations: true})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return s
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
