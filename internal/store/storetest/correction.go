package storetest

import (
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Corrections: they name what they correct, share its outcome and never rewrite it.
var correctionCases = []Case{
	{"a correction takes what it does not say from its target", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		target := On(With(Fact("a", "calls", "c", Ago(time.Hour), "10"), Text("x", "y")), "r")
		w.says(acme, "accepted", target)
		stated := On(OfMeter(Correction("full", "a", "-1"), "calls"), "r")
		stated.Customer, stated.Time, stated.Given = "c", target.Time, stated.Given|usage.GivenCustomer|usage.GivenTime
		w.says(acme, "accepted accepted", Correction("bare", "a", "-2.5"), stated)
		w.again()
		r, by := w.event(acme, usage.KeyOfID("a"))
		same(w, "the target", r.Event.Event, target)
		if len(by) != 2 || by[0].Event.ID != "bare" || by[1].Event.ID != "full" {
			w.Fatalf("the corrections are %v", by)
		}
		for _, c := range by {
			if e := c.Event; e.Meter != "calls" || e.Customer != "c" || e.Resource != "r" || e.Time != target.Time ||
				e.Reason != "miscounted" || e.Outcomes[0].Base != Amount("10") {
				w.Errorf("correction %s reads %+v", e.ID, e)
			}
		}
		w.says(acme, "duplicate duplicate conflict", Correction("bare", "a", "-2.5"), stated,
			Correction("bare", "a", "-2"))
		w.totals(acme, "calls", "c", "6.5")
	}},
	{"a correction that states the type of its target is a duplicate when it comes again", func(w *world) {
		m := NewMeter("calls", meter.Sum)
		m.EventType = "call"
		w.create(acme, m)
		c := Correction("fix", "a", "1")
		c.Type, c.Given = "call", c.Given|usage.GivenType
		w.says(acme, "accepted accepted duplicate", Call("a", "call", "c", Ago(0)), c, c)
		w.again()
		w.says(acme, "duplicate", c)
		w.totals(acme, "calls", "c", "2")
	}},
	{"a correction that contradicts its target, or the rules, is refused", func(w *world) {
		w.create(acme, append(mixMeters(), NewMeter("calls", meter.Sum))...)
		w.says(acme, "accepted accepted accepted", On(Fact("a", "calls", "c", Ago(0), "10"), "r"),
			Correction("fix", "a", "-1"), mix("m", "c", Ago(0), "1", "u"))
		customer, resource, at, reason, quantity, id := Correction("x", "a", "1"), On(Correction("x", "a", "1"), "s"),
			Correction("x", "a", "1"), Correction("x", "a", "1"), Correction("x", "a", "1"), Correction("", "a", "1")
		customer.Customer, customer.Given = "d", customer.Given|usage.GivenCustomer
		at.Time, at.Given = Ago(1*time.Microsecond), at.Given|usage.GivenTime
		reason.Reason = ""
		quantity.Given &^= usage.GivenQuantity
		before := w.head(acme)
		w.says(acme, "rejected:invalid", customer, resource, at, reason, quantity, id,
			OfMeter(Correction("x", "a", "1"), "m-sum"), OfMeter(Correction("x", "m", "1"), "calls"),
			OfMeter(Correction("x", "a", "1"), "nothing"),
			Correction("x", "m", "1"), // one of its meters must be named
			Correction("x", "a", "0"), Correction("x", "a", "-9.000000000001"), Correction("x", "fix", "1"))
		w.says(acme, "rejected:unknown_correction_target", Correction("x", "nothing", "1"),
			Correction("x", "key:nothing", "1"), Correction("x", "x", "1"))
		w.again()
		if after := w.head(acme); after != before {
			w.Errorf("the head went from %v to %v", before, after)
		}
	}},
	{"a correction does not lift a fact to where no event could put it", func(w *world) {
		w.create(acme, mixMeters()...)
		most := "999999999999999"
		w.says(acme, "accepted", mix("a", "c", Ago(0), most, "u"))
		for i, slug := range mixSlugs() {
			fix := func(id, q string) usage.Event { return OfMeter(Correction(fmt.Sprint(id, i), "a", q), slug) }
			lift, up := "1", "0.999999999999"
			if slug == "m-unique" { // whose facts are ones
				lift, up = most, "999999999999998"
			}
			before := w.head(acme)
			w.says(acme, "rejected:invalid rejected:invalid", fix("lift", lift), fix("lift", most))
			if after := w.head(acme); after != before {
				w.Errorf("the head went from %v to %v", before, after)
			}
			w.says(acme, "accepted rejected:invalid accepted", fix("up", up), fix("more", up), fix("down", "-1"))
		}
		w.again()
		w.totals(acme, "m-sum", "c", "999999999999998.999999999999")
	}},
	{"a fact corrected to nothing no longer counts, and counts again when it is given back", func(w *world) {
		w.create(acme, mixMeters()...)
		w.says(acme, "accepted accepted accepted", mix("a", "c", Ago(2*time.Microsecond), "5", "u1"),
			mix("b", "c", Ago(1*time.Microsecond), "1", "u2"), mix("top", "c", Ago(0), "9", "u3"))
		each := func(n int, target, value, one string) {
			w.Helper()
			for i, slug := range mixSlugs() {
				q := value
				if slug == "m-unique" {
					q = one
				}
				w.says(acme, "accepted", OfMeter(Correction(fmt.Sprint("fix", n, "-", i), target, q), slug))
			}
		}
		check := func(sum, count, lowest, highest, last, unique, avg string) {
			w.Helper()
			for i, want := range []string{sum, count, lowest, highest, last, unique, avg} {
				slug := mixMeters()[i].Slug
				w.totals(acme, slug, "c", want+" on time "+want)
				if c := w.counter(acme, slug, "c"); c.Watermark != Ago(0) {
					w.Errorf("the correction moved the watermark of %s to %s", slug, c.Watermark)
				}
			}
		}
		check("15", "3", "1", "9", "9", "3", "5")
		each(1, "top", "-9", "-1")
		check("6", "2", "1", "5", "1", "2", "3")
		w.again()
		each(2, "b", "-1", "-1")
		check("5", "1", "5", "5", "5", "1", "5")
		each(3, "a", "-5", "-1")
		check("0", "0", "0", "0", "0", "0", "0")
		w.again()
		each(4, "top", "2", "1")
		check("2", "1", "2", "2", "2", "1", "2")
		each(5, "b", "8", "1")
		check("10", "2", "2", "8", "2", "2", "5")
	}},
	{"corrections that leave something change extremes and the last value", func(w *world) {
		w.create(acme, mixMeters()...)
		w.says(acme, "accepted accepted accepted", mix("a", "c", Ago(2*time.Microsecond), "5", "u1"),
			mix("b", "c", Ago(1*time.Microsecond), "1", "u1"), mix("z", "c", Ago(0), "9", "u1"))
		for i, slug := range mixSlugs() {
			q := "-7"
			if slug == "m-unique" {
				q = "7"
			}
			w.says(acme, "accepted accepted", OfMeter(Correction(fmt.Sprint("x", i), "z", q), slug),
				OfMeter(Correction(fmt.Sprint("y", i), "b", "2"), slug))
		}
		w.again()
		for slug, want := range map[string]string{"m-sum": "10", "m-count": "3", "m-min": "2", "m-max": "5",
			"m-last": "2", "m-unique": "1", "m-avg": "3.333333333333"} {
			w.totals(acme, slug, "c", want)
		}
	}},
	{"a member goes with its last fact only", func(w *world) {
		w.create(acme, mixMeters()...)
		w.says(acme, "accepted accepted accepted adjusted", mix("a", "c", Ago(0), "1", "u1"),
			mix("b", "c", Ago(0), "1", "u1"), mix("c", "c", Ago(0), "1", "u2"),
			mix("late", "c", Ago(90*time.Hour), "1", "u2"))
		off := func(n, target, said string) {
			w.Helper()
			w.says(acme, said, OfMeter(Correction("off"+n, target, "-1"), "m-unique"))
		}
		off("1", "a", "accepted")
		w.totals(acme, "m-unique", "c", "2 on time 2")
		off("2", "c", "accepted") // the late fact still holds its member
		w.totals(acme, "m-unique", "c", "2 on time 1")
		w.again()
		off("3", "b", "accepted")
		w.totals(acme, "m-unique", "c", "1 on time 0")
		w.says(acme, "accepted", mix("d", "c", Ago(0), "1", "u1"))
		w.totals(acme, "m-unique", "c", "2 on time 1")
		off("4", "late", "adjusted")
		w.totals(acme, "m-unique", "c", "1 on time 1")
	}},
	{"the correction of a late fact stays outside the on-time fold", func(w *world) {
		w.create(acme, mixMeters()...)
		w.says(acme, "accepted adjusted", mix("a", "c", Ago(0), "5", "u1"),
			mix("late", "c", Ago(90*time.Hour), "7", "u2"))
		v := w.says(acme, "adjusted adjusted", OfMeter(Correction("x", "late", "-3"), "m-sum"),
			OfMeter(Correction("y", "late", "3"), "m-max"))[0]
		w.again()
		w.totals(acme, "m-sum", "c", "9 on time 5")
		w.totals(acme, "m-max", "c", "10 on time 5")
		if r, _ := w.event(acme, v.Key); r.Event.Outcomes[0].Why != usage.TargetWas ||
			r.Event.Outcomes[0].Amount != Amount("-3") {
			w.Errorf("the outcome is %+v", r.Event.Outcomes[0])
		}
	}},
	{"a correction after the close leaves the on-time fold as it was", func(w *world) {
		w.create(acme, mixMeters()...)
		w.says(acme, "accepted accepted", mix("a", "c", Ago(1*time.Microsecond), "5", "u1"),
			mix("b", "c", Ago(0), "7", "u2"))
		w.says(acme, "accepted", OfMeter(Correction("before", "b", "-1"), "m-sum"))
		w.closePeriod(acme, Month)
		w.says(acme, "adjusted adjusted adjusted", OfMeter(Correction("x", "b", "-6"), "m-sum"),
			OfMeter(Correction("y", "b", "-7"), "m-last"), OfMeter(Correction("z", "b", "-1"), "m-unique"))
		w.again()
		w.totals(acme, "m-sum", "c", "5 on time 11")
		w.totals(acme, "m-last", "c", "5 on time 7")
		w.totals(acme, "m-unique", "c", "1 on time 2")
		w.says(acme, "rejected:invalid adjusted", OfMeter(Correction("again", "b", "-1"), "m-sum"),
			OfMeter(Correction("back", "b", "2"), "m-sum"))
		w.totals(acme, "m-sum", "c", "7 on time 11")
		if r, _ := w.event(acme, usage.KeyOfID("x")); r.Event.Outcomes[0].Why != usage.PeriodClosed {
			w.Errorf("the outcome is %+v", r.Event.Outcomes[0])
		}
	}},
	{"several corrections add up and never go below zero", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted accepted accepted rejected:invalid accepted", Fact("a", "calls", "c", Ago(0), "10"),
			Correction("1", "a", "-4"), Correction("2", "a", "-5.5"), Correction("3", "a", "-0.500000000001"),
			Correction("4", "a", "100"))
		w.again()
		w.says(acme, "rejected:invalid accepted rejected:invalid accepted", Correction("5", "a", "-100.500000000001"),
			Correction("6", "a", "-100.5"), Correction("7", "a", "-0.000000000001"), Correction("8", "a", "0.25"))
		w.totals(acme, "calls", "c", "0.25")
		if _, by := w.event(acme, usage.KeyOfID("a")); len(by) != 5 {
			w.Errorf("%d corrections are listed, want 5", len(by))
		}
	}},
	{"a fact with a derived key is corrected by the id that its key gives", func(w *world) {
		m := NewMeter("hits", meter.Sum)
		m.KeyPolicy = meter.DerivedKey
		w.create(acme, m)
		key := w.says(acme, "accepted", Fact("client id", "hits", "c", Ago(0), "10"))[0].Key
		w.says(acme, "accepted rejected:unknown_correction_target rejected:unknown_correction_target",
			Correction("fix", key.ID(), "-3"), Correction("x", key.Name, "-3"), Correction("y", "client id", "-3"))
		w.again()
		w.says(acme, "rejected:invalid accepted", Correction("z", key.ID(), "-8"),
			Correction("fix too", key.ID(), "-7"))
		w.totals(acme, "hits", "c", "0")
		if r, by := w.event(acme, key); len(by) != 2 || r.Event.Quantity != Amount("10") {
			w.Errorf("the fact reads %+v with %d corrections", r.Event, len(by))
		}
	}},
	{"a fact of zero counts until it is corrected to zero", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "0"))
		if n := w.counter(acme, "calls", "c").OnTime.Count; n != 1 {
			w.Errorf("%d facts count, want 1", n)
		}
		w.says(acme, "accepted accepted", Correction("up", "a", "1"), Correction("down", "a", "-1"))
		w.again()
		if n := w.counter(acme, "calls", "c").OnTime.Count; n != 0 {
			w.Errorf("%d facts count, want 0", n)
		}
	}},
}
