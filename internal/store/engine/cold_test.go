package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// checkpointNow leaves the state as far as the journal.
func checkpointNow(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.checkpointed(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// forgetAll lets go of every counter that the state has.
func forgetAll(e *Engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	keep := e.cells.max
	e.cells.max = 0
	e.cells.letGo(e.cells.rounds(), 2*e.cells.rounds())
	e.cells.max = keep
}

// figure reads one of the engine's counts. It has a registry of its own.
func figure(t *testing.T, e *Engine, name string) float64 {
	t.Helper()
	families, err := e.options.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tallystick_engine_"+name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no figure %s", name)
	return 0
}

// resting are the options of an engine that makes checkpoints only when the test does.
func resting(fs vfs.FS) Options {
	o := tiny(fs, storetest.NewClock().Now)
	o.CheckpointBytes, o.IndexEntries, o.CounterBytes, o.Metrics = 1<<30, 10_000, 128_000, prometheus.NewRegistry()
	return o
}

// cold opens an engine with a counter that has one fact and is not in memory.
func cold(t *testing.T, fs vfs.FS) *Engine {
	t.Helper()
	e := mustOpen(t, resting(fs))
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	mustRecord(t, e, "first")
	checkpointNow(t, e)
	forgetAll(e)
	return e
}

func mustRecord(t *testing.T, e *Engine, id string) {
	t.Helper()
	if a := record(e, "acme", storetest.Fact(id, "calls", "c", storetest.Ago(0), "1")); a.err != nil ||
		!strings.HasPrefix(a.said, "accepted") {
		t.Fatalf("%s: %+v", id, a)
	}
}

// Given a batch that has read a counter from the state and waits to be decided, whatever happens to the counter
// meanwhile, then every fact is counted once.
func TestFetchedCountersAreNeverStale(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, e *Engine){
		"nothing": func(*testing.T, *Engine) {},
		"another batch changes it": func(t *testing.T, e *Engine) {
			mustRecord(t, e, "between")
		},
		"it changes, is saved and stays": func(t *testing.T, e *Engine) {
			mustRecord(t, e, "between")
			checkpointNow(t, e)
		},
		"it changes, is saved and let go": func(t *testing.T, e *Engine) {
			mustRecord(t, e, "between")
			checkpointNow(t, e)
			forgetAll(e)
		},
		"it changes twice around a checkpoint": func(t *testing.T, e *Engine) {
			mustRecord(t, e, "between")
			checkpointNow(t, e)
			mustRecord(t, e, "again")
			forgetAll(e)
		},
		"it changes, is saved and let go, and so do the meters": func(t *testing.T, e *Engine) {
			mustRecord(t, e, "between")
			checkpointNow(t, e)
			forgetAll(e)
			err := e.Update(context.Background(), "acme", func(tx store.Tx) error {
				m, err := store.GetMeter(tx, "calls")
				if err != nil {
					return err
				}
				m.Name = "another"
				return storetest.PutMeter(tx, m.Meter)
			})
			if err != nil {
				t.Fatal(err)
			}
		},
		"a checkpoint of nothing": func(t *testing.T, e *Engine) {
			checkpointNow(t, e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := cold(t, vfs.NewMem())
			b, err := e.book("acme")
			if err != nil {
				t.Fatal(err)
			}
			w, err := e.prepare(b, "", []usage.Event{storetest.Fact("waited", "calls", "c", storetest.Ago(0), "1")})
			if err != nil || len(w.fetched.cells) != 1 {
				t.Fatalf("brought %d cells along: %v", len(w.fetched.cells), err)
			}
			meanwhile(t, e)
			if err := e.submit(context.Background(), &b.queued, w); err != nil {
				t.Fatal(err)
			}
			e.recycle(w)
			storetest.CheckLedger(t, e, "acme")
			checkpointNow(t, e)
			forgetAll(e)
			storetest.CheckLedger(t, e, "acme")
			if n := e.waiting.Load(); n != 0 {
				t.Errorf("%d cells still wait", n)
			}
			mustEnd(t, e)
		})
	}
}

// Given two batches that have read the same counter, and one whose caller gave up, then each fact is counted once and
// nothing is held for the one that was given up.
func TestTwoBatchesBringTheSameCounter(t *testing.T) {
	e := cold(t, vfs.NewMem())
	b, err := e.book("acme")
	if err != nil {
		t.Fatal(err)
	}
	var works []*work
	for i := range 2 {
		w, err := e.prepare(b, "", []usage.Event{storetest.Fact(fmt.Sprint("w", i), "calls", "c", storetest.Ago(0),
			"1")})
		if err != nil || len(w.fetched.cells) != 1 {
			t.Fatalf("brought %d cells along: %v", len(w.fetched.cells), err)
		}
		works = append(works, w)
	}
	for _, w := range works {
		if err := e.submit(context.Background(), &b.queued, w); err != nil {
			t.Fatal(err)
		}
		e.recycle(w)
	}
	storetest.CheckLedger(t, e, "acme")
	gone, stop := context.WithCancel(context.Background())
	stop()
	forgetAll(e)
	if _, err := e.Record(gone, store.Batch{Tenant: "acme",
		Events: []usage.Event{storetest.Fact("gone", "calls", "other", storetest.Ago(0), "1")}}); err == nil {
		t.Error("a caller that had gone was answered")
	}
	if n := e.waiting.Load(); n != 0 {
		t.Errorf("%d cells still wait", n)
	}
	mustEnd(t, e)
}

// Given more facts of counters that are not in memory than callers may bring along, then deciding reads the rest, and
// all is counted.
func TestMoreIsColdThanMayWait(t *testing.T) {
	e := cold(t, vfs.NewMem())
	e.waiting.Store(maxFetched) // as if others had brought them
	mustRecord(t, e, "second")
	if figure(t, e, "counters_read_deciding_total") == 0 {
		t.Error("nothing was read while deciding")
	}
	e.waiting.Store(0)
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}

// Given a store that was just opened, so that no counter is in memory, when facts come, also without a time and for
// several meters at once, then deciding them reads nothing from the state.
func TestDecidingReadsNoColdCounters(t *testing.T) {
	o := resting(vfs.NewMem())
	e := mustOpen(t, o)
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum),
		storetest.NewMeter("bytes", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	send := func(round int) {
		var events []usage.Event
		for i := range 50 {
			f := storetest.Fact(fmt.Sprint("r", round, "-", i), []string{"calls", "bytes"}[i%2], fmt.Sprint("c", i),
				storetest.Ago(0), "1")
			if i%5 == 0 {
				f.Time, f.Given = 0, f.Given&^usage.GivenTime
			}
			events = append(events, f)
		}
		if _, err := e.Record(context.Background(), store.Batch{Tenant: "acme", Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	send(0)
	mustEnd(t, e)
	e = mustOpen(t, o)
	read := figure(t, e, "counters_read_deciding_total")
	send(1)
	if now := figure(t, e, "counters_read_deciding_total"); now != read {
		t.Errorf("deciding read %g counters", now-read)
	}
	if n := figure(t, e, "counters_fetched_total"); n != 50 {
		t.Errorf("%g counters were brought along, want 50", n)
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}

// Given a tenant with many changed counters, when another lists its own few, then those alone are looked at.
func TestListingLooksAtItsOwnCounters(t *testing.T) {
	e := mustOpen(t, resting(vfs.NewMem()))
	for _, id := range []string{"acme", "busy"} {
		if err := storetest.Create(e, id, storetest.NewMeter("calls", meter.Sum)); err != nil {
			t.Fatal(err)
		}
	}
	many := func(tenant string, n int) {
		for i := range n {
			if a := record(e, tenant, storetest.Fact(fmt.Sprint(i, "-", n), "calls", fmt.Sprint("c", i),
				storetest.Ago(0), "1")); a.err != nil {
				t.Fatal(a.err)
			}
		}
	}
	many("busy", 300)
	many("acme", 3)
	list := func(tenant string) (n int) {
		err := e.View(context.Background(), tenant, func(v store.View) error {
			return v.Counters(store.CounterPlace{}, func(store.CounterPlace, *usage.Counter) bool {
				n++
				return true
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := list("acme"); n != 3 {
		t.Errorf("listed %d counters, want 3", n)
	}
	if n := figure(t, e, "counters_listed_total"); n != 3 {
		t.Errorf("looked at %g changed counters, want 3", n)
	}
	checkpointNow(t, e)
	many("busy", 20)
	if n := list("busy"); n != 300 {
		t.Errorf("listed %d counters, want 300", n)
	}
	mustEnd(t, e)
}

// heldReads holds every read of the state while it is shut.
type heldReads struct {
	mu      sync.Mutex // guards what follows
	shut    bool
	held    int
	changed *sync.Cond
}

func newHeldReads() *heldReads {
	d := &heldReads{}
	d.changed = sync.NewCond(&d.mu)
	return d
}

func (d *heldReads) read() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held++
	d.changed.Broadcast()
	for d.shut {
		d.changed.Wait()
	}
	d.held--
}

func (d *heldReads) set(shut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = shut
	d.changed.Broadcast()
}

// busy waits until a read is held.
func (d *heldReads) busy() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.held == 0 {
		d.changed.Wait()
	}
}

// Given a reader whose read of the state hangs, when facts come whose counters are in memory, then they are recorded.
func TestReadersDoNotHoldTheCommitter(t *testing.T) {
	for name, read := range map[string]func(v store.View) error{
		"counter": func(v store.View) error {
			_, err := v.Counter(usage.CounterID{Meter: 1, Customer: "c", Month: storetest.Month})
			return err
		},
		"tally": func(v store.View) error {
			_, err := v.Tally(1, storetest.Month)
			return err
		},
		"event": func(v store.View) error {
			_, _, err := v.Event(usage.KeyOfID("first"))
			return err
		},
		"request": func(v store.View) error {
			if _, err := store.Request(v, "none"); !problem.Is(err, problem.NotFound) {
				return fmt.Errorf("a request that nobody made: %w", err)
			}
			return nil
		},
		"adjustment": func(v store.View) error {
			_, err := store.Adjustment(v, usage.ManualID(v.Head().Seq))
			return err
		},
		"counters": func(v store.View) error {
			return v.Counters(store.CounterPlace{}, func(store.CounterPlace, *usage.Counter) bool { return true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			unhung(t, name, func() error {
				fs, d := vfs.NewMem(), newHeldReads()
				e := cold(t, fs)
				err := e.Update(context.Background(), "acme", func(tx store.Tx) error {
					_, err := storetest.Adjust(tx, "calls", "c", storetest.Month, "1", "")
					return err
				})
				if err != nil {
					return err
				}
				mustEnd(t, e)
				o := resting(fs)
				o.reading = d.read
				e = mustOpen(t, o)
				if err := storetest.Create(e, "other", storetest.NewMeter("calls", meter.Sum)); err != nil {
					return err
				}
				fact := func(id string) usage.Event { return storetest.Fact(id, "calls", "c", storetest.Ago(0), "1") }
				if a := record(e, "other", fact("warm")); a.err != nil {
					return a.err
				}
				d.set(true)
				answered := make(chan error, 1)
				go func() { answered <- e.View(context.Background(), "acme", read) }()
				d.busy()
				a := record(e, "other", fact("beside"))
				d.set(false)
				if err := <-answered; err != nil || a.err != nil {
					return fmt.Errorf("%w, %w", err, a.err)
				}
				return e.Close()
			})
		})
	}
}

// Given a store that ended without a last checkpoint, when it starts again, then the counters that it replays are read
// side by side before their rows are, and all is counted.
func TestAStartReadsCountersSideBySide(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := resting(mem)
	e := mustOpen(t, o)
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	send := func(round string) {
		var events []usage.Event
		for i := range 50 {
			events = append(events, storetest.Fact(fmt.Sprint(round, i), "calls", fmt.Sprint("c", i), storetest.Ago(0),
				"1"))
		}
		if _, err := e.Record(context.Background(), store.Batch{Tenant: "acme", Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	send("before")
	checkpointNow(t, e)
	send("after")
	left := resting(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0}))
	mustEnd(t, e)
	e = mustOpen(t, left)
	if n := figure(t, e, "counters_fetched_total"); n != 50 {
		t.Errorf("%g counters were read ahead of their rows, want 50", n)
	}
	if n := figure(t, e, "counters_read_deciding_total"); n != 0 {
		t.Errorf("%g counters were read one by one", n)
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}
