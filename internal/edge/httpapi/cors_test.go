package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/limit"
)

// pageWorld is one where acme allows a page, and beta another.
func pageWorld(t *testing.T, limits gate.Options) *world {
	t.Helper()
	w := newLimitedWorld(t, limits)
	w.addTenant("beta")
	for id, page := range map[string]string{"acme": goodPage, "beta": "http://localhost:3000"} {
		w.do(call{method: "PATCH", path: "/v1/tenants/" + id, key: "operator", body: `{"allowed_origins":["` + page +
			`"]}`}).status(t, 200)
	}
	w.do(call{method: "POST", path: "/v1/meters", key: "operator",
		body: `{"slug":"calls","aggregation":"sum"}`}.with("Tally-Tenant", "acme")).status(t, 201)
	return w
}

// readable checks that a page may read the answer, or that the answer says nothing to pages.
func (a answer) readable(t *testing.T, origin string) answer {
	t.Helper()
	if got := a.header.Get("Access-Control-Allow-Origin"); got != origin {
		t.Errorf("%d: Access-Control-Allow-Origin: %q, want %q", a.code, got, origin)
	}
	exposed, vary := a.header.Get("Access-Control-Expose-Headers"), strings.Join(a.header.Values("Vary"), ", ")
	if origin != "" && (!strings.Contains(exposed, "Tally-Request-Id") || !strings.Contains(exposed, "Retry-After") ||
		!strings.Contains(exposed, "RateLimit-Remaining") || !strings.Contains(vary, "Origin")) {
		t.Errorf("%d: exposes %q, varies by %q", a.code, exposed, vary)
	}
	for name := range a.header {
		if origin == "" && strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("%d: %s", a.code, name)
		}
	}
	return a
}

func TestPagesThatMaySend(t *testing.T) {
	w := pageWorld(t, gate.Options{})
	send := func(origin string) answer {
		c := call{method: "POST", path: eventsPath, key: "ingest", body: `{"id":"e","meter":"calls","customer":"c"}`}
		return w.do(c.with("Origin", origin))
	}
	for _, evil := range []string{"https://evil.test", "null", "http://app.example.com", "https://app.example.com:8443",
		"http://localhost:3000", "https://app.example.com.evil.test", "x"} {
		send(evil).refused(t, 403, "forbidden").readable(t, "")
	}
	if len(w.get("/v1/events").items(t)) != 0 {
		t.Error("an event of a foreign page was kept")
	}
	send(goodPage).status(t, 200).readable(t, goodPage)
	send("HTTPS://App.Example.com").status(t, 200).readable(t, "HTTPS://App.Example.com")
	send(w.server.URL).status(t, 200).readable(t, "") // the server's own page
	// Behind a proxy that ends TLS.
	send(strings.Replace(w.server.URL, "http", "https", 1)).status(t, 200).readable(t, "")
	two := w.request(call{method: "POST", path: eventsPath, key: "ingest", body: `{}`})
	two.Header["Origin"] = []string{goodPage, "https://evil.test"}
	resp, err := w.server.Client().Do(two)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != 403 {
		t.Errorf("two origins: %d", resp.StatusCode)
	}
}

// A page must be able to read why it was refused, whatever the reason.
func TestPagesReadRefusals(t *testing.T) {
	w := pageWorld(t, gate.Options{KeyRate: limit.Rate{Events: 2}})
	send := func(body string) answer {
		return w.do(call{method: "POST", path: eventsPath, key: "ingest", body: body}.with("Origin", goodPage))
	}
	send(`{`).refused(t, 400, "malformed").readable(t, goodPage)
	send(`{"id":"e","meter":"none","customer":"c"}`).refused(t, 422, "unknown_meter").readable(t, goodPage)
	send(`{"id":"e","meter":"calls","customer":"c"}`).status(t, 200).readable(t, goodPage)
	send(`{"id":"f","meter":"calls","customer":"c"}`).refused(t, 429, "rate_limited").readable(t, goodPage)
	read := func(path string) answer {
		return w.do(call{method: "GET", path: path, key: "read"}.with("Origin", goodPage))
	}
	read("/v1/usage?meter=calls").status(t, 200).readable(t, goodPage)
	created := call{method: "POST", path: "/v1/meters", key: "admin",
		body: `{"slug":"m","aggregation":"sum"}`}.with("Origin", goodPage).with("Idempotency-Key", "k")
	w.do(created).status(t, 201).readable(t, goodPage)
	w.do(created).status(t, 201).readable(t, goodPage)
	read("/v1/meters/nothing").refused(t, 404, "not_found").readable(t, goodPage)
}

// A page's key can be read by everyone who sees the page: it must not open anything but the way in.
func TestIngestKeysReadNothing(t *testing.T) {
	w := pageWorld(t, gate.Options{})
	w.send(`{"id":"e","meter":"calls","customer":"c"}`).status(t, 200)
	for _, rt := range (*Server)(nil).routes() {
		if rt.who == anyone || rt.method != http.MethodGet {
			continue
		}
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			c := w.example(rt)
			c.method, c.key = method, "ingest"
			if a := w.do(c.with("Origin", goodPage)); a.code != 403 {
				t.Errorf("%s %s: %d %s", method, c.path, a.code, a.body)
			}
		}
	}
}

func TestPreflight(t *testing.T) {
	w := pageWorld(t, gate.Options{})
	ask := func(path, origin string) answer {
		c := call{method: "OPTIONS", path: path}.with("Origin", origin)
		c = c.with("Access-Control-Request-Method", "POST").with("Access-Control-Request-Headers", "authorization")
		return w.do(c)
	}
	for _, origin := range []string{goodPage, "http://localhost:3000"} { // whose key will follow is not known yet
		a := ask(eventsPath, origin).status(t, 204)
		h := a.header
		if h.Get("Access-Control-Allow-Origin") != origin ||
			h.Get("Access-Control-Allow-Methods") != "POST, GET, HEAD" || h.Get("Access-Control-Max-Age") == "" ||
			!strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") ||
			!strings.Contains(h.Get("Vary"), "Origin") || len(a.body) != 0 {
			t.Errorf("%s: %v", origin, h)
		}
	}
	ask("/v1/meters/calls", goodPage).status(t, 204)
	ask(eventsPath, "https://evil.test").refused(t, 403, "forbidden").readable(t, "")
	ask("/v1/nothing", goodPage).refused(t, 404, "not_found").readable(t, "")
	plain := call{method: "OPTIONS", path: eventsPath}
	w.do(plain.with("Origin", goodPage)).refused(t, 405, "method_not_allowed").readable(t, "")
	w.do(plain.with("Access-Control-Request-Method", "POST")).refused(t, 405, "method_not_allowed")

	// A new one is known within a second, and what a browser was answered does not open the gate.
	w.do(call{method: "PATCH", path: "/v1/tenants/acme", key: "operator",
		body: `{"allowed_origins":["https://new.test"]}`}).status(t, 200)
	w.clock.Add(int64(time.Second))
	ask(eventsPath, "https://new.test").status(t, 204)
	w.do(call{method: "POST", path: eventsPath, key: "ingest",
		body: `{"id":"e","meter":"calls","customer":"c"}`}.with("Origin", goodPage)).refused(t, 403, "forbidden")

	w.clock.Add(int64(time.Hour))
	w.store.set(func(s *troubled) { s.err = problem.New(problem.Unavailable, "down") })
	ask(eventsPath, goodPage).refused(t, 503, "unavailable")
	w.store.set(func(s *troubled) { s.err = nil })
}
