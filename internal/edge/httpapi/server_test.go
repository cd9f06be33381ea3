package httpapi

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/api"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/service/gate"
)

func TestMethodsAndPaths(t *testing.T) {
	w := newWorld(t)
	for path, allow := range map[string]string{
		"/v1/events": "POST, GET, HEAD", "/v1/tenants/acme": "GET, HEAD, PATCH", "/v1/api-keys/x": "GET, HEAD, DELETE",
		"/v1/periods/2026-11/close": "POST", "/healthz": "GET, HEAD",
	} {
		a := w.do(call{method: "PUT", path: path}).refused(t, 405, "method_not_allowed")
		if got := a.header.Get("Allow"); got != allow {
			t.Errorf("%s allows %q, want %q", path, got, allow)
		}
	}
	for _, path := range []string{"/", "/v1", "/v1/", "/v1/events/x/y", "/v1/tenants/acme/open", "/healthz/",
		"/problems/invalid"} {
		w.do(call{method: "GET", path: path}).refused(t, 404, "not_found")
	}
	// Fixed segments have one spelling, so that nothing in front of the server can be led to see another route.
	w.do(call{method: "POST", path: "/v1/event%73", key: "ingest", body: "{"}).refused(t, 404, "not_found")
}

func TestHeadIsGetWithoutABody(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml", "/v1/meters", "/v1/events",
		"/v1/periods/2026-11"} {
		get, head := w.do(call{method: "GET", path: path, key: "read"}),
			w.do(call{method: "HEAD", path: path, key: "read"})
		if head.code != 200 || len(head.body) != 0 ||
			head.header.Get("Content-Type") != get.header.Get("Content-Type") {
			t.Errorf("%s: %d %v %q", path, head.code, head.header, head.body)
		}
	}
	if a := w.do(call{method: "HEAD", path: "/v1/meters/nope", key: "read"}); a.code != 404 || len(a.body) != 0 {
		t.Errorf("got %d %q", a.code, a.body)
	}
}

func TestOperations(t *testing.T) {
	w := newWorld(t)
	if a := w.do(call{method: "GET", path: "/healthz?x=1"}).status(t, 200); string(a.body) != `{"status":"ok",`+
		`"version":"1.2.3"}`+"\n" {
		t.Errorf("got %s", a.body)
	}
	w.do(call{method: "GET", path: "/readyz"}).status(t, 200)
	for _, err := range []error{errors.New("journal: no space left"),
		problem.New(problem.NotFound, "journal: no space left"),
		problem.New(problem.Unavailable, "journal: no space left")} {
		w.store.set(func(s *troubled) { s.err = err })
		a := w.do(call{method: "GET", path: "/readyz"}).refused(t, 503, "unavailable")
		if !strings.Contains(a.text("detail"), "no space left") {
			t.Errorf("the reason is not in %q", a.text("detail"))
		}
		w.do(call{method: "GET", path: "/healthz"}).status(t, 200)
	}
	w.store.set(func(s *troubled) { s.err = nil })
	w.api.Drain()
	w.do(call{method: "GET", path: "/readyz"}).refused(t, 503, "unavailable")
	w.do(call{method: "GET", path: "/v1/meters", key: "read"}).status(t, 200)
	a := w.do(call{method: "GET", path: "/openapi.yaml"}).status(t, 200)
	if !bytes.Equal(a.body, api.OpenAPI) || a.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("got %s, %d bytes", a.header.Get("Content-Type"), len(a.body))
	}
	a = w.do(call{method: "GET", path: "/metrics?name=x", key: "operator"}).status(t, 200)
	if string(a.body) != "tallystick_up 1\n" {
		t.Errorf("got %s", a.body)
	}
	bare := newWorld(t, func(o *Options) { o.Metrics = nil })
	bare.do(call{method: "GET", path: "/metrics", key: "operator"}).refused(t, 404, "not_found")
}

// kept collects log lines.
type kept struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (k *kept) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.buf.Write(b)
}

func (k *kept) take() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.buf.String()
	k.buf.Reset()
	return s
}

// served runs one request to its very end, the log line included.
func (w *world) served(c call) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	r := w.request(c)
	r.RequestURI = r.URL.RequestURI()
	w.api.ServeHTTP(rec, r)
	return rec
}

func TestLogLines(t *testing.T) {
	log := &kept{}
	w := newWorld(t, func(o *Options) {
		o.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	log.take()
	for _, tc := range []struct {
		c     call
		level string
		err   error
	}{
		{call{method: "POST", path: "/v1/events", key: "ingest",
			body: `{"id":"PRIVATE","meter":"PRIVATE","customer":"PRIVATE"}`}, "DEBUG", nil},
		{call{method: "GET", path: "/v1/events?customer=PRIVATE", key: "read"}, "DEBUG", nil},
		{call{method: "GET", path: "/v1/events", key: "tk_PRIVATE"}, "DEBUG", nil},
		{call{method: "POST", path: "/v1/tenants", key: "operator", body: `{"id":"new"}`}, "DEBUG", nil},
		{call{method: "GET", path: "/v1/meters", key: "read"}, "WARN", errors.New("disk on fire")},
	} {
		w.store.set(func(s *troubled) { s.err = tc.err })
		rec := w.served(tc.c)
		line := log.take()
		if strings.Count(line, "\n") != 1 || !strings.Contains(line, `"level":"`+tc.level+`"`) ||
			!strings.Contains(line, rec.Header().Get("Tally-Request-Id")) {
			t.Errorf("%s %s: %s", tc.c.method, tc.c.path, line)
		}
		for _, secret := range []string{"PRIVATE", w.keys["ingest"], w.keys["read"], rootKey, "tk_new"} {
			if strings.Contains(line, secret) {
				t.Errorf("the log shows %q: %s", secret, line)
			}
		}
		if tc.err != nil && (!strings.Contains(line, "disk on fire") ||
			strings.Contains(rec.Body.String(), "disk on fire")) {
			t.Errorf("the cause belongs in the log alone: %s %s", line, rec.Body)
		}
	}
}

// A panic is a 500 before the answer has begun and a cut connection after, and is logged with its stack either way.
func TestPanics(t *testing.T) {
	log := &kept{}
	w := newWorld(t, func(o *Options) {
		o.Logger = slog.New(slog.NewJSONHandler(log, nil))
		o.Metrics = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "abort" {
				panic(http.ErrAbortHandler)
			}
			_, _ = rw.Write([]byte("half"))
			panic("boom")
		})
	})
	w.store.set(func(s *troubled) { s.cause = errors.New("boom") })
	rec := w.served(call{method: "GET", path: "/v1/meters", key: "read"})
	if rec.Code != 500 || strings.Contains(rec.Body.String(), "boom") {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
	if line := log.take(); !strings.Contains(line, "boom") || !strings.Contains(line, "server_test.go") &&
		!strings.Contains(line, "world_test.go") || !strings.Contains(line, rec.Header().Get("Tally-Request-Id")) {
		t.Errorf("logged %s", line)
	}
	w.store.set(func(s *troubled) { s.cause = nil })
	for _, path := range []string{"/metrics", "/metrics?abort"} {
		func() {
			defer func() {
				if got, _ := recover().(error); !errors.Is(got, http.ErrAbortHandler) {
					t.Errorf("%s: panicked with %v", path, got)
				}
			}()
			w.served(call{method: "GET", path: path, key: "operator"})
		}()
	}
}

// A panic inside a commit is a 500 for its request alone, under a request key or not: nothing is committed or kept, the
// log has the stack, and the same request succeeds when the cause is gone.
func TestPanicsInsideACommit(t *testing.T) {
	for name, open := range openers {
		t.Run(name, func(t *testing.T) {
			log := &kept{}
			w := newWorldOn(t, open, gate.Options{},
				func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
			plain := call{method: "POST", path: "/v1/meters", key: "admin",
				body: `{"slug":"calls","aggregation":"sum"}`}
			for _, c := range []call{plain, plain.with("Idempotency-Key", "k")} {
				w.store.set(func(s *troubled) { s.inside = "boom" })
				rec := w.served(c)
				id := rec.Header().Get("Tally-Request-Id")
				if rec.Code != 500 || rec.Header().Get("Content-Type") != "application/problem+json" || id == "" ||
					!strings.Contains(rec.Body.String(), id) ||
					strings.Contains(rec.Body.String(), "boom") {
					t.Errorf("got %d %s", rec.Code, rec.Body)
				}
				if line := log.take(); !strings.Contains(line, "boom") || !strings.Contains(line, "world_test.go") ||
					!strings.Contains(line, id) {
					t.Errorf("logged %s", line)
				}
				w.store.set(func(s *troubled) { s.inside = nil })
				w.do(call{method: "GET", path: "/v1/meters/calls", key: "read"}).refused(t, 404, "not_found")
			}
			w.do(plain.with("Idempotency-Key", "k")).status(t, 201)
		})
	}
}

func TestHTTPServerIsBounded(t *testing.T) {
	w := newWorld(t)
	s := w.api.HTTPServer("127.0.0.1:0")
	if s.ReadHeaderTimeout != DefaultReadHeaderTimeout || s.ReadTimeout != DefaultReadTimeout ||
		s.WriteTimeout != DefaultWriteTimeout ||
		s.IdleTimeout != DefaultIdleTimeout || s.MaxHeaderBytes != DefaultMaxHeaderBytes ||
		!s.DisableGeneralOptionsHandler {
		t.Errorf("got %+v", s)
	}
	own := newWorld(t, func(o *Options) { o.WriteTimeout = time.Hour }).api.HTTPServer("")
	if own.WriteTimeout != time.Hour {
		t.Errorf("write timeout %s", own.WriteTimeout)
	}
}

func TestRequestIDsAreOursAndUnique(t *testing.T) {
	w := newWorld(t)
	seen := map[string]bool{}
	for range 100 {
		a := w.do(call{method: "GET", path: "/healthz"}.with("Tally-Request-Id", "mine"))
		id := a.header.Get("Tally-Request-Id")
		if id == "mine" || seen[id] {
			t.Fatalf("id %s", id)
		}
		seen[id] = true
	}
}
