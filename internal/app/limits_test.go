package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/redistest"
)

// post sends a body as it is and returns the status and the header.
func post(t *testing.T, s *Server, path, token, body string, header ...string) (int, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header
}

var sentID atomic.Int64

// events is a batch of new ones.
func events(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"id":"e%d","meter":"calls","customer":"c"}`, sentID.Add(1))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// twoNodes serve one database and share their limits.
func twoNodes(t *testing.T, bend func(*Settings)) (nodes [2]*Server, token string) {
	t.Helper()
	url, err := pgtest.Private(t).Create("")
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		settings := testSettings(t)
		settings.Store = url
		bend(&settings)
		nodes[i] = mustStart(t, settings)
		t.Cleanup(func() { mustStop(t, nodes[i]) })
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	made, err := connect(t, nodes[0], testRootKey).CreateTenant(context.Background(), client.NewTenant{ID: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, nodes[0], made.APIKey).CreateMeter(context.Background(),
		client.Meter{Slug: "calls", Aggregation: "sum"}); err != nil {
		t.Fatal(err)
	}
	return nodes, made.APIKey
}

// Given two nodes that share their limits, when one has let a large batch in, then the other knows the debt; when what
// they share is gone, each goes on by its own; when it is back, they share again.
func TestNodesShareLimitsAsLongAsTheyCan(t *testing.T) {
	leaves(t)
	shared := redistest.Start(t)
	nodes, token := twoNodes(t, func(s *Settings) {
		s.RateLimits.Redis, s.RateLimits.Tenant.EventsPerSecond = shared.URL(), 2
	})
	for status := 0; status != http.StatusOK; { // the bucket may not be full at once
		status, _ = post(t, nodes[0], "/v1/events", token, events(1000))
	}
	status, h := post(t, nodes[1], "/v1/events", token, events(1))
	if wait, _ := strconv.Atoi(h.Get("Retry-After")); status != http.StatusTooManyRequests || wait < 60 ||
		h.Get("Tally-Ratelimit") != "1" || h.Get("RateLimit-Limit") != "2" {
		t.Errorf("the other node: %d, %v", status, h)
	}
	checkMetric(t, nodes[1], `tallystick_ratelimit_refused_total{by="tenant",dimension="events"} 1`)
	checkMetric(t, nodes[1], "tallystick_ratelimit_shared_failures_total 0")

	shared.Kill()
	for i, s := range nodes {
		if status, h := post(t, s, "/v1/events", token, events(1000)); status != http.StatusOK {
			t.Errorf("node %d alone: %d, %v", i, status, h)
		}
		if status, _ := post(t, s, "/v1/events", token, events(1)); status != http.StatusTooManyRequests {
			t.Errorf("node %d alone does not limit: %d", i, status)
		}
		metrics, err := connect(t, s, testRootKey).Metrics(context.Background())
		if err != nil || strings.Contains(metrics, "tallystick_ratelimit_shared_failures_total 0\n") {
			t.Errorf("node %d does not say that it is alone (%v)", i, err)
		}
	}

	shared.Begin() // empty, so that who is in debt by itself passes again
	for _, s := range nodes {
		for status := 0; status != http.StatusOK; {
			status, _ = post(t, s, "/v1/events", token, events(1))
		}
	}
}

func checkMetric(t *testing.T, s *Server, want string) {
	t.Helper()
	metrics, err := connect(t, s, testRootKey).Metrics(context.Background())
	if err != nil || !strings.Contains(metrics, want+"\n") {
		t.Errorf("no %s among the metrics (%v)", want, err)
	}
}

func TestNodesTogetherKeepALimit(t *testing.T) {
	leaves(t)
	shared := redistest.Start(t)
	const rate = 20
	nodes, token := twoNodes(t, func(s *Settings) {
		s.RateLimits.Redis, s.RateLimits.APIKey.RequestsPerSecond = shared.URL(), rate
	})
	var passed, refused atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				switch status, _ := post(t, nodes[i%2], "/v1/events", token, events(1)); status {
				case http.StatusOK:
					passed.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("answered %d", status)
				}
			}
		})
	}
	wg.Wait()
	if most := rate + rate*time.Since(began).Seconds(); float64(passed.Load()) > most ||
		passed.Load()+refused.Load() != 160 {
		t.Errorf("%d passed and %d were refused; at most %f could pass", passed.Load(), refused.Load(), most)
	}
	for _, s := range nodes {
		checkMetric(t, s, "tallystick_ratelimit_shared_failures_total 0")
	}
}

// Keys of requests are stored, so a tenant can use only so many new ones; one that is known costs nothing.
func TestNewRequestKeysAreLimited(t *testing.T) {
	leaves(t)
	settings := testSettings(t)
	settings.Requests.KeysPerSecond = 1
	s := mustStart(t, settings)
	defer mustStop(t, s)
	defer http.DefaultClient.CloseIdleConnections()
	made, err := connect(t, s, testRootKey).CreateTenant(context.Background(), client.NewTenant{ID: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	meter := func(n int) (int, http.Header) {
		return post(t, s, "/v1/meters", made.APIKey, fmt.Sprintf(`{"slug":"m%d","aggregation":"sum"}`, n),
			"Idempotency-Key", fmt.Sprint(n))
	}
	created, limited := 0, -1
	for n := 0; limited < 0; n++ {
		status, h := meter(n)
		switch {
		case status == http.StatusCreated:
			created++
		case status == http.StatusTooManyRequests && h.Get("Tally-Ratelimit") == "1" && h.Get("Retry-After") == "1":
			limited = n
		default:
			t.Fatalf("%d, %v", status, h)
		}
	}
	for range 50 {
		if status, h := meter(0); status != http.StatusCreated || h.Get("Idempotent-Replayed") != "true" {
			t.Fatalf("a known key: %d, %v", status, h)
		}
	}
	checkMetric(t, s, `tallystick_ratelimit_refused_total{by="idempotency_key",dimension="requests"} 1`)
	for status := 0; status != http.StatusCreated; { // its time comes
		status, _ = meter(limited)
	}
	page, err := connect(t, s, made.APIKey).Meters(context.Background(), client.Paging{Limit: 1000})
	if err != nil || len(page.Items) != created+1 {
		t.Errorf("%d meters for %d keys, %v", len(page.Items), created+1, err)
	}
}
