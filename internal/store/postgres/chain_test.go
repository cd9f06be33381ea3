package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// largest is a store with a meter that cannot subtract, so that a correction reads the rows of its counter, and a batch
// of facts for it that is larger than what is sent at a time.
func largest(t *testing.T) (s *Store, url string, facts []usage.Event) {
	t.Helper()
	clock := storetest.NewClock()
	url = migrated(t)
	s = mustOpen(t, Options{URL: url, Now: clock.Now, MaxConns: few, SkipMigrations: true})
	t.Cleanup(func() { mustClose(t, s) })
	if err := storetest.Create(s, "acme", storetest.NewMeter("peak", meter.Max)); err != nil {
		t.Fatal(err)
	}
	for i := range 2*chunk + chunk/2 {
		facts = append(facts, storetest.Fact(fmt.Sprint("fact-", i), "peak", "ada", storetest.Ago(time.Minute),
			fmt.Sprint(i+1)))
	}
	return s, url, facts
}

func recorded(t *testing.T, s *Store, events ...usage.Event) []usage.Verdict {
	t.Helper()
	verdicts, err := s.Record(context.Background(), store.Batch{Tenant: "acme", Events: events})
	if err != nil {
		t.Fatal(err)
	}
	return verdicts
}

// Given a batch of which the server has some rows already while the rest is decided, when its last fact corrects one of
// them, then each row is folded once: those on their way and those of earlier commits.
func TestCorrectionsInsideALargeBatch(t *testing.T) {
	t.Parallel()
	s, _, facts := largest(t)
	recorded(t, s, facts[:chunk]...)
	top := len(facts)
	recorded(t, s, append(facts[chunk:], storetest.Correction("fix-1", facts[top-1].ID, fmt.Sprint(-top)))...)
	recorded(t, s, storetest.Correction("fix-2", facts[top-2].ID, fmt.Sprint(1-top)))
	err := s.View(context.Background(), "acme", func(v store.View) error {
		m, err := store.GetMeter(v, "peak")
		if err != nil {
			return err
		}
		c, err := v.Counter(usage.CounterID{Meter: m.Number, Customer: "ada", Month: calendar.MonthOf(facts[0].Time)})
		if got := c.OnTime; got.Count != int64(top-2) || got.Max.String() != fmt.Sprint(top-2) {
			t.Errorf("%d facts with a peak of %s are left, want %d of %d", got.Count, got.Max, top-2, top-2)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	storetest.CheckLedger(t, s, "acme")
}

// Given a row that is missing from its table, when a correction needs the rows of its counter, then it is refused
// aloud: a fold over what is left would be a wrong bill.
func TestACounterWhoseRowsAreMissing(t *testing.T) {
	t.Parallel()
	s, url, facts := largest(t)
	recorded(t, s, facts[:10]...)
	if err := pgtest.Exec(url, "DELETE FROM tallystick.usage_events WHERE key = 'cfact-4'"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Record(context.Background(),
		store.Batch{Tenant: "acme", Events: []usage.Event{storetest.Correction("fix", facts[9].ID, "-10")}})
	if !problem.Is(err, problem.Internal) || !errors.Is(err, errDefect) {
		t.Errorf("a correction of a counter that lacks rows was answered %v", err)
	}
	err = s.View(context.Background(), "acme", func(v store.View) error {
		m, err := store.GetMeter(v, "peak")
		if err != nil {
			return err
		}
		return v.Slice(store.SliceQuery{Meter: m.Number, Customer: "ada", From: facts[0].Time, To: facts[0].Time + 1},
			func(*store.Slice) error {
				return nil
			})
	})
	if err == nil {
		t.Error("a slice that lacks rows was shown")
	}
}
