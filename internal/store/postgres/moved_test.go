package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

func markMoved(s *Store, id string) error {
	return s.Update(context.Background(), id, func(tx store.Tx) error { return storetest.MarkMoved(tx, "./data") })
}

// Given a node that has a tenant's configuration in memory, when another process marks the tenant as moved, then not
// one more fact is taken.
func TestAMarkHoldsOnEveryNode(t *testing.T) {
	t.Parallel()
	ns := nodes(t, 2, migrated(t), storetest.NewClock().Now)
	if err := storetest.Create(ns[0], "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	send := func(n int) error {
		_, err := ns[0].Record(context.Background(), store.Batch{Tenant: "acme", Events: []usage.Event{numbered(n)}})
		return err
	}
	if err := send(1); err != nil {
		t.Fatal(err)
	}
	if err := markMoved(ns[1], "acme"); err != nil {
		t.Fatal(err)
	}
	if err := send(2); !problem.Is(err, problem.Moved) {
		t.Errorf("a fact after the mark: %v", err)
	}
	storetest.CheckLedger(t, ns[0], "acme")
}

// Given a tenant that is just being made, when the deployment is marked as moved, then the mark waits for the tenant:
// whoever lists the tenants after it finds them all.
func TestTheOperatorsMarkWaitsForTenantsBeingMade(t *testing.T) {
	t.Parallel()
	url, clock := migrated(t), storetest.NewClock()
	node := nodes(t, 1, url, clock.Now)[0]
	mover := mustOpen(t, Options{URL: url, Now: clock.Now, MaxConns: few, SkipMigrations: true,
		LockTimeout:      50 * time.Millisecond,
		StatementTimeout: 100 * time.Millisecond})
	t.Cleanup(func() { mustClose(t, mover) })
	if err := storetest.Create(node, tenant.Operator); err != nil {
		t.Fatal(err)
	}
	err := node.Update(context.Background(), "acme", func(tx store.Tx) error {
		if err := markMoved(mover, tenant.Operator); !problem.Is(err, problem.Unavailable) {
			t.Errorf("the mark did not wait: %v", err)
		}
		return storetest.PutTenant(tx, storetest.Tenant("acme", tx.Now()))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := markMoved(node, tenant.Operator); err != nil {
		t.Fatal(err)
	}
	if err := storetest.Create(node, "late"); !problem.Is(err, problem.Moved) {
		t.Errorf("a tenant after the mark: %v", err)
	}
}

// Given one database under two names, when a move reserves both, then it finds out.
func TestADatabaseIsInOneMoveAtATime(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	release, err := ReserveMove(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReserveMove(context.Background(), url+"&application_name=another"); err == nil {
		t.Error("the same database was reserved twice")
	}
	release()
	if release, err = ReserveMove(context.Background(), url); err != nil {
		t.Fatal(err)
	}
	release()
}
