package httpapi

import (
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

// opener opens an empty store that lives as long as the test.
type opener func(t *testing.T, clock func() time.Time) store.Store

// openers are for what must be the same on every store.
var openers = map[string]opener{"naive": openNaive, "engine": openEngine, "postgres": openPostgres}

func openNaive(_ *testing.T, clock func() time.Time) store.Store {
	return naive.New(naive.Options{Now: clock})
}

func openEngine(t *testing.T, clock func() time.Time) store.Store {
	t.Helper()
	e, err := engine.Open(engine.Options{Dir: "data", FS: vfs.NewMem(), SegmentBytes: 1 << 20, NoSlices: true,
		Now: clock, Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, e)
	return e
}

func openPostgres(t *testing.T, clock func() time.Time) store.Store {
	t.Helper()
	url, err := pgtest.Shared(t).Migrated(postgres.Migrate)
	if err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), postgres.Options{URL: url, SkipMigrations: true, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s)
	return s
}

func closeAtEnd(t *testing.T, s interface{ Close() error }) {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
