package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// The tree and the clock.
var treeCases = []Case{
	{"the tree covers every row once, also over many commits and tiles", func(w *world) {
		w.create(acme, mixMeters()...)
		for i := range 15 {
			w.clock.Advance(time.Duration(i) * time.Second)
			w.says(acme, "accepted", mix(fmt.Sprint("a", i), "c", Ago(0), "1", "u"),
				mix(fmt.Sprint("b", i), "d", Ago(0), "2", "u"))
			if i%4 == 0 {
				w.adjust(acme, "m-sum", "c", "1", "")
			}
			if i%6 == 0 {
				w.again()
			}
		}
		var many []usage.Event
		for i := range 700 { // tiles become full within a section, and over sections
			many = append(many, Fact(fmt.Sprint("m", i), "m-sum", "e", Ago(0), "1"))
		}
		w.record(acme, many[:300]...)
		w.record(acme, many[300:301]...)
		w.again()
		w.record(acme, many[301:]...)
		CheckLedger(w, w.s, acme)
		w.again()
	}},
	{"the tree is that of the rows and of nothing else", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		before := w.head(acme)
		w.says(acme, "accepted rejected:unknown_meter accepted", Fact("a", "calls", "c", Ago(0), "1"),
			Fact("b", "x", "c", Ago(0), "1"), Fact("c", "calls", "c", Ago(0), "1"))
		w.view(acme, func(v store.View) {
			var hasher ledger.Hasher
			want, _ := hasher.Grow(before.Tree, treeKeys(w, v), w.rows(acme, before.Seq), nil)
			if got := v.Head().Tree; got != want {
				w.Errorf("the root is %x, want %x", got.Root(), want.Root())
			}
		})
	}},
	{"the clock never moves backward when the wall clock does", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		for range 2 {
			w.clock.Advance(-3 * time.Hour)
			w.view(acme, func(v store.View) {
				if v.Now() != Ago(0) || v.Head().Clock != Ago(0) {
					w.Errorf("the clock shows %s, the head %s, want %s", v.Now(), v.Head().Clock, Ago(0))
				}
			})
			w.again()
		}
		w.says(acme, "accepted accepted", Fact("b", "calls", "c", Ago(-time.Hour), "1"),
			Untimed(Fact("c", "calls", "c", 0, "1")))
		w.adjust(acme, "calls", "c", "1", "")
		for _, r := range w.rows(acme, 3) {
			if r.At != Ago(0) || r.Event != nil && r.Event.ID == "c" && r.Event.Time != Ago(0) {
				w.Errorf("row %d was committed at %s, want %s", r.Seq, r.At, Ago(0))
			}
		}
		w.clock.Set(Start.Add(time.Minute))
		w.says(acme, "accepted", Fact("d", "calls", "c", Ago(0), "1"))
		if got := w.head(acme).Clock; got != Ago(-time.Minute) {
			w.Errorf("the clock shows %s, want it to go on", got)
		}
	}},
	{"the sections end where the reader's error says, and it is returned", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		err := w.s.View(context.Background(), acme, func(v store.View) error {
			seen := 0
			return v.Sections(1, func(*ledger.Section) error {
				if seen++; seen > 1 {
					w.Errorf("the sections went on after an error")
				}
				return errEnough
			})
		})
		if err != errEnough {
			w.Errorf("view: %v, want the reader's error as it is", err)
		}
	}},
}
