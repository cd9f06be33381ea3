package storetest

import (
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Lateness: what is too old, and what becomes of it.
var lateCases = []Case{
	{"a fact older than the window is kept as an adjustment", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		edge := Ago(48 * time.Hour)
		vs := w.says(acme, "accepted accepted adjusted accepted", Fact("a", "calls", "c", Ago(0), "10"),
			Fact("b", "calls", "c", edge, "1"), Fact("late", "calls", "c", edge-1, "5"),
			Fact("d", "calls", "other", edge-1, "1"))
		w.again()
		w.totals(acme, "calls", "c", "16 on time 11")
		if c := w.counter(acme, "calls", "c"); c.Watermark != Ago(0) || !c.Started {
			w.Errorf("the watermark is %s", c.Watermark)
		}
		w.view(acme, func(v store.View) {
			a, err := store.Adjustment(v, usage.LateID(vs[2].Seq, w.meter(acme, "calls").Number))
			if err != nil || a.Amount != Amount("5") || a.Event != "late" || a.Reason != "late" || a.Actor != "" {
				w.Errorf("the adjustment reads %+v, %v", a, err)
			}
		})
		w.says(acme, "duplicate", Fact("late", "calls", "c", edge-1, "5"))
	}},
	{"a meter that rejects late facts keeps no row of them", func(w *world) {
		m := NewMeter("strict", meter.Sum)
		m.Late, m.Lateness = meter.Reject, time.Hour
		w.create(acme, m)
		w.says(acme, "accepted accepted rejected:late", Fact("a", "strict", "c", Ago(0), "1"),
			Fact("b", "strict", "c", Ago(time.Hour), "1"), Fact("late", "strict", "c", Ago(time.Hour)-1, "1"))
		w.again()
		w.noEvent(acme, "late")
		w.says(acme, "rejected:late accepted", Fact("late", "strict", "c", Ago(time.Hour)-1, "1"),
			Fact("late", "strict", "d", Ago(time.Hour)-1, "1"))
		w.totals(acme, "strict", "c", "2")
	}},
	{"a late fact's amount is the change of the total, for every aggregation", func(w *world) {
		w.create(acme, mixMeters()...)
		w.says(acme, "accepted", mix("a", "c", Ago(0), "10", "u1"))
		v := w.says(acme, "adjusted", mix("late", "c", Ago(100*time.Hour), "4", "u2"))[0]
		w.view(acme, func(view store.View) {
			for slug, want := range map[string]string{"m-sum": "4", "m-count": "1", "m-min": "-6", "m-max": "0",
				"m-last": "0", "m-unique": "1", "m-avg": "-3"} {
				m, _ := store.GetMeter(view, slug)
				a, err := store.Adjustment(view, usage.LateID(v.Seq, m.Number))
				if err != nil || a.Amount != Amount(want) {
					w.Errorf("%s was adjusted by %s, %v, want %s", slug, a.Amount, err, want)
				}
			}
		})
		w.says(acme, "adjusted accepted", mix("late too", "c", Ago(99*time.Hour), "1", "u2"),
			mix("b", "c", Ago(0), "2", "u2"))
		w.again()
		w.totals(acme, "m-unique", "c", "2 on time 2")
		w.totals(acme, "m-min", "c", "1 on time 2")
		w.totals(acme, "m-avg", "c", "4.25 on time 6")
	}},
	{"a verdict stays as it was given when the rules change", func(w *world) {
		m := NewMeter("calls", meter.Sum)
		w.create(acme, m)
		onTime, late := Fact("a", "calls", "c", Ago(time.Hour), "1"), Fact("b", "calls", "c", Ago(100*time.Hour), "1")
		vs := w.says(acme, "accepted accepted adjusted", Fact("first", "calls", "c", Ago(0), "1"), onTime, late)
		m.Lateness, m.Late = time.Minute, meter.Reject
		w.putMeter(acme, m)
		check := func() {
			w.Helper()
			for i, want := range []usage.Status{usage.Accepted, usage.Accepted, usage.Adjusted} {
				if r, _ := w.event(acme, vs[i].Key); r.Event.Status() != want {
					w.Errorf("row %d is %s, want %s", r.Seq, r.Event.Status(), want)
				}
			}
			w.says(acme, "duplicate duplicate", onTime, late)
		}
		check()
		w.totals(acme, "calls", "c", "3 on time 2")
		w.again()
		check()
		w.says(acme, "rejected:late", Fact("c", "calls", "c", Ago(time.Hour), "1"))
		m.Lateness, m.Late = 200*time.Hour, meter.Adjust
		w.putMeter(acme, m)
		w.says(acme, "accepted", Fact("c", "calls", "c", Ago(100*time.Hour), "1"))
		w.again()
		check()
		w.totals(acme, "calls", "c", "4 on time 3")
	}},
	{"a fact too far ahead is refused until its time comes near", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		e := Fact("a", "calls", "c", Ago(-time.Hour)+1, "1")
		w.says(acme, "rejected:future accepted", e, Fact("b", "calls", "c", Ago(-time.Hour), "1"))
		w.clock.Advance(time.Microsecond)
		w.says(acme, "accepted", e)
		w.clock.Advance(-time.Hour)
		w.says(acme, "duplicate", e)
	}},
}

// Closed periods.
var closeCases = []Case{
	{"after the close a fact is an adjustment, or refused by a meter that rejects late ones", func(w *world) {
		m := NewMeter("strict", meter.Sum)
		m.Late = meter.Reject
		w.create(acme, NewMeter("calls", meter.Sum), m)
		w.says(acme, "accepted accepted", Fact("a", "calls", "c", Ago(0), "10"), Fact("b", "strict", "c", Ago(0), "10"))
		w.closePeriod(acme, Month)
		for i := range 2 {
			vs := w.says(acme, "adjusted rejected:late accepted duplicate",
				Fact(fmt.Sprint("late", i), "calls", "c", Ago(0), "5"), Fact("d", "strict", "c", Ago(0), "1"),
				Fact(fmt.Sprint("before", i), "strict", "c", (Month-1).Start(), "1"),
				Fact("a", "calls", "c", Ago(0), "10"))
			r, _ := w.event(acme, vs[0].Key)
			if o := r.Event.Outcomes[0]; o.Why != usage.PeriodClosed || o.Amount != Amount("5") {
				w.Errorf("the outcome is %+v", o)
			}
			w.again()
		}
		w.totals(acme, "calls", "c", "20 on time 10")
		if c := w.counter(acme, "calls", "c"); c.SealedTotal(meter.Sum) != Amount("10") {
			w.Errorf("the sealed total is %s, want 10", c.SealedTotal(meter.Sum))
		}
	}},
	{"a sealed total never changes, and later amounts add up to the difference", func(w *world) {
		w.create(acme, mixMeters()...)
		w.says(acme, "accepted accepted accepted adjusted", mix("a", "c", Ago(3*time.Microsecond), "10", "u1"),
			mix("b", "c", Ago(2*time.Microsecond), "3", "u2"), mix("x", "c", Ago(1*time.Microsecond), "3", "u2"),
			mix("old", "c", Ago(72*time.Hour), "7", "u3"))
		w.adjust(acme, "m-avg", "c", "0.5", "")
		w.closePeriod(acme, Month)
		sealed := map[string]string{"m-sum": "23", "m-count": "4", "m-min": "3", "m-max": "10", "m-last": "3",
			"m-unique": "3", "m-avg": "6.25"}
		check := func() {
			w.Helper()
			for slug, want := range sealed {
				a, c := w.meter(acme, slug).Aggregation, w.counter(acme, slug, "c")
				if got := c.SealedTotal(a); got != Amount(want) {
					w.Errorf("the sealed total of %s is %s, want %s", slug, got, want)
				}
			}
			CheckLedger(w, w.s, acme)
		}
		check()
		for i, value := range []string{"1", "10", "0", "11", "0.000000000001", "3"} {
			w.says(acme, "adjusted", mix(fmt.Sprint("late", i), "c", Ago(time.Duration(i)*time.Hour), value,
				fmt.Sprint("u", i)))
			check()
		}
		for i, slug := range mixSlugs() {
			whole := "-10"
			if slug == "m-unique" {
				whole = "-1" // it takes no value, so each fact is one
			}
			w.says(acme, "adjusted adjusted", OfMeter(Correction(fmt.Sprint("up", i), "b", "1.333333333333"), slug),
				OfMeter(Correction(fmt.Sprint("off", i), "a", whole), slug))
			w.adjust(acme, slug, "c", "-0.1", "")
			check()
		}
		w.again()
		check()
	}},
	{"a counter that comes after the close is sealed at nothing", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.closePeriod(acme, Month)
		w.says(acme, "adjusted", Fact("a", "calls", "c", Ago(0), "5"))
		w.adjust(acme, "calls", "d", "2", "")
		w.again()
		for customer, total := range map[string]string{"c": "5", "d": "2"} {
			w.totals(acme, "calls", customer, total+" on time 0")
			if c := w.counter(acme, "calls", customer); !c.SealedTotal(meter.Sum).IsZero() {
				w.Errorf("the sealed total of %s is %s", customer, c.SealedTotal(meter.Sum))
			}
		}
	}},
	{"a period says who closed it, when and by which row", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted accepted", Fact("a", "calls", "c", Ago(0), "5"),
			Fact("b", "calls", "c", (Month-2).Start(), "5"))
		w.clock.Advance(time.Hour)
		w.closePeriod(acme, Month-2)
		w.closePeriod(acme, Month-7)
		seq := w.head(acme).Seq
		w.again()
		w.view(acme, func(v store.View) {
			early := usage.Period{Month: Month - 7, Closed: true, ClosedAt: Ago(-time.Hour), Seq: seq, Actor: "tester"}
			later := early
			later.Month, later.Seq = Month-2, seq-1
			all, err := store.Periods(v, 0, 10)
			same(w, fmt.Sprintf("periods (%v)", err), all, []usage.Period{early, later, {Month: Month}})
			some, err := store.Periods(v, Month-6, 1)
			same(w, fmt.Sprintf("one period (%v)", err), some, []usage.Period{later})
			one, err := store.Period(v, Month-7)
			same(w, fmt.Sprintf("the period (%v)", err), one, early)
			none, err := store.Period(v, Month+5)
			same(w, fmt.Sprintf("a period without anything (%v)", err), none, usage.Period{Month: Month + 5})
		})
	}},
}
