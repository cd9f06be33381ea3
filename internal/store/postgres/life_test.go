package postgres

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// empty takes all rows out of a database, as only its superuser can, so that the next life begins anew.
func empty(t storetest.TB, url string) {
	t.Helper()
	statement := ""
	for _, name := range tables {
		statement += "DELETE FROM " + Schema + "." + name + ";"
	}
	if err := pgtest.Exec(url, statement); err != nil {
		t.Fatalf("empty the database: %v", err)
	}
}

// live plays random lives on the oracle and on this store. next ends the store and returns the one that takes over.
func live(t *testing.T, next func(t *rapid.T, s store.Store, o Options) store.Store) {
	url := migrated(t)
	rapid.Check(t, func(t *rapid.T) {
		empty(t, url)
		clock := storetest.NewClock()
		o := Options{URL: url, Now: clock.Now, Kinds: storetest.Kinds(), MaxConns: few, SkipMigrations: true}
		open := func() store.Store {
			s, err := Open(context.Background(), o)
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			return s
		}
		storetest.Life(t, func() (oracle, subject store.Store) {
			return naive.New(naive.Options{Now: clock.Now, Kinds: storetest.Kinds()}), open()
		},
			func(s store.Store) store.Store { return next(t, s, o) }, clock)
	})
}

// Given any life, when the node is replaced at any time, then the database alone shows what the oracle shows.
func TestLifeWithRestarts(t *testing.T) {
	live(t, func(t *rapid.T, s store.Store, o Options) store.Store {
		mustClose(t, s)
		next, err := Open(context.Background(), o)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return next
	})
}

// Given any life of a ledger, when its sections are carried to an empty database and from there to another store, then
// all show the same.
func TestCarriedLife(t *testing.T) {
	url := migrated(t)
	rapid.Check(t, func(t *rapid.T) {
		empty(t, url)
		clock := storetest.NewClock()
		var from store.Store
		storetest.Life(t, func() (oracle, subject store.Store) {
			from = naive.New(naive.Options{Now: clock.Now, Kinds: storetest.Kinds()})
			return kept{from}, naive.New(naive.Options{Now: clock.Now, Kinds: storetest.Kinds()})
		}, nil, clock)
		s, err := Open(context.Background(), Options{URL: url, Now: clock.Now, Kinds: storetest.Kinds(), MaxConns: few,
			SkipMigrations: true})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		storetest.Carry(t, from, s)
		storetest.Carry(t, s, naive.New(naive.Options{Now: clock.Now, Kinds: storetest.Kinds()}))
		mustClose(t, s)
	})
}

// kept is a store that stays open when a life ends.
type kept struct{ store.Store }

func (kept) Close() error { return nil }
