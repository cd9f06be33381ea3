package storetest

import (
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Events that feed several meters.
var feedCases = []Case{
	{"an event of a type feeds every meter of that type", func(w *world) {
		w.create(acme, append(mixMeters(), NewMeter("calls", meter.Sum))...)
		v := w.says(acme, "accepted accepted accepted", mix("a", "c", Ago(2*time.Microsecond), "4", "u1"),
			mix("b", "c", Ago(1*time.Microsecond), "1", "u2"), mix("c", "c", Ago(0), "2.5", "u1"))[0]
		for range 2 {
			for slug, want := range map[string]string{"m-sum": "7.5", "m-count": "3", "m-min": "1", "m-max": "4",
				"m-last": "2.5", "m-unique": "2", "m-avg": "2.5", "calls": "0"} {
				w.totals(acme, slug, "c", want)
			}
			w.again()
		}
		r, _ := w.event(acme, v.Key)
		for i, slug := range mixSlugs() {
			if got := r.Event.Outcomes[i].Meter; got != w.meter(acme, slug).Number {
				w.Errorf("outcome %d is of meter %d, want that of %s: outcomes stand in slug order", i, got, slug)
			}
		}
	}},
	{"the string and the number are two members", func(w *world) {
		w.create(acme, mixMeters()...)
		w.says(acme, "accepted accepted accepted accepted",
			Call("a", mixType, "c", Ago(0), Number("v", "1"), Text("u", "1")),
			Call("b", mixType, "c", Ago(0), Number("v", "1"), Number("u", "1")),
			Call("c", mixType, "c", Ago(0), Number("v", "1"), Text("u", "")),
			Call("d", mixType, "c", Ago(0), Number("v", "1"), Text("u", "'); --\n\\%")))
		w.again()
		w.says(acme, "accepted", Call("e", mixType, "c", Ago(0), Number("v", "1"), Text("u", "'); --\n\\%")))
		w.totals(acme, "m-unique", "c", "4")
	}},
	{"members are counted per customer and month", func(w *world) {
		w.create(acme, mixMeters()...)
		w.says(acme, "accepted", mix("a", "c", Ago(0), "1", "u"), mix("b", "d", Ago(0), "1", "u"),
			mix("c", "c", (Month-1).Start(), "1", "u"))
		for _, customer := range []string{"c", "d"} {
			w.totals(acme, "m-unique", customer, "1")
		}
		if c := w.counterIn(acme, "m-unique", "c", Month-1); c.All().Members != 1 {
			w.Errorf("the month before has %d members, want 1", c.All().Members)
		}
	}},
	{"if one meter refuses an event none is fed, and the first reason in slug order is answered", func(w *world) {
		fed := func(slug string) meter.Meter {
			m := NewMeter(slug, meter.Sum)
			m.EventType = "call"
			return m
		}
		late, full := fed("b-late"), fed("c-full")
		late.Late, late.Lateness = meter.Reject, 0
		last := fed("d-late")
		last.Late, last.Lateness = meter.Reject, 0
		w.create(acme, last, full, late, fed("a-open"))
		w.says(acme, "accepted", Call("first", "call", "c", Ago(0)))
		w.adjust(acme, "c-full", "c", "99999999999999999999999998", "")
		v := w.says(acme, "rejected:late rejected:overflow", Call("a", "call", "c", Ago(time.Hour)),
			Call("b", "call", "c", Ago(0)))[0]
		if v.Problem == nil || !strings.Contains(v.Problem.Detail, "b-late") {
			w.Errorf("the reason is %v, want that of b-late", v.Problem)
		}
		for slug, want := range map[string]string{"a-open": "1", "b-late": "1", "d-late": "1"} {
			w.totals(acme, slug, "c", want)
		}
		w.noEvent(acme, "a")
	}},
	{"a missing value refuses the event, and the first meter in slug order says which", func(w *world) {
		a, b := NewMeter("a", meter.Sum), NewMeter("b", meter.Sum)
		a.EventType, a.ValueProperty = "call", "in"
		b.EventType, b.ValueProperty = "call", "out"
		w.create(acme, b, a)
		for i, v := range w.says(acme, "rejected:invalid rejected:invalid rejected:unknown_meter",
			Call("x", "call", "c", Ago(0)), Call("y", "call", "c", Ago(0), Number("in", "1")),
			Call("z", "cal", "c", Ago(0))) {
			want := []string{"properties.in", "properties.out", "type"}[i]
			if v.Problem == nil || len(v.Problem.Fields) != 1 || v.Problem.Fields[0].Path != want {
				w.Errorf("event %d: %v, want %s at fault", i, v.Problem, want)
			}
		}
		if w.meter(acme, "a").Used {
			w.Errorf("a refused event made its meter used")
		}
	}},
	{"an event is adjusted if one of its meters adjusted it", func(w *world) {
		short, long := NewMeter("short", meter.Sum), NewMeter("long", meter.Sum)
		short.EventType, short.Lateness, long.EventType = "call", time.Minute, "call"
		w.create(acme, short, long)
		v := w.says(acme, "accepted adjusted", Call("a", "call", "c", Ago(0)),
			Call("b", "call", "c", Ago(time.Hour)))[1]
		w.again()
		w.totals(acme, "short", "c", "2 on time 1")
		w.totals(acme, "long", "c", "2 on time 2")
		if r, _ := w.event(acme, v.Key); r.Event.Status() != usage.Adjusted {
			w.Errorf("the row's status is %s", r.Event.Status())
		}
	}},
	{"a meter created later is not fed by earlier events", func(w *world) {
		w.create(acme, mixMeters()...)
		e := mix("a", "c", Ago(0), "1", "u")
		v := w.says(acme, "accepted", e)[0]
		m := NewMeter("a-new", meter.Sum)
		m.EventType, m.ValueProperty = mixType, "v"
		w.putMeter(acme, m)
		w.again()
		w.says(acme, "duplicate accepted", e, mix("b", "c", Ago(0), "2", "u"))
		w.totals(acme, "a-new", "c", "2")
		if r, _ := w.event(acme, v.Key); len(r.Event.Outcomes) != len(mixMeters()) {
			w.Errorf("the old row has %d outcomes", len(r.Event.Outcomes))
		}
	}},
	{"a meter is used from its first kept event on", func(w *world) {
		m := NewMeter("typed", meter.Count)
		m.EventType = "call"
		w.create(acme, m, NewMeter("calls", meter.Sum), NewMeter("idle", meter.Sum))
		used := func(want ...bool) {
			w.Helper()
			for i, slug := range []string{"typed", "calls", "idle"} {
				if got := w.meter(acme, slug).Used; got != want[i] {
					w.Errorf("meter %s says used %t, want %t", slug, got, want[i])
				}
			}
		}
		w.says(acme, "rejected:future", Fact("a", "calls", "c", Ago(-2*time.Hour), "1"))
		w.adjust(acme, "idle", "c", "1", "")
		used(false, false, false)
		w.says(acme, "accepted accepted", Fact("a", "calls", "c", Ago(0), "1"), Call("b", "call", "c", Ago(0)))
		used(true, true, false)
		w.again()
		used(true, true, false)
	}},
	{"a filter and a skipped value choose which meters an event feeds, once and for all", filteredFeeds},
}

// filteredFeeds: the rows say which meters they fed, and nothing decides that again.
func filteredFeeds(w *world) {
	typed := func(slug string, a meter.Aggregation, change func(*meter.Meter)) meter.Meter {
		m := NewMeter(slug, a)
		m.EventType = "call"
		change(&m)
		return m
	}
	nine := typed("nine", meter.Sum, func(m *meter.Meter) {
		m.ValueProperty, m.Filter = "n", meter.Filter{"properties.model": {{Kind: properties.String, Text: "9"}}}
	})
	near := typed("near", meter.Count, func(m *meter.Meter) {
		m.Filter = meter.Filter{"resource": {{Kind: properties.String, Text: "eu"},
			{Kind: properties.String, Text: "us"}}}
	})
	some := typed("some", meter.Max, func(m *meter.Meter) { m.ValueProperty, m.MissingValue = "n", meter.SkipMissing })
	w.create(acme, nine, near, some)
	call := func(id, resource string, members ...properties.Member) usage.Event {
		e := Call(id, "call", "c", Ago(0), members...)
		if resource != "" {
			e = On(e, resource)
		}
		return e
	}
	batch := []usage.Event{
		call("all", "eu", Text("model", "9"), Number("n", "5")), call("near", "us"), call("some", "", Number("n", "7")),
		call("number", "", Number("model", "9")), call("value", "", Text("model", "9")), call("none", "asia"),
	}
	vs := w.says(acme, "accepted accepted accepted rejected:unknown_meter rejected:invalid rejected:unknown_meter",
		batch...)
	if p := vs[5].Problem; p == nil || !strings.Contains(p.Detail, "near") ||
		!strings.Contains(p.Detail, "properties.n") {
		w.Errorf("the reason is %v", p)
	}
	check := func() {
		w.Helper()
		w.totals(acme, "nine", "c", "5")
		w.totals(acme, "near", "c", "2")
		w.totals(acme, "some", "c", "7")
		for i, want := range []int{3, 1, 1} {
			if r, _ := w.event(acme, vs[i].Key); len(r.Event.Outcomes) != want {
				w.Errorf("event %s fed %d meters, want %d", r.Event.ID, len(r.Event.Outcomes), want)
			}
		}
	}
	check()
	w.again()
	check()
	w.says(acme, "duplicate duplicate duplicate", batch[:3]...)
	// A change of what is missing holds for what comes, and the rows stay as they are.
	m := w.meter(acme, "some").Meter
	m.MissingValue = meter.RefuseMissing
	w.putMeter(acme, m)
	w.says(acme, "duplicate rejected:invalid", batch[1], call("late", "us"))
	w.says(acme, "accepted", Correction("fix", "near", "-1"))
	w.says(acme, "rejected:invalid", Correction("fix2", "all", "-1")) // it must name one of three
	w.totals(acme, "near", "c", "1")
	w.again()
	w.totals(acme, "near", "c", "1")
}
