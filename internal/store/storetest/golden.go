package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// A golden store is one that an earlier build made, kept in the repository for good: every later build must read it,
// show of it what was shown then, and go on with it. FillGolden makes one of a fresh store, with something of all that
// a ledger can hold. GoldenText is what it shows. UseGolden goes on with it.

// goldenTenants are a ledger with everything, and one whose first month has left.
var goldenTenants = []string{acme, bygone}

// FillGolden records something of everything in an empty store whose clock stands at Start.
func FillGolden(t TB, s store.Store, clock *Clock) {
	t.Helper()
	w := &world{TB: t, clock: clock, s: s}
	peak, people, derived, mean := NewMeter("peak", meter.Max), NewMeter("people", meter.Unique),
		NewMeter("derived", meter.Sum), NewMeter("mean", meter.Avg)
	peak.EventType, peak.ValueProperty = "call", "v"
	people.EventType, people.UniqueProperty = "call", "u"
	derived.KeyPolicy = meter.DerivedKey
	w.create(acme, NewMeter("calls", meter.Sum), peak, people, derived, mean, NewMeter("requests", meter.Count))
	w.update(acme, func(tx store.Tx) error {
		now := tx.Now()
		return errors.Join(
			PutKey(tx, tenant.APIKey{ID: acme + ".k1", Name: "key", Scopes: tenant.Ingest, Hash: tenant.HashToken("k1"),
				CreatedAt: now}),
			PutPlan(tx, quota.Plan{Name: "pro",
				Quotas: []quota.Quota{Soft("calls", "100", "2"), Hard("requests", "3")}}),
			keep(tx, answered("first", now, `{"slug":"m"}`)))
	})
	w.assign(acme, "c1", "pro")
	for i := range 40 {
		name, at := fmt.Sprint("e", i), Ago(time.Duration(i)*7*time.Hour)
		w.goldenFacts(acme+".k1",
			On(With(Fact(name, "calls", "c1", at, fmt.Sprint(i, ".125")), Text("region", "eu"), Number("n", "1.50")),
				"gpu"),
			Call(name+"-call", "call", "é", at, Number("v", fmt.Sprint(i*200)), Text("u", fmt.Sprint("who", i%3))),
			Fact("", "derived", "c2", at, "3"), Fact(name+"-mean", "mean", "c2", at, "0.000000000001"),
			Untimed(Fact(name+"-request", "requests", "c1", 0, "1")))
		w.goldenFacts("", Correction(name+"-fix", name, "0.5"),
			OfMeter(Correction(name+"-fix2", name+"-call", "1"), "peak"))
		clock.Advance(time.Second)
	}
	made := w.adjust(acme, "calls", "c1", "-2.5", "")
	w.adjust(acme, "calls", "c1", "2.5", made)
	w.closePeriod(acme, Month-1)
	w.goldenFacts("", Fact("after the close", "calls", "c1", (Month-1).Start(), "7"))
	w.update(acme, func(tx store.Tx) error {
		tn, err := store.Tenant(tx)
		return errors.Join(err, BeginEpoch(tx, &tn))
	})
	head := w.head(acme)
	section := ledger.Section{First: head.Seq + 1, At: head.Clock}
	for i, e := range entries() {
		section.Rows = append(section.Rows,
			ledger.Row{Seq: section.First + uint64(i), At: section.At, By: "bank", Entry: e})
	}
	if err := s.Import(context.Background(), acme, section); err != nil {
		t.Fatalf("import: %v", err)
	}
	w.monthLeaves()
}

func (w *world) goldenFacts(by string, events ...usage.Event) {
	w.Helper()
	if _, err := w.s.Record(context.Background(), store.Batch{Tenant: acme, By: by, Events: events}); err != nil {
		w.Fatalf("record: %v", err)
	}
}

// GoldenText is what a golden store shows: each ledger's end and root, which stand for every row, and its counters.
func GoldenText(t TB, s store.Store) string {
	t.Helper()
	var b strings.Builder
	for _, id := range goldenTenants {
		err := s.View(context.Background(), id, func(v store.View) error {
			tn, err := store.Tenant(v)
			if err != nil {
				return err
			}
			h := v.Head()
			fmt.Fprintf(&b, "%s row %d root %x at %s epoch %d\n", id, h.Seq, h.Tree.Root(), h.Clock, tn.Epoch(h.Seq))
			return goldenCounters(&b, v)
		})
		if err != nil {
			t.Fatalf("read %s: %v", id, err)
		}
	}
	return b.String()
}

func goldenCounters(b *strings.Builder, v store.View) error {
	aggregations := map[string]meter.Aggregation{}
	meters, err := store.Meters(v, store.Page{Limit: many})
	if err != nil {
		return err
	}
	for i := range meters {
		aggregations[meters[i].Slug] = meters[i].Aggregation
	}
	return v.Counters(store.CounterPlace{}, func(p store.CounterPlace, c *usage.Counter) bool {
		a := aggregations[p.Meter]
		fmt.Fprintf(b, "  %s %s %s: %d on time, total %s, sealed %s\n", p.Month, p.Meter, p.Customer, c.OnTime.Count,
			c.Total(a), c.SealedTotal(a))
		return true
	})
}

// UseGolden wants a golden store to know what it was given, and to take more. The store must read this clock.
func UseGolden(t TB, s store.Store, clock *Clock) {
	t.Helper()
	w := &world{TB: t, clock: clock, s: s}
	CheckLedger(t, s, acme)
	w.view(bygone, func(v store.View) {
		if gone := checkPruned(t, v); gone != 4 {
			t.Errorf("%d rows have left, want 4", gone)
		}
	})
	w.view(acme, func(v store.View) {
		if r, err := store.Request(v, "first"); err != nil || r.Status != 201 {
			t.Errorf("the answer that was kept is %+v: %v", r, err)
		}
		if k, err := store.Get(v, &tenant.KeyKind, acme+".k1"); err != nil || k.Hash != tenant.HashToken("k1") {
			t.Errorf("the key is %+v: %v", k, err)
		}
	})
	name := fmt.Sprint("new at row ", w.head(acme).Seq)
	w.says(acme, "duplicate duplicate conflict accepted",
		On(With(Fact("e0", "calls", "c1", Ago(0), "0.125"), Text("region", "eu"), Number("n", "1.50")), "gpu"),
		Call("e0-call", "call", "é", Ago(0), Number("v", "0"), Text("u", "who0")),
		Fact("e1", "calls", "c1", Ago(7*time.Hour), "2"),
		Fact(name, "calls", "c3", calendar.FromTime(clock.Now()), "1"))
	w.says(acme, "rejected:quota_exceeded",
		Fact(name+" request", "requests", "c1", calendar.FromTime(clock.Now()), "1"))
	w.says(bygone, "duplicate rejected:beyond_horizon", Fact("live", "calls", "c", Ago(0), "3"),
		Fact("below the floor", "calls", "c", (Month-2).Start(), "1"))
}
