package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// slowDisk holds every sync of the journal while it is shut.
type slowDisk struct {
	mu      sync.Mutex // guards what follows
	shut    bool
	changed *sync.Cond
	held    int
}

func newSlowDisk() *slowDisk {
	d := &slowDisk{}
	d.changed = sync.NewCond(&d.mu)
	return d
}

func (d *slowDisk) files(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpFileSyncData {
			return nil
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.held++
		d.changed.Broadcast()
		for d.shut {
			d.changed.Wait()
		}
		d.held--
		return nil
	}))
}

func (d *slowDisk) set(shut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = shut
	d.changed.Broadcast()
}

// busy waits until a sync is held.
func (d *slowDisk) busy() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.held == 0 {
		d.changed.Wait()
	}
}

type answered struct {
	said string
	err  error
}

func record(e *Engine, tenant string, events ...usage.Event) answered {
	vs, err := e.Record(context.Background(), store.Batch{Tenant: tenant, Events: events})
	var said []string
	for _, v := range vs {
		said = append(said, fmt.Sprintf("%s%d", v.Status, v.Seq))
	}
	return answered{strings.Join(said, " "), err}
}

func lows() []meter.Meter {
	return []meter.Meter{storetest.NewMeter("low", meter.Min), storetest.NewMeter("high", meter.Max),
		storetest.NewMeter("gauge", meter.Last)}
}

// Given a group on its way to the disk, when facts arrive that depend on it (a duplicate, another content, a correction
// that recomputes the counter), then they are judged by it, and nobody is answered anything of it before it is durable.
func TestJudgingOnWhatIsStillBeingWritten(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []usage.Event
		want   string
	}{
		{"duplicate", []usage.Event{storetest.Fact("a", "low", "c", storetest.Ago(0), "2")}, "duplicate5"},
		{"conflict", []usage.Event{storetest.Fact("a", "low", "c", storetest.Ago(0), "9")}, "conflict5"},
		{"correction", []usage.Event{storetest.Correction("fix", "a", "-2"),
			storetest.Fact("b", "low", "c", storetest.Ago(0), "3")}, "accepted6 accepted7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newSlowDisk()
				e := mustOpen(t, tiny(d.files(vfs.NewMem()), storetest.NewClock().Now))
				defer mustEnd(t, e)
				if err := storetest.Create(e, "acme", lows()...); err != nil {
					t.Fatal(err)
				}
				d.set(true)
				defer d.set(false)
				first, second := make(chan answered, 1), make(chan answered, 1)
				go func() { first <- record(e, "acme", storetest.Fact("a", "low", "c", storetest.Ago(0), "2")) }()
				d.busy()
				go func() { second <- record(e, "acme", c.events...) }()
				synctest.Wait() // everybody waits for the disk: what could be answered without it has been
				select {
				case a := <-first:
					t.Fatalf("answered before the sync: %+v", a)
				case a := <-second:
					t.Fatalf("answered before the sync of what it rests on: %+v", a)
				default:
				}
				if e.queue.waiting() > 0 {
					t.Fatal("the second was not decided while the first was being written")
				}
				err := e.View(context.Background(), "acme", func(v store.View) error {
					if v.Head().Seq != 4 {
						return fmt.Errorf("a reader sees row %d, which is not durable", v.Head().Seq)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				d.set(false)
				if a := <-first; a.err != nil || a.said != "accepted5" {
					t.Fatalf("the first was answered %+v", a)
				}
				if a := <-second; a.err != nil || a.said != c.want {
					t.Fatalf("the second was answered %+v, want %s", a, c.want)
				}
				storetest.CheckLedger(t, e, "acme")
			})
		})
	}
}

// Given facts and corrections that make minimum, maximum and last be computed again, when they come in one batch, in
// batches of their own, or with restarts in between, then the counters are those of the oracle.
func TestSlicesAreFoundWhereverTheirRowsAre(t *testing.T) {
	var script []usage.Event
	for _, slug := range []string{"low", "high", "gauge"} {
		for i, v := range []string{"5", "3", "9", "4"} {
			script = append(script, storetest.Fact(fmt.Sprint(slug, i), slug, "c",
				storetest.Ago(time.Duration(9-i)*time.Minute), v))
		}
		script = append(script,
			// gone, and a conflict with it
			storetest.Correction(slug+"-x", slug+"1", "-3"), storetest.Fact(slug+"1", slug, "c", storetest.Ago(0), "7"),
			storetest.Correction(slug+"-y", slug+"2", "-8"), storetest.Correction(slug+"-z", slug+"3", "-4"),
			storetest.Fact(slug+"0", slug, "c", storetest.Ago(9*time.Minute), "5"))
	}
	for _, size := range []int{1, 2, 5, len(script)} {
		for _, restarts := range []bool{false, true} {
			clock, fs := storetest.NewClock(), vfs.NewMem()
			oracle := naive.New(naive.Options{Now: clock.Now, Kinds: storetest.Kinds()})
			o := small(fs, clock.Now)
			e := mustOpen(t, o)
			for _, s := range []store.Store{oracle, e} {
				if err := storetest.Create(s, "acme", lows()...); err != nil {
					t.Fatal(err)
				}
			}
			for from := 0; from < len(script); from += size {
				batch := script[from:min(len(script), from+size)]
				for _, s := range []store.Store{oracle, e} {
					if _, err := s.Record(context.Background(),
						store.Batch{Tenant: "acme", Events: append([]usage.Event(nil), batch...)}); err != nil {
						t.Fatal(err)
					}
				}
				if restarts && from%3 == 0 {
					mustEnd(t, e)
					e = mustOpen(t, o)
				}
			}
			storetest.Compare(t, oracle, e, "acme")
			storetest.CheckLedger(t, e, "acme")
			mustEnd(t, e)
		}
	}
}

// Given more counters than may stay in memory, when they are let go and come back, then each has counted everything;
// and when too many have changed, facts are refused as busy until a checkpoint is done, and not lost.
func TestCountersThatWereLetGoComeBack(t *testing.T) {
	const customers, rounds = 60, 8
	fs, clock := vfs.NewMem(), storetest.NewClock()
	o := tiny(fs, clock.Now)
	o.CounterBytes, o.dirty = 2048, 6
	e := mustOpen(t, o)
	if err := storetest.Create(e, "acme", lows()...); err != nil {
		t.Fatal(err)
	}
	fewest := customers
	for round := range rounds {
		for i := range customers {
			id := fmt.Sprint("f", round, "-", i)
			unhung(t, id, func() error {
				return whenFree(func() error {
					return record(e, "acme", storetest.Fact(id, "low", fmt.Sprint("c", i), storetest.Ago(0),
						fmt.Sprint(100-round))).err
				})
			})
		}
		e.mu.RLock()
		fewest = min(fewest, e.cells.count)
		e.mu.RUnlock()
	}
	if fewest >= customers {
		t.Errorf("%d counters stayed in memory, want them to be let go", fewest)
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
	e = mustOpen(t, o)
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}
