package storetest

import (
	"context"
	"strings"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// elsewhere is where the ledgers of these stories were moved to.
const elsewhere = "postgres://db.internal/ledger"

// MarkMoved appends what a move leaves behind in its source.
func MarkMoved(tx store.Tx, to string) error {
	t, err := store.Tenant(tx)
	if err != nil {
		return err
	}
	t.MovedTo, t.MovedAt = to, tx.Now()
	return PutTenant(tx, t)
}

func (w *world) moveTenant(id string) {
	w.Helper()
	w.update(id, func(tx store.Tx) error { return MarkMoved(tx, elsewhere) })
}

// movedCases are about ledgers that were moved to another store: not one more row, and all reads as before.
var movedCases = []Case{
	{"a ledger that was moved refuses every write, names the new place and stays readable", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.create("other", NewMeter("calls", meter.Sum))
		e := Fact("a", "calls", "c", Ago(0), "5")
		v := w.says(acme, "accepted", e)[0]
		w.moveTenant(acme)
		before := w.head(acme)
		for range 2 {
			w.refusesWrites(acme, e)
			if after := w.head(acme); after != before {
				w.Errorf("the head went from %v to %v", before, after)
			}
			w.event(acme, v.Key)
			w.totals(acme, "calls", "c", "5")
			w.view(acme, func(view store.View) {
				if t, err := store.Tenant(view); err != nil || t.MovedTo != elsewhere || t.MovedAt != Ago(0) {
					w.Errorf("the tenant reads %+v, %v", t, err)
				}
			})
			w.again()
		}
		w.says("other", "accepted", Fact("a", "calls", "c", Ago(0), "1"))
	}},
	{"an update that reads a ledger that was moved, or that marks it and goes on, appends nothing", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
			if err := MarkMoved(tx, elsewhere); err != nil {
				return err
			}
			return PutMeter(tx, NewMeter("more", meter.Sum))
		})
		w.code("a row after the mark", err, problem.Moved)
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "5"))
		w.moveTenant(acme)
		w.update(acme, func(tx store.Tx) error {
			_, err := store.GetMeter(tx, "calls")
			return err
		})
	}},
	{"a deployment that was moved takes no new tenants", func(w *world) {
		w.create(tenant.Operator)
		w.create(acme, NewMeter("calls", meter.Sum))
		w.moveTenant(tenant.Operator)
		for range 2 {
			w.code("a new tenant", Create(w.s, "late"), problem.Moved)
			rows := []ledger.Row{{Seq: 1, At: Ago(0), Change: tenantChange("late", Ago(0))}}
			w.code("an import", w.s.Import(context.Background(), "late",
				ledger.Section{First: 1, At: Ago(0), Rows: rows}),
				problem.Moved)
			if ts := allTenants(w, w.s); len(ts) != 1 {
				w.Errorf("the tenants are %+v", ts)
			}
			w.again()
		}
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "5"))
	}},
}

// refusesWrites tries everything that appends a row.
func (w *world) refusesWrites(id string, known usage.Event) {
	w.Helper()
	ctx, fresh := context.Background(), Fact("b", "calls", "c", Ago(0), "5")
	for what, events := range map[string][]usage.Event{"a known fact": {known}, "a new fact": {fresh}, "both": {known,
		fresh}, "none": {}} {
		_, err := w.s.Record(ctx, store.Batch{Tenant: id, Events: events})
		w.code("record "+what, err, problem.Moved)
		if err != nil && !strings.Contains(err.Error(), elsewhere) {
			w.Errorf("the refusal does not name the new place: %v", err)
		}
	}
	w.code("a change", w.s.Update(ctx, id, func(tx store.Tx) error {
		return PutMeter(tx, NewMeter("more", meter.Sum))
	}),
		problem.Moved)
	w.code("the mark again", w.s.Update(ctx, id, func(tx store.Tx) error { return MarkMoved(tx, "somewhere") }),
		problem.Moved)
	next := w.head(id).Seq + 1
	rows := []ledger.Row{{Seq: next, At: Ago(0), Change: tenantChange(id, Ago(0))}}
	w.code("an import", w.s.Import(ctx, id, ledger.Section{First: next, At: Ago(0), Rows: rows}), problem.Moved)
}

func tenantChange(id string, at calendar.Micros) *ledger.Change {
	t := Tenant(id, at)
	c := change("tenant", "put", id, tenant.Kind.State(&t))
	return &c
}
