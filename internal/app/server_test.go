package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/client"
)

const testRootKey = "a-root-key-for-tests"

func testSettings(t *testing.T) Settings {
	t.Helper()
	s := defaultSettings()
	s.Data, s.Listen, s.RootKey, s.Engine.SegmentBytes = t.TempDir(), "127.0.0.1:0", testRootKey, 1<<20
	return s
}

func mustStart(t *testing.T, s Settings) *Server {
	t.Helper()
	server, err := Start(context.Background(), ServerOptions{Settings: s, Logger: slog.New(slog.DiscardHandler),
		Fatal: func(err error) { t.Errorf("the store failed: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func mustStop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
}

func connect(t *testing.T, s *Server, key string) *client.Client {
	t.Helper()
	c, err := client.New(s.URL(), key, client.WithRetry(client.RetryPolicy{MaxAttempts: 1}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// newAcme makes the tenant acme with a sum meter and returns a client with its key.
func newAcme(t *testing.T, s *Server, slug string) (*client.Client, string) {
	t.Helper()
	ctx := context.Background()
	made, err := connect(t, s, testRootKey).CreateTenant(ctx, client.NewTenant{ID: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	acme := connect(t, s, made.APIKey)
	if _, err := acme.CreateMeter(ctx, client.Meter{Slug: slug, Aggregation: "sum"}); err != nil {
		t.Fatal(err)
	}
	return acme, made.APIKey
}

// leaves makes sure that nothing of a test outlives it. It is called first, so that it looks last.
func leaves(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

func TestServerKeepsWhatItWasGivenAndLeavesNothingBehind(t *testing.T) {
	leaves(t)
	ctx := context.Background()
	settings := testSettings(t)
	settings.MetricsListen = "127.0.0.1:0"
	s := mustStart(t, settings)
	if s.OperatorKey() != "" {
		t.Error("a key was made although the settings name one")
	}
	operator := connect(t, s, testRootKey)
	made, err := operator.CreateTenant(ctx, client.NewTenant{ID: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	acme := connect(t, s, made.APIKey)
	if _, err := acme.CreateMeter(ctx, client.Meter{Slug: "calls", Aggregation: "sum"}); err != nil {
		t.Fatal(err)
	}
	event := client.Event{ID: "e1", Meter: "calls", Customer: "c", Quantity: "2"}
	if _, err := acme.SendEvent(ctx, &event); err != nil {
		t.Fatal(err)
	}
	checkMetrics(t, s, operator)
	mustStop(t, s)
	mustStop(t, s) // a second call changes nothing

	s = mustStart(t, settings)
	a, err := connect(t, s, made.APIKey).SendEvent(ctx, &event)
	if err != nil || a.Status != client.Duplicate {
		t.Errorf("after a restart the event is %v, %v", a, err)
	}
	mustStop(t, s)
}

// Metrics are for the operator on the API, and for anyone on their own listener.
func checkMetrics(t *testing.T, s *Server, operator *client.Client) {
	t.Helper()
	text, err := operator.Metrics(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + s.MetricsAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	own, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	for _, want := range []string{
		"tallystick_engine_rows_total", "go_goroutines", "process_cpu_seconds_total",
		`tallystick_events_total{status="conflict"} 0`,
		`tallystick_http_requests_total{method="POST",route="/v1/tenants",status="201"} 1`,
	} {
		if !strings.Contains(text, want) || !strings.Contains(string(own), want) {
			t.Errorf("no %s among the metrics", want)
		}
	}
	if err := connect(t, s, "").Health(context.Background()); err != nil {
		t.Error(err)
	}
}

// Given a tenant that sends single events, when another sends large batches, then a metric shows that they waited for
// turns.
func TestTurnsAreTold(t *testing.T) {
	leaves(t)
	s := mustStart(t, testSettings(t))
	t.Cleanup(func() { mustStop(t, s) })
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	ctx, operator := context.Background(), connect(t, s, testRootKey)
	tokens := map[string]string{}
	for _, id := range []string{"little", "much"} {
		made, err := operator.CreateTenant(ctx, client.NewTenant{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := connect(t, s, made.APIKey).CreateMeter(ctx,
			client.Meter{Slug: "calls", Aggregation: "sum"}); err != nil {
			t.Fatal(err)
		}
		tokens[id] = made.APIKey
	}
	for range 100 { // on a machine so slow that a second passes between the two, there are no turns
		for id, n := range map[string]int{"little": 1, "much": 101} {
			if status, _ := post(t, s, "/v1/events", tokens[id], events(n)); status != http.StatusOK {
				t.Fatalf("%d events of %s: %d", n, id, status)
			}
		}
		metrics, err := operator.Metrics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(metrics, "tallystick_turn_wait_seconds_count 0\n") {
			return
		}
	}
	t.Error("no batch waited for a turn")
}

func TestFirstStartMakesTheOperatorsKeyOnce(t *testing.T) {
	leaves(t)
	settings := testSettings(t)
	settings.RootKey = ""
	s := mustStart(t, settings)
	key := s.OperatorKey()
	if _, err := connect(t, s, key).CreateTenant(context.Background(), client.NewTenant{ID: "acme"}); err != nil {
		t.Errorf("the key that was made does not open: %v", err)
	}
	mustStop(t, s)
	s = mustStart(t, settings)
	if s.OperatorKey() != "" {
		t.Error("a second key was made")
	}
	if _, err := connect(t, s, key).Tenant(context.Background(), "acme"); err != nil {
		t.Errorf("the first key no longer opens: %v", err)
	}
	mustStop(t, s)
}

func TestStartThatFailsLeavesNothingBehind(t *testing.T) {
	leaves(t)
	settings := testSettings(t)
	s := mustStart(t, settings)
	for name, c := range map[string]struct {
		bend func(*Settings)
		want string
	}{
		"data in use": {func(*Settings) {}, "stop that one"},
		"port in use": {func(x *Settings) { x.Data, x.Listen = t.TempDir(), s.Addr() }, "is taken by another process"},
		"second port": {func(x *Settings) { x.Data, x.MetricsListen = t.TempDir(), s.Addr() },
			"is taken by another process"},
		"bad settings": {func(x *Settings) { x.Store = "other" }, "embedded"},
	} {
		other := settings
		c.bend(&other)
		_, err := Start(context.Background(), ServerOptions{Settings: other, Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want a word of %q", name, err, c.want)
		}
	}
	mustStop(t, s)
}

// A request that is under way when the server is stopped is answered, and what it did is kept.
func TestShutdownDrains(t *testing.T) {
	leaves(t)
	settings := testSettings(t)
	settings.Drain.Receive = time.Minute
	s := mustStart(t, settings)
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	body := `{"id":"acme"}`
	// The header and half of the body are on their way; the rest follows once the server drains.
	fmt.Fprintf(conn, "POST /v1/tenants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		testRootKey, len(body))
	begun := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	if _, err := io.ReadFull(conn, begun); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown() }()
	awaitClosed(t, s.Addr())
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), "201 Created") {
		t.Errorf("answer %q, %v", answer, err)
	}
	if err := errors.Join(conn.Close(), <-stopped); err != nil {
		t.Error(err)
	}
	s = mustStart(t, settings)
	if _, err := connect(t, s, testRootKey).Tenant(context.Background(), "acme"); err != nil {
		t.Errorf("what the last request did is lost: %v", err)
	}
	mustStop(t, s)
}

// awaitClosed waits until nobody listens any more.
func awaitClosed(t *testing.T, addr string) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
}

// A request that never ends is cut off, and the store is closed all the same.
func TestShutdownIsBounded(t *testing.T) {
	leaves(t)
	settings := testSettings(t)
	settings.Drain.Timeout = 10 * time.Millisecond
	s := mustStart(t, settings)
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/tenants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: "+
		"10\r\nExpect: 100-continue\r\n\r\n", testRootKey)
	if _, err := io.ReadFull(conn, make([]byte, 12)); err != nil {
		t.Fatal(err)
	}
	mustStop(t, s)
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	mustStop(t, mustStart(t, settings))
}

// Callers that have not sent a whole request do not hold up a stop: this one would last for hours.
func TestShutdownWaitsForNoRestOfARequest(t *testing.T) {
	leaves(t)
	for _, express := range []bool{true, false} {
		settings := testSettings(t)
		settings.HTTP.Express = express
		settings.Drain = DrainSettings{Timeout: time.Hour, Receive: time.Millisecond}
		settings.HTTP.ReadHeaderTimeout, settings.HTTP.ReadTimeout, settings.HTTP.IdleTimeout = time.Hour, time.Hour,
			time.Hour
		s := mustStart(t, settings)
		var slow []net.Conn
		for _, begun := range []string{"", "POST /v1/eve", "GET /healthz HTTP/1.1\r\nHo",
			"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n[",
			"POST /v1/meters HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n["} {
			conn, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, begun); err != nil {
				t.Fatal(err)
			}
			slow = append(slow, conn)
		}
		mustStop(t, s)
		for _, conn := range slow {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestWaitEndsWithItsContextOrAListener(t *testing.T) {
	leaves(t)
	s := mustStart(t, testSettings(t))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Wait(ctx); err != nil {
		t.Error(err)
	}
	if err := s.listeners[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(context.Background()); err == nil {
		t.Error("a listener that failed was not noticed")
	}
	mustStop(t, s)
}

func TestPastMonthsAreClosedByThemselvesWhenAsked(t *testing.T) {
	leaves(t)
	ctx := context.Background()
	settings := testSettings(t)
	settings.Periods.AutoClose, settings.Periods.CheckEvery = true, time.Millisecond
	s := mustStart(t, settings)
	defer mustStop(t, s)
	acme, _ := newAcme(t, s, "calls")
	now := time.Now().UTC()
	for i, at := range []time.Time{now.AddDate(0, -3, 0), now} {
		if _, err := acme.SendEvent(ctx, &client.Event{ID: fmt.Sprint("e", i), Meter: "calls", Customer: "ann",
			Time: at}); err != nil {
			t.Fatal(err)
		}
	}
	for closed := false; !closed; {
		p, err := acme.Period(ctx, now.AddDate(0, -3, 0).Format("2006-01"))
		if err != nil {
			t.Fatal(err)
		}
		closed = p.State == "closed"
	}
	if p, err := acme.Period(ctx, now.Format("2006-01")); err != nil || p.State != "open" {
		t.Errorf("the current month: %+v, %v", p, err)
	}
}
