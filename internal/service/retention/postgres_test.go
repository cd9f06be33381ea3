package retention_test

import (
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// openPostgres makes a node that prunes in pages of a few rows, so that a month has many.
func openPostgres(t *testing.T, url string, now func() time.Time) store.Store {
	t.Helper()
	s, err := postgres.Open(ctx, postgres.Options{URL: url, Now: now, MaxConns: 4, PruneRows: 7})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The node is replaced after each month, by one that knows nothing but the database.
func TestYearOnPostgres(t *testing.T) {
	url, err := pgtest.Shared(t).Create("template1")
	if err != nil {
		t.Fatal(err)
	}
	var clock func() time.Time
	replayYear(t, func(t *testing.T, now func() time.Time) store.Store {
		clock = now
		return openPostgres(t, url, now)
	}, func(t *testing.T, s store.Store, _ int) store.Store {
		mustClose(t, s)
		return openPostgres(t, url, clock)
	})
}
