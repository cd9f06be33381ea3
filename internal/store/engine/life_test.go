package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// live plays random lives on the oracle and on an engine that another takes over from now and then. next returns the
// files that the other opens; it ends the engine.
func live(t *testing.T, next func(t *rapid.T, mem *vfs.MemFS, e *Engine) *vfs.MemFS) {
	rapid.Check(t, func(t *rapid.T) {
		clock, mem := storetest.NewClock(), vfs.NewCrashableMem()
		open := func() store.Store {
			e, err := Open(small(mem, clock.Now))
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			return e
		}
		storetest.Life(t, func() (oracle, subject store.Store) {
			return naive.New(naive.Options{Now: clock.Now, Kinds: storetest.Kinds()}), open()
		},
			func(s store.Store) store.Store {
				mem = next(t, mem, s.(*Engine))
				return open()
			}, clock)
	})
}

func mustEnd(t storetest.TB, e *Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// Given any life, when the engine is closed and opened again at any time, then it shows what the oracle shows.
func TestLifeWithRestarts(t *testing.T) {
	live(t, func(t *rapid.T, mem *vfs.MemFS, e *Engine) *vfs.MemFS {
		mustEnd(t, e)
		return mem
	})
}

// Given any life, when the derived files are lost, one kind or both, then the journal alone gives all of them back.
func TestLifeWithRebuilds(t *testing.T) {
	live(t, func(t *rapid.T, mem *vfs.MemFS, e *Engine) *vfs.MemFS {
		mustEnd(t, e)
		for _, dir := range rapid.SampledFrom([][]string{{stateDir}, {indexDir}, {stateDir, indexDir}}).Draw(t,
			"lost") {
			if err := mem.RemoveAll(mem.PathJoin("data", dir)); err != nil {
				t.Fatalf("remove %s: %v", dir, err)
			}
		}
		return mem
	})
}

// Given any life, when the power fails at any time and takes any of what was not synced, then nothing that was answered
// is lost and nothing else has appeared.
func TestLifeWithPowerFailures(t *testing.T) {
	live(t, func(t *rapid.T, mem *vfs.MemFS, e *Engine) *vfs.MemFS {
		after := mem.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: rapid.SampledFrom([]int{0, 0, 50, 100}).Draw(t, "survives"),
			RNG:                 rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "which"), 0)),
		})
		mustEnd(t, e)
		return after
	})
}
