package retention_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/service/retention"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
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
		o = engine.Options{Dir: "data", FS: vfs.NewMem(), Now: now, SegmentBytes: 64 << 10, IndexEntries: 64,
			CheckpointBytes: 8 << 10}
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

// Given several months in many segments that leave in one go, on the embedded store, then what is left adds up, at
// once, after a start, and after all that is derived was made again; and the archives give everything back.
func TestManySegmentsLeaveAtOnce(t *testing.T) {
	o := engine.Options{Dir: "data", FS: vfs.NewMem(),
		SegmentBytes: 32 << 10, IndexEntries: 64, CheckpointBytes: 8 << 10}
	l := newLife(t, func(t *testing.T, now func() time.Time) store.Store {
		o.Now = now
		return mustOpen(t, o)
	})
	defer func() { mustClose(t, l.s) }()
	for month := range 8 {
		for day := range 6 {
			l.clock.Advance(100 * time.Hour)
			l.deliver(l.facts(fmt.Sprintf("%d-%d", month, day))...)
			now := calendar.FromTime(l.clock.Now())
			padded := storetest.Fact(fmt.Sprintf("padded-%d-%d", month, day), "bytes", "padded", now, "1")
			l.deliver(storetest.With(padded, storetest.Text("padding", strings.Repeat("x", 3000))))
		}
		closing := l.month()
		l.clock.Set(closing.End().Time().Add(26 * time.Hour))
		l.both(func(tx store.Tx) error { return storetest.ClosePeriod(tx, closing) })
	}
	segments := uint64(0)
	r, err := retention.New(l.s, l.storage).Run(ctx, retention.Options{Horizon: retention.MinHorizon, Temp: t.TempDir(),
		Progress: func(step string, _, total uint64) {
			if step == "pruning" {
				segments = total
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if l.allLeft(&r); len(r.Months) < 3 || segments < 3 {
		t.Fatalf("%d months in %d segments: too few to be sure", len(r.Months), segments)
	}
	l.compare()
	for range 2 {
		mustClose(t, l.s)
		l.s = mustOpen(t, o)
		l.compare()
		e, _ := l.s.(*engine.Engine)
		if err := e.Verify(ctx, nil); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l.s)
		if err := engine.Rebuild(o); err != nil {
			t.Fatal(err)
		}
		l.s = mustOpen(t, o)
		l.compare()
	}
	l.redeliver()
	l.readsAfterwards()
	l.restore()
}
