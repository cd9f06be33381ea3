package engine

import (
	"context"
	"flag"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// A closed engine leaves no goroutine behind, whatever it went through. Only a Pebble that was to end the process, in
// the tests of failing disks, keeps its own: it cannot be closed any more.
func TestMain(m *testing.M) {
	// before the command line is read, which may set it again
	if err := flag.Set("rapid.checks", strconv.Itoa(rapidChecks)); err != nil {
		panic(err)
	}
	const pebble = "github.com/cockroachdb/pebble/v2"
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(pebble+".(*ConcurrencyLimitScheduler).periodicGranter"),
		goleak.IgnoreAnyFunction(pebble+".(*cleanupManager).mainLoop"),
		goleak.IgnoreAnyFunction(pebble+"/internal/genericcache.(*shard[...]).releaseLoop"),
		goleak.IgnoreAnyFunction(pebble+"/record.(*LogWriter).flushLoop"),
		goleak.IgnoreAnyFunction(pebble+".(*DB).Close"))
}

// No exception is made for an engine that did not fail, Pebble included.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	e := mustOpen(t, tiny(vfs.NewMem(), storetest.NewClock().Now))
	if err := storetest.Create(e, "acme", crashMeters()...); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "a"} {
		if _, err := e.Record(context.Background(), store.Batch{Tenant: "acme", Events: one(id)}); err != nil {
			t.Fatal(err)
		}
	}
	mustEnd(t, e)
	goleak.VerifyNone(t, before)
}
