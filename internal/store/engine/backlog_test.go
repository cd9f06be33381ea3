package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// heldIndex holds every file that the key index begins until it is let go, as a machine does that gives its flusher no
// processor.
func heldIndex(fs vfs.FS) (held vfs.FS, letGo func()) {
	gate := make(chan struct{})
	held = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, "data/keys/") &&
			strings.HasSuffix(op.Path, ".run") {
			<-gate
		}
		return nil
	}))
	return held, sync.OnceFunc(func() { close(gate) })
}

// Given an index whose tables do not get to the disk, when a small store is written to and verified again and again,
// then nothing is refused: what waits is far from being too much memory, and verifying leaves no tables of its own
// behind.
func TestAStarvedFlushMakesNoSmallStoreBusy(t *testing.T) {
	fs, letGo := heldIndex(vfs.NewMem())
	e, ctx := mustOpen(t, small(fs, storetest.NewClock().Now)), context.Background()
	defer mustEnd(t, e)
	defer letGo()
	if err := storetest.Create(e, "acme", storetest.NewMeter(calls, meter.Sum)); err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		var events []usage.Event
		for j := range 64 {
			events = append(events, storetest.Fact(fmt.Sprint(i, "-", j), calls, "c", storetest.Ago(0), "1"))
		}
		if _, err := e.Record(ctx, store.Batch{Tenant: "acme", Events: events}); err != nil {
			t.Fatalf("with %d tables waiting: %v", e.index.Backlog(), err)
		}
	}
	// the decider has looked after the last group by now
	if err := e.Update(ctx, "acme", func(store.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	before := e.index.Backlog()
	if before < 10 {
		t.Fatalf("%d tables wait, want the flush to be held", before)
	}
	for range 5 {
		if err := e.Verify(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	if after := e.index.Backlog(); after != before {
		t.Errorf("verifying left %d more tables behind", after-before)
	}
}

// Given more keys in memory than may wait, then facts are refused as busy, and taken again when the disk has caught up.
func TestTooManyWaitingKeysAreBusy(t *testing.T) {
	fs, letGo := heldIndex(vfs.NewMem())
	o := tiny(fs, storetest.NewClock().Now)
	o.IndexBacklog = 20
	e := mustOpen(t, o)
	defer mustEnd(t, e)
	defer letGo()
	if err := storetest.Create(e, "acme", lows()...); err != nil {
		t.Fatal(err)
	}
	n := 0
	send := func() error {
		n++
		return record(e, "acme", storetest.Fact(fmt.Sprint("f", n), "low", "c", storetest.Ago(0), "1")).err
	}
	var err error
	for err == nil && n < 1000 {
		err = send()
	}
	if waiting := e.index.Waiting(); !problem.Is(err, problem.Busy) || waiting <= o.IndexBacklog ||
		waiting > o.IndexBacklog+o.IndexEntries {
		t.Fatalf("fact %d with %d keys waiting: %v, want busy above %d", n, waiting, err, o.IndexBacklog)
	}
	letGo()
	if err := e.index.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := send(); err != nil {
		t.Errorf("after the disk has caught up: %v", err)
	}
}
