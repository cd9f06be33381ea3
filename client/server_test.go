package client_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
)

// recordedClock stands still and lets every sleep pass at once, noting it.
type recordedClock struct {
	mu     sync.Mutex
	slept  []time.Duration
	during func() // called in each sleep, if set
}

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

func (c *recordedClock) Now() time.Time { return noon }

func (c *recordedClock) Sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	c.slept = append(c.slept, d)
	c.mu.Unlock()
	if c.during != nil {
		c.during()
	}
	return ctx.Err()
}

func (c *recordedClock) sleeps() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]time.Duration(nil), c.slept...)
}

// received is one request as the server saw it, decompressed.
type received struct {
	method, uri string
	header      http.Header
	body        string
}

// script answers the nth request with the nth step, the last one for all after it.
type script struct {
	t     *testing.T
	steps []http.HandlerFunc
	mu    sync.Mutex
	got   []received
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var reader io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzip, err := gzip.NewReader(r.Body)
		if err != nil {
			s.t.Errorf("request is not gzip: %v", err)
			return
		}
		reader = unzip
	}
	body, err := io.ReadAll(reader)
	if err != nil {
		s.t.Errorf("read request: %v", err)
		return
	}
	s.mu.Lock()
	step := s.steps[min(len(s.got), len(s.steps)-1)]
	s.got = append(s.got, received{r.Method, r.RequestURI, r.Header.Clone(), string(body)})
	s.mu.Unlock()
	step(w, r)
}

func (s *script) requests() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.got...)
}

func serve(t *testing.T, steps ...http.HandlerFunc) (*script, string) {
	t.Helper()
	s := &script{t: t, steps: steps}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

func newClient(t *testing.T, url string, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(url, "tk_test", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// reply answers with a status, a body and pairs of header names and values.
func reply(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// cut drops the connection without an answer, after the body was read.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// cutMidAnswer promises more than it sends.
func cutMidAnswer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	io.WriteString(w, `{"id":"a","sta`)
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

const accepted = `{"id":"a","status":"accepted","seq":7}`

func field(t *testing.T, body, name string) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	s, _ := m[name].(string)
	return s
}
