package storetest

import (
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// One fact, one row: what makes two deliveries the same fact, and what becomes of the second.
var identityCases = []Case{
	{"a fact that stands twice in a batch is counted once", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		e := Fact("a", "calls", "c", Ago(0), "5")
		vs := w.says(acme, "accepted duplicate accepted duplicate", e, e, Fact("b", "calls", "c", Ago(0), "2"), e)
		first := vs[0]
		for _, v := range []usage.Verdict{vs[1], vs[3]} {
			if v.Seq != first.Seq || v.Key != first.Key {
				w.Errorf("a duplicate names row %d (%q), want %d (%q)", v.Seq, v.Key.ID(), first.Seq, first.Key.ID())
			}
		}
		w.totals(acme, "calls", "c", "7")
	}},
	{"a fact sent again later is a duplicate of the first row", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		e := On(With(Fact("a", "calls", "c", Ago(time.Hour), "5"), Text("region", "eu")), "r1")
		first := w.says(acme, "accepted", e)[0]
		for range 2 {
			w.again()
			w.clock.Advance(24 * time.Hour)
			if v := w.says(acme, "duplicate", e)[0]; v.Seq != first.Seq {
				w.Errorf("the duplicate names row %d, want %d", v.Seq, first.Seq)
			}
		}
		w.totals(acme, "calls", "c", "5")
		if got := len(w.rows(acme, first.Seq)); got != 0 {
			w.Errorf("the duplicates left %d rows", got)
		}
	}},
	{"the same key with other content is a conflict and changes nothing", conflicts},
	{"equal contents are one fact however they were written", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		e := Fact("a", "calls", "c", Ago(0), "1")
		w.says(acme, "accepted", e)
		e.Given &^= usage.GivenQuantity // one is what an absent quantity means
		w.says(acme, "duplicate", e)
	}},
	{"a fact without a time is a duplicate whenever it comes again", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		e := Untimed(Fact("a", "calls", "c", 0, "5"))
		v := w.says(acme, "accepted duplicate", e, e)[0]
		w.clock.Advance(3 * time.Hour)
		w.says(acme, "duplicate", e)
		w.again()
		w.clock.Advance(100 * 24 * time.Hour)
		w.says(acme, "duplicate conflict", e, Fact("a", "calls", "c", Ago(0), "5"))
		if r, _ := w.event(acme, v.Key); r.Event.Time != Ago(0) || r.Event.Has(usage.GivenTime) {
			w.Errorf("the row's time is %s, stated %t: want the time of its arrival, not stated", r.Event.Time,
				r.Event.Has(usage.GivenTime))
		}
	}},
	{"a derived key makes equal facts one, and other content under it a conflict", func(w *world) {
		m := NewMeter("hits", meter.Sum)
		m.KeyPolicy = meter.DerivedKey
		w.create(acme, m, NewMeter("calls", meter.Sum))
		e := On(Fact("mine", "hits", "c", Ago(0), "5"), "r")
		other := e
		other.Quantity = Amount("6")
		renamed := e
		renamed.ID = "another name"
		v := w.says(acme, "accepted duplicate conflict duplicate", e, e, other, renamed)[0]
		if v.Key.Space != usage.DerivedSpace {
			w.Errorf("the key is in space %c, want derived", v.Key.Space)
		}
		w.again()
		w.says(acme, "duplicate duplicate conflict", e, renamed, other)
		w.says(acme, "accepted accepted rejected:invalid", Fact("", "hits", "c", Ago(0), "1"), On(e, "r2"), Untimed(e))
		if r, _ := w.event(acme, v.Key); r.Event.ID != "mine" {
			w.Errorf("the client's id is kept as %q, want mine", r.Event.ID)
		}
		unnamed := Fact("", "calls", "c", Ago(0), "5")
		w.says(acme, "accepted duplicate", unnamed, unnamed)
		w.totals(acme, "hits", "c", "11")
		w.totals(acme, "calls", "c", "5")
	}},
	{"under a key with a bucket other content is the same fact", func(w *world) {
		m := NewMeter("views", meter.Sum)
		m.KeyPolicy, m.KeyFields, m.KeyBucket = meter.DerivedKey, []string{"properties.url", "time"}, 5*time.Second
		w.create(acme, m)
		at := Month.Start() // a moment that a bucket begins at
		view := func(d time.Duration, url, quantity string) usage.Event {
			return With(Fact("", "views", "c", at.Add(d), quantity), Text("url", url))
		}
		w.says(acme, "accepted duplicate duplicate accepted accepted",
			view(0, "/a", "1"), view(time.Second, "/a", "1"), view(5*time.Second-time.Microsecond, "/a", "9"),
			view(5*time.Second, "/a", "1"), view(0, "/b", "1"))
		w.again()
		w.says(acme, "duplicate duplicate", view(2*time.Second, "/b", "7"), view(9*time.Second, "/a", "2"))
		w.totals(acme, "views", "c", "3")
	}},
	{"names that clients choose and names that the server derives never meet", func(w *world) {
		m := NewMeter("hits", meter.Sum)
		m.KeyPolicy = meter.DerivedKey
		w.create(acme, m, NewMeter("calls", meter.Sum))
		derived := w.says(acme, "accepted", Fact("", "hits", "c", Ago(0), "5"))[0].Key
		w.says(acme, "accepted rejected:invalid", Fact(derived.Name, "calls", "c", Ago(0), "7"),
			Fact(derived.ID(), "calls", "c", Ago(0), "7"))
		w.again()
		if r, _ := w.event(acme, derived); r.Event.Meter != "hits" {
			w.Errorf("the derived key names a fact of %s", r.Event.Meter)
		}
		if r, _ := w.event(acme, usage.Key{Space: usage.ClientSpace, Name: derived.Name}); r.Event.Meter != "calls" {
			w.Errorf("the client's key names a fact of %s", r.Event.Meter)
		}
	}},
	{"the same fact has another derived key in another tenant", func(w *world) {
		w.create("one", NewMeter("calls", meter.Sum))
		w.create("two", NewMeter("calls", meter.Sum))
		e := Fact("", "calls", "c", Ago(0), "5")
		one, two := w.says("one", "accepted", e)[0], w.says("two", "accepted", e)[0]
		if one.Key == two.Key {
			w.Errorf("both tenants know the fact as %q", one.Key.ID())
		}
	}},
	{"a refused fact leaves its key free", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "rejected:future rejected:unknown_meter", Fact("a", "calls", "c", Ago(-2*time.Hour), "1"),
			Fact("b", "cals", "c", Ago(0), "1"))
		w.noEvent(acme, "a")
		w.says(acme, "accepted accepted", Fact("a", "calls", "c", Ago(0), "1"), Fact("b", "calls", "c", Ago(0), "1"))
	}},
	{"keys that differ in case, space, accent form or length are different", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Count))
		var events []usage.Event
		for _, id := range []string{"a", "A", "a ", " a", "á", "a\u0301", "ａ", "a\u200b", "aa", "a\n", "a%", "a_", "ß",
			"ss", "İ", "i"} {
			events = append(events, Fact(id, "calls", id, Ago(0), "1"))
		}
		w.says(acme, "accepted", events...)
		w.again()
		w.says(acme, "duplicate", events...)
		for _, e := range events {
			w.totals(acme, "calls", e.Customer, "1")
		}
	}},
}

func conflicts(w *world) {
	w.create(acme, NewMeter("calls", meter.Sum), NewMeter("other", meter.Sum))
	e := On(With(Fact("a", "calls", "c", Ago(0), "5"), Text("region", "eu")), "r")
	quantity, customer, slug, at, resource, noResource, props, noProps := e, e, e, e, e, e, e, e
	quantity.Quantity = Amount("5.000000000001")
	customer.Customer = "d"
	slug.Meter = "other"
	at.Time++
	resource.Resource = ""
	noResource.Resource, noResource.Given = "", e.Given&^usage.GivenResource
	props = With(props, Text("region", "us"))
	noProps.Properties, noProps.Given = "", e.Given&^usage.GivenProperties
	others := []usage.Event{quantity, customer, slug, at, resource, noResource, props, noProps, Untimed(e)}
	for i, o := range others {
		o.ID = "in the batch"
		mine := e
		mine.ID = o.ID
		if i > 0 {
			w.says(acme, "duplicate conflict", mine, o)
			continue
		}
		w.says(acme, "accepted conflict", mine, o)
	}
	first := w.says(acme, "accepted", e)[0]
	for range 2 {
		for i, v := range w.says(acme, "conflict", others...) {
			if v.Seq != first.Seq {
				w.Errorf("conflict %d names row %d, want %d", i, v.Seq, first.Seq)
			}
		}
		w.says(acme, "duplicate", e)
		w.again()
	}
	w.totals(acme, "calls", "c", "10")
	w.totals(acme, "calls", "d", "0")
}
