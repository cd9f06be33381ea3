package postgres

import (
	"context"
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// A closed store leaves no goroutine behind, whatever it went through.
func TestMain(m *testing.M) {
	// A life on a database takes a quarter of a second. The flag on the command line, for a longer look, still wins.
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
	pgtest.Main(m, func() error { return goleak.Find() })
}

// ledgers makes databases with the schema on one server.
type ledgers struct {
	server func(testing.TB) *pgtest.Server
}

// The majors of PostgreSQL that the store is held to: the system's and a newer one.
var (
	system = &ledgers{server: pgtest.Shared}
	newer  = &ledgers{server: pgtest.Newer}
	majors = map[string]*ledgers{"system": system, "newer": newer}
)

// migrated is a fresh database of the system's major, with the schema.
func migrated(t testing.TB) (url string) {
	t.Helper()
	return system.migrated(t)
}

func (l *ledgers) migrated(t testing.TB) (url string) {
	t.Helper()
	url, err := l.server(t).Migrated(Migrate)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

func mustOpen(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t storetest.TB, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// few keeps the connections of many stores at once within what a small server allows.
const few = 4

func TestConformance(t *testing.T) {
	for name, major := range majors {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, storetest.Maker{
				Open: func(t *testing.T, now func() time.Time) store.Store {
					return mustOpen(t, Options{URL: major.migrated(t), Now: now, Kinds: storetest.Kinds(),
						MaxConns: few, SkipMigrations: true})
				},
				Reopen: func(t *testing.T, s store.Store, _ func() time.Time) store.Store {
					before, ok := s.(*Store)
					if !ok {
						t.Fatalf("a store of type %T came back", s)
					}
					mustClose(t, s)
					return mustOpen(t, before.options)
				},
			})
		})
	}
}
