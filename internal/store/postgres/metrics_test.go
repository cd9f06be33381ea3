package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// figures reads a registry: counters and gauges by name, histograms by name with _count and _sum. Labels stand behind
// the name.
func figures(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "tallystick_postgres_")
		if !ours {
			t.Errorf("the store shows %s", f.GetName())
		}
		for _, m := range f.GetMetric() {
			full := name
			for _, l := range m.GetLabel() {
				full += " " + l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				out[full+"_count"], out[full+"_sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
				continue
			}
			out[full] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// measured is a store with a tenant, and the registry that it shows its figures in.
func measured(t *testing.T) (*Store, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewRegistry()
	s := mustOpen(t, Options{URL: migrated(t), Now: storetest.NewClock().Now, MaxConns: few, SkipMigrations: true,
		Metrics: r})
	t.Cleanup(func() { mustClose(t, s) })
	if err := storetest.Create(s, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	return s, r
}

// moved wants figures to have changed by so much, and those that are times to be more than before.
func moved(t *testing.T, before, after map[string]float64, by map[string]float64) {
	t.Helper()
	for name, want := range by {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s moved by %v, want %v", name, got, want)
		}
		if sum := strings.TrimSuffix(name, "_count") +
			"_sum"; strings.HasSuffix(name, "_seconds_count") && after[sum] <= before[sum] {
			t.Errorf("%s is %v after %v", sum, after[sum], before[sum])
		}
	}
}

// Given two batches that wait together, when they are committed, then one transaction is counted with all that it did;
// and an update is a transaction that waits for no batch.
func TestMetricsOfTransactions(t *testing.T) {
	t.Parallel()
	s, r := measured(t)
	l, err := s.enter("acme")
	if err != nil {
		t.Fatal(err)
	}
	defer l.leave()
	before := figures(t, r)
	first, second := prepared(t, s, numbered(1), numbered(2)), prepared(t, s, numbered(2), numbered(3), numbered(4))
	if err := l.commitGroup([]*work{first, second}); err != nil {
		t.Fatal(err)
	}
	after := figures(t, r)
	moved(t, before, after, map[string]float64{"transactions_total": 1, "rows_total": 4, "transaction_facts_count": 1,
		"transaction_facts_sum": 5, "transaction_batches_count": 1, "transaction_batches_sum": 2,
		"lock_seconds_count": 1, "fetch_seconds_count": 1,
		"insert_seconds_count": 1,
		"commit_seconds_count": 1, "lost_commits_total": 0, "busy_total": 0})
	if err := storetest.Create(s, "globex", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	moved(t, after, figures(t, r), map[string]float64{"transactions_total": 1, "rows_total": 2,
		"commit_seconds_count": 1, "transaction_facts_count": 0})
}

// Given a lane in which nothing moves, when large facts wait, then their number and their bytes are shown, and there is
// a bound in bytes long before the one in facts.
func TestMetricsOfTheQueue(t *testing.T) {
	t.Parallel()
	s, r := measured(t)
	l, err := s.enter("acme")
	if err != nil {
		t.Fatal(err)
	}
	defer l.leave()
	<-l.turn // nothing commits while the test holds it
	// The first is taken at once and waits no longer.
	taken := prepared(t, s, numbered(1))
	if err := l.put(taken); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 8<<20)
	var waiting []*work
	for {
		e := numbered(2)
		e.Properties = large
		w := prepared(t, s, e)
		if err = l.put(w); err != nil {
			break
		}
		waiting = append(waiting, w)
	}
	if !problem.Is(err, problem.Busy) || len(waiting) != maxWaitingTenantBytes/len(large)-1 {
		t.Errorf("after %d batches of %d bytes: %v", len(waiting), len(large), err)
	}
	got := figures(t, r)
	if n := float64(len(waiting)); got["queue_facts"] < n || got["queue_facts"] > n+1 ||
		got["queue_bytes"] < n*float64(len(large)) || got["busy_total"] != 1 {
		t.Errorf("%d facts wait, and the figures say %v facts, %v bytes, %v refused", len(waiting), got["queue_facts"],
			got["queue_bytes"], got["busy_total"])
	}
	l.turn <- struct{}{}
	for _, w := range append(waiting, taken) {
		<-w.done
		if w.err != nil {
			t.Error(w.err)
		}
	}
	if got := figures(t, r); got["queue_facts"] != 0 || got["queue_bytes"] != 0 {
		t.Errorf("nothing waits, and the figures say %v facts and %v bytes", got["queue_facts"], got["queue_bytes"])
	}
}

// Given failures that pass, when transactions are tried again, then each is counted by its cause.
func TestMetricsOfRetries(t *testing.T) {
	t.Parallel()
	s, r := measured(t)
	causes := map[string]error{
		"serialization": &pgconn.PgError{Code: "40001"}, "deadlock": &pgconn.PgError{Code: "40P01"},
		"stale_memory": &pgconn.PgError{Code: "23505"},
		"lock_timeout": &pgconn.PgError{Code: "55P03"}, "statement_timeout": &pgconn.PgError{Code: "57014"},
		"read_only": &pgconn.PgError{Code: "25006"},
		"resources": &pgconn.PgError{Code: "53300"}, "shutdown": &pgconn.PgError{Code: "57P01"},
		"io":   &pgconn.PgError{Code: "58030"},
		"idle": &pgconn.PgError{Code: "25P03"}, "connection": driverFailed(context.DeadlineExceeded),
	}
	for cause, err := range causes {
		before := figures(t, r)
		fail := err
		again := func() error { defer func() { fail = nil }(); return fail }
		if err := s.again(context.Background(), again); err != nil {
			t.Errorf("%s: %v", cause, err)
		}
		moved(t, before, figures(t, r), map[string]float64{"retries_total " + cause: 1})
	}
	lasting := &pgconn.PgError{Code: "42601"}
	if err := s.again(context.Background(), func() error { return lasting }); err == nil {
		t.Error("a statement that the server does not understand succeeded")
	}
	if got := figures(t, r); got["retries_total connection"] != 1 {
		t.Errorf("a lasting failure was counted as tried again: %v", got)
	}
}

// Given a pool that is used up and then made anew, then connections in use and reconnects are shown, and that they were
// waited for.
func TestMetricsOfConnections(t *testing.T) {
	t.Parallel()
	s, r := measured(t)
	ctx := context.Background()
	var lent []*session
	for range few {
		c, err := s.lend(ctx)
		if err != nil {
			t.Fatal(err)
		}
		lent = append(lent, c)
	}
	before := figures(t, r)
	if before["connections_in_use"] != few || before["connections"] != few {
		t.Errorf("%v of %v connections in use, want %d", before["connections_in_use"], before["connections"], few)
	}
	for _, c := range lent {
		c.giveBack(ctx)
	}
	s.pool.Reset()
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	after := figures(t, r)
	if after["connects_total"] <= before["connects_total"] ||
		after["connection_waits_total"] <= before["connection_waits_total"] ||
		after["connection_wait_seconds_total"] <= before["connection_wait_seconds_total"] {
		t.Errorf("after a reconnect %v, before it %v", after, before)
	}
}

// Given a registry that shows a store, when another store wants it too, then it is refused; when the first is closed it
// shows nothing.
func TestOneRegistryShowsOneStore(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	o := Options{URL: migrated(t), MaxConns: few, SkipMigrations: true, Metrics: r}
	first := mustOpen(t, o)
	if second, err := Open(context.Background(), o); err == nil {
		mustClose(t, second)
		t.Error("two stores show their figures under the same names")
	}
	if len(figures(t, r)) == 0 {
		t.Error("a store that could not be opened took the figures of another with it")
	}
	mustClose(t, first)
	if left := figures(t, r); len(left) != 0 {
		t.Errorf("a closed store shows %v", left)
	}
}

// Given a full lane, when Record is refused, then the caller is answered so and the refusal is counted.
func TestMetricsOfRefusals(t *testing.T) {
	t.Parallel()
	s, r := measured(t)
	s.mu.Lock()
	s.bytes = maxWaitingBytes
	s.mu.Unlock()
	_, err := s.Record(context.Background(), store.Batch{Tenant: "acme", Events: []usage.Event{numbered(1)}})
	if !problem.Is(err, problem.Busy) {
		t.Errorf("a store with no room answered %v", err)
	}
	if got := figures(t, r); got["busy_total"] != 1 {
		t.Errorf("%v refusals were counted", got["busy_total"])
	}
}
