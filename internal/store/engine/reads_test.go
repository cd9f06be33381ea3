package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// Given a panic under the engine's own lock, when the reader recovers from it, as an HTTP server does, then the
// committer goes on.
func TestAPanicUnderTheLockIsNotTheEnd(t *testing.T) {
	broken := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".run") {
			panic("boom")
		}
		return nil
	})}
	e := mustOpen(t, tiny(errorfs.Wrap(vfs.NewMem(), broken), storetest.NewClock().Now))
	if err := storetest.Create(e, "acme", crashMeters()...); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if a := record(e, "acme", one(fmt.Sprint("f", i))...); a.err != nil {
			t.Fatal(a.err)
		}
	}
	if err := e.index.Flush(); err != nil {
		t.Fatal(err)
	}
	broken.On()
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				t.Errorf("recovered %v", got)
			}
		}()
		_ = e.View(context.Background(), "acme", func(v store.View) error {
			_, _, err := v.Event(usage.KeyOfID("f0"))
			return err
		})
	}()
	broken.Off()
	unhung(t, "the committer", func() error { return record(e, "acme", one("after")...).err })
	mustEnd(t, e)
}

// Given a committer that does not move, then Ready says so within its bound, however many ask; and when it moves again
// all is well.
func TestReadyNoticesACommitterThatStandsStill(t *testing.T) {
	e, letGo := held(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	for range 50 {
		if err := e.Ready(ctx); !problem.Is(err, problem.Unavailable) {
			t.Errorf("a committer that stands still is ready: %v", err)
		}
	}
	if waiting := e.queue.waiting(); waiting != 1 {
		t.Errorf("%d probes wait in the queue, want one for all who ask", waiting)
	}
	gone, leave := context.WithCancel(context.Background())
	leave()
	if err := e.Ready(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has left was answered %v", err)
	}
	letGo()
	for range 3 {
		if err := e.Ready(context.Background()); err != nil {
			t.Errorf("after it moved again: %v", err)
		}
	}
	mustEnd(t, e)
}

// The probe is let into a queue that is full: whether that queue moves is what it is to find out.
func TestReadyAsksAFullQueue(t *testing.T) {
	e, letGo := held(t)
	stuck := &fifo{}
	mustPut(t, e.queue, stuck, waiting(maxQueuedTenantFacts)).taken.Store(true)
	mustPut(t, e.queue, &fifo{}, waiting(maxQueuedFacts-maxQueuedTenantFacts)).taken.Store(true)
	answer := make(chan error, 1)
	go func() { answer <- e.Ready(context.Background()) }()
	unhung(t, "the probe", func() error {
		queued(e, maxQueuedFacts+1)
		letGo()
		return <-answer
	})
	mustEnd(t, e)
}

// Given a View that does not end, then Close gives up on it after a while and leaves the files open: what the View
// reads is still there.
func TestCloseGivesUpOnAViewThatDoesNotEnd(t *testing.T) {
	o := small(vfs.NewMem(), storetest.NewClock().Now)
	o.CloseWithin = time.Millisecond
	e := mustOpen(t, o)
	fill(t, e, 3)
	err := e.View(context.Background(), "acme", func(v store.View) error {
		if err := e.Close(); err == nil || !strings.Contains(err.Error(), "1 reads are still under way") {
			t.Errorf("close: %v", err)
		}
		n := 0
		err := v.Counters(store.CounterPlace{}, func(store.CounterPlace, *usage.Counter) bool { n++; return true })
		if n != 3 {
			t.Errorf("%d counters, want 3", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := e.View(context.Background(), "acme",
		func(store.View) error { return nil }); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a View after it: %v", err)
	}
	if err := e.release(); err != nil { // in place of the end of the process
		t.Error(err)
	}
	e = mustOpen(t, small(o.FS, o.Now))
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}
