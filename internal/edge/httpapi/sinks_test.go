package httpapi

import (
	"strings"
	"testing"
)

// While a sink of the tenant is behind because it fails, answers to what was kept say so, and no others do.
func TestFallback(t *testing.T) {
	failing := ""
	w := newWorld(t, func(o *Options) { o.Fallback = func(tenantID string) bool { return tenantID == failing } })
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	const first, second = `{"id":"a","meter":"calls","customer":"c"}`, `{"id":"b","meter":"calls","customer":"c"}`
	if h := w.send(first).status(t, 200).header; h.Get("Tally-Fallback") != "" {
		t.Errorf("nothing fails, and the answer says %q", h.Get("Tally-Fallback"))
	}
	failing = "acme"
	for _, c := range []struct {
		body, want string
		status     int
	}{
		{second, "true", 200},
		{first, "", 200}, // a duplicate
		{`{"id":"c","meter":"none","customer":"c"}`, "", 422},
		{"[" + first + "," + second + "]", "", 200},
		{`[` + first + `,{"id":"d","meter":"calls","customer":"c"}]`, "true", 200},
	} {
		if a := w.send(c.body).status(t, c.status); a.header.Get("Tally-Fallback") != c.want {
			t.Errorf("%s: %q, want %q", c.body, a.header.Get("Tally-Fallback"), c.want)
		}
	}
}

const hookBody = `{"name":"w","kind":"webhook","url":"https://r.example/hook"}`

// The secret is in the first answer and in no other: not in the one that an Idempotency-Key gives again, not in the
// audit log, not in what the sink's GET shows.
func TestASinksSecretIsShownOnce(t *testing.T) {
	w := newWorld(t)
	post := call{method: "POST", path: "/v1/sinks", key: "admin", body: hookBody}.with("Idempotency-Key", "k")
	a := w.do(post).status(t, 201)
	secret, id := a.text("secret"), a.text("id")
	if !strings.HasPrefix(secret, "whsec_") {
		t.Fatalf("no secret in %s", a.body)
	}
	again := w.do(post).status(t, 201)
	if again.text("id") != id || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same request made %s", again.body)
	}
	rotate := call{method: "POST", path: "/v1/sinks/" + id + "/rotate-secret", key: "admin"}
	rotate = rotate.with("Idempotency-Key", "r")
	b := w.do(rotate).status(t, 200)
	if b.text("secret") == secret || !strings.HasPrefix(b.text("secret"), "whsec_") {
		t.Errorf("rotating gave %s", b.body)
	}
	for _, c := range []call{
		post, rotate,
		{method: "GET", path: "/v1/sinks", key: "admin"},
		{method: "GET", path: "/v1/sinks/" + id, key: "admin"},
		{method: "GET", path: "/v1/audit-events?entity_type=sink", key: "admin"},
		{method: "GET", path: "/v1/ledgers/acme/rows", key: "operator"},
	} {
		if a := w.do(c); strings.Contains(string(a.body), "whsec_") {
			t.Errorf("%s %s shows a secret: %s", c.method, c.path, a.body)
		}
	}
}

func TestSinksThatAreRefused(t *testing.T) {
	w := newWorld(t)
	id := w.do(call{method: "POST", path: "/v1/sinks", key: "admin", body: hookBody}).status(t, 201).text("id")
	for body, path := range map[string]string{
		`{"kind":"webhook","url":"https://r.example"}`:                                    "name",
		`{"name":"","kind":"webhook","url":"https://r.example"}`:                          "name",
		`{"name":"w","url":"https://r.example"}`:                                          "kind",
		`{"name":"w","kind":"fax"}`:                                                       "kind",
		`{"name":"w","kind":"webhook"}`:                                                   "url",
		`{"name":"w","kind":"webhook","url":"https://r.example","topic":"t"}`:             "topic",
		`{"name":"w","kind":"webhook","url":"https://r.example","secret":"s"}`:            "secret",
		`{"name":"w","kind":"webhook","url":"https://r.example","rows":[]}`:               "rows",
		`{"name":"w","kind":"webhook","url":"https://r.example","rows":["row"]}`:          "rows[0]",
		`{"name":"w","kind":"webhook","url":"https://r.example","types":["Usage *"]}`:     "types[0]",
		`{"name":"w","kind":"webhook","url":"https://r.example","batch":0}`:               "batch",
		`{"name":"w","kind":"webhook","url":"https://r.example","batch":1001}`:            "batch",
		`{"name":"w","kind":"webhook","url":"https://r.example","start":"then"}`:          "start",
		`{"name":"w","kind":"webhook","url":"https://r.example","start":0}`:               "start",
		`{"name":"w","kind":"webhook","url":"https://r.example","start":1.5}`:             "start",
		`{"name":"w","kind":"webhook","url":"https://r.example","start":100000}`:          "start",
		`{"name":"w","kind":"webhook","url":"https://r.example","state":"paused"}`:        "state",
		`{"name":"k","kind":"kafka","topic":"t"}`:                                         "brokers",
		`{"name":"k","kind":"kafka","brokers":["b:1"]}`:                                   "topic",
		`{"name":"k","kind":"kafka","brokers":["u:p@b:1"],"topic":"t"}`:                   "brokers[0]",
		`{"name":"k","kind":"kafka","brokers":["b:1"],"topic":"t","secret":"whsec_YWJj"}`: "secret",
		`{"name":"n","kind":"nats","servers":["nats://n:1"],"subject":"a.>"}`:             "subject",
	} {
		a := w.do(call{method: "POST", path: "/v1/sinks", key: "admin", body: body}).refused(t, 422, "invalid")
		if !strings.Contains(string(a.body), `"path":"`+path+`"`) {
			t.Errorf("%s: %s does not name %s", body, a.body, path)
		}
	}
	for body, path := range map[string]string{
		`{"brokers":["b:1"]}`: "brokers", `{"state":"failing"}`: "state", `{"kind":"kafka"}`: "kind",
		`{"name":""}`: "name",
	} {
		a := w.do(call{method: "PATCH", path: "/v1/sinks/" + id, key: "admin", body: body}).refused(t, 422, "invalid")
		if !strings.Contains(string(a.body), `"path":"`+path+`"`) {
			t.Errorf("%s: %s does not name %s", body, a.body, path)
		}
	}
	w.addTenant("beta")
	for _, c := range []call{
		{method: "GET", path: "/v1/sinks/" + id}, {method: "PATCH", path: "/v1/sinks/" + id, body: `{"name":"x"}`},
		{method: "DELETE", path: "/v1/sinks/" + id}, {method: "GET", path: "/v1/sinks/" + id + "/failures"},
		{method: "POST", path: "/v1/sinks/" + id + "/replay", body: `{"from_seq":1}`},
		{method: "POST", path: "/v1/sinks/" + id + "/rotate-secret"},
	} {
		c.key = "beta" // another tenant's key
		w.do(c).refused(t, 404, "not_found")
	}
	list := w.do(call{method: "GET", path: "/v1/sinks", key: "admin"}).status(t, 200)
	if n := len(list.items(t)); n != 1 {
		t.Errorf("%d sinks are left of refusals: %s", n, list.body)
	}
}
