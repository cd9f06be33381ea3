package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/limit"
	"github.com/tallystick/tallystick/internal/store"
)

func (a answer) standing() string {
	return strings.Join([]string{a.header.Get("RateLimit-Limit"), a.header.Get("RateLimit-Remaining"),
		a.header.Get("RateLimit-Reset"), a.header.Get("Retry-After"), a.header.Get("Tally-Ratelimit")}, " ")
}

func event(id int) string { return fmt.Sprintf(`{"id":"e%d","meter":"calls","customer":"c"}`, id) }

// makeLimitedKey makes a key of acme that has a limit of its own.
func (w *world) makeLimitedKey(limit string) string {
	w.t.Helper()
	c := call{method: "POST", path: "/v1/api-keys", key: "operator",
		body: `{"scopes":["ingest","read"],"rate_limit":` + limit + `}`}
	return w.do(c.with("Tally-Tenant", "acme")).status(w.t, 201).text("api_key")
}

func TestRequestsAreLimited(t *testing.T) {
	w := pageWorld(t, gate.Options{})
	key := w.makeLimitedKey(`{"requests_per_second":2}`)
	send := func(id int) answer { return w.do(call{method: "POST", path: eventsPath, key: key, body: event(id)}) }
	if got := send(1).status(t, 200).standing(); got != "2 1 1  " {
		t.Errorf("after the first: %q", got)
	}
	if got := w.do(call{method: "HEAD", path: "/v1/meters", key: key}).status(t, 200).standing(); got != "2 0 1  " {
		t.Errorf("after the second: %q", got)
	}
	refused := send(2).refused(t, 429, "rate_limited")
	if got := refused.standing(); got != "2 0 1 1 1" || !strings.Contains(refused.text("detail"), "2 a second") {
		t.Errorf("refused with %q: %s", got, refused.body)
	}
	w.do(call{method: "GET", path: "/v1/meters", key: key}).refused(t, 429, "rate_limited")
	w.do(call{method: "GET", path: "/v1/tenants", key: key}).refused(t, 403, "forbidden") // before any limit
	w.do(call{method: "GET", path: "/healthz", key: key}).status(t, 200)
	w.send(event(3)).status(t, 200) // another key is not limited
	if got := w.send(event(3)).standing(); got != "    " {
		t.Errorf("who is not limited is answered %q", got)
	}
	if ids := w.pages("read", "/v1/events", "id"); fmt.Sprint(ids) != "[e1 e3]" {
		t.Errorf("kept %v", ids)
	}
	w.clock.Add(int64(500 * time.Millisecond))
	if a := send(2).status(t, 200); a.text("status") != "accepted" {
		t.Errorf("the retry is %s", a.body)
	}
	send(2).refused(t, 429, "rate_limited")
}

func TestEventsAndBytesAreLimited(t *testing.T) {
	w := pageWorld(t, gate.Options{TenantRate: limit.Rate{Events: 3, Bytes: 1000}})
	batch := func(from, to int) string {
		var all []string
		for i := from; i < to; i++ {
			all = append(all, event(i))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	w.send(batch(0, 5)).status(t, 200) // larger than the bucket, which was full
	a := w.send(event(5)).refused(t, 429, "rate_limited")
	if got := a.standing(); got != "3 0 2 1 1" || !strings.Contains(a.text("detail"),
		"too many events: this tenant may send 3 a second") {
		t.Errorf("%q: %s", got, a.body)
	}
	w.get("/v1/counters").status(t, 200) // no events, no bytes
	w.clock.Add(int64(time.Second))
	w.send(event(5)).status(t, 200) // the debt is paid, and one is left

	w.clock.Add(int64(time.Minute))
	packed := call{method: "POST", path: eventsPath, key: "ingest",
		body: gzipped(t, event(6)+strings.Repeat(" ", 5000))}.with("Content-Encoding", "gzip")
	if w.do(packed).status(t, 200); len(packed.body) > 500 {
		t.Fatal("not packed")
	}
	w.clock.Add(int64(2 * time.Second))
	a = w.send(event(7)).refused(t, 429, "rate_limited")
	if !strings.Contains(a.text("detail"), "too many bytes: this tenant may send 1000 a second") ||
		a.header.Get("Retry-After") != "3" {
		t.Errorf("Retry-After %s: %s", a.header.Get("Retry-After"), a.body)
	}
	w.do(call{method: "POST", path: "/v1/meters", key: "admin",
		body: `{"slug":"m","aggregation":"sum"}`}).refused(t, 429, "rate_limited")
	w.do(call{method: "POST", path: "/v1/meters", key: "operator",
		body: `{"slug":"m","aggregation":"sum"}`}.with("Tally-Tenant", "acme")).status(t, 201)
	kept := w.do(call{method: "GET", path: "/v1/events", key: "operator"}.with("Tally-Tenant", "acme")).items(t)
	if n := len(kept); n != 7 {
		t.Errorf("%d events are kept, want 7", n)
	}
}

// However many send at once, no more pass than the limit lets, and what did not pass left nothing.
func TestManyAtOnceDoNotPassALimit(t *testing.T) {
	w := pageWorld(t, gate.Options{TenantRate: limit.Rate{Requests: 40}, KeyRate: limit.Rate{Requests: 25}})
	codes := make([][]int, 8)
	var wg sync.WaitGroup
	for i := range codes {
		key := w.keys[[]string{"ingest", "admin"}[i%2]]
		wg.Go(func() {
			for j := range 20 {
				r := w.request(call{method: "POST", path: eventsPath, key: key, body: event(100*i + j)})
				resp, err := w.server.Client().Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				codes[i] = append(codes[i], resp.StatusCode)
			}
		})
	}
	wg.Wait()
	n := map[int]int{}
	for _, some := range codes {
		for _, code := range some {
			n[code]++
		}
	}
	kept := len(w.do(call{method: "GET", path: "/v1/events", key: "operator"}.with("Tally-Tenant", "acme")).items(t))
	if n[http.StatusOK] != 40 || n[http.StatusTooManyRequests] != 120 || kept != 40 {
		t.Errorf("answers %v, %d rows", n, kept)
	}
}

// What is not admitted under a key leaves nothing, wherever it would have been kept.
func TestRequestKeysAreLimited(t *testing.T) {
	w := newWorld(t)
	w.tooMany.Store(true)
	heads := func() (out []ledger.Head) {
		for _, id := range []string{tenant.Operator, "acme"} {
			if err := w.store.View(t.Context(), id,
				func(v store.View) error { out = append(out, v.Head()); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	before := heads()
	for _, c := range []call{
		{method: "POST", path: "/v1/tenants", key: "operator", body: `{"id":"new"}`},
		{method: "POST", path: "/v1/meters", key: "admin", body: `{"slug":"m","aggregation":"sum"}`},
	} {
		a := w.do(c.with("Idempotency-Key", "k")).refused(t, 429, "rate_limited")
		if a.header.Get("Tally-Ratelimit") != "1" || a.header.Get("Retry-After") != "1" {
			t.Errorf("%v", a.header)
		}
	}
	if after := heads(); !slices.Equal(before, after) {
		t.Errorf("heads were %v and are %v", before, after)
	}
}
