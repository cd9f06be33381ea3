package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// manyCounters are more than one block of the state holds, so that some of them are read from the disk.
const manyCounters = 600

func customer(i int) string { return fmt.Sprintf("customer-%05d", i) }

// unreadableState is an engine that has none of its counters in memory, on a disk that can be made to refuse reads of
// the state.
func unreadableState(t *testing.T) (e *Engine, bad *errorfs.Toggle, ended func() error) {
	t.Helper()
	bad = &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && strings.HasPrefix(op.Path, "data/state/") {
			return syscall.EIO
		}
		return nil
	})}
	failures := make(chan error, 8)
	return withColdCounters(t, bad, func(err error) { failures <- err }), bad, func() error {
		select {
		case err := <-failures:
			return err
		default:
			return nil
		}
	}
}

// withColdCounters is an engine that has many counters, none of them in memory, on a disk with a fault that is still
// off.
func withColdCounters(t *testing.T, fault errorfs.Injector, fatal func(error)) *Engine {
	t.Helper()
	o := small(errorfs.Wrap(vfs.NewMem(), fault), storetest.NewClock().Now)
	o.Fatal, o.NoSlices = fatal, true
	e := mustOpen(t, o)
	if err := storetest.Create(e, "acme", storetest.NewMeter(calls, meter.Sum)); err != nil {
		t.Fatal(err)
	}
	var events []usage.Event
	for i := range manyCounters {
		events = append(events, storetest.Fact(fmt.Sprint("f", i), calls, customer(i), storetest.Ago(0), "1"))
	}
	for few := range slices.Chunk(events, 20) {
		if a := record(e, "acme", few...); a.err != nil {
			t.Fatal(a.err)
		}
	}
	mustEnd(t, e)
	return mustOpen(t, o)
}

// Given a state that cannot be read, when a change needs a counter of it, then that change is refused as unavailable
// with nothing changed, and so is a fact; what needs nothing of it goes on; and when the state can be read again so
// does everything.
func TestAChangeOfACounterThatCannotBeReadIsRefused(t *testing.T) {
	e, bad, ended := unreadableState(t)
	ctx, head := context.Background(), e.mustHead(t, "acme")
	adjust := func(who string) error {
		return e.Update(ctx, "acme", func(tx store.Tx) error {
			for _, name := range []string{"somebody new", who} {
				if _, err := storetest.Adjust(tx, calls, name, storetest.Month, "5", ""); err != nil {
					return err
				}
			}
			return nil
		})
	}
	bad.On()
	if err := adjust(customer(300)); !problem.Is(err, problem.Unavailable) || !errors.Is(err, syscall.EIO) {
		t.Errorf("an adjustment: %v, want unavailable, and why", err)
	}
	base := ledger.Base{Month: storetest.Month, Counters: []ledger.BaseCounter{{Meter: 1, Customer: customer(500)}}}
	err := e.Update(ctx, "acme", func(tx store.Tx) error {
		_, err := tx.Append(ledger.Change{Event: audit.Of("period", "base_recorded", "x"),
			State: ledger.BaseKind.State(&base)})
		return err
	})
	if !problem.Is(err, problem.Unavailable) {
		t.Errorf("a base: %v, want unavailable", err)
	}
	facts := []usage.Event{storetest.Fact("gone", calls, customer(400), storetest.Ago(0), "1"),
		storetest.Fact("f7", calls, customer(7), storetest.Ago(0), "1")}
	vs, err := e.Record(ctx, store.Batch{Tenant: "acme", Events: facts})
	if err != nil || vs[0].Status != usage.Rejected || !problem.Is(vs[0].Problem, problem.Unavailable) ||
		vs[1].Status != usage.Duplicate {
		t.Errorf("facts: %+v, %v, want the first refused as unavailable, alone", vs, err)
	}
	if err := e.Update(ctx, "acme", func(tx store.Tx) error {
		return storetest.PutMeter(tx,
			storetest.NewMeter("other", meter.Sum))
	}); err != nil {
		t.Errorf("a change that needs nothing of the state: %v", err)
	}
	bad.Off()
	if err := ended(); err != nil {
		t.Fatalf("a read that failed ended the engine: %v", err)
	}
	if now := e.mustHead(t, "acme"); now != head+1 {
		t.Errorf("the head went from %d to %d, want one more", head, now)
	}
	if err := adjust(customer(300)); err != nil {
		t.Error(err)
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}

// Given a section that is imported and a state that cannot be read half way through it, then the engine ends as after
// any failure, and nothing of the group is ever written.
func TestHalfASectionIsNeverWritten(t *testing.T) {
	e, bad, ended := unreadableState(t)
	ctx, end := context.Background(), e.journal.End()
	head := e.mustHead(t, "acme")
	bad.On()
	row := func(seq uint64, id, who string) ledger.Row {
		r := &usage.Row{Event: storetest.Fact(id, calls, who, storetest.Ago(0), "1"), Key: usage.KeyOfID(id)}
		r.Outcomes = []usage.Outcome{{Meter: 1, Value: storetest.Amount("1")}}
		return ledger.Row{Seq: seq, At: storetest.Ago(0), Event: r}
	}
	rows := []ledger.Row{row(head+1, "first", "somebody new"), row(head+2, "second", customer(300))}
	err := e.Import(ctx, "acme", ledger.Section{First: head + 1, At: storetest.Ago(0), Rows: rows})
	if !problem.Is(err, problem.Unavailable) {
		t.Errorf("import: %v, want unavailable", err)
	}
	if err := ended(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the engine ended with %v, want the failed read", err)
	}
	if now := e.journal.End(); now != end {
		t.Errorf("the journal went from %s to %s: half of a section was written", end, now)
	}
	_ = e.Close() // says again what failed
	bad.Off()
	o := e.options
	o.Fatal = nil
	e = mustOpen(t, o)
	if now := e.mustHead(t, "acme"); now != head {
		t.Errorf("the head went from %d to %d", head, now)
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}

// Given a call that reads the state before its turn, when the engine is closed, then the state is not taken away from
// under it.
func TestCloseWaitsForACallThatReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		held := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt && strings.HasPrefix(op.Path, "data/state/") {
				<-gate
			}
			return nil
		})}
		e := withColdCounters(t, held, nil)
		held.On()
		recorded, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			recorded <- record(e, "acme", storetest.Fact("late", calls, customer(300), storetest.Ago(0), "1")).err
		}()
		synctest.Wait() // it waits for the disk
		go func() { closed <- e.Close() }()
		synctest.Wait()
		if e.queue.waiting() > 0 || !e.queue.isClosed() {
			t.Error("the call is in the queue, or nobody closes it")
		}
		select {
		case err := <-closed:
			t.Errorf("closed while a call reads the state: %v", err)
		default:
		}
		held.Off()
		close(gate)
		if err := <-recorded; !problem.Is(err, problem.Unavailable) {
			t.Errorf("the call was answered %v, want unavailable", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}
