package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// threeNodes are stores on one database whose tenant has a meter and two plans.
func threeNodes(t *testing.T) []*Store {
	t.Helper()
	nodes := nodes(t, 3, migrated(t), storetest.NewClock().Now)
	if err := storetest.Create(nodes[0], "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	update(t, nodes[0], func(tx store.Tx) error {
		if err := storetest.PutPlan(tx, quota.Plan{Name: "pro",
			Quotas: []quota.Quota{storetest.Hard("calls", "100")}}); err != nil {
			return err
		}
		return storetest.PutPlan(tx, quota.Plan{Name: "seat", Quotas: []quota.Quota{storetest.Hard("calls", "30")}})
	})
	return nodes
}

func update(t *testing.T, s *Store, fn func(store.Tx) error) {
	t.Helper()
	if err := s.Update(context.Background(), "acme", fn); err != nil {
		t.Fatal(err)
	}
}

// Given three nodes on one database, when 64 callers race for a hard limit of the tenant and one of a customer, then
// neither is exceeded by one, none of it is wasted, and each threshold was reported once.
func TestNodesRacingForAQuota(t *testing.T) {
	nodes := threeNodes(t)
	update(t, nodes[0], func(tx store.Tx) error {
		if err := storetest.Assign(tx, "", "pro"); err != nil {
			return err
		}
		return storetest.Assign(tx, "c0", "seat")
	})
	const callers, each = 64, 6
	var kept, ofSeat atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := range each {
				customer := fmt.Sprint("c", n%2)
				e := storetest.Fact(fmt.Sprint(i, "-", n), "calls", customer, storetest.Ago(0), "1")
				vs, err := nodes[(i+n)%3].Record(context.Background(),
					store.Batch{Tenant: "acme", Events: []usage.Event{e}})
				switch {
				case err != nil:
					t.Errorf("record: %v", err)
				case vs[0].Status == usage.Accepted:
					kept.Add(1)
					if customer == "c0" {
						ofSeat.Add(1)
					}
				case !problem.Is(vs[0].Problem, problem.QuotaExceeded):
					t.Errorf("%s was %s, %v", e.ID, vs[0].Status, vs[0].Problem)
				}
			}
		})
	}
	wg.Wait()
	if kept.Load() != 100 || ofSeat.Load() > 30 {
		t.Errorf("%d were kept, %d of them of the customer with 30", kept.Load(), ofSeat.Load())
	}
	for _, s := range nodes {
		storetest.CheckLedger(t, s, "acme") // tallies equal the rows, and no threshold stands twice
	}
}

// Given three nodes, when a plan, or who has it, is changed on one, then the next event on another is judged by it.
func TestNodesSeeAPlanAtTheirNextTransaction(t *testing.T) {
	nodes := threeNodes(t)
	n := 0
	send := func(s *Store, customer, quantity string, want usage.Status) {
		t.Helper()
		n++
		e := storetest.Fact(fmt.Sprint("e", n), "calls", customer, storetest.Ago(0), quantity)
		vs, err := s.Record(context.Background(), store.Batch{Tenant: "acme", Events: []usage.Event{e}})
		if err != nil || vs[0].Status != want {
			t.Errorf("%s of %s: %v, %v, want %s", quantity, customer, vs, err, want)
		}
	}
	for _, s := range nodes {
		send(s, "c", "10", usage.Accepted) // every node has a cache and a configuration by now
	}
	update(t, nodes[1], func(tx store.Tx) error { return storetest.Assign(tx, "c", "seat") })
	send(nodes[0], "c", "1", usage.Rejected)
	send(nodes[2], "c", "1", usage.Rejected)
	send(nodes[2], "d", "1", usage.Accepted)
	update(t, nodes[2], func(tx store.Tx) error {
		return storetest.PutPlan(tx, quota.Plan{Name: "seat", Quotas: []quota.Quota{storetest.Hard("calls", "31")}})
	})
	send(nodes[0], "c", "1", usage.Accepted)
	send(nodes[1], "c", "1", usage.Rejected)
	update(t, nodes[0], func(tx store.Tx) error { return storetest.Assign(tx, "", "pro") })
	send(nodes[1], "d", "69", usage.Rejected)
	send(nodes[2], "d", "68", usage.Accepted)
	send(nodes[0], "d", "1", usage.Rejected)
	update(t, nodes[1], func(tx store.Tx) error { return storetest.Assign(tx, "", "") })
	send(nodes[2], "d", "1", usage.Accepted)
	storetest.CheckLedger(t, nodes[0], "acme")
}

// Given a plan that is dated ahead on one node, when its time comes, then every node judges by it, also one that has
// remembered the customer's plans all the while and one that has seen nothing yet.
func TestNodesReachADatedPlanTogether(t *testing.T) {
	clock := storetest.NewClock()
	nodes := nodes(t, 3, migrated(t), clock.Now)
	if err := storetest.Create(nodes[0], "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	update(t, nodes[0], func(tx store.Tx) error {
		err := storetest.PutPlan(tx, quota.Plan{Name: "none", Quotas: []quota.Quota{storetest.Hard("calls", "0")}})
		if err != nil {
			return err
		}
		return storetest.AssignFrom(tx, "c", "none", storetest.Ago(-time.Hour))
	})
	n := 0
	send := func(s *Store, want usage.Status) {
		t.Helper()
		n++
		e := storetest.Fact(fmt.Sprint("e", n), "calls", "c", storetest.Ago(0), "1")
		vs, err := s.Record(context.Background(), store.Batch{Tenant: "acme", Events: []usage.Event{e}})
		if err != nil || vs[0].Status != want {
			t.Errorf("%s: %v, %v, want %s", e.ID, vs, err, want)
		}
	}
	send(nodes[1], usage.Accepted)
	send(nodes[1], usage.Accepted) // it remembers
	clock.Advance(time.Hour)
	for _, s := range nodes {
		send(s, usage.Rejected)
	}
	// Put off on another node, it is in force on none.
	update(t, nodes[2], func(tx store.Tx) error { return storetest.AssignFrom(tx, "c", "", storetest.Ago(-time.Hour)) })
	for _, s := range nodes {
		send(s, usage.Accepted)
	}
	for _, s := range nodes {
		storetest.CheckLedger(t, s, "acme")
	}
}
