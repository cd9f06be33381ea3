package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// rolled opens a store that adds nothing up by itself, with a tenant that has some hundred rows.
func rolled(t *testing.T) (s *Store, url string) {
	t.Helper()
	url = migrated(t)
	clock := storetest.NewClock()
	s = mustOpen(t, Options{URL: url, Now: clock.Now, SkipMigrations: true, NoRollups: true, RollupRows: 7})
	t.Cleanup(func() { mustClose(t, s) })
	if err := storetest.Create(s, "acme", storetest.NewMeter("calls", meter.Sum),
		storetest.NewMeter("peak", meter.Max)); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		slug := []string{"calls", "peak"}[i%2]
		e := storetest.Fact(fmt.Sprint("e", i), slug, fmt.Sprint("c", i%3), storetest.Ago(0), fmt.Sprint(i))
		if _, err := s.Record(t.Context(), store.Batch{Tenant: "acme", Events: []usage.Event{e}}); err != nil {
			t.Fatal(err)
		}
	}
	return s, url
}

// position is up to which row a tenant has been added up.
func position(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	return count(t, conn, "SELECT coalesce(max(seq), 0) FROM rollups")
}

// eventually asks, each time by a round trip to the database, until something is so.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !is(); {
		if time.Now().After(deadline) {
			t.Fatal("it is not so after five minutes")
		}
	}
}

// Given several nodes, when all add up the same ledger at once, then each row is added once, and none is left out.
func TestNodesAddUpTogether(t *testing.T) {
	t.Parallel()
	s, url := rolled(t)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		node := mustOpen(t, Options{URL: url, SkipMigrations: true, NoRollups: true, RollupRows: 3, MaxConns: few})
		defer mustClose(t, node)
		wg.Go(func() {
			for range 50 {
				_, _, err := node.rollUp(context.Background(), "acme")
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if err := s.RollUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.CheckLedger(t, s, "acme")
}

// Given rows that nobody has added up, when a node begins, then it adds them up by itself, and what comes later too.
func TestANodeAddsUpWhatIsThere(t *testing.T) {
	t.Parallel()
	s, url := rolled(t)
	node := mustOpen(t, Options{URL: url, SkipMigrations: true, RollupRows: 7})
	defer mustClose(t, node)
	conn := as(t, url, roleServe, "acme")
	eventually(t, func() bool { return position(t, conn) > 100 })
	e := storetest.Untimed(storetest.Fact("late", "calls", "c", storetest.Ago(0), "1"))
	if _, err := node.Record(t.Context(), store.Batch{Tenant: "acme", Events: []usage.Event{e}}); err != nil {
		t.Fatal(err)
	}
	end := uint64(0)
	if err := s.View(t.Context(), "acme", func(v store.View) error {
		end = v.Head().Seq
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return position(t, conn) == int(end) })
	storetest.CheckLedger(t, s, "acme")
}

// Given hours that are wrong, when they are rebuilt, then they are what the rows give, and progress goes to its end.
func TestHoursAreRebuilt(t *testing.T) {
	t.Parallel()
	s, url := rolled(t)
	if err := s.RollUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pgtest.Exec(url, "UPDATE tallystick.usage_days SET hours = '\\x0c0505'::bytea"); err != nil {
		t.Fatal(err)
	}
	var done, total uint64
	if err := s.RebuildHours(t.Context(), func(d, of uint64) { done, total = d, of }); err != nil {
		t.Fatal(err)
	}
	if done == 0 || done != total {
		t.Errorf("progress ends at %d of %d", done, total)
	}
	storetest.CheckLedger(t, s, "acme")
}

// Given hours that are no hours, when they are asked for, then the error says what to do.
func TestDamagedHoursSaySo(t *testing.T) {
	t.Parallel()
	s, url := rolled(t)
	if err := s.RollUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pgtest.Exec(url, "UPDATE tallystick.usage_days SET hours = '\\xff'::bytea"); err != nil {
		t.Fatal(err)
	}
	err := s.View(t.Context(), "acme", func(v store.View) error {
		_, _, err := v.Hours(store.HourQuery{Meter: 1, From: storetest.Month.Start(), To: storetest.Month.End()},
			func(*store.Hour) error { return nil })
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "tallystick rebuild --store") {
		t.Errorf("hours that are none: %v", err)
	}
}
