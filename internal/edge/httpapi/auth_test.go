package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/service/gate"
)

// Every route against every kind of caller: nobody, a bad key, an ended key, each scope alone, the tenant's admin,
// another tenant's admin, and the operator with and without a tenant.
func TestWhoMayDoWhat(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	w.addTenant("other")
	expiring := w.do(call{method: "POST", path: "/v1/api-keys", key: "admin",
		body: `{"scopes":["admin"],"expires_at":"2026-11-15T13:00:00Z"}`}).status(t, 201)
	revoked := w.do(call{method: "POST", path: "/v1/api-keys", key: "admin",
		body: `{"scopes":["admin"]}`}).status(t, 201)
	w.do(call{method: "DELETE", path: "/v1/api-keys/" + revoked.text("id"), key: "admin"}).status(t, 204)
	w.clock.Store(now.Add(2 * time.Hour).UnixNano())
	bad := map[string]string{
		"expired": expiring.text("api_key"), "revoked": revoked.text("api_key"),
		"wrong secret": w.keys["admin"][:len(w.keys["admin"])-1] + "x",
		"not a key":    "secret", "a key of nobody": strings.Replace(w.keys["admin"], "acme", "nobody", 1),
		"empty": " ",
	}
	let := map[gate.Who]map[string]string{ // by who, the callers that are let in, beside those with the scope
		anyone:     {"": "", "audit": "", "other": ""},
		ofOperator: {"operator": ""},
		ofNamed:    {"operator": "", "admin": ""},
		ofTenant:   {"admin": ""},
		ofAll:      {"operator": "", "admin": "", "other": ""},
	}
	for _, rt := range (*Server)(nil).routes() {
		c := w.example(rt)
		t.Run(rt.method+rt.pattern, func(t *testing.T) {
			if rt.who != anyone {
				for name, token := range bad {
					c.key = token
					if a := w.do(c); a.code != 401 {
						t.Errorf("%s: %d", name, a.code)
					}
				}
				for _, header := range []string{"Basic dTpw", "Bearer", w.keys["admin"]} {
					if a := w.do(c.with("Authorization", header)); a.code != 401 {
						t.Errorf("Authorization %q: %d", header, a.code)
					}
				}
			}
			for _, caller := range []string{"", "ingest", "read", "audit", "billing", "admin", "other", "operator"} {
				c.key = caller
				a := w.do(c)
				_, in := let[rt.who][caller]
				switch {
				case rt.who == anyone:
					in = true
				case rt.who == ofTenant && caller == rt.need.Names()[0]:
					in = true
				}
				switch {
				case in && (a.code == 401 || a.code == 403):
					t.Errorf("%s is kept out: %d %s", caller, a.code, a.body)
				case in:
				case caller == "":
					a.refused(t, 401, "unauthorized")
				case caller == "operator":
					if a.refused(t, 400, "malformed"); !strings.Contains(a.text("detail"), "Tally-Tenant") {
						t.Errorf("no hint in %s", a.body)
					}
				case caller == "other" && rt.who == ofNamed:
					a.refused(t, 404, "not_found")
				case caller == "other" && rt.who == ofTenant:
					// It acts on its own tenant and must not see anything of acme's.
					if a.code < 400 && strings.Contains(string(a.body), "calls") {
						t.Errorf("sees acme's: %s", a.body)
					}
				default:
					a.refused(t, 403, "forbidden")
				}
			}
			if rt.who == ofTenant {
				c.key = "operator"
				if a := w.do(c.with("Tally-Tenant", "acme")); a.code == 401 || a.code == 403 {
					t.Errorf("the operator is kept out: %d", a.code)
				}
				c.key = "other"
				w.do(c.with("Tally-Tenant", "acme")).refused(t, 403, "forbidden")
			}
		})
	}
}

// What one tenant made is not there for another.
func TestForeignObjectsAreNotThere(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	w.send(`{"id":"mine","meter":"calls","customer":"c"}`).status(t, 200)
	key := w.do(call{method: "POST", path: "/v1/api-keys", key: "admin",
		body: `{"scopes":["read"]}`}).status(t, 201).text("id")
	adj := w.do(call{method: "POST", path: "/v1/adjustments", key: "billing",
		body: `{"meter":"calls","customer":"c","period":"2026-11","amount":"1",` +
			`"reason":"r"}`}).status(t, 201).text("id")
	w.addTenant("other")
	for _, c := range []call{
		{method: "GET", path: "/v1/tenants/acme"}, {method: "PATCH", path: "/v1/tenants/acme", body: `{"name":"x"}`},
		{method: "GET", path: "/v1/api-keys/" + key}, {method: "DELETE", path: "/v1/api-keys/" + key},
		{method: "GET", path: "/v1/meters/calls"}, {method: "PATCH", path: "/v1/meters/calls", body: `{"name":"x"}`},
		{method: "GET", path: "/v1/events/mine"}, {method: "GET", path: "/v1/events?meter=calls"},
		{method: "GET", path: "/v1/counters?meter=calls"},
		{method: "GET", path: "/v1/adjustments/" + adj}, {method: "POST", path: "/v1/adjustments/" + adj + "/revert"},
		{method: "GET", path: "/v1/tenants/_operator"}, {method: "GET", path: "/v1/tenants/nobody"},
	} {
		c.key = "other"
		t.Run(c.method+c.path, func(t *testing.T) { w.do(c).refused(t, 404, "not_found") })
	}
	for _, path := range []string{"/v1/events", "/v1/counters", "/v1/adjustments", "/v1/periods", "/v1/meters"} {
		if items := w.do(call{method: "GET", path: path, key: "other"}).status(t, 200).items(t); len(items) != 0 {
			t.Errorf("%s: %v", path, items)
		}
	}
	w.do(call{method: "GET", path: "/v1/tenants/_operator", key: "operator"}).refused(t, 404, "not_found")
	own := call{method: "GET", path: "/v1/events", key: "operator"}.with("Tally-Tenant", "_operator")
	w.do(own).refused(t, 404, "not_found")
}

// Who may not enter learns nothing about the body, however bad it is.
func TestKeyComesBeforeBody(t *testing.T) {
	w := newWorld(t)
	for _, c := range []call{{body: "{"}, {body: "x", header: map[string]string{"Content-Type": "text/plain",
		"Content-Encoding": "br", "Idempotency-Key": "\t"}}} {
		c.method, c.path = "POST", "/v1/events?nope=1"
		w.do(c).refused(t, 401, "unauthorized")
		c.key = "read"
		w.do(c).refused(t, 403, "forbidden")
	}
}
