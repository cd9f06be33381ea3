package storetest

import (
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// awkward strings are all allowed, and each has broken a store somewhere.
var awkward = []string{
	"'", `"`, `\`, `\'`, `%`, `_`, "a\nb", "a\r\n", "\t", " ", "a ", "\x01", "\x7f", "$1", "${x}", "{}", "[]", "null",
	"NULL", "true", "0", "-1", "1e5",
	"'; DROP TABLE rows; --", `\N`, `\.`, "é", "e\u0301", "日本語", "😀", "\u202e", "\ufeff", "\U0010ffff", "a/b", "../..",
	"a:b", "a|b", "a,b", "adj_1", "c", "d",
	strings.Repeat("x", usage.MaxID), strings.Repeat("é", usage.MaxID/2), strings.Repeat(`"`, usage.MaxID),
}

// Text: kept byte by byte, or refused.
var textCases = []Case{
	{"every allowed text is kept byte by byte", func(w *world) {
		w.create(acme, append(mixMeters(), NewMeter("calls", meter.Sum))...)
		var events []usage.Event
		for i, s := range awkward {
			e := On(With(Fact(s, "calls", s, Ago(0), fmt.Sprint(i+1)), Text(s, s), Text("all", s)), s)
			events = append(events, e)
		}
		vs := w.says(acme, "accepted", events...)
		for i, s := range awkward {
			w.says(acme, "accepted", mix(fmt.Sprint("member ", i), "members", Ago(0), "1", s))
			fix := Correction(fmt.Sprint("fix ", i), s, "1")
			fix.Reason = s
			w.says(acme, "accepted", fix)
		}
		for range 2 {
			for i, s := range awkward {
				r, by := w.event(acme, vs[i].Key)
				same(w, fmt.Sprintf("event %q", s), r.Event.Event, events[i])
				if len(by) != 1 || by[0].Event.Reason != s || by[0].Event.Corrects != s || by[0].Event.Customer != s {
					w.Errorf("the correction of %q reads %v", s, by)
				}
				w.totals(acme, "calls", s, fmt.Sprint(i+2))
			}
			w.says(acme, "duplicate", events...)
			w.totals(acme, "m-unique", "members", fmt.Sprint(len(awkward)))
			w.again()
		}
	}},
	{"text that a ledger cannot hold is refused", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		long := strings.Repeat("x", usage.MaxID+1)
		var events []usage.Event
		for _, bad := range []string{"a\x00b", "\x00", "a\xff", "\xed\xa0\x80", long} {
			id, customer, resource := Fact(bad, "calls", "c", Ago(0), "1"), Fact("a", "calls", bad, Ago(0), "1"),
				On(Fact("a", "calls", "c", Ago(0), "1"), bad)
			reason := Correction("a", "b", "1")
			reason.Reason = bad + long + long + long
			events = append(events, id, customer, resource, reason, Correction("a", bad+"xxxx", "1"))
		}
		events = append(events, Fact("key:a", "calls", "c", Ago(0), "1"), Fact("a", "calls", "", Ago(0), "1"),
			Fact("a", "", "c", Ago(0), "1"), With(Fact("a", "calls", "c", Ago(0), "1"), Text("x", "\x00")),
			With(Fact("a", "calls", "c", Ago(0), "1"), Text("x", strings.Repeat("y", usage.MaxProperties))))
		w.says(acme, "rejected:invalid", events...)
		w.noEvent(acme, "a")
		if got := w.head(acme).Seq; got != 2 {
			w.Errorf("the ledger has %d rows, want the tenant and its meter", got)
		}
	}},
	{"the largest event is kept whole", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		name := strings.Repeat("n", usage.MaxName)
		e := On(Fact(name, "calls", name, Ago(0), "999999999999999.999999999999"), name)
		e = With(e, Text("p", strings.Repeat("é", (usage.MaxProperties-len(`{"p":""}`))/2)))
		if len(e.Properties) != usage.MaxProperties {
			w.Fatalf("the properties have %d bytes", len(e.Properties))
		}
		v := w.says(acme, "accepted", e)[0]
		w.again()
		r, _ := w.event(acme, v.Key)
		same(w, "the event", r.Event.Event, e)
		w.says(acme, "duplicate", e)
	}},
}
