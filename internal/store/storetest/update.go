package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Update: all or nothing, and a transaction that reads its own writes.
var updateCases = []Case{
	{"an update that fails leaves nothing behind", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		before, changed := w.head(acme), errors.New("changed my mind")
		err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
			t, _ := store.Tenant(tx)
			t.Closed = true
			_, adjusted := Adjust(tx, "calls", "c", Month, "5", "")
			if err := errors.Join(PutTenant(tx, t), PutMeter(tx, NewMeter("more", meter.Sum)),
				PutKey(tx, tenant.APIKey{ID: "acme.k"}), ClosePeriod(tx, Month), adjusted); err != nil {
				w.Errorf("append: %v", err)
			}
			return changed
		})
		if err != changed {
			w.Errorf("update: %v, want the error of the function as it is", err)
		}
		for range 2 {
			if after := w.head(acme); after != before {
				w.Errorf("the head went from %v to %v", before, after)
			}
			w.view(acme, func(v store.View) {
				_, noMeter := store.GetMeter(v, "more")
				_, noKey := store.Get(v, &tenant.KeyKind, "acme.k")
				_, noAdjustment := store.Adjustment(v, usage.ManualID(before.Seq+5))
				for _, err := range []error{noMeter, noKey, noAdjustment} {
					w.code("what was discarded", err, problem.NotFound)
				}
				if p, err := store.Period(v, Month); err != nil || p.Closed {
					w.Errorf("the period is %+v, %v", p, err)
				}
			})
			w.again()
		}
		v := w.says(acme, "accepted", Fact("b", "calls", "c", Ago(0), "1"))[0]
		if v.Seq != before.Seq+1 {
			w.Errorf("the next row is %d, want %d", v.Seq, before.Seq+1)
		}
		w.totals(acme, "calls", "c", "2 on time 2")
	}},
	{"an update reads what it appended", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		before := w.head(acme).Seq
		w.update(acme, func(tx store.Tx) error {
			if err := errors.Join(PutMeter(tx, NewMeter("more", meter.Max)),
				PutKey(tx, tenant.APIKey{ID: "acme.k", Scopes: tenant.Read})); err != nil {
				return err
			}
			m, err := store.GetMeter(tx, "more")
			if err != nil || m.Aggregation != meter.Max || m.Used || m.Number != 2 {
				w.Errorf("the meter reads %+v, %v", m, err)
			}
			if k, err := store.Get(tx, &tenant.KeyKind, "acme.k"); err != nil || k.Scopes != tenant.Read {
				w.Errorf("the key reads %+v, %v", k, err)
			}
			id, err := Adjust(tx, "more", "c", Month, "5", "")
			if err != nil {
				return err
			}
			if a, err := store.Adjustment(tx, id); err != nil || a.Amount != Amount("5") ||
				id != usage.ManualID(before+3) {
				w.Errorf("adjustment %s reads %+v, %v", id, a, err)
			}
			if c, err := tx.Counter(usage.CounterID{Meter: m.Number, Customer: "c", Month: Month}); err != nil ||
				c.Total(meter.Max) != Amount("5") {
				w.Errorf("the counter reads %s, %v", describe(&c), err)
			}
			if err := ClosePeriod(tx, Month); err != nil {
				return err
			}
			if p, err := store.Period(tx, Month); err != nil || !p.Closed || p.Seq != before+4 {
				w.Errorf("the period reads %+v, %v", p, err)
			}
			if got := len(allMeters(w, tx)); got != 2 {
				w.Errorf("%d meters are listed, want 2", got)
			}
			if rows := readRows(w, tx, before, everything); len(rows) != 4 {
				w.Errorf("%d rows are there after row %d, want 4", len(rows), before)
			}
			return nil
		})
		w.says(acme, "adjusted", Fact("b", "more", "c", Ago(0), "9"))
	}},
	{"an update that appends nothing changes nothing", func(w *world) {
		w.create(acme)
		before := w.head(acme)
		w.clock.Advance(time.Hour)
		w.update(acme, func(store.Tx) error { return nil })
		if after := w.head(acme); after != before {
			w.Errorf("the head went from %v to %v", before, after)
		}
	}},
	{"a tenant comes into being with the change that creates it", func(w *world) {
		err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
			if _, err := store.Tenant(tx); !problem.Is(err, problem.NotFound) {
				w.Errorf("the tenant before it exists: %v, want not_found", err)
			}
			return PutMeter(tx, NewMeter("calls", meter.Sum))
		})
		w.code("a change of a tenant that does not exist", err, problem.NotFound)
		changed := errors.New("changed my mind")
		err = w.s.Update(context.Background(), acme, func(tx store.Tx) error {
			return errors.Join(PutTenant(tx, Tenant(acme, tx.Now())), changed)
		})
		if !errors.Is(err, changed) {
			w.Errorf("update: %v, want the error of the function", err)
		}
		w.code("view of a tenant that was not created",
			w.s.View(context.Background(), acme, func(store.View) error { return nil }), problem.NotFound)
		w.create(acme, NewMeter("calls", meter.Sum))
		w.again()
		if got := w.head(acme).Seq; got != 2 {
			w.Errorf("the tenant has %d rows, want its own and its meter's", got)
		}
		w.view(acme, func(v store.View) {
			got, err := store.Tenant(v)
			same(w, fmt.Sprintf("the tenant (%v)", err), got, Tenant(acme, Ago(0)))
		})
	}},
	{"a change is kept as it was given", func(w *world) {
		w.create(acme)
		c := ledger.Change{Event: audit.Event{Type: "note.create", Source: audit.SourceSystem, Actor: `o'ne "two"`,
			EntityType: "note", EntityID: "ü\\%_\n", Payload: `{"text":"a \"b\" é\u2028"}`}}
		w.update(acme, func(tx store.Tx) error { _, err := tx.Append(c); return err })
		w.again()
		rows := w.rows(acme, 1)
		if len(rows) != 1 || rows[0].Change == nil {
			w.Fatalf("%d rows are there, want the change", len(rows))
		}
		same(w, "the change", *rows[0].Change, c)
	}},
	{"a revoked key is revoked when the update returns", func(w *world) {
		w.create(acme)
		k := tenant.APIKey{ID: "acme.k1", Name: "one", Scopes: tenant.Ingest | tenant.Read,
			Hash: tenant.HashToken("secret"), CreatedAt: Ago(0), ExpiresAt: Ago(-time.Hour),
			RateLimit: tenant.RateLimit{RequestsPerSecond: 1, EventsPerSecond: 2, BytesPerSecond: 3}}
		_, err := w.s.Access(context.Background(), acme, k.ID)
		w.code("access by a key that does not exist", err, problem.NotFound)
		_, err = w.s.Access(context.Background(), "nobody", k.ID)
		w.code("access to a tenant that does not exist", err, problem.NotFound)
		for _, revoked := range []bool{false, true} {
			if revoked {
				k.RevokedAt = Ago(0)
			}
			w.update(acme, func(tx store.Tx) error { return PutKey(tx, k) })
			for range 2 {
				got, err := w.s.Access(context.Background(), acme, k.ID)
				same(w, fmt.Sprintf("the key (%v)", err), got.Key, k)
				same(w, "its tenant", got.Tenant, Tenant(acme, Ago(0)))
				w.again()
			}
		}
		w.closeTenant(acme)
		if a, err := w.s.Access(context.Background(), acme, k.ID); err != nil || !a.Tenant.Closed {
			w.Errorf("the closed tenant reads %+v, %v", a.Tenant, err)
		}
	}},
	{"a meter that was changed judges from then on", func(w *world) {
		m := NewMeter("calls", meter.Sum)
		m.KeyFields, m.Rounding = []string{"customer", "time", "properties.x"}, meter.HalfEven
		w.create(acme, m)
		e := Fact("a", "calls", "c", Ago(-2*time.Hour), "1")
		w.says(acme, "rejected:future", e)
		m.Future, m.Name = 3*time.Hour, "renamed"
		w.putMeter(acme, m)
		w.says(acme, "accepted", e)
		w.again()
		got := w.meter(acme, "calls")
		m.Number, m.CreatedAt = 1, Ago(0)
		same(w, "the meter", got.Meter, m)
		w.says(acme, "accepted", Fact("b", "calls", "c", Ago(-3*time.Hour), "1"))
		if !slices.Equal(got.KeyFields, m.KeyFields) {
			w.Errorf("the key fields are %v", got.KeyFields)
		}
	}},
}
