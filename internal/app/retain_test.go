package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// lastYear fills a data directory with a closed month of a year ago, as a server of that time would have. It returns
// the tenant's key and a time in that month.
func lastYear(t *testing.T, dir string) (token string, at time.Time) {
	t.Helper()
	at = calendar.MonthOf(calendar.FromTime(time.Now().AddDate(-1, 0, 0))).Start().Time().Add(50 * time.Hour)
	clock := at
	e, err := engine.Open(engine.Options{Dir: dir, Now: func() time.Time { return clock }, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	keys := registry.New(e, rand.Reader)
	if err := keys.FoundOperator(ctx); err != nil {
		t.Fatal(err)
	}
	if _, token, err = keys.CreateTenant(ctx, "operator", tenant.Tenant{ID: "acme"}); err != nil {
		t.Fatal(err)
	}
	if err := e.Update(ctx, "acme", func(tx store.Tx) error {
		return storetest.PutMeter(tx,
			storetest.NewMeter("calls", meter.Sum))
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		clock = clock.Add(time.Minute)
		_, err := e.Record(ctx, store.Batch{Tenant: "acme",
			Events: []usage.Event{storetest.Fact(fmt.Sprintf("e%d", i), "calls", "c1", calendar.FromTime(clock), "3")}})
		if err != nil {
			t.Fatal(err)
		}
	}
	clock = clock.AddDate(0, 1, 0)
	m := calendar.MonthOf(calendar.FromTime(at))
	if err := e.Update(ctx, "acme", func(tx store.Tx) error { return storetest.ClosePeriod(tx, m) }); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return token, at
}

// Given a month of a year ago, when it is archived by the command and a server reads on, then its totals are there, its
// events come from the archive or are gone, a fact that is sent again is not counted, and a restored store holds
// everything.
func TestAMonthLeavesAndIsReadFromTheArchive(t *testing.T) {
	leaves(t)
	settings := testSettings(t)
	token, at := lastYear(t, settings.Data)
	storage := filepath.Join(t.TempDir(), "archive")
	args := []string{"retain", "--data", settings.Data, "--horizon", "2280h", "--archive", storage}
	if out := run(t, 0, append(args, "--dry-run")...); !strings.Contains(out,
		"10 rows would be archived, 10 of them would be pruned") {
		t.Errorf("a dry run: %s", out)
	}
	if out := run(t, 0, args...); !strings.Contains(out, "10 rows pruned") {
		t.Errorf("a run: %s", out)
	}
	if out := run(t, 0, append(args, "--json")...); !strings.Contains(out, `"pruned":0`) {
		t.Errorf("a second run: %s", out)
	}
	run(t, 0, "verify", "--data", settings.Data)
	whole := filepath.Join(t.TempDir(), "whole")
	run(t, 0, "retain", "--data", settings.Data, "--archive", storage, "--restore", whole)
	run(t, 0, "rebuild", "--data", settings.Data)
	run(t, 0, "verify", "--data", settings.Data)

	for name, want := range map[string]struct {
		data, archive string
		status        int
	}{"without the archive": {settings.Data, "", http.StatusGone},
		"with the archive": {settings.Data, storage, http.StatusOK}, "restored": {whole, "", http.StatusOK}} {
		settings.Data, settings.Retention.Archive = want.data, want.archive
		s := mustStart(t, settings)
		fact := client.Event{ID: "again", Meter: "calls", Customer: "c1", Quantity: "3", Time: at}
		if _, err := connect(t, s, token).SendEvent(context.Background(), &fact); err == nil ||
			!strings.Contains(err.Error(), "beyond_horizon") {
			t.Errorf("%s, a fact of a year ago: %v", name, err)
		}
		for path, status := range map[string]int{"/v1/events": want.status,
			"/v1/counters?period=" + at.Format("2006-01"): http.StatusOK} {
			if got := statusOf(t, s.URL()+path, token); got != status {
				t.Errorf("%s, %s: %d, want %d", name, path, got, status)
			}
		}
		counters, err := connect(t, s, token).Counters(context.Background(), client.CounterFilter{Meter: "calls"})
		if err != nil || len(counters.Items) != 1 || counters.Items[0].Total != "30" {
			t.Errorf("%s: %+v, %v", name, counters, err)
		}
		mustStop(t, s)
	}
}

func statusOf(t *testing.T, url, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return answer.StatusCode
}
