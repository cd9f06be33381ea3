package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// forgetPlans makes the engine ask the state again which plans customers have.
func (b *book) forgetPlans(e *Engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b.assigned.mu.Lock()
	defer b.assigned.mu.Unlock()
	b.assigned.recent, b.assigned.older = nil, nil
}

// limited is an engine on which the plan pro allows nothing of calls.
func limited(t *testing.T) (*Engine, *book) {
	t.Helper()
	e := mustOpen(t, resting(vfs.NewMem()))
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	e.mustUpdate(t, func(tx store.Tx) error {
		return storetest.PutPlan(tx, quota.Plan{Name: "pro", Quotas: []quota.Quota{storetest.Hard("calls", "0")}})
	})
	b, err := e.book("acme")
	if err != nil {
		t.Fatal(err)
	}
	return e, b
}

// Given a batch that has read from the state which plan a customer has and waits to be decided, whatever becomes of the
// plan meanwhile, then it is judged by the one that is in force when its turn comes.
func TestFetchedPlansAreNeverStale(t *testing.T) {
	assign := func(t *testing.T, e *Engine, plan string) {
		e.mustUpdate(t, func(tx store.Tx) error { return storetest.Assign(tx, "c", plan) })
	}
	for name, c := range map[string]struct {
		before    string
		meanwhile func(t *testing.T, e *Engine, b *book)
		want      usage.Status
	}{
		"nothing, without a plan": {"", func(*testing.T, *Engine, *book) {}, usage.Accepted},
		"nothing, with a plan":    {"pro", func(*testing.T, *Engine, *book) {}, usage.Rejected},
		"it gets one":             {"", func(t *testing.T, e *Engine, _ *book) { assign(t, e, "pro") }, usage.Rejected},
		"it gets one that is forgotten": {"", func(t *testing.T, e *Engine, b *book) {
			assign(t, e, "pro")
			b.forgetPlans(e)
		}, usage.Rejected},
		"it gets one that is saved and forgotten": {"", func(t *testing.T, e *Engine, b *book) {
			assign(t, e, "pro")
			checkpointNow(t, e)
			b.forgetPlans(e)
		}, usage.Rejected},
		"it loses it, which is saved and forgotten": {"pro", func(t *testing.T, e *Engine, b *book) {
			assign(t, e, "")
			checkpointNow(t, e)
			b.forgetPlans(e)
		}, usage.Accepted},
		"a checkpoint of nothing": {"pro", func(t *testing.T, e *Engine, _ *book) {
			checkpointNow(t, e)
		}, usage.Rejected},
	} {
		t.Run(name, func(t *testing.T) {
			e, b := limited(t)
			assign(t, e, c.before)
			checkpointNow(t, e)
			b.forgetPlans(e)
			w, err := e.prepare(b, "", []usage.Event{storetest.Fact("waited", "calls", "c", storetest.Ago(0), "1")})
			if plans, ok := w.plans.plans["c"]; err != nil || !ok || plans.At(storetest.Ago(0)).Plan != c.before {
				t.Fatalf("brought %v along: %v", w.plans.plans, err)
			}
			c.meanwhile(t, e, b)
			if err := e.submit(context.Background(), &b.queued, w); err != nil {
				t.Fatal(err)
			}
			if got := w.verdicts[0].Status; got != c.want {
				t.Errorf("the fact is %s, want %s", got, c.want)
			}
			mustEnd(t, e)
		})
	}
}

// Given more customers than are remembered, then each is held to its plan, or to none, and to a new one at once.
func TestPlansThatWereForgottenAreReadAgain(t *testing.T) {
	e, b := limited(t)
	e.mu.Lock()
	b.assigned.limit = 3
	e.mu.Unlock()
	const customers = 20
	who := func(i int) string { return fmt.Sprint("c", i) }
	e.mustUpdate(t, func(tx store.Tx) (err error) {
		for i := range customers / 2 {
			err = errors.Join(err, storetest.Assign(tx, who(2*i), "pro"))
		}
		return err
	})
	for round := range 4 {
		if round%2 == 1 {
			checkpointNow(t, e)
		}
		if round == 2 {
			e.mustUpdate(t, func(tx store.Tx) error {
				return errors.Join(storetest.Assign(tx, who(0), ""), storetest.Assign(tx, who(1), "pro"))
			})
		}
		var events []usage.Event
		for i := range customers {
			events = append(events, storetest.Fact(fmt.Sprint(round, "-", i), "calls", who(i), storetest.Ago(0), "1"))
		}
		var vs []usage.Verdict
		for few := range slices.Chunk(events, 4) {
			some, err := e.Record(context.Background(), store.Batch{Tenant: "acme", Events: few})
			if err != nil {
				t.Fatal(err)
			}
			vs = append(vs, some...)
		}
		for i, v := range vs {
			refused := i%2 == 0
			if round >= 2 && i < 2 {
				refused = !refused
			}
			if (v.Status == usage.Rejected) != refused {
				t.Errorf("round %d: the fact of %s is %s", round, who(i), v.Status)
			}
		}
		if n := len(b.assigned.recent) + len(b.assigned.older); n > 2*b.assigned.limit {
			t.Errorf("%d plans are remembered", n)
		}
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}

// Given a customer whose plan is remembered, when it changes, then the next fact is judged by the new one.
func TestAPlanThatIsRememberedChanges(t *testing.T) {
	e, _ := limited(t)
	for i, plan := range []string{"", "pro", "", "pro"} {
		e.mustUpdate(t, func(tx store.Tx) error { return storetest.Assign(tx, "c", plan) })
		for again := range 2 {
			f := storetest.Fact(fmt.Sprint(i, "-", again), "calls", "c", storetest.Ago(0), "1")
			vs, err := e.Record(context.Background(), store.Batch{Tenant: "acme", Events: []usage.Event{f}})
			if err != nil || (vs[0].Status == usage.Rejected) != (plan == "pro") {
				t.Errorf("with the plan %q: %v, %v", plan, vs, err)
			}
		}
	}
	mustEnd(t, e)
}
