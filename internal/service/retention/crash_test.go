package retention_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/retention"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/storetest"
	"github.com/tallystick/tallystick/internal/thorough"
)

// Given an embedded store whose months can leave, when the power fails before any operation of the run that changes a
// file, then the next start shows every counter as it was, nothing that is sent again counts, a further run does the
// rest, and so it is when all that is derived is made again from what is left of the journal.
func TestPowerFailsWhilePruning(t *testing.T) {
	mem := vfs.NewCrashableMem()
	// mu guards crashing and points: the committer, the checkpointer and others change files side by side.
	var mu sync.Mutex
	var l *life
	crashing, points := false, 0
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpLock ||
			op.Kind == errorfs.OpFilePreallocate {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if !crashing {
			return nil
		}
		if points++; points%thorough.Choose(3, 1) != 0 {
			return nil
		}
		for _, percent := range []int{0, []int{50, 100}[points%2]} {
			if t.Failed() {
				break
			}
			clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent,
				RNG: rand.New(rand.NewPCG(uint64(points), 7))})
			name := fmt.Sprintf("%d before %d %s, %d%% survive", points, op.Kind, op.Path, percent)
			t.Run(name, func(t *testing.T) { l.survive(t, clone, points%5 == 0) })
		}
		return nil
	}))
	l = newLife(t, func(t *testing.T, now func() time.Time) store.Store { return openTiny(t, fs, now) })
	for round := range 3 {
		for day := range 5 {
			l.clock.Advance(100 * time.Hour)
			l.deliver(l.facts(fmt.Sprintf("%d-%d", round, day))...)
		}
		closing := l.month()
		l.clock.Set(closing.End().Time().Add(26 * time.Hour))
		l.both(func(tx store.Tx) error { return storetest.ClosePeriod(tx, closing) })
		l.deliver(storetest.Fact(fmt.Sprintf("after-%d", round), "bytes", "one", closing.Start().Add(time.Hour), "100"))
	}
	l.clock.Advance(retention.MinHorizon + 40*24*time.Hour)
	if e, ok := l.s.(*engine.Engine); ok {
		if err := e.Settle(ctx); err != nil {
			t.Fatal(err)
		}
	}
	crash := func(now bool) {
		mu.Lock()
		crashing = now
		mu.Unlock()
	}
	crash(true)
	r := l.retain()
	crash(false)
	if r.Pruned == 0 || points < 30 {
		t.Errorf("%d crash points, %d rows left the store", points, r.Pruned)
	}
	t.Logf("%d crash points", points)
	l.compare()
	mustClose(t, l.s)
}

func openTiny(t *testing.T, fs vfs.FS, now func() time.Time) store.Store {
	t.Helper()
	e, err := engine.Open(tiny(fs, now))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func tiny(fs vfs.FS, now func() time.Time) engine.Options {
	return engine.Options{Dir: "data", FS: fs, Now: now, SegmentBytes: 48 << 10, IndexEntries: 32,
		CheckpointBytes: 4 << 10}
}

// survive is the life after a crash.
func (l *life) survive(t *testing.T, fs vfs.FS, rebuild bool) {
	after := *l
	after.T = t
	after.s = openTiny(t, fs, l.clock.Now)
	defer func() { mustClose(t, after.s) }()
	if after.head(tenant.Operator).Seq == 0 {
		t.Fatal("the operator's ledger is gone")
	}
	after.compare()
	after.redeliver()
	if rebuild {
		mustClose(t, after.s)
		if err := engine.Rebuild(tiny(fs, l.clock.Now)); err != nil {
			t.Fatal(err)
		}
		after.s = openTiny(t, fs, l.clock.Now)
		after.compare()
	}
	after.retain()
	after.compare()
	after.redeliver()
	if e, ok := after.s.(*engine.Engine); ok {
		if err := e.Verify(ctx, nil); err != nil {
			t.Error(err)
		}
	}
}
