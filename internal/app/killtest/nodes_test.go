package killtest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/load"
	"github.com/tallystick/tallystick/internal/pgtest"
)

const (
	nodeKills = 6
	// One node is never killed, so that the load generator, which takes no excuses, can be held against it.
	spared = 0
)

// Given three nodes on one database, when all of them are thrown the same facts while one after the other is killed and
// comes back, and what is not answered is sent to another one, then every acknowledged fact is in the ledger once,
// every node shows the same totals, and verify finds nothing to object to. Beside it, the load generator's own tenants
// add up to the last event.
func TestNodesOfOneDatabaseCountOnce(t *testing.T) {
	database, err := pgtest.Newer(t).Create("")
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, 3, build(t, "--store", database))
	setUp(t, f.nodes[spared].url)
	others := generate(t, f.nodes[spared].url)
	c := f.crowd(t)
	random := rand.New(rand.NewPCG(20261115, 9))
	for range nodeKills {
		victim := 1 + random.IntN(len(f.nodes)-1)
		c.await(t, int64(20+random.IntN(60)))
		// Not at an answer: anywhere in a request.
		<-time.After(time.Duration(random.IntN(5000)) * time.Microsecond)
		f.kill(t, victim)
		c.await(t, int64(20+random.IntN(60)))
		f.restart(t, victim)
	}
	c.wasHit(t)
	c.prove(t, others())
}

// generate runs the load generator on a node. It returns what waits for its proof and says how many facts it left.
func generate(t *testing.T, url string) (facts func() int64) {
	t.Helper()
	var report *load.Report
	var err error
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() {
		report, err = load.Run(ctx, load.Options{URL: url, Key: rootKey, Batch: 100, Connections: 4, Events: 20_000,
			Shape: load.Shape{Tenants: 2, Customers: 200, DuplicateRatio: 0.2}})
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return func() int64 {
		running.Wait()
		if err != nil || !report.Proved {
			t.Fatalf("the load generator: %v", err)
		}
		return report.Accepted
	}
}
