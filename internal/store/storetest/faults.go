package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Functions that panic, and a store that is closed while it is being read.
var faultCases = []Case{
	{"a panic in an update fails that call alone", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		before := w.head(acme)
		for i, p := range panics {
			err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
				if err := PutMeter(tx, NewMeter("more", meter.Sum)); err != nil {
					return err
				}
				return p.fn(tx)
			})
			w.panicked(p.name, err)
			if after := w.head(acme); after != before {
				w.Errorf("%s: the head went from %v to %v", p.name, before, after)
			}
			v := w.says(acme, "accepted", Fact(fmt.Sprint("b", i), "calls", "c", Ago(0), "1"))[0]
			if before.Seq++; v.Seq != before.Seq {
				w.Errorf("%s: the next row is %d, want %d", p.name, v.Seq, before.Seq)
			}
			before = w.head(acme)
		}
		w.putMeter(acme, NewMeter("more", meter.Sum))
		w.again()
		w.totals(acme, "calls", "c", fmt.Sprintf("%d on time %d", 1+len(panics), 1+len(panics)))
	}},
	{"a panic in the update that creates a tenant leaves none", func(w *world) {
		err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
			if err := PutTenant(tx, Tenant(acme, tx.Now())); err != nil {
				return err
			}
			panic("boom")
		})
		w.panicked("the update", err)
		w.code("view of it", w.s.View(context.Background(), acme, func(store.View) error { return nil }),
			problem.NotFound)
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
	}},
	{"panics in updates harm nobody beside them", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		together(submitters, func(i int) {
			for n := range perSubmitter {
				if i%2 == 0 {
					w.panicked("the update", w.s.Update(context.Background(), acme, func(store.Tx) error {
						panic("boom")
					}))
					continue
				}
				fact := Fact(fmt.Sprint(i, "-", n), "calls", "c", Ago(0), "1")
				vs, err := w.s.Record(context.Background(), store.Batch{Tenant: acme, Events: []usage.Event{fact}})
				if err != nil || vs[0].Status != usage.Accepted {
					w.Errorf("record beside it: %v, %v", vs, err)
				}
			}
		})
		n := submitters / 2 * perSubmitter
		w.totals(acme, "calls", "c", fmt.Sprintf("%d on time %d", n, n))
	}},
	{"a panic in a reader leaves nothing held", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		w.again()
		for i, p := range panics {
			for range 10 { // more than there are connections, handles or the like
				func() {
					defer func() {
						if recover() == nil {
							w.Errorf("%s: the panic did not come out of View", p.name)
						}
					}()
					err := w.s.View(context.Background(), acme, func(v store.View) error { return p.fn(v) })
					w.Errorf("%s: view returned %v", p.name, err)
				}()
			}
			w.says(acme, "accepted", Fact(fmt.Sprint("b", i), "calls", "c", Ago(0), "1"))
			w.update(acme, func(tx store.Tx) error { _, err := Adjust(tx, "calls", "c", Month, "1", ""); return err })
			if err := w.s.Ready(context.Background()); err != nil {
				w.Errorf("%s: ready: %v", p.name, err)
			}
		}
	}},
	{"closing waits for a view under way", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		w.again()
		ctx, s := context.Background(), w.s
		inside, gate := make(chan struct{}), make(chan struct{})
		viewed, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			viewed <- s.View(ctx, acme, func(v store.View) error {
				close(inside)
				<-gate
				return readAll(v)
			})
		}()
		<-inside
		go func() { closed <- s.Close() }()
		for s.Ready(ctx) == nil {
			runtime.Gosched()
		}
		w.code("view of a store that is closing", s.View(ctx, acme, func(store.View) error { return nil }),
			problem.Unavailable)
		select {
		case err := <-closed:
			w.Errorf("closed while a view was under way: %v", err)
			close(gate)
		default:
			close(gate)
			if err := <-closed; err != nil {
				w.Errorf("close: %v", err)
			}
		}
		if err := <-viewed; err != nil {
			w.Errorf("the view that the store was closed beside: %v", err)
		}
		w.s = nil
	}},
}

// panics are functions that panic where a store calls its caller.
var panics = []struct {
	name string
	fn   func(v store.View) error
}{
	{"the function itself", func(store.View) error { panic("boom") }},
	{"a defect", func(v store.View) error {
		var none []error
		return none[v.Head().Seq]
	}},
	{"rows", func(v store.View) error {
		_, _, err := v.Rows(0, everything, func(*ledger.Row) bool { panic("boom") })
		return err
	}},
	{"sections", func(v store.View) error { return v.Sections(1, func(*ledger.Section) error { panic("boom") }) }},
	{"pruned sections", func(v store.View) error {
		return v.PrunedSections(1,
			func(*ledger.Section) error { panic("boom") })
	}},
	{"counters", func(v store.View) error {
		return v.Counters(store.CounterPlace{}, func(store.CounterPlace, *usage.Counter) bool { panic("boom") })
	}},
	{"slice", func(v store.View) error {
		return v.Slice(store.SliceQuery{Meter: 1, From: Month.Start(), To: Month.End()}, func(*store.Slice) error {
			panic("boom")
		})
	}},
}

// panicked checks that an update failed with what a panic leaves.
func (w *world) panicked(what string, err error) {
	w.Helper()
	var p *store.PanicError
	if !problem.Is(err, problem.Internal) || !errors.As(err, &p) ||
		!strings.Contains(fmt.Sprint(p.Value), "boom") && !strings.Contains(fmt.Sprint(p.Value), "out of range") {
		w.Errorf("%s panicked: %v, want an internal error that says with what", what, err)
		return
	}
	if !strings.Contains(string(p.Stack), "faults.go") {
		w.Errorf("%s panicked: the stack does not say where:\n%s", what, p.Stack)
	}
}

// readAll reads from wherever a store keeps things.
func readAll(v store.View) error {
	_, _, found := v.Event(usage.KeyOfID("a"))
	_, _, rows := v.Rows(0, everything, func(*ledger.Row) bool { return true })
	counters := v.Counters(store.CounterPlace{}, func(store.CounterPlace, *usage.Counter) bool { return true })
	slice := v.Slice(store.SliceQuery{Meter: 1, From: Month.Start(), To: Month.End()}, func(*store.Slice) error {
		return nil
	})
	_, events := v.AuditEvents(store.AuditQuery{Limit: 10})
	_, periods := store.Periods(v, Month, 10)
	return errors.Join(found, rows, counters, slice, events, periods)
}
