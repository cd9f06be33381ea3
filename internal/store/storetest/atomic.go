package storetest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// atomically records an atomic batch and compares the verdicts, as says does.
func (w *world) atomically(id, want string, events ...usage.Event) []usage.Verdict {
	w.Helper()
	vs, err := w.s.Record(context.Background(), store.Batch{Tenant: id, Events: events, Atomic: true})
	if err != nil {
		w.Fatalf("record for %s: %v", id, err)
	}
	var got []string
	for _, v := range vs {
		got = append(got, said(v))
		if (v.Status == usage.Withheld || v.Status == usage.Rejected) && v.Seq != 0 {
			w.Errorf("event %s names row %d, which is not there", v.Key.ID(), v.Seq)
		}
	}
	if strings.Join(got, " ") != want {
		w.Errorf("the batch: said %q, want %q", got, want)
	}
	return vs
}

// atomicMeters has every aggregation, a meter that refuses what is late and one with derived keys.
func atomicMeters() []meter.Meter {
	strict, hits := NewMeter("strict", meter.Sum), NewMeter("hits", meter.Sum)
	strict.Late, strict.Lateness = meter.Reject, time.Hour
	hits.KeyPolicy = meter.DerivedKey
	return append(mixMeters(), NewMeter("calls", meter.Sum), strict, hits)
}

// atomicLedger is a ledger with something of everything that a refused batch could damage.
func atomicLedger(w *world, id string) {
	w.create(id, atomicMeters()...)
	w.plan(id, "pro", Soft("calls", "10", "2"), Hard("strict", "5"))
	w.assign(id, "", "pro")
	w.assign(id, "c", "pro")
	w.says(id, "accepted", mix("m1", "c", Ago(time.Hour), "5", "ann"), mix("m2", "c", Ago(0), "3", "bob"),
		Fact("k1", "calls", "c", Ago(0), "4"), Fact("s1", "strict", "c", Ago(0), "1"))
}

// atomicTouch are facts with nothing wrong that touch all of it: counters, tallies, alerts, overage, members, late rows
// and corrections that fold anew.
func atomicTouch() []usage.Event {
	return []usage.Event{
		mix("n1", "c", Ago(0), "1", "cyd"), mix("n2", "c", Ago(100*time.Hour), "9", "ann"),
		mix("n3", "new", Ago(0), "7", "dan"),
		OfMeter(Correction("x1", "m1", "-5"), "m-max"), OfMeter(Correction("x2", "m1", "-1"), "m-unique"),
		OfMeter(Correction("x3", "n1", "-1"), "m-min"),
		Fact("k2", "calls", "c", Ago(0), "5"), Fact("k3", "calls", "c", Ago(0), "6"),
		Fact("s2", "strict", "c", Ago(0), "4"),
		With(Fact("h1", "hits", "c", Ago(0), "2"), Text("x", "y")), Fact("k2", "calls", "c", Ago(0), "5"),
		Fact("k1", "calls", "c", Ago(0), "4"),
	}
}

// Atomic batches: all or nothing, and nothing means nothing.
var atomicCases = []Case{
	{"a refused atomic batch names every refusal and leaves no trace", func(w *world) {
		atomicLedger(w, acme)
		atomicLedger(w, "twin")
		before := collect(w, w.s, acme)
		spoilt := usage.Event{ID: "bad", Invalid: problem.At("qty", "unknown")}
		for i, refused := range []struct {
			want   string
			events []usage.Event
		}{
			{"rejected:invalid", []usage.Event{spoilt}},
			{"conflict", []usage.Event{Fact("k1", "calls", "c", Ago(0), "5")}},
			{"conflict rejected:future rejected:unknown_meter", []usage.Event{Fact("k2", "calls", "c", Ago(0), "6"),
				Fact("f", "calls", "c", Ago(-48*time.Hour), "1"), Fact("u", "nothing", "c", Ago(0), "1")}},
			{"rejected:late", []usage.Event{Fact("s3", "strict", "c", Ago(2*time.Hour), "0")}},
			{"rejected:quota_exceeded", []usage.Event{Fact("s4", "strict", "c", Ago(0), "0.000000000001")}},
			{"rejected:quota_exceeded", []usage.Event{Fact("k4", "calls", "c", Ago(0), "6")}},
			{"rejected:unknown_correction_target rejected:invalid", []usage.Event{Correction("x4", "nobody", "1"),
				OfMeter(Correction("x5", "m1", "-1"), "m-max")}},
		} {
			good := atomicTouch()
			want := strings.Repeat("withheld ", len(good)-1) + "duplicate " + refused.want
			w.atomically(acme, want, append(good, refused.events...)...)
			same(w, fmt.Sprintf("the ledger after refusal %d", i), collect(w, w.s, acme), before)
		}
		w.again()
		same(w, "the ledger, opened again", collect(w, w.s, acme), before)
		ours, theirs := w.record(acme, atomicTouch()...), w.record("twin", atomicTouch()...)
		for i := range ours {
			// Derived keys differ from tenant to tenant.
			if ours[i].Seq != theirs[i].Seq || said(ours[i]) != said(theirs[i]) ||
				ours[i].Overage != theirs[i].Overage {
				w.Errorf("event %d: %s, and %s where no batch was refused", i, written(ours[i]), written(theirs[i]))
			}
		}
	}},
	{"an atomic batch without a refusal is recorded as any other", func(w *world) {
		atomicLedger(w, acme)
		atomicLedger(w, "twin")
		vs := w.atomically(acme, "accepted adjusted accepted accepted accepted accepted accepted overage accepted "+
			"accepted duplicate duplicate",
			atomicTouch()...)
		for i, v := range w.record("twin", atomicTouch()...) {
			if vs[i].Seq != v.Seq || said(vs[i]) != said(v) {
				w.Errorf("event %d: %s, and %s in a plain batch", i, written(vs[i]), written(v))
			}
		}
		for _, slug := range mixSlugs() {
			a, b := w.counter(acme, slug, "c"), w.counter("twin", slug, "c")
			if !a.Equal(&b, w.meter(acme, slug).Aggregation) {
				w.Errorf("%s: %+v, and %+v of a plain batch", slug, a, b)
			}
		}
		w.again()
		w.atomically(acme, "duplicate duplicate", atomicTouch()[0], atomicTouch()[10])
		w.atomically(acme, "")
	}},
	{"facts of an atomic batch are judged as if those before had been kept", func(w *world) {
		w.create(acme, atomicMeters()...)
		w.plan(acme, "pro", Hard("calls", "10"))
		w.assign(acme, "", "pro")
		before := w.head(acme)
		vs := w.atomically(acme, "withheld rejected:quota_exceeded withheld withheld conflict rejected:invalid "+
			"withheld rejected:late withheld withheld",
			Fact("a", "calls", "c", Ago(0), "9"), Fact("b", "calls", "d", Ago(0), "2"),
			Fact("c", "calls", "d", Ago(0), "1"),
			Fact("c", "calls", "d", Ago(0), "1"), Fact("c", "calls", "d", Ago(0), "0"), Correction("x", "c", "-2"),
			Fact("s", "strict", "c", Ago(0), "1"), Fact("t", "strict", "c", Ago(2*time.Hour), "1"),
			Correction("y", "a", "-3"), Fact("d", "calls", "c", Ago(0), "3"))
		if v := vs[4]; v.Seq != 0 || !strings.Contains(v.Problem.Detail, "another event of this batch") {
			w.Errorf("a conflict within the batch: %s", written(v))
		}
		if after := w.head(acme); after != before {
			w.Errorf("the head went from %+v to %+v", before, after)
		}
		w.says(acme, "accepted", Fact("c", "calls", "d", Ago(0), "0"))
	}},
	{"a closed tenant refuses an atomic batch and knows what it has", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		w.closeTenant(acme)
		w.atomically(acme, "duplicate rejected:tenant_closed", Fact("a", "calls", "c", Ago(0), "1"),
			Fact("b", "calls", "c", Ago(0), "1"))
		w.atomically(acme, "duplicate", Fact("a", "calls", "c", Ago(0), "1"))
	}},
	{"atomic batches side by side are refused or recorded, each whole", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "pro", Hard("calls", "30"))
		w.assign(acme, "", "pro")
		const batches = 12
		kept := make([]bool, batches)
		together(batches, func(i int) {
			var events []usage.Event
			for j := range 7 {
				events = append(events, Fact(fmt.Sprint(i, "-", j), "calls", fmt.Sprint("c", i%3), Ago(0), "1"))
			}
			vs, err := w.s.Record(context.Background(), store.Batch{Tenant: acme, Events: events, Atomic: i%4 > 0})
			kept[i] = err == nil && vs[0].Kept()
			for _, v := range vs {
				if i%4 > 0 && v.Kept() != kept[i] {
					w.Errorf("batch %d: %s beside %s", i, said(v), said(vs[0]))
				}
			}
			if err != nil {
				w.Errorf("batch %d: %v", i, err)
			}
		})
		here := map[string]int{}
		for _, r := range w.rows(acme, 0) {
			if r.Event != nil {
				batch, _, _ := strings.Cut(r.Event.ID, "-")
				here[batch]++
			}
		}
		for i := range batches {
			if n := here[fmt.Sprint(i)]; i%4 > 0 && (n != 0 && n != 7 || (n == 7) != kept[i]) {
				w.Errorf("batch %d has %d rows, and was kept: %t", i, n, kept[i])
			}
		}
	}},
}
