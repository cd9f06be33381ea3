package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/pgtest"
)

// A retry storm: many clients send every write of a day again and again under the same keys, over connections that are
// cut before the request arrives or after it took effect. What is left must be what one calm client leaves.

// step is one write of the day.
type step struct{ method, path, body string }

// theDay makes, changes, corrects, adjusts and closes.
var theDay = []step{
	{"POST", "/v1/meters", `{"slug":"calls","aggregation":"sum"}`},
	{"POST", "/v1/meters", `{"slug":"peak","aggregation":"max","name":"Peak"}`},
	{"POST", "/v1/meters", `{"slug":"calls","aggregation":"sum"}`}, // it exists
	{"PUT", "/v1/plans/pro", `{"quotas":[{"meter":"calls","limit":"100"}]}`},
	{"PUT", "/v1/tenant-plan", `{"plan":"pro"}`},
	{"PUT", "/v1/customers/ann/plan", `{"plan":"pro"}`},
	{"POST", "/v1/events",
		`[{"meter":"calls","customer":"ann","time":"2026-01-10T00:00:00Z","quantity":"3"},{"meter":"peak",` +
			`"customer":"ann","time":"2026-01-10T00:00:00Z","quantity":"7"}]`},
	{"POST", "/v1/events", `{"meter":"calls","customer":"bob","time":"2026-01-11T00:00:00Z"}`},
	{"POST", "/v1/adjustments",
		`{"meter":"calls","customer":"ann","period":"2026-01","amount":"-1.5","reason":"goodwill"}`},
	{"POST", "/v1/adjustments",
		`{"meter":"peak","customer":"cyd","period":"2026-02","amount":"4","reason":"contract"}`},
	// no such meter
	{"POST", "/v1/adjustments",
		`{"meter":"nothing","customer":"cyd","period":"2026-02","amount":"4","reason":"contract"}`},
	{"PATCH", "/v1/meters/peak", `{"lateness":"1h"}`},
	{"POST", "/v1/api-keys", `{"name":"reader","scopes":["read"]}`},
	{"POST", "/v1/periods/2026-01/close", ``},
	{"POST", "/v1/events", `{"meter":"calls","customer":"ann","time":"2026-01-12T00:00:00Z","quantity":"2"}`},
	{"PATCH", "/v1/meters/peak", `{"aggregation":"sum"}`}, // fixed
	{"PUT", "/v1/tenant-plan", `{"plan":null}`},
}

// cutter is a proxy that loses requests and answers by the dice.
type cutter struct {
	mu    sync.Mutex // guards dice
	dice  *rand.Rand
	proxy *httputil.ReverseProxy
}

// chance reports true once in n.
func (c *cutter) chance(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dice.IntN(n) == 0
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.chance(3) {
		panic(http.ErrAbortHandler) // before the effect
	}
	answer := &held{header: http.Header{}}
	c.proxy.ServeHTTP(answer, r)
	if answer.status == 0 || c.chance(3) {
		panic(http.ErrAbortHandler) // after it
	}
	for name, values := range answer.header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body.Bytes())
}

// held is an answer that has not been passed on yet.
type held struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *held) Header() http.Header         { return h.header }
func (h *held) WriteHeader(status int)      { h.status = status }
func (h *held) Write(b []byte) (int, error) { return h.body.Write(b) }

// throughCutter serves a proxy to the server and returns its address.
func throughCutter(t *testing.T, server string) string {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	c := &cutter{dice: rand.New(rand.NewPCG(1, 2)), proxy: &httputil.ReverseProxy{Transport: transport,
		Rewrite:      func(p *httputil.ProxyRequest) { p.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {}}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
		transport.CloseIdleConnections()
	})
	return "http://" + l.Addr().String()
}

// sends sends a step until it is answered, and returns the status.
func sends(ctx context.Context, h *http.Client, base, key string, number int, s step) (int, error) {
	for {
		r, err := http.NewRequestWithContext(ctx, s.method, base+s.path, strings.NewReader(s.body))
		if err != nil {
			return 0, err
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Idempotency-Key", fmt.Sprintf("step-%d", number))
		resp, err := h.Do(r)
		if err != nil {
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			continue // cut: nobody knows what became of it
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode == http.StatusServiceUnavailable {
			continue
		}
		if resp.StatusCode == http.StatusConflict && resp.Header.Get("Retry-After") != "" {
			continue // the first with this key is still running
		}
		if resp.Header.Get("Tally-Ratelimit") != "" {
			continue // too many new keys in a second
		}
		return resp.StatusCode, nil
	}
}

// live plays the day by so many clients at once, step by step, and returns what is left.
func live(t *testing.T, settings Settings, clients int) map[string]any {
	t.Helper()
	s := mustStart(t, settings)
	made, err := connect(t, s, testRootKey).CreateTenant(context.Background(), client.NewTenant{ID: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	base := s.URL()
	if clients > 1 {
		base = throughCutter(t, base)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	h := &http.Client{Transport: transport}
	statuses := []string{}
	for i, st := range theDay {
		statuses = append(statuses, storm(t, h, base, made.APIKey, i, st, clients))
	}
	left := map[string]any{"statuses": statuses}
	for _, path := range []string{"/v1/meters", "/v1/plans", "/v1/tenant-plan", "/v1/customers/ann/plan", "/v1/events",
		"/v1/counters", "/v1/adjustments", "/v1/periods",
		"/v1/periods/2026-01", "/v1/api-keys", "/v1/audit-events", "/v1/quotas"} {
		left[path] = seen(t, h, s.URL()+path, made.APIKey)
	}
	mustStop(t, s)
	if settings.Store == embedded {
		run(t, 0, "verify", "--data", settings.Data)
	} else {
		run(t, 0, "verify", "--store", settings.Store)
	}
	return left
}

// storm lets all clients send one step at once and returns the statuses they saw: a fact that is there is a duplicate,
// every other request has one answer.
func storm(t *testing.T, h *http.Client, base, key string, number int, s step, clients int) string {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var statuses []int
	for range clients {
		wg.Go(func() {
			status, err := sends(t.Context(), h, base, key, number, s)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			statuses = append(statuses, status)
		})
	}
	wg.Wait()
	slices.Sort(statuses)
	return fmt.Sprint(slices.Compact(statuses))
}

// passing are the fields that differ from one run to the next: when it was, and what the dice gave keys for names.
var passing = []string{"created_at", "from", "received_at", "closed_at", "actor", "closed_by", "updated_at",
	"request_id",
	"next_cursor", "revoked_at", "resets_at", "used_at"}

func seen(t *testing.T, h *http.Client, address, key string) any {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := h.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc any
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v", address, resp.StatusCode, err)
	}
	return lasting(doc)
}

// lasting drops what is passing, and the ids of API keys.
func lasting(doc any) any {
	switch v := doc.(type) {
	case []any:
		for i := range v {
			v[i] = lasting(v[i])
		}
		if len(v) > 0 && strings.Contains(fmt.Sprint(v[0]), "a key") { // they are listed by their ids
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	case map[string]any:
		for _, name := range passing {
			delete(v, name)
		}
		for name, x := range v {
			if s, ok := x.(string); ok && strings.HasPrefix(s, "acme.") {
				v[name] = "a key"
				continue
			}
			v[name] = lasting(x)
		}
	}
	return doc
}

func TestARetryStormLeavesWhatACalmDayLeaves(t *testing.T) {
	leaves(t)
	calm := live(t, testSettings(t), 1)
	const clients = 64
	for name, where := range map[string]func(*Settings){
		"embedded": func(*Settings) {},
		"postgres": func(s *Settings) {
			url, err := pgtest.Private(t).Create("")
			if err != nil {
				t.Fatal(err)
			}
			s.Store = url
		},
	} {
		settings := testSettings(t)
		where(&settings)
		if diff := cmp.Diff(calm, live(t, settings, clients)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
