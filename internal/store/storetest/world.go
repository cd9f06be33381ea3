package storetest

import (
	"context"
	"strings"
	"sync"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// world is the scene of one story: a store under test and the short sentences that stories are written in.
type world struct {
	TB
	clock   *Clock
	s       store.Store
	reopen  func(store.Store) store.Store
	tenants []string          // whose ledgers are checked in the end
	numbers map[string]uint32 // of meters, where a story needs them
}

// acme is the tenant of stories that need only one.
const acme = "acme"

// create makes a tenant with its meters.
func (w *world) create(id string, meters ...meter.Meter) {
	w.Helper()
	if err := Create(w.s, id, meters...); err != nil {
		w.Fatalf("create tenant %s: %v", id, err)
	}
	w.tenants = append(w.tenants, id)
}

// again closes and opens the store, where it can. What comes after holds for every store, reopened or not.
func (w *world) again() {
	if w.reopen != nil {
		w.s = w.reopen(w.s)
	}
}

func (w *world) record(id string, events ...usage.Event) []usage.Verdict {
	w.Helper()
	vs, err := w.s.Record(context.Background(), store.Batch{Tenant: id, Events: events})
	if err != nil {
		w.Fatalf("record for %s: %v", id, err)
	}
	if len(vs) != len(events) {
		w.Fatalf("record for %s: %d verdicts on %d events", id, len(vs), len(events))
	}
	return vs
}

// said writes a verdict down as stories do: its status, and the code of a refusal.
func said(v usage.Verdict) string {
	if v.Status == usage.Rejected && v.Problem != nil {
		return v.Status.String() + ":" + string(v.Problem.Code)
	}
	return v.Status.String()
}

// says records one batch and compares the verdicts, written in one line. A single word stands for all of them.
func (w *world) says(id, want string, events ...usage.Event) []usage.Verdict {
	w.Helper()
	vs := w.record(id, events...)
	wants := strings.Fields(want)
	for i, v := range vs {
		one := wants[0]
		if len(wants) > 1 {
			one = wants[i]
		}
		if said(v) != one {
			w.Errorf("event %d of the batch (%s): said %s (%v), want %s", i, events[i].ID, said(v), v.Problem, one)
		}
	}
	return vs
}

func (w *world) view(id string, fn func(v store.View)) {
	w.Helper()
	err := w.s.View(context.Background(), id, func(v store.View) error { fn(v); return nil })
	if err != nil {
		w.Fatalf("view %s: %v", id, err)
	}
}

func (w *world) update(id string, fn func(tx store.Tx) error) {
	w.Helper()
	if err := w.s.Update(context.Background(), id, fn); err != nil {
		w.Fatalf("update %s: %v", id, err)
	}
}

func (w *world) putMeter(id string, m meter.Meter) {
	w.Helper()
	w.update(id, func(tx store.Tx) error { return PutMeter(tx, m) })
}

func (w *world) closePeriod(id string, m calendar.Month) {
	w.Helper()
	w.update(id, func(tx store.Tx) error { return ClosePeriod(tx, m) })
}

func (w *world) adjust(id, slug, customer, quantity, reverts string) (adjustment string) {
	w.Helper()
	w.update(id, func(tx store.Tx) (err error) {
		adjustment, err = Adjust(tx, slug, customer, Month, quantity, reverts)
		return err
	})
	return adjustment
}

func (w *world) closeTenant(id string) {
	w.Helper()
	w.update(id, func(tx store.Tx) error {
		t, err := store.Tenant(tx)
		if err != nil {
			return err
		}
		t.Closed, t.ClosedAt = true, tx.Now()
		return PutTenant(tx, t)
	})
}

func (w *world) head(id string) (h ledger.Head) {
	w.Helper()
	w.view(id, func(v store.View) { h = v.Head() })
	return h
}

func (w *world) meter(id, slug string) (m store.Meter) {
	w.Helper()
	w.view(id, func(v store.View) {
		var err error
		if m, err = store.GetMeter(v, slug); err != nil {
			w.Fatalf("meter %s of %s: %v", slug, id, err)
		}
	})
	return m
}

// counter reads the counter of the month of Start.
func (w *world) counter(id, slug, customer string) (c usage.Counter) {
	w.Helper()
	return w.counterIn(id, slug, customer, Month)
}

func (w *world) counterIn(id, slug, customer string, m calendar.Month) (c usage.Counter) {
	w.Helper()
	number := w.meter(id, slug).Number
	w.view(id, func(v store.View) {
		var err error
		if c, err = v.Counter(usage.CounterID{Meter: number, Customer: customer, Month: m}); err != nil {
			w.Fatalf("counter of %s for %s: %v", slug, customer, err)
		}
	})
	return c
}

// totals checks a counter's total and, where it is stated, its on-time value: "7" or "7 on time 5".
func (w *world) totals(id, slug, customer, want string) {
	w.Helper()
	all, onTime, stated := strings.Cut(want, " on time ")
	a, c := w.meter(id, slug).Aggregation, w.counter(id, slug, customer)
	if got := c.Total(a); got != Amount(all) {
		w.Errorf("%s of %s: total %s, want %s", slug, customer, got, all)
	}
	if !stated {
		return
	}
	if got := c.OnTime.Value(a); got != Amount(onTime) {
		w.Errorf("%s of %s: on-time value %s, want %s", slug, customer, got, onTime)
	}
}

// event reads a kept event and its corrections.
func (w *world) event(id string, k usage.Key) (r ledger.Row, corrections []ledger.Row) {
	w.Helper()
	w.view(id, func(v store.View) {
		var err error
		if r, corrections, err = v.Event(k); err != nil {
			w.Fatalf("event %q of %s: %v", k.ID(), id, err)
		}
	})
	return r, corrections
}

// noEvent checks that nothing is kept under the id.
func (w *world) noEvent(id, event string) {
	w.Helper()
	w.view(id, func(v store.View) {
		if _, _, err := v.Event(usage.KeyOfID(event)); !problem.Is(err, problem.NotFound) {
			w.Errorf("event %q of %s: %v, want not_found", event, id, err)
		}
	})
}

// rows copies the ledger's rows above a number.
func (w *world) rows(id string, after uint64) (out []ledger.Row) {
	w.Helper()
	w.view(id, func(v store.View) { out = readRows(w, v, after, everything) })
	return out
}

// code checks what kind of refusal an error is.
func (w *world) code(what string, err error, want problem.Code) {
	w.Helper()
	if !problem.Is(err, want) {
		w.Errorf("%s: %v, want %s", what, err, want)
	}
}

// together runs fn in n goroutines and waits for all of them. fn must not call Fatalf.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}
