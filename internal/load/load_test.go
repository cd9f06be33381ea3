package load

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/load/target"
)

func startTarget(t *testing.T) *target.Server {
	t.Helper()
	s, err := target.Start(context.Background(), t.TempDir())
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

func TestRunProvesTheTotals(t *testing.T) {
	s := startTarget(t)
	shape := Shape{Seed: 3, Tenants: 3, Customers: 200, Meters: 2, DuplicateRatio: 0.2}
	for name, o := range map[string]Options{
		"batches":       {Batch: 70, Connections: 4, Events: 5000},
		"single events": {Batch: 1, Connections: 3, Events: 300},
		"for a time":    {Batch: 10, Connections: 2, Duration: 1},
	} {
		t.Run(name, func(t *testing.T) {
			o.URL, o.Key, o.Shape = s.URL, s.Key, shape
			var reported atomic.Int64
			o.Progress = func(answered int64, _ time.Duration) { reported.Store(answered) }
			r, err := Run(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			if o.Events != 0 && r.Events != o.Events || r.Requests < int64(o.Connections) {
				t.Errorf("sent %d events in %d requests", r.Events, r.Requests)
			}
			if r.Accepted+r.Duplicates != r.Events || r.Duplicates == 0 || reported.Load() != r.Events {
				t.Errorf("accepted %d, duplicates %d of %d; progress says %d", r.Accepted, r.Duplicates, r.Events,
					reported.Load())
			}
			if !r.Proved || r.Counters == 0 || r.BodyBytes < 80 || r.Latency.P50 <= 0 || r.Latency.Max < r.Latency.P99 {
				t.Errorf("report: %+v", r)
			}
			if r.ServerCPUSeconds == nil || r.JournalBytes == nil || *r.JournalBytes <= 0 {
				t.Errorf("the server's figures are missing: %+v", r)
			}
		})
	}
}

// cheat answers one request of events in place of the honest server, or lets it pass.
type cheat func(w http.ResponseWriter, r *http.Request, body []byte) (pass bool)

// liar stands between the generator and an honest server, and cheats on one request.
func liar(t *testing.T, honest *target.Server, c cheat) string {
	t.Helper()
	u, err := url.Parse(honest.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/events" && requests.Add(1) == 7 {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			if !c(w, r, body) {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func answering(text string) cheat {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		_, _ = io.WriteString(w, text)
		return false
	}
}

// counting records the event once more, under another identity.
func counting(t *testing.T, s *target.Server) cheat {
	return func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
		other := strings.Replace(string(body), `"id":"evt_`, `"id":"oops`, 1)
		request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, s.URL+"/v1/events",
			strings.NewReader(other))
		if err != nil {
			t.Error(err)
			return false
		}
		request.Header.Set("Authorization", r.Header.Get("Authorization"))
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Error(err)
			return false
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("status %d", answer.StatusCode)
		}
		return true
	}
}

func TestRunFindsALiar(t *testing.T) {
	s := startTarget(t)
	for name, c := range map[string]struct {
		cheat cheat
		says  string
	}{
		"that loses an event":   {answering(`{"id":"e","status":"accepted","seq":9}`), "in 1 counters"},
		"that counts one twice": {counting(t, s), "in 1 counters"},
		"that calls a new event known": {answering(`{"id":"e","status":"duplicate","seq":9}`),
			"0 were answered accepted and 1 duplicate"},
		"that answers nonsense": {answering(`{}`), "0 were answered accepted and 0 duplicate"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(context.Background(),
				Options{URL: liar(t, s, c.cheat), Key: s.Key, Shape: Shape{Customers: 5}, Batch: 1, Connections: 2,
					Events: 40})
			if !errors.Is(err, ErrTotals) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
			if r == nil || r.Proved {
				t.Errorf("report %+v", r)
			}
		})
	}
}

func TestRunComesBackToABusyServer(t *testing.T) {
	s := startTarget(t)
	busy := func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return false
	}
	o := Options{URL: liar(t, s, busy), Key: s.Key, Shape: Shape{Customers: 5}, Batch: 10, Connections: 1, Events: 100}
	r, err := Run(context.Background(), o)
	if err != nil || r.Retries != 1 || r.Accepted != 100 {
		t.Errorf("report %+v, error %v", r, err)
	}
}

func TestRunEndsAtTheFirstRefusal(t *testing.T) {
	s := startTarget(t)
	teapot := func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.WriteHeader(http.StatusTeapot)
		return false
	}
	o := Options{URL: liar(t, s, teapot), Key: s.Key, Shape: Shape{Customers: 5}, Batch: 1, Connections: 2,
		Events: 1_000_000}
	if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "answer 418") {
		t.Errorf("error %v", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	s := startTarget(t)
	ctx, cancel := context.WithCancel(context.Background())
	o := Options{URL: s.URL, Key: s.Key, Shape: Shape{Customers: 5}, Batch: 1, Connections: 2, Events: 1 << 40}
	o.Progress = func(answered int64, _ time.Duration) {
		if answered > 0 {
			cancel()
		}
	}
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := Options{URL: "http://127.0.0.1:1", Key: "k", Batch: 1, Connections: 1, Events: 1}
	for name, change := range map[string]func(*Options){
		"url":         func(o *Options) { o.URL = "127.0.0.1" },
		"key":         func(o *Options) { o.Key = "" },
		"key lines":   func(o *Options) { o.Key = "a\r\nb" },
		"batch":       func(o *Options) { o.Batch = maxBatch + 1 },
		"connections": func(o *Options) { o.Connections = -1 },
		"no bound":    func(o *Options) { o.Events = 0 },
		"two bounds":  func(o *Options) { o.Duration = 1 },
		"duplicates":  func(o *Options) { o.DuplicateRatio = 1 },
		"customers":   func(o *Options) { o.Customers = MaxCustomers + 1 },
		"tenants":     func(o *Options) { o.Tenants = -1 },
		"meters":      func(o *Options) { o.Meters = maxMeters + 1 },
	} {
		o := good
		change(&o)
		if _, err := Run(context.Background(), o); err == nil || strings.Contains(err.Error(), "set up") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
