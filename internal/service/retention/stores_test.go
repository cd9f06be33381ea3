package retention_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/naive"
)

func TestYearOnNaive(t *testing.T) {
	replayYear(t, func(_ *testing.T, now func() time.Time) store.Store { return naive.New(naive.Options{Now: now}) },
		func(_ *testing.T, s store.Store, _ int) store.Store { return s })
}

// The embedded store is started again after each month, and every third time made again from its journal alone.
func TestYearOnEngine(t *testing.T) {
	var o engine.Options
	open := func(t *testing.T) store.Store {
		e, err := engine.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	replayYear(t, func(t *testing.T, now func() time.Time) store.Store {
		o = engine.Options{Dir: "data", FS: vfs.NewMem(), Now: now, SegmentBytes: 64 << 10, IndexEntries: 64, CheckpointBytes: 8 << 10}
		return open(t)
	}, func(t *testing.T, s store.Store, round int) store.Store {
		if e, ok := s.(*engine.Engine); ok {
			if err := e.Verify(ctx, nil); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, s)
		if round%3 == 2 {
			if err := engine.Rebuild(o); err != nil {
				t.Fatal(err)
			}
		}
		return open(t)
	})
}
