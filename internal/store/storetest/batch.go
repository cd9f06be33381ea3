package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// A batch: judged in order, committed whole, bounded, and forgotten once it is answered.
var batchCases = []Case{
	{"a batch is judged in order and numbered without gaps", func(w *world) {
		strict := NewMeter("strict", meter.Sum)
		strict.Late, strict.Lateness = meter.Reject, 0
		w.create(acme, NewMeter("calls", meter.Sum), strict)
		before := w.head(acme).Seq
		vs := w.says(acme, "accepted rejected:unknown_meter accepted conflict accepted rejected:late duplicate "+
			"accepted rejected:invalid accepted",
			Fact("a", "calls", "c", Ago(0), "1"),
			Fact("b", "nothing", "c", Ago(0), "1"),
			Fact("c", "calls", "c", Ago(0), "1"),
			Fact("c", "calls", "c", Ago(0), "2"),
			Fact("d", "strict", "c", Ago(0), "1"),
			Fact("e", "strict", "c", Ago(1*time.Microsecond), "1"), // late because of the fact before it
			Fact("a", "calls", "c", Ago(0), "1"),
			Correction("f", "c", "1"),
			Correction("g", "c", "-3"), // two are left after the correction before it
			Fact("h", "calls", "c", Ago(0), "1"))
		next := before
		for i, v := range vs {
			switch v.Status {
			case usage.Accepted:
				next++
				if v.Seq != next {
					w.Errorf("event %d is row %d, want %d", i, v.Seq, next)
				}
			case usage.Rejected:
				if v.Seq != 0 {
					w.Errorf("event %d was refused and yet names row %d", i, v.Seq)
				}
			}
		}
		if got := w.head(acme).Seq; got != next {
			w.Errorf("the head is at %d, want %d", got, next)
		}
		var kept []string
		for _, r := range w.rows(acme, before) {
			kept = append(kept, r.Event.ID)
		}
		if want := []string{"a", "c", "d", "f", "h"}; !slices.Equal(kept, want) {
			w.Errorf("the rows hold %q, want %q", kept, want)
		}
	}},
	{"the rows of a batch are one section with one time", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		before := w.head(acme).Seq
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"), Fact("b", "calls", "c", Ago(0), "1"),
			Fact("c", "calls", "c", Ago(0), "1"))
		w.view(acme, func(v store.View) {
			err := v.Sections(before+1, func(s *ledger.Section) error {
				if s.First != before+1 || len(s.Rows) != 3 || s.At != Ago(0) {
					w.Errorf("a section of %d rows from %d on at %s, want 3 from %d on at %s", len(s.Rows), s.First,
						s.At, before+1, Ago(0))
				}
				return nil
			})
			if err != nil {
				w.Errorf("sections: %v", err)
			}
		})
	}},
	{"an empty batch and a batch of duplicates leave no trace", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		e := Fact("a", "calls", "c", Ago(0), "1")
		w.says(acme, "accepted", e)
		before := w.head(acme)
		w.record(acme)
		w.says(acme, "duplicate duplicate rejected:unknown_meter", e, e, Fact("b", "nothing", "c", Ago(0), "1"))
		if after := w.head(acme); after != before {
			w.Errorf("the head went from %v to %v", before, after)
		}
	}},
	{"a batch over the bound is refused whole, one at the bound is judged", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		before := w.head(acme)
		events := make([]usage.Event, store.MaxBatch+1)
		for i := range events {
			events[i] = Fact("a", "nothing", "c", Ago(0), "1")
		}
		events[0].Meter = "calls"
		_, err := w.s.Record(context.Background(), store.Batch{Tenant: acme, Events: events})
		w.code("a batch of one too many", err, problem.TooLarge)
		if after := w.head(acme); after != before {
			w.Errorf("the head went from %v to %v", before, after)
		}
		vs := w.record(acme, events[:store.MaxBatch]...)
		if said(vs[0]) != "accepted" || said(vs[store.MaxBatch-1]) != "rejected:unknown_meter" {
			w.Errorf("the first of the largest batch was %s, the last %s", said(vs[0]), said(vs[store.MaxBatch-1]))
		}
	}},
	{"what was recorded is there when Record returns", func(w *world) {
		w.create(acme, mixMeters()...)
		for i := range 12 {
			e := mix(fmt.Sprint("e", i), "c", Ago(0), fmt.Sprint(i), fmt.Sprint("u", i%5))
			v := w.says(acme, "accepted", e)[0]
			if r, _ := w.event(acme, v.Key); r.Seq != v.Seq || r.Event.Properties != e.Properties {
				w.Errorf("event %s is read back as row %d, want %d", e.ID, r.Seq, v.Seq)
			}
			if rows := w.rows(acme, v.Seq-1); len(rows) != 1 || rows[0].Event.ID != e.ID {
				w.Errorf("event %s is not the last of the rows", e.ID)
			}
			w.totals(acme, "m-count", "c", fmt.Sprint(i+1))
			w.totals(acme, "m-sum", "c", fmt.Sprint(i*(i+1)/2))
			// by time, then key: e10 < e9
			w.totals(acme, "m-last", "c", map[bool]string{true: "9", false: fmt.Sprint(i)}[i > 9])
			w.totals(acme, "m-unique", "c", fmt.Sprint(min(i+1, 5)))
		}
	}},
	{"the memory of a batch is not kept", forgetsMemory},
	{"a batch's slice may be used again", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		events := make([]usage.Event, 3)
		for round := range 4 {
			for i := range events {
				events[i] = Fact(fmt.Sprint(round, "-", i), "calls", fmt.Sprint("c", round), Ago(0),
					fmt.Sprint(round+1))
			}
			w.says(acme, "accepted", events...)
		}
		clear(events)
		for round := range 4 {
			w.totals(acme, "calls", fmt.Sprint("c", round), fmt.Sprint(3*(round+1)))
		}
	}},
}

// forgetsMemory records events whose strings live in buffers, as those of a request do, and overwrites the buffers.
func forgetsMemory(w *world) {
	derived := NewMeter("hits", meter.Sum)
	derived.KeyPolicy = meter.DerivedKey
	w.create(acme, append(mixMeters(), NewMeter("calls", meter.Sum), derived)...)
	var buffers [][]byte
	borrowed := func(s string) string {
		b := []byte(s)
		buffers = append(buffers, b)
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	send := func(es ...usage.Event) (keys []usage.Key) {
		for i := range es {
			e := &es[i]
			for _, s := range []*string{&e.ID, &e.Meter, &e.Type, &e.Customer, &e.Resource, &e.Properties, &e.Corrects,
				&e.Reason} {
				if *s != "" {
					*s = borrowed(*s)
				}
			}
		}
		for _, v := range w.says(acme, "accepted", es...) {
			keys = append(keys, usage.KeyOfID(string(append([]byte(nil), v.Key.ID()...))))
		}
		for _, b := range buffers {
			copy(b, bytes.Repeat([]byte("#"), len(b)))
		}
		buffers = buffers[:0]
		return keys
	}
	call := On(mix("call-1", "customer-1", Ago(0), "5", "member-1"), "resource-1")
	fact := Fact("fact-1", "calls", "customer-1", Ago(0), "7")
	hit := With(Fact("hit-1", "hits", "customer-2", Ago(0), "3"), Text("x", "y"))
	keys := send(call, fact, hit)
	send(Correction("fix-1", "fact-1", "-2"), OfMeter(Correction("fix-2", "call-1", "1"), "m-sum"),
		Correction("fix-3", keys[2].ID(), "2"))
	for i, want := range []usage.Event{call, fact, hit} {
		got, fixes := w.event(acme, keys[i])
		same(w, "the event", got.Event.Event, want)
		if len(fixes) != 1 || fixes[0].Event.Corrects != keys[i].ID() || fixes[0].Event.Reason != "miscounted" {
			w.Errorf("event %s has corrections %v", want.ID, fixes)
		}
	}
	w.says(acme, "duplicate duplicate duplicate", call, fact, hit)
	w.says(acme, "accepted", mix("call-2", "customer-1", Ago(0), "5", "member-1"))
	w.totals(acme, "calls", "customer-1", "5")
	w.totals(acme, "hits", "customer-2", "5")
	w.totals(acme, "m-sum", "customer-1", "11")
	w.totals(acme, "m-unique", "customer-1", "1")
}
