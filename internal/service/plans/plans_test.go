package plans

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

const acme = "acme"

func newService(t *testing.T) (*Service, store.Store) {
	t.Helper()
	s := naive.New(naive.Options{Now: storetest.NewClock().Now})
	if err := storetest.Create(s, acme, storetest.NewMeter("calls", meter.Sum),
		storetest.NewMeter("hits", meter.Count)); err != nil {
		t.Fatal(err)
	}
	return New(s), s
}

// recorded lists the changes since a row, as type, entity and payload.
func recorded(t *testing.T, s store.Store, after uint64) (out []string) {
	t.Helper()
	err := s.View(context.Background(), acme, func(v store.View) error {
		_, _, err := v.Rows(after, store.RowHint{Changes: true}, func(r *ledger.Row) bool {
			out = append(out, fmt.Sprintf("%s %s by %s: %s", r.Change.Type, r.Change.EntityID, r.Change.Actor,
				r.Change.Payload))
			return true
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryChangeIsToldOnce(t *testing.T) {
	s, st := newService(t)
	ctx := context.Background()
	plan := quota.Plan{Name: "pro", Quotas: []quota.Quota{{Meter: "calls", Limit: storetest.Amount("10"), Soft: true,
		Multiplier: storetest.Amount("2")}}}
	for range 2 {
		if _, err := s.Put(ctx, "ann", acme, plan); err != nil {
			t.Fatal(err)
		}
		for _, customer := range []string{"", "c"} {
			if _, err := s.Assign(ctx, "ann", acme, customer, "pro", nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	plan.Quotas[0].Soft = false
	if _, err := s.Put(ctx, "bob", acme, plan); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Assign(ctx, "bob", acme, "c", "", nil); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`plan.created pro by ann: ` +
			`{"name":"pro","quotas":[{"meter":"calls","limit":"10","soft":true,"hard_cap_multiplier":"2",` +
			`"thresholds":[]}]}`,
		`tenant.plan_assigned acme by ann: {"plan":"pro","from":"2026-11-15T02:10:00Z","before":null}`,
		`customer.plan_assigned c by ann: {"plan":"pro","from":"2026-11-15T02:10:00Z","before":null}`,
		`plan.updated pro by bob: ` +
			`{"name":"pro","quotas":[{"meter":"calls","limit":"10","soft":false,"hard_cap_multiplier":"2",` +
			`"thresholds":[]}]}`,
		`customer.plan_assigned c by bob: {"plan":null,"from":"2026-11-15T02:10:00Z","before":"pro"}`,
	}
	if got := recorded(t, st, 3); !slices.Equal(got, want) {
		t.Errorf("recorded\n%q\nwant\n%q", got, want)
	}
}

func TestWhatIsRefused(t *testing.T) {
	s, st := newService(t)
	ctx := context.Background()
	assign := func(tenant, customer, plan string) error {
		_, err := s.Assign(ctx, "ann", tenant, customer, plan, nil)
		return err
	}
	for name, c := range map[string]struct {
		do   func() error
		want problem.Code
	}{
		"a plan for a meter that is not there": {func() error {
			_, err := s.Put(ctx, "ann", acme, quota.Plan{Name: "p", Quotas: []quota.Quota{{Meter: "none"}}})
			return err
		}, problem.Invalid},
		"a plan that is not there":   {func() error { return assign(acme, "", "none") }, problem.Invalid},
		"a tenant that is not there": {func() error { return assign("nobody", "", "") }, problem.NotFound},
		"the operator's own ledger":  {func() error { return assign("_operator", "", "") }, problem.NotFound},
		"a customer that cannot be":  {func() error { return assign(acme, "a\x00b", "") }, problem.Invalid},
		"a thousand and first plan": {func() error {
			err := st.Update(ctx, acme, func(tx store.Tx) error {
				for i := range quota.MaxPlans {
					if err := storetest.PutPlan(tx, quota.Plan{Name: fmt.Sprintf("p%04d", i)}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			_, err = s.Put(ctx, "ann", acme, quota.Plan{Name: "more"})
			return err
		}, problem.Conflict},
	} {
		if err := c.do(); !problem.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// A listing that may look at few customers at a time still shows every quota once, in order.
func TestQuotasAreListedWhateverOneCallMayLookAt(t *testing.T) {
	s, st := newService(t)
	var want []string
	err := st.Update(context.Background(), acme, func(tx store.Tx) error {
		if err := storetest.PutPlan(tx, quota.Plan{Name: "some",
			Quotas: []quota.Quota{storetest.Hard("calls", "1"), storetest.Hard("hits", "1")}}); err != nil {
			return err
		}
		if err := storetest.PutPlan(tx, quota.Plan{Name: "nothing"}); err != nil {
			return err
		}
		for i := range 30 {
			customer := fmt.Sprintf("c%02d", i)
			plan := "nothing"
			if i%7 == 3 {
				plan = "some"
				want = append(want, customer+"/hits")
			}
			if err := storetest.Assign(tx, customer, plan); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.ledgers = ledgers.New(storetest.ShortPages(st, 3)) // a store may list fewer than it is asked for
	for s.looks = 1; s.looks < 40; s.looks += 4 {
		var got []string
		for after := (*Place)(nil); ; {
			items, next, err := s.Quotas(context.Background(), acme, Filter{Meter: "hits"}, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			for i := range items {
				got = append(got, items[i].Customer+"/"+items[i].Meter)
			}
			if next == nil {
				break
			}
			after = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d looks: %v, want %v", s.looks, got, want)
		}
	}
}
