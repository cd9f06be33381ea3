package windows_test

import (
	"context"
	"flag"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

func TestMain(m *testing.M) {
	// Every life is looked back at from every restart. The flag on the command line, for a longer look, still wins.
	if err := flag.Set("rapid.checks", "8"); err != nil {
		panic(err)
	}
	pgtest.Main(m, func() error { return goleak.Find() })
}

// live plays random lives with duplicates, late and too late facts, corrections, types, adjustments and closes on the
// oracle and on a subject, and holds the subject's windows against the oracle, and its answers about the past against
// those that it gave then.
func live(t *testing.T, open func(t *rapid.T, clock *storetest.Clock) store.Store,
	reopen func(t *rapid.T, s store.Store, clock *storetest.Clock) store.Store) {
	rapid.Check(t, func(t *rapid.T) {
		clock, memories := storetest.NewClock(), []memory{}
		oracle := naive.New(naive.Options{Now: clock.Now})
		begin := func() (store.Store, store.Store) {
			return kept{oracle}, ending{witness{open(t, clock), t, &memories}, t, oracle}
		}
		var again func(store.Store) store.Store
		if reopen != nil {
			again = func(s store.Store) store.Store {
				w := s.(ending)
				w.Store = reopen(t, w.Store, clock)
				w.compare()
				return w
			}
		}
		storetest.Life(t, begin, again, clock)
	})
}

// ending holds the windows against the oracle before the store ends.
type ending struct {
	witness
	t      *rapid.T
	oracle store.Store
}

func (e ending) Close() error {
	list, err := e.Tenants(context.Background(), "", 100)
	if err != nil {
		e.t.Fatalf("list tenants: %v", err)
	}
	for _, one := range list {
		agree(e.t, e.oracle, e.witness.Store, one.ID)
	}
	return e.witness.Close()
}

// kept is a store that stays open when a life ends: the subject is compared with it then.
type kept struct{ store.Store }

func (kept) Close() error { return nil }

func TestWindowsOfTheOracle(t *testing.T) {
	live(t, func(_ *rapid.T, clock *storetest.Clock) store.Store { return naive.New(naive.Options{Now: clock.Now}) },
		nil)
}

func TestWindowsOfTheEngine(t *testing.T) {
	var files *vfs.MemFS
	start := func(t *rapid.T, clock *storetest.Clock) store.Store {
		e, err := engine.Open(engine.Options{Dir: "data", FS: files, Now: clock.Now, SegmentBytes: 1 << 20,
			SliceBytes: 1})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return e
	}
	live(t, func(t *rapid.T, clock *storetest.Clock) store.Store {
		files = vfs.NewMem()
		return start(t, clock)
	}, func(t *rapid.T, s store.Store, clock *storetest.Clock) store.Store {
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		return start(t, clock)
	})
}
