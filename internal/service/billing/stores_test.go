package billing

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// stores opens each store empty, on a clock of the test's.
var stores = map[string]func(t *testing.T, now func() time.Time) store.Store{
	"naive": func(_ *testing.T, now func() time.Time) store.Store { return naive.New(naive.Options{Now: now}) },
	"engine": func(t *testing.T, now func() time.Time) store.Store {
		e, err := engine.Open(engine.Options{Dir: "data", FS: vfs.NewMem(), Now: now, SegmentBytes: 1 << 20})
		return closing(t, e, err)
	},
	"postgres": func(t *testing.T, now func() time.Time) store.Store {
		url, err := pgtest.Shared(t).Migrated(postgres.Migrate)
		if err != nil {
			t.Fatal(err)
		}
		s, err := postgres.Open(context.Background(),
			postgres.Options{URL: url, Now: now, MaxConns: 4, SkipMigrations: true})
		return closing(t, s, err)
	},
}

// closing has the store closed when the test ends.
func closing(t *testing.T, s store.Store, err error) store.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}
