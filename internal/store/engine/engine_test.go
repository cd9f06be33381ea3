package engine

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// small makes everything that is bounded small, so that a test of a few hundred rows rolls segments, flushes keys,
// writes checkpoints, and lets go of all counters but two with each.
func small(fs vfs.FS, now func() time.Time) Options {
	return Options{
		Dir: "data", FS: fs, Now: now, Kinds: storetest.Kinds(), SegmentBytes: 512 << 10, IndexEntries: 64,
		CheckpointBytes: 8 << 10, CounterBytes: 256, dirty: 10_000, open: 8,
	}
}

func mustOpen(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Maker{
		Open: func(t *testing.T, now func() time.Time) store.Store {
			return mustOpen(t, small(vfs.NewMem(), now))
		},
		Reopen: func(t *testing.T, s store.Store, now func() time.Time) store.Store {
			e := s.(*Engine)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			return mustOpen(t, small(e.options.FS, now))
		},
	})
}

// Every story of the suite, played on the oracle, is carried to the engine, through a restart, and back.
func TestLedgersAreCarriedUnchanged(t *testing.T) {
	for _, c := range storetest.Cases() {
		clock := storetest.NewClock()
		oracle := naive.New(naive.Options{Now: clock.Now, Kinds: storetest.Kinds()})
		s := c.Try(t, storetest.Bench{Store: oracle, Clock: clock})
		if s == nil {
			continue
		}
		fs := vfs.NewMem()
		e := mustOpen(t, small(fs, clock.Now))
		storetest.Carry(t, s, e)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = mustOpen(t, small(fs, clock.Now))
		storetest.Carry(t, e, naive.New(naive.Options{Now: clock.Now, Kinds: storetest.Kinds()}))
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
