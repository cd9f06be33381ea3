package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Tenants are walls.
var wallCases = []Case{
	{"the same ids in two tenants are two facts", func(w *world) {
		w.create("one", NewMeter("other", meter.Max), NewMeter("calls", meter.Sum))
		w.create("two", NewMeter("calls", meter.Sum))
		w.says("one", "accepted", Fact("a", "calls", "c", Ago(0), "1"), Fact("b", "calls", "c", Ago(0), "2"),
			Fact("c", "calls", "c", Ago(0), "3"))
		v := w.says("two", "accepted duplicate", Fact("a", "calls", "c", Ago(0), "40"),
			Fact("a", "calls", "c", Ago(0), "40"))[0]
		if v.Seq != 3 {
			w.Errorf("the first event of the second tenant is row %d: its numbers count those of the first tenant",
				v.Seq)
		}
		w.again()
		w.says("one", "duplicate conflict", Fact("a", "calls", "c", Ago(0), "1"), Fact("a", "calls", "c", Ago(0), "40"))
		w.says("two", "rejected:unknown_meter rejected:unknown_correction_target accepted",
			Fact("x", "other", "c", Ago(0), "1"), Correction("x", "b", "1"), Correction("x", "a", "-40"))
		w.totals("one", "calls", "c", "6")
		w.totals("two", "calls", "c", "0")
	}},
	{"nothing of one tenant is found in another", func(w *world) {
		w.create("one", NewMeter("mine", meter.Sum))
		w.create("two", NewMeter("calls", meter.Sum))
		k := w.says("one", "accepted accepted", Fact("a", "mine", "c", Ago(0), "1"),
			Fact("", "mine", "c", Ago(0), "1"))[1].Key
		w.update("one", func(tx store.Tx) error { return PutKey(tx, tenant.APIKey{ID: "one.k"}) })
		w.adjust("one", "mine", "c", "5", "")
		w.closePeriod("one", Month-1)
		adjustment := usage.ManualID(w.head("one").Seq - 1)
		for range 2 {
			w.noEvent("two", "a")
			w.noEvent("two", k.ID())
			_, err := w.s.Access(context.Background(), "two", "one.k")
			w.code("access to two by a key of one", err, problem.NotFound)
			w.view("two", func(v store.View) {
				_, noMeter := store.GetMeter(v, "mine")
				_, noKey := store.Get(v, &tenant.KeyKind, "one.k")
				_, noAdjustment := store.Adjustment(v, adjustment)
				for i, err := range []error{noMeter, noKey, noAdjustment} {
					w.code(fmt.Sprint("foreign thing ", i), err, problem.NotFound)
				}
				if c, err := v.Counter(usage.CounterID{Meter: 1, Customer: "c", Month: Month}); err != nil ||
					!c.OnTime.Equal(&usage.Fold{}) || !c.Manual.IsZero() {
					w.Errorf("the counter of another tenant shows: %s, %v", describe(&c), err)
				}
				_ = v.Counters(store.CounterPlace{}, func(p store.CounterPlace, _ *usage.Counter) bool {
					w.Errorf("counter %v is listed in a tenant without any", p)
					return true
				})
				if p, err := store.Periods(v, 0, many); err != nil || len(p) != 0 {
					w.Errorf("the periods are %v, %v, want none", p, err)
				}
				if keys, err := store.List(v, &tenant.KeyKind, store.Page{Limit: many}); err != nil || len(keys) != 0 {
					w.Errorf("the keys are %v, %v, want none", keys, err)
				}
			})
			w.again()
		}
	}},
	{"the close of a period or a tenant is its own tenant's", func(w *world) {
		w.create("one", NewMeter("calls", meter.Sum))
		w.create("two", NewMeter("calls", meter.Sum))
		w.closePeriod("one", Month)
		w.says("two", "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		w.says("one", "adjusted", Fact("a", "calls", "c", Ago(0), "1"))
		w.closeTenant("one")
		w.says("two", "accepted", Fact("b", "calls", "c", Ago(0), "1"))
	}},
	{"tenants whose names begin alike are apart", func(w *world) {
		names := []string{"a", "a.", "a.b", "a-b", "A", "aa", "a_b", "a.b.c"}
		for i, id := range names {
			w.create(id, NewMeter("calls", meter.Sum))
			w.says(id, "accepted", Fact("e", "calls", "c", Ago(0), fmt.Sprint(i+1)))
		}
		w.again()
		for i, id := range names {
			w.totals(id, "calls", "c", fmt.Sprint(i+1))
		}
	}},
	{"the clock of one tenant does not move another's", func(w *world) {
		w.create("one", NewMeter("calls", meter.Sum))
		w.create("two", NewMeter("calls", meter.Sum))
		w.clock.Advance(-time.Minute)
		w.create("three", NewMeter("calls", meter.Sum))
		if got := w.head("three").Clock; got != Ago(time.Minute) {
			w.Errorf("the new tenant's clock shows %s, want %s", got, Ago(time.Minute))
		}
	}},
}
