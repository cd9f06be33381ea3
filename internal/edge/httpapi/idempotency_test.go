package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/edge/httpkit"
)

// keyed is a call under a request key.
func keyed(c call, key string) call { return c.with("Idempotency-Key", key) }

func (a answer) replayed(t *testing.T, want bool) answer {
	t.Helper()
	if got := a.header.Get("Idempotent-Replayed") == "true"; got != want {
		t.Errorf("replayed: %v, want %v", got, want)
	}
	return a
}

func TestWritesUnderAKeyHappenOnce(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	adjust := call{method: "POST", path: "/v1/adjustments", key: "billing",
		body: `{"meter":"calls","customer":"c","period":"2026-11","amount":"2","reason":"goodwill"}`}
	w.do(keyed(adjust, "adj 1 is no token")).refused(t, 400, "malformed")
	first := w.do(keyed(adjust, "adj-1")).status(t, 201).replayed(t, false)
	for _, key := range []string{"adj-1", `"adj-1"`} {
		again := w.do(keyed(adjust, key)).status(t, 201).replayed(t, true)
		if string(again.body) != string(first.body) || again.header.Get("Location") != first.header.Get("Location") ||
			again.header.Get("Content-Type") != first.header.Get("Content-Type") {
			t.Errorf("got %s and %v, the first was %s", again.body, again.header, first.body)
		}
	}
	if total := w.get("/v1/counters").items(t)[0]["total"]; total != "2" {
		t.Errorf("total %v", total)
	}
	w.do(adjust).status(t, 201).replayed(t, false) // without a key it happens again
}

func TestAKeyBelongsToOneRequest(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	patch := call{method: "PATCH", path: "/v1/meters/calls", key: "admin", body: `{"name":"A"}`}
	w.do(keyed(patch, "k")).status(t, 200)
	other := patch
	other.body = `{"name":"B"}`
	w.do(keyed(other, "k")).refused(t, 422, "idempotency_key_reused")
	w.do(keyed(patch.with("Content-Type", "application/json"), "k")).refused(t, 422, "idempotency_key_reused")
	w.do(keyed(call{method: "POST", path: "/v1/periods/2026-11/close", key: "admin"},
		"k")).refused(t, 422, "idempotency_key_reused")
	w.do(keyed(call{method: "POST", path: "/v1/meters", key: "admin", body: `{"name":"A"}`},
		"k")).refused(t, 422, "idempotency_key_reused")
	if name := w.get("/v1/meters/calls").text("name"); name != "A" {
		t.Errorf("name %s", name)
	}
	w.addTenant("bolt")
	w.do(keyed(call{method: "POST", path: "/v1/meters", key: "bolt", body: `{"slug":"x","aggregation":"sum"}`},
		"k")).status(t, 201).replayed(t, false)
}

// Given a month that was closed under a key, when another is closed under the same key, then that is another request.
func TestAKeyBelongsToOnePathNotToItsPattern(t *testing.T) {
	w := newWorld(t)
	for i, paths := range [][2]string{
		{"POST /v1/periods/2026-09/close", "POST /v1/periods/2026-10/close"},
		{"PUT /v1/customers/a/plan", "PUT /v1/customers/b/plan"},
		{"PUT /v1/customers/a/plan", "PUT /v1/customers/a%2F/plan"},
		{"DELETE /v1/api-keys/one", "DELETE /v1/api-keys/other"},
	} {
		send := func(line string) answer {
			method, path, _ := strings.Cut(line, " ")
			body := ""
			if method == "PUT" {
				body = `{"plan":null}`
			}
			return w.do(keyed(call{method: method, path: path, key: "admin", body: body}, fmt.Sprint("k", i)))
		}
		first := send(paths[0])
		send(paths[1]).refused(t, 422, "idempotency_key_reused")
		if again := send(paths[0]).replayed(t, true); again.code != first.code {
			t.Errorf("%s: %d again, %d at first", paths[0], again.code, first.code)
		}
	}
	if state := w.get("/v1/periods/2026-10").text("state"); state != "open" {
		t.Errorf("2026-10 is %s", state)
	}
}

func TestSecretsAreShownOnce(t *testing.T) {
	w := newWorld(t)
	create := keyed(call{method: "POST", path: "/v1/api-keys", key: "admin", body: `{"scopes":["read"]}`}, "new-key")
	first := w.do(create).status(t, 201).replayed(t, false)
	again := w.do(create).status(t, 201).replayed(t, true)
	if first.text("api_key") == "" || again.text("api_key") != "" || again.text("id") != first.text("id") {
		t.Errorf("first %s, again %s", first.body, again.body)
	}
	found := keyed(call{method: "POST", path: "/v1/tenants", key: "operator", body: `{"id":"bolt"}`}, "new-tenant")
	first = w.do(found).status(t, 201).replayed(t, false)
	again = w.do(found).status(t, 201).replayed(t, true)
	if first.text("api_key") == "" || again.text("api_key") != "" || again.text("id") != "bolt" {
		t.Errorf("first %s, again %s", first.body, again.body)
	}
	other := found
	other.body = `{"id":"cord"}`
	w.do(other).refused(t, 422, "idempotency_key_reused")
	w.do(call{method: "GET", path: "/v1/tenants/cord", key: "operator"}).refused(t, 404, "not_found")
	w.do(keyed(call{method: "POST", path: "/v1/tenants", key: "operator", body: `{"id":"no good"}`},
		"bad")).refused(t, 422, "invalid")
}

func TestWhatIsKeptAndWhatIsNot(t *testing.T) {
	w := newWorld(t)
	meter := call{method: "POST", path: "/v1/meters", key: "admin", body: `{"slug":"calls","aggregation":"sum"}`}
	w.do(meter).status(t, 201)
	w.do(keyed(meter, "dup")).refused(t, 409, "already_exists").replayed(t, false)
	w.do(keyed(meter, "dup")).refused(t, 409, "already_exists").replayed(t, true)
	bad := meter
	bad.body = `{"slug":"calls2","aggregation":"nope"}`
	for range 2 {
		w.do(keyed(bad, "shape")).refused(t, 422, "invalid").replayed(t, false)
	}
	bad.body = `{"slug":"calls2","aggregation":"sum"}`
	w.do(keyed(bad, "shape")).status(t, 201).replayed(t, false)
	denied := meter
	denied.key = "read"
	w.do(keyed(denied, "scope")).refused(t, 403, "forbidden")
	none := meter
	none.key = ""
	w.do(keyed(none, "scope")).refused(t, 401, "unauthorized")
	large := meter
	large.body = strings.Repeat(" ", httpkit.DefaultMaxBody+1)
	w.do(keyed(large, "large")).refused(t, 413, "too_large")
	w.store.set(func(s *troubled) { s.cause = "boom" })
	gone := call{method: "POST", path: "/v1/meters", key: "admin", body: `{"slug":"later","aggregation":"sum"}`}
	w.do(keyed(gone, "boom")).refused(t, 500, "internal")
	w.store.set(func(s *troubled) { s.cause = nil })
	w.do(keyed(gone, "boom")).status(t, 201).replayed(t, false)
	w.do(keyed(call{method: "DELETE", path: "/v1/api-keys/acme.none", key: "admin"},
		"del")).refused(t, 404, "not_found").replayed(t, false)
	w.do(keyed(call{method: "DELETE", path: "/v1/api-keys/acme.none", key: "admin"},
		"del")).refused(t, 404, "not_found").replayed(t, true)
	w.clock.Add(int64(24 * time.Hour))
	w.do(keyed(meter, "dup")).refused(t, 409, "already_exists").replayed(t, false)
	for _, key := range []string{"", strings.Repeat("x", 256), `"`, "é", "a\tb"} {
		w.do(keyed(meter, key)).refused(t, 400, "malformed")
	}
	get := call{method: "GET", path: "/v1/meters", key: "read"}
	w.do(get.with("Idempotency-Key", strings.Repeat("x", 300))).status(t, 200)
}

func TestADeletionIsAnsweredAgain(t *testing.T) {
	w := newWorld(t)
	id := w.do(call{method: "POST", path: "/v1/api-keys", key: "admin",
		body: `{"scopes":["read"]}`}).status(t, 201).text("id")
	gone := keyed(call{method: "DELETE", path: "/v1/api-keys/" + id, key: "admin"}, "gone")
	w.do(gone).status(t, 204).replayed(t, false)
	w.do(gone).status(t, 204).replayed(t, true)
}

func TestManyAtOnceUnderOneKey(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	adjust := keyed(call{method: "POST", path: "/v1/adjustments", key: "billing",
		body: `{"meter":"calls","customer":"c","period":"2026-11","amount":"2","reason":"goodwill"}`}, "one")
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]int{}
	for range 32 {
		wg.Go(func() {
			resp, err := w.server.Client().Do(w.request(adjust))
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			seen[fmt.Sprint(resp.StatusCode, resp.Header.Get("Idempotent-Replayed"))]++
		})
	}
	wg.Wait()
	if seen["201"] != 1 || seen["201true"] != 31 {
		t.Errorf("answers %v", seen)
	}
	if total := w.get("/v1/counters").items(t)[0]["total"]; total != "2" {
		t.Errorf("total %v", total)
	}
}

func TestFactsKeepTheirOwnRule(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	batch := keyed(call{method: "POST", path: "/v1/events", key: "ingest",
		body: `[{"meter":"calls","customer":"c"},{"meter":"calls","customer":"c"}]`}, "batch-1")
	w.do(batch).status(t, http.StatusOK)
	again := w.do(batch).status(t, http.StatusOK).replayed(t, false)
	if again.part("duplicates") != "2" {
		t.Errorf("got %s", again.body)
	}
	w.do(keyed(batch, strings.Repeat("x", 241))).refused(t, 400, "malformed")
}
