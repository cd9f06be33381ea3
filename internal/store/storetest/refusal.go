package storetest

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Refusals of a whole call: they name themselves and change nothing.
var refusalCases = []Case{
	{"a tenant that does not exist is not found", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		for _, id := range []string{"nobody", "", "ACME", "acme ", "acm"} {
			_, err := w.s.Record(context.Background(),
				store.Batch{Tenant: id, Events: []usage.Event{Fact("a", "calls", "c", Ago(0), "1")}})
			w.code("record for "+id, err, problem.NotFound)
			_, err = w.s.Record(context.Background(), store.Batch{Tenant: id})
			w.code("record nothing for "+id, err, problem.NotFound)
			err = w.s.View(context.Background(), id, func(store.View) error {
				w.Errorf("a view of %q opened", id)
				return nil
			})
			w.code("view "+id, err, problem.NotFound)
		}
		if err := w.s.Ready(context.Background()); err != nil {
			w.Errorf("ready: %v", err)
		}
	}},
	{"a closed tenant knows its facts, refuses new ones and stays readable", func(w *world) {
		hits := NewMeter("hits", meter.Count)
		hits.KeyPolicy = meter.DerivedKey
		w.create(acme, NewMeter("calls", meter.Sum), hits)
		e, hit, fix := Fact("a", "calls", "c", Ago(0), "5"), Fact("", "hits", "c", Ago(0), "1"),
			Correction("fix", "a", "0.5")
		v := w.says(acme, "accepted accepted accepted", e, hit, fix)[0]
		w.says(acme, "accepted", Correction("back", "a", "-0.5"))
		w.closeTenant(acme)
		before := w.head(acme)
		for range 2 {
			w.says(acme, "duplicate", e)
			w.says(acme, "rejected:tenant_closed", Fact("b", "calls", "c", Ago(0), "5"))
			w.says(acme, "duplicate rejected:tenant_closed conflict duplicate rejected:tenant_closed duplicate "+
				"rejected:tenant_closed rejected:tenant_closed rejected:tenant_closed",
				e, Fact("b", "calls", "c", Ago(0), "5"), Fact("a", "calls", "c", Ago(0), "6"), hit,
				Fact("", "hits", "d", Ago(0), "1"), fix, Correction("new", "a", "1"),
				Fact("c", "calls", "c", Ago(0), "-1"), Fact("c", "none", "c", Ago(0), "1"))
			if after := w.head(acme); after != before {
				w.Errorf("the head went from %v to %v", before, after)
			}
			w.event(acme, v.Key)
			w.totals(acme, "calls", "c", "5")
			ts := allTenants(w, w.s)
			if t, err := ts[0].Tenant(); err != nil || len(ts) != 1 || !t.Closed || t.ClosedAt != Ago(0) {
				w.Errorf("the tenants are %+v, %v", ts, err)
			}
			w.again()
		}
	}},
	{"a call whose context has ended changes nothing", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		before := w.head(acme)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := w.s.Record(ctx, store.Batch{Tenant: acme,
			Events: []usage.Event{Fact("a", "calls", "c", Ago(0), "1")}}); err == nil {
			w.Errorf("record with a context that has ended was answered")
		}
		err := w.s.Update(ctx, acme, func(tx store.Tx) error { return PutMeter(tx, NewMeter("more", meter.Sum)) })
		if err == nil {
			w.Errorf("update with a context that has ended was answered")
		}
		if after := w.head(acme); after != before {
			w.Errorf("the head went from %v to %v", before, after)
		}
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
	}},
	{"the error of a view's reader is returned as it is", func(w *world) {
		w.create(acme)
		if err := w.s.View(context.Background(), acme, func(store.View) error { return errEnough }); err != errEnough {
			w.Errorf("view: %v, want the reader's error", err)
		}
	}},
	{"a store that was closed is unavailable", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		ctx, s := context.Background(), w.s
		if err := s.Close(); err != nil {
			w.Errorf("close: %v", err)
		}
		w.s = nil
		_, err := s.Record(ctx, store.Batch{Tenant: acme, Events: []usage.Event{Fact("a", "calls", "c", Ago(0), "1")}})
		w.code("record", err, problem.Unavailable)
		w.code("update", s.Update(ctx, acme,
			func(tx store.Tx) error { return PutMeter(tx, NewMeter("more", meter.Sum)) }), problem.Unavailable)
		w.code("view", s.View(ctx, acme, func(store.View) error { return nil }), problem.Unavailable)
		_, err = s.Access(ctx, acme, "k")
		w.code("access", err, problem.Unavailable)
		_, err = s.Tenants(ctx, "", 1)
		w.code("tenants", err, problem.Unavailable)
		if s.Ready(ctx) == nil {
			w.Errorf("a closed store says that it is ready")
		}
	}},
}
