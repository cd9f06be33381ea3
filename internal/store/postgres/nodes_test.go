package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// nodes opens several stores on one database.
func nodes(t *testing.T, n int, url string, now func() time.Time) []*Store {
	t.Helper()
	var out []*Store
	for range n {
		s := mustOpen(t, Options{URL: url, Now: now, MaxConns: few, SkipMigrations: true})
		t.Cleanup(func() { mustClose(t, s) })
		out = append(out, s)
	}
	return out
}

// tally is what the deliverers of facts were answered.
type tally struct {
	mu       sync.Mutex // guards all below
	accepted map[string]int
	seqs     map[string]map[uint64]bool
	failures int
}

func newTally() *tally {
	return &tally{accepted: map[string]int{}, seqs: map[string]map[uint64]bool{}}
}

// maxDeliveries bounds how often a batch is sent; a server comes back long before.
const maxDeliveries = 1000

// deliver records facts until they are answered. Only being unavailable is tried again, as a client would.
func (y *tally) deliver(t *testing.T, s *Store, events []usage.Event) {
	for attempt := 1; ; attempt++ {
		vs, err := s.Record(context.Background(),
			store.Batch{Tenant: "acme", Events: append([]usage.Event(nil), events...)})
		y.mu.Lock()
		if problem.Is(err, problem.Unavailable) && attempt < maxDeliveries {
			y.failures++
			y.mu.Unlock()
			continue
		}
		if err != nil {
			t.Errorf("record: %v", err)
		}
		for _, v := range vs {
			if v.Status == usage.Accepted {
				y.accepted[v.Key.Name]++
			} else if v.Status != usage.Duplicate {
				t.Errorf("%s was %s: %v", v.Key.Name, v.Status, v.Problem)
			}
			if y.seqs[v.Key.Name] == nil {
				y.seqs[v.Key.Name] = map[uint64]bool{}
			}
			y.seqs[v.Key.Name][v.Seq] = true
		}
		y.mu.Unlock()
		return
	}
}

// race delivers all facts from a submitter for each node, each in an order of its own and to every node in turn.
func (y *tally) race(t *testing.T, ns []*Store, facts, size int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range ns {
		wg.Go(func() {
			for j, events := range batches(facts, size, uint64(i)) {
				y.deliver(t, ns[(i+j)%len(ns)], events)
			}
		})
	}
	wg.Wait()
}

// check wants each fact accepted once, or at most once when some answers were lost, and counted once in any case.
func (y *tally) check(t *testing.T, s *Store, facts int) {
	t.Helper()
	for n := range facts {
		id := fmt.Sprint("e", n)
		if y.accepted[id] > 1 || y.accepted[id] == 0 && y.failures == 0 || len(y.seqs[id]) != 1 {
			t.Errorf("%s was accepted %d times, under %d numbers, with %d failures", id, y.accepted[id],
				len(y.seqs[id]), y.failures)
		}
	}
	storetest.CheckLedger(t, s, "acme")
	err := s.View(context.Background(), "acme", func(v store.View) error {
		var total int64
		err := v.Counters(store.CounterPlace{}, func(_ store.CounterPlace, c *usage.Counter) bool {
			total += c.OnTime.Count
			return true
		})
		if total != int64(facts) {
			t.Errorf("%d facts are counted, want %d", total, facts)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func numbered(n int) usage.Event {
	return storetest.Fact(fmt.Sprint("e", n), "calls", fmt.Sprint("c", n%7),
		storetest.Ago(time.Duration(n)*time.Second), "2.5")
}

// batches are all facts in an order of their own, in pieces.
func batches(facts, size int, order uint64) (out [][]usage.Event) {
	perm := rand.New(rand.NewPCG(order, 1)).Perm(facts)
	for from := 0; from < facts; from += size {
		var events []usage.Event
		for _, n := range perm[from:min(from+size, facts)] {
			events = append(events, numbered(n))
		}
		out = append(out, events)
	}
	return out
}

// Given two nodes on one database, when both are thrown the same facts at once, then each fact is accepted by one of
// them, once.
func TestTwoNodesCountOnce(t *testing.T) {
	t.Parallel()
	for name, major := range majors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			countOnce(t, major.migrated(t))
		})
	}
}

func countOnce(t *testing.T, url string) {
	t.Helper()
	clock := storetest.NewClock()
	ns := nodes(t, 2, url, clock.Now)
	if err := storetest.Create(ns[0], "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	// Some batches are larger than what is searched under the lock, so that searches and commits of both nodes
	// interleave.
	const facts, size, submitters = 3000, 600, 6
	y := newTally()
	var wg sync.WaitGroup
	for i := range submitters {
		wg.Go(func() {
			for j, events := range batches(facts, size/(1+i%3*5), uint64(i)) {
				y.deliver(t, ns[(i+j/3)%2], events)
			}
		})
	}
	wg.Wait()
	if y.failures != 0 {
		t.Errorf("%d batches were refused for now by a database that is well", y.failures)
	}
	y.check(t, ns[1], facts)
}

// Given a meter, a close and a member that one node made, when another node judges, then it judges by them.
func TestChangesHoldOnEveryNode(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	ns := nodes(t, 2, migrated(t), clock.Now)
	ctx := context.Background()
	says := func(n int, e usage.Event) string {
		t.Helper()
		vs, err := ns[n].Record(ctx, store.Batch{Tenant: "acme", Events: []usage.Event{e}})
		if err != nil {
			return string(problem.CodeOf(err))
		}
		if vs[0].Problem != nil {
			return string(vs[0].Problem.Code)
		}
		return vs[0].Status.String()
	}
	update := func(n int, fn func(tx store.Tx) error) {
		t.Helper()
		if err := ns[n].Update(ctx, "acme", fn); err != nil {
			t.Fatal(err)
		}
	}
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("said %s, want %s", got, want)
		}
	}
	want(says(1, numbered(1)), "not_found")
	if err := storetest.Create(ns[0], "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	want(says(1, numbered(1)), "accepted")
	want(says(0, numbered(1)), "duplicate")
	more := storetest.Fact("m", "more", "c", storetest.Ago(0), "1")
	want(says(1, more), "unknown_meter")
	update(0, func(tx store.Tx) error { return storetest.PutMeter(tx, storetest.NewMeter("more", meter.Max)) })
	want(says(1, more), "accepted")
	update(1, func(tx store.Tx) error { return storetest.ClosePeriod(tx, storetest.Month) })
	want(says(0, numbered(2)), "adjusted")
	want(says(1, storetest.Correction("fix", "e2", "-1")), "adjusted")
	want(says(0, storetest.Correction("fix2", "e2", "-2")), "invalid")
	update(0, func(tx store.Tx) error {
		tn, err := store.Tenant(tx)
		tn.Closed, tn.ClosedAt = true, tx.Now()
		return errors.Join(err, storetest.PutTenant(tx, tn))
	})
	want(says(1, numbered(3)), "tenant_closed")
	storetest.CheckLedger(t, ns[1], "acme")
}

// Given a key that one node revokes, then it opens nothing there from then on, and when a second has passed not on
// another node either.
func TestARevokedKeyStopsOnEveryNode(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	ns := nodes(t, 2, migrated(t), clock.Now)
	machine := storetest.NewClock() // the time by which access judges what it remembers
	ns[1].sets.clock = machine.Now
	ctx := context.Background()
	if err := storetest.Create(ns[0], "acme"); err != nil {
		t.Fatal(err)
	}
	k := tenant.APIKey{ID: "acme.k", Scopes: tenant.Ingest}
	put := func() {
		t.Helper()
		if err := ns[0].Update(ctx, "acme", func(tx store.Tx) error { return storetest.PutKey(tx, k) }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ns[1].Access(ctx, "acme", k.ID); !problem.Is(err, problem.NotFound) {
		t.Errorf("access before there is a key: %v", err)
	}
	put()
	if _, err := ns[1].Access(ctx, "acme", k.ID); err != nil {
		t.Errorf("a new key was refused from memory: %v", err)
	}
	ns[0].sets.clock = machine.Now // it does not move: what the node remembers stays young
	if got, err := ns[0].Access(ctx, "acme", k.ID); err != nil || got.Key.RevokedAt != 0 {
		t.Errorf("the key before it is revoked: %+v, %v", got, err)
	}
	k.RevokedAt = storetest.Ago(0)
	put()
	if got, err := ns[0].Access(ctx, "acme", k.ID); err != nil || got.Key.RevokedAt == 0 {
		t.Errorf("the node that answered the revocation still knows the key as %+v, %v", got, err)
	}
	machine.Advance(time.Second)
	for n, s := range ns {
		if got, err := s.Access(ctx, "acme", k.ID); err != nil || got.Key.RevokedAt == 0 {
			t.Errorf("node %d still knows the key as %+v, %v", n, got, err)
		}
	}
}
