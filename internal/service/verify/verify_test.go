package verify_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

func examine(t *testing.T, s verify.Ledgers) verify.Report {
	t.Helper()
	r, err := verify.Run(context.Background(), s, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// examineSnapshot finds the same books on the disk as in memory.
func examineSnapshot(t *testing.T, e *engine.Engine) {
	t.Helper()
	moment, err := e.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r, now := examine(t, moment), examine(t, e)
	if !r.OK() || fmt.Sprint(r) != fmt.Sprint(now) {
		t.Errorf("a snapshot shows %+v, the store %+v", r, now)
	}
	if err := moment.Release(); err != nil {
		t.Error(err)
	}
}

func openEngine(t *testing.T, now func() time.Time) store.Store {
	t.Helper()
	e, err := engine.Open(engine.Options{Dir: "data", FS: vfs.NewMem(), Now: now, Kinds: storetest.Kinds(),
		SegmentBytes: 512 << 10, IndexEntries: 64, CheckpointBytes: 8 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Whatever the conformance suite has a right store do, its books are in order afterwards.
func TestEveryStoryOfTheSuiteLeavesBooksInOrder(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, now func() time.Time) store.Store{
		"naive": func(_ *testing.T, now func() time.Time) store.Store {
			return naive.New(naive.Options{Now: now, Kinds: storetest.Kinds()})
		},
		"engine": openEngine,
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range storetest.Cases() {
				t.Run(c.Name, func(t *testing.T) {
					clock := storetest.NewClock()
					s := c.Try(t, storetest.Bench{Clock: clock, Store: open(t, clock.Now)})
					if s == nil {
						return
					}
					if r := examine(t, s); !r.OK() {
						t.Errorf("%d differences: %v", r.Found, r.Differences)
					}
					if e, ok := s.(*engine.Engine); ok {
						examineSnapshot(t, e)
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

const acme = "acme"

// history is a ledger with one of everything: on time, late, corrected, unique, adjusted, reverted, closed, after the
// close.
func history(t *testing.T, s store.Store) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	meters := []meter.Meter{
		{Slug: "calls", Aggregation: meter.Sum, Lateness: time.Hour, Future: time.Hour},
		{Slug: "peak", Aggregation: meter.Max, Lateness: time.Hour, Future: time.Hour},
		{Slug: "users", Aggregation: meter.Unique, UniqueProperty: "user", EventType: "visit", Lateness: time.Hour,
			Future: time.Hour},
		{Slug: "unused", Aggregation: meter.Count, Lateness: time.Hour, Future: time.Hour},
	}
	must(storetest.Create(s, acme, meters...))
	must(storetest.Create(s, "globex", meters...))
	ctx := context.Background()
	update := func(fn func(tx store.Tx) error) { t.Helper(); must(s.Update(ctx, acme, fn)) }
	record := func(want usage.Status, events ...usage.Event) {
		t.Helper()
		verdicts, err := s.Record(ctx, store.Batch{Tenant: acme, Events: events})
		must(err)
		for i, v := range verdicts {
			if v.Status != want {
				t.Fatalf("event %s: %s (%v), want %s", events[i].ID, v.Status, v.Problem, want)
			}
		}
	}
	update(func(tx store.Tx) error {
		return storetest.PutKey(tx, tenant.APIKey{ID: "acme.k1", Scopes: tenant.Read, CreatedAt: tx.Now()})
	})
	ago := storetest.Ago
	record(usage.Accepted,
		storetest.Fact("c1", "calls", "ann", ago(30*time.Minute), "2"),
		storetest.Fact("c2", "calls", "ann", ago(0), "3.5"),
		storetest.Fact("p1", "peak", "ann", ago(0), "7"),
		storetest.Fact("p2", "peak", "ann", ago(time.Minute), "9"),
		storetest.Call("v1", "visit", "ann", ago(0), storetest.Text("user", "u1")),
		storetest.Call("v2", "visit", "ann", ago(0), storetest.Text("user", "u2")),
		storetest.Call("v3", "visit", "ann", ago(0), storetest.Text("user", "u1")),
		storetest.Fact("b1", "calls", "bob", ago(0), "1"),
	)
	record(usage.Adjusted, storetest.Fact("late", "calls", "ann", ago(5*time.Hour), "4"))
	record(usage.Accepted, storetest.Correction("fix", "c2", "-1.5"), storetest.Correction("fix2", "v2", "-1"))
	var first string
	update(func(tx store.Tx) (err error) {
		first, err = storetest.Adjust(tx, "calls", "ann", storetest.Month, "10", "")
		return err
	})
	update(func(tx store.Tx) error {
		_, err := storetest.Adjust(tx, "calls", "ann", storetest.Month, "-10", first)
		return err
	})
	update(func(tx store.Tx) error { return storetest.ClosePeriod(tx, storetest.Month) })
	record(usage.Adjusted,
		storetest.Fact("after", "calls", "ann", ago(0), "5"),
		storetest.Call("v4", "visit", "ann", ago(0), storetest.Text("user", "u3")),
		storetest.Correction("fix3", "c1", "-2"))
}

func TestReportCountsWhatItRead(t *testing.T) {
	s := naive.New(naive.Options{Now: storetest.NewClock().Now})
	history(t, s)
	var done, total uint64
	r, err := verify.Run(context.Background(), s, verify.Options{Progress: func(d, of uint64) {
		if d < done || d > of {
			t.Errorf("progress went from %d to %d of %d", done, d, of)
		}
		done, total = d, of
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() {
		t.Fatalf("differences: %v", r.Differences)
	}
	// Two tenants of five change rows; acme also has a key, fourteen events, two adjustments and a close.
	if r.Tenants != 2 || r.Rows != 28 || r.Counters != 4 || r.Lookups != 14 {
		t.Errorf("report %+v", r)
	}
	if done != 2*r.Rows || total != done {
		t.Errorf("progress ended at %d of %d, want %d", done, total, 2*r.Rows)
	}
}

func TestStopsWhenTheCallerHasHadEnough(t *testing.T) {
	s := naive.New(naive.Options{Now: storetest.NewClock().Now})
	history(t, s)
	ctx, stop := context.WithCancel(context.Background())
	_, err := verify.Run(ctx, s, verify.Options{Progress: func(uint64, uint64) { stop() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("stopped with %v", err)
	}
}

// Every tenant is examined, however few a store lists at a time; the operator's own ledger is counted apart.
func TestEveryTenantIsExamined(t *testing.T) {
	s := naive.New(naive.Options{Now: storetest.NewClock().Now})
	for _, id := range []string{tenant.Operator, "a", "b", "c", "d", "e"} {
		if err := storetest.Create(s, id, storetest.NewMeter("calls", meter.Sum)); err != nil {
			t.Fatal(err)
		}
	}
	for most := 1; most <= 6; most++ {
		r, err := verify.Run(context.Background(), storetest.ShortPages(s, most), verify.Options{})
		if err != nil || r.Tenants != 5 || !r.Operator || r.Rows != 12 {
			t.Errorf("pages of %d: %+v, %v", most, r, err)
		}
	}
}
