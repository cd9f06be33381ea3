package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// The largest alert of the longest name stays within the bound that space is reserved by.
func TestAlertsStayWithinTheirBound(t *testing.T) {
	for _, customer := range []string{"", "c", strings.Repeat("\x01", usage.MaxName),
		strings.Repeat("<", usage.MaxName), strings.Repeat("é", usage.MaxName/2)} {
		most := amount.FromInt(0)
		for most.Cmp(quota.MaxLimit) < 0 {
			most, _ = most.Add(storetest.Amount("99999999999999999.999999999999"))
		}
		c := ledger.AlertRow(&quota.Alert{Meter: 1<<32 - 1, Slug: strings.Repeat("m", meter.MaxSlug),
			Customer: customer, Month: 9999*12 + 11, Threshold: quota.MaxThreshold,
			Plan: strings.Repeat("p", quota.MaxName), Limit: most,
			Used: storetest.Amount("-99999999999999999999999999.999999999999")})
		if got, bound := changeBound([]ledger.Row{{Change: &c}}),
			changeOverhead+ledger.MaxAlertRow(len(customer)); got > bound {
			t.Errorf("an alert for %d bytes of customer takes %d bytes, more than the %d reserved", len(customer), got,
				bound)
		}
	}
}

// Space is reserved for the alerts of a raise before anybody knows whose fact it corrects.
func TestAlertsOfARaiseStayWithinTheirBound(t *testing.T) {
	e := mustOpen(t, small(vfs.NewMem(), storetest.NewClock().Now))
	defer mustEnd(t, e)
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	customer, q := strings.Repeat("\x01", usage.MaxName), storetest.Hard("calls", "10")
	q.Thresholds = []uint16{10, 20, 30, 40, 50, 60, 70, 80}
	err := e.Update(t.Context(), "acme", func(tx store.Tx) error {
		return errors.Join(storetest.PutPlan(tx, quota.Plan{Name: "pro", Quotas: []quota.Quota{q}}),
			storetest.Assign(tx, "", "pro"), storetest.Assign(tx, customer, "pro"))
	})
	if err != nil {
		t.Fatal(err)
	}
	up := storetest.Correction("up", "a", "9")
	for _, event := range []usage.Event{storetest.Fact("a", "calls", customer, storetest.Ago(0), "0.5"), up} {
		if vs, err := e.Record(t.Context(), store.Batch{Tenant: "acme", Events: []usage.Event{event}}); err != nil ||
			vs[0].Status != usage.Accepted {
			t.Fatal(vs, err)
		}
	}
	var alerts []ledger.Row
	err = e.View(t.Context(), "acme", func(v store.View) error {
		_, _, err := v.Rows(0, store.RowHint{Changes: true}, func(r *ledger.Row) bool {
			if r.Change != nil && r.Change.State.Kind == quota.AlertKind.Name {
				c := *r.Change
				alerts = append(alerts, ledger.Row{Change: &c})
			}
			return true
		})
		return err
	})
	bound := alertBound([]prepared{{Fact: usage.Fact{Event: &up}}}, len(q.Thresholds), 0)
	if got := changeBound(alerts); err != nil || len(alerts) != 2*len(q.Thresholds) || got > bound {
		t.Errorf("%d alerts take %d bytes, %d were reserved, %v", len(alerts), got, bound, err)
	}
}

// Given more tallies than may stay in memory, when checkpoints let them go, then they come back as they were, and
// quotas hold.
func TestTalliesThatWereLetGoComeBack(t *testing.T) {
	mem, clock := vfs.NewMem(), storetest.NewClock()
	o := small(mem, clock.Now)
	o.CheckpointBytes = 1 // after every group
	e := mustOpen(t, o)
	e.mu.Lock()
	e.tallies.limit = 3
	e.mu.Unlock()
	var meters []meter.Meter
	plan := quota.Plan{Name: "pro"}
	for i := range 20 {
		slug := fmt.Sprintf("m%02d", i)
		meters = append(meters, storetest.NewMeter(slug, meter.Sum))
		plan.Quotas = append(plan.Quotas, storetest.Hard(slug, "3"))
	}
	if err := storetest.Create(e, "acme", meters...); err != nil {
		t.Fatal(err)
	}
	err := e.Update(context.Background(), "acme", func(tx store.Tx) error {
		if err := storetest.PutPlan(tx, plan); err != nil {
			return err
		}
		return storetest.Assign(tx, "", "pro")
	})
	if err != nil {
		t.Fatal(err)
	}
	for round, want := range []usage.Status{usage.Accepted, usage.Accepted, usage.Accepted, usage.Rejected} {
		for i := range meters {
			f := storetest.Fact(fmt.Sprint(round, "-", i), meters[i].Slug, "c", storetest.Ago(0), "1")
			vs, err := e.Record(context.Background(), store.Batch{Tenant: "acme", Events: []usage.Event{f}})
			if err != nil || vs[0].Status != want {
				t.Fatalf("round %d of %s: %v, %v, want %s", round, meters[i].Slug, vs, err, want)
			}
		}
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
	if n := len(e.tallies.all); n > e.tallies.limit {
		t.Errorf("%d tallies are in memory after the last checkpoint, want %d at most", n, e.tallies.limit)
	}
}
