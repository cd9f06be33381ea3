package postgres

import (
	"context"
	"testing"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// prepared makes work as Record does.
func prepared(t *testing.T, s *Store, events ...usage.Event) *work {
	t.Helper()
	set, err := s.latestSet(context.Background(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	return newWork(&store.Batch{Tenant: "acme", Events: events}, set)
}

// Given facts whose keys were searched before the lock, when the same facts are committed meanwhile by this node or by
// another one, then one transaction finds them to be duplicates: the first attempt, not one that the database had to
// refuse.
func TestKeysThatCameAfterTheSearch(t *testing.T) {
	t.Parallel()
	ctx, clock := context.Background(), storetest.NewClock()
	ns := nodes(t, 2, migrated(t), clock.Now)
	if err := storetest.Create(ns[0], "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	l, err := ns[0].enter("acme")
	if err != nil {
		t.Fatal(err)
	}
	defer l.leave()
	commit := func(w *work) {
		t.Helper()
		if err := l.tryGroup(ctx, []*work{w}); err != nil {
			t.Fatalf("commit: %v", err)
		}
	}
	here := func(events []usage.Event) { commit(prepared(t, ns[0], events...)) }
	there := func(events []usage.Event) {
		if _, err := ns[1].Record(ctx, store.Batch{Tenant: "acme", Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, between := range [][]func([]usage.Event){{}, {here}, {here, here}, {here, here, here}, {there},
		{here, there}, {there, here}, {here, there, here}} {
		n += 100
		known, fresh := numbered(n), numbered(n+50)
		here([]usage.Event{known})
		w := prepared(t, ns[0], numbered(n+1), numbered(n+2), numbered(n+3), known, fresh,
			storetest.Correction(fresh.ID+"fix", numbered(n+1).ID, "-1"))
		l.lookUp([]*work{w})
		if !w.looked || len(w.found) != 1 {
			t.Fatalf("the search found %d rows", len(w.found))
		}
		for i, by := range between {
			by([]usage.Event{numbered(n + 1 + i)})
		}
		commit(w)
		for i, v := range w.verdicts {
			want := usage.Accepted
			if i < len(between) || i == 3 {
				want = usage.Duplicate
			}
			if v.Status != want {
				t.Errorf("after %d commits in between, fact %d is %s (%v), want %s", len(between), i, v.Status,
					v.Problem, want)
			}
		}
	}
	storetest.CheckLedger(t, ns[1], "acme")
}

// Given a lane that is full, when more is sent, then it is refused at once, and what a caller gave up on is not
// recorded.
func TestAFullLaneSaysSo(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	s := nodes(t, 1, migrated(t), clock.Now)[0]
	if err := storetest.Create(s, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	l, err := s.enter("acme")
	if err != nil {
		t.Fatal(err)
	}
	defer l.leave()
	<-l.turn // nothing commits while the test holds it
	first := prepared(t, s, numbered(1))
	if err := l.put(first); err != nil {
		t.Fatal(err)
	}
	var waiting []*work
	for {
		w := prepared(t, s, make([]usage.Event, store.MaxBatch)...)
		if err = l.put(w); err != nil {
			break
		}
		waiting = append(waiting, w)
	}
	if !problem.Is(err, problem.Busy) || len(waiting) < maxWaitingTenant/store.MaxBatch-2 {
		t.Errorf("after %d batches: %v", len(waiting), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Record(ctx, store.Batch{Tenant: "acme", Events: []usage.Event{numbered(2)}}); err == nil {
		t.Error("a caller that had given up was answered")
	}
	l.turn <- struct{}{}
	for _, w := range append(waiting, first) {
		<-w.done
		if w.err != nil {
			t.Error(w.err)
		}
	}
	if first.verdicts[0].Status != usage.Accepted {
		t.Errorf("the first fact is %s", first.verdicts[0].Status)
	}
	storetest.CheckLedger(t, s, "acme")
}
