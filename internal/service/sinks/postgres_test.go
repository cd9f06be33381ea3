package sinks_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/service/sinks"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/postgres"
)

// A runner that has stopped leaves no goroutine behind.
func TestMain(m *testing.M) { pgtest.Main(m, func() error { return goleak.Find() }) }

func openPostgres(t *testing.T, url string) store.Store {
	t.Helper()
	s, err := postgres.Open(context.Background(), postgres.Options{URL: url, MaxConns: 4, SkipMigrations: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func database(t *testing.T) string {
	t.Helper()
	url, err := pgtest.Shared(t).Migrated(postgres.Migrate)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// Given two nodes on one database, when one that has the claim stands still in the middle of a delivery, then the other
// takes over when the claim has expired, under the same id, and the first moves nothing when it wakes up.
func TestAnotherNodeTakesOver(t *testing.T) {
	t.Parallel()
	url := database(t)
	w := newWorld(t, openPostgres(t, url), "acme")
	held, wake := make(chan *sinks.Delivery, 1), make(chan struct{})
	paused := newReceiver(nil)
	stuck := &stuckStore{Store: openPostgres(t, url)}
	var once sync.Once
	paused.faults = func(_ int, d *sinks.Delivery) fault {
		once.Do(func() {
			stuck.still.Store(true) // it can no longer keep its claim
			held <- d
			<-wake
		})
		return takes
	}
	s := w.create("acme", func(s *sink.Sink) { s.Rows, s.Batch = sink.Events, 2 }, sinks.Start{Now: true})
	w.record("acme", "a", "b", "c")
	first := &world{t, stuck, newService(stuck)}
	short := func(o *sinks.RunnerOptions) {
		o.ClaimTime = 200 * time.Millisecond
		o.Failed = func(string, string, error) {} // the node that stands still cannot reach its store
	}
	stopFirst, _ := first.run(paused, short)
	begun := <-held
	well := newReceiver(func(int, *sinks.Delivery) fault { return takes })
	stopSecond, _ := w.run(well, short)
	w.expects(well, &s, "acme")
	well.mu.Lock()
	if _, same := well.by[begun.ID]; !same {
		t.Errorf("the delivery %s became %v", begun.ID, well.by)
	}
	well.mu.Unlock()
	var before store.Following
	wait(t, "the second node has kept that all arrived", func() (done bool) {
		var err error
		if before, err = w.store.Following(context.Background(), "acme", sink.Follower(s.ID)); err != nil {
			t.Fatal(err)
		}
		return len(before.Note) == 0
	})
	stuck.still.Store(false)
	close(wake) // and it finds that it has lost its claim
	stopFirst()
	stopSecond()
	after, err := w.store.Following(context.Background(), "acme", sink.Follower(s.ID))
	if err != nil || fmt.Sprint(after.Standing) != fmt.Sprint(before.Standing) {
		t.Errorf("the sink stood at %v and stands at %v: %v", before.Standing, after.Standing, err)
	}
}
