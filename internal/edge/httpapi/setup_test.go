package httpapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
)

func TestTenantsLifeOverHTTP(t *testing.T) {
	w := newWorld(t)
	a := w.do(call{method: "POST", path: "/v1/tenants", key: "operator",
		body: `{"id":"beta","name":"Beta","allowed_origins":["https://app.example.com"]}`}).status(t, 201)
	if !strings.HasPrefix(a.text("api_key"), "tk_beta.") || a.header.Get("Cache-Control") != "no-store" ||
		a.header.Get("Location") != "/v1/tenants/beta" {
		t.Errorf("got %v %s", a.header, a.body)
	}
	w.keys["beta"] = a.text("api_key")
	got := w.do(call{method: "GET", path: "/v1/tenants/beta", key: "beta"}).status(t, 200)
	const want = `{"id":"beta","name":"Beta","allowed_origins":["https://app.example.com"],"state":"open","epoch":1,` +
		`"created_at":"2026-11-15T12:00:00Z","closed_at":null}` + "\n"
	if diff := cmp.Diff(want, string(got.body)); diff != "" {
		t.Error(diff)
	}
	got = w.do(call{method: "PATCH", path: "/v1/tenants/beta", key: "beta", body: `{"name":"B"}`}).status(t, 200)
	if got.text("name") != "B" || got.part("allowed_origins") != `["https://app.example.com"]` {
		t.Errorf("got %s", got.body)
	}
	got = w.do(call{method: "PATCH", path: "/v1/tenants/beta", key: "operator",
		body: `{"allowed_origins":null}`}).status(t, 200)
	if got.text("name") != "B" || got.part("allowed_origins") != "[]" {
		t.Errorf("got %s", got.body)
	}
	w.do(call{method: "POST", path: "/v1/tenants/beta/close", key: "beta"}).refused(t, 403, "forbidden")
	got = w.do(call{method: "POST", path: "/v1/tenants/beta/close", key: "operator"}).status(t, 200)
	if got.text("state") != "closed" || got.text("closed_at") == "" {
		t.Errorf("got %s", got.body)
	}
	w.do(call{method: "GET", path: "/v1/events", key: "beta"}).status(t, 200)
	w.do(call{method: "POST", path: "/v1/events", key: "beta",
		body: `{"id":"x","meter":"m","customer":"c"}`}).refused(t, 409, "tenant_closed")
}

func TestKeysNeverShowTheirSecretAgain(t *testing.T) {
	w := newWorld(t)
	a := w.do(call{method: "POST", path: "/v1/api-keys", key: "admin",
		body: `{"name":"k","scopes":["read","ingest"],"expires_at":1799000000000,` +
			`"rate_limit":{"requests_per_second":5,"bytes_per_second":0}}`}).status(t, 201)
	secret := a.text("api_key")
	if secret == "" || a.part("scopes") != `["ingest","read"]` || a.part("rate_limit") != `{"requests_per_second":5}` ||
		!strings.HasPrefix(a.text("expires_at"), "2027-01-") {
		t.Errorf("got %s", a.body)
	}
	for _, path := range []string{"/v1/api-keys/" + a.text("id"), "/v1/api-keys"} {
		got := w.do(call{method: "GET", path: path, key: "admin"}).status(t, 200)
		if strings.Contains(string(got.body), secret) || strings.Contains(string(got.body), "api_key\"") ||
			strings.Contains(string(got.body), "hash") {
			t.Errorf("%s shows the secret: %s", path, got.body)
		}
	}
	for range 2 {
		if got := w.do(call{method: "DELETE", path: "/v1/api-keys/" + a.text("id"),
			key: "admin"}).status(t, 204); len(got.body) != 0 {
			t.Errorf("got %s", got.body)
		}
	}
	if got := w.do(call{method: "GET", path: "/v1/api-keys/" + a.text("id"),
		key: "admin"}); got.text("revoked_at") == "" {
		t.Errorf("got %s", got.body)
	}
	w.do(call{method: "DELETE", path: "/v1/api-keys/nope", key: "admin"}).refused(t, 404, "not_found")
}

func TestMetersOverHTTP(t *testing.T) {
	w := newWorld(t)
	a := w.do(call{method: "POST", path: "/v1/meters", key: "admin",
		body: `{"slug":"views","aggregation":"unique","unique_property":"user","lateness":"7d","late":"reject",` +
			`"key_policy":"derived","key_fields":["meter","customer","properties.url","time"],"key_bucket":"5s",` +
			`"future":"90m","name":"Views"}`}).status(t, 201)
	const want = `{"id":"views","slug":"views","name":"Views","aggregation":"unique","event_type":null,` +
		`"value_property":null,"unique_property":"user","lateness":"168h","late":"reject",` +
		`"key_policy":"derived","key_fields":["meter","customer","properties.url","time"],"key_bucket":"5s",` +
		`"future":"1h30m","rounding":null,"missing_value":"refuse","filter":null,"used":false,` +
		`"created_at":"2026-11-15T12:00:00Z"}` + "\n"
	if diff := cmp.Diff(want, string(a.body)); diff != "" {
		t.Error(diff)
	}
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	if got := w.get("/v1/meters/calls"); got.text("lateness") != "48h" || got.text("future") != "1h" ||
		got.text("late") != "adjust" || got.text("key_policy") != "client" || got.doc["key_fields"] != nil {
		t.Errorf("defaults: %s", got.body)
	}
	w.send(`{"id":"1","meter":"calls","customer":"c"}`).status(t, 200)
	got := w.do(call{method: "PATCH", path: "/v1/meters/calls", key: "admin",
		body: `{"lateness":"0s","late":"reject"}`}).status(t, 200)
	if got.text("lateness") != "0s" || got.text("future") != "1h" || got.doc["used"] != true {
		t.Errorf("got %s", got.body)
	}
	for _, body := range []string{`{"aggregation":"max"}`, `{"rounding":"half_even"}`, `{"key_policy":"derived"}`,
		`{"event_type":"x"}`} {
		w.do(call{method: "PATCH", path: "/v1/meters/calls", key: "admin",
			body: body}).refused(t, 409, "fixed_after_first_event")
	}
	w.do(call{method: "PATCH", path: "/v1/meters/calls", key: "admin", body: `{"aggregation":"sum"}`}).status(t, 200)
}

func TestBadForms(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct {
		path, body string
		status     int
		paths      string // of errors
	}{
		{"/v1/meters", `{"slug":"m","aggregation":"sum","lateness":"soon","late":"maybe","nope":1,"also":2}`, 422,
			"late lateness also nope"},
		{"/v1/meters", `{}`, 422, "slug aggregation"},
		{"/v1/meters", `{"slug":7,"aggregation":null}`, 422, "slug aggregation"},
		{"/v1/meters", `{"slug":"m","aggregation":"sum","key_fields":["meter",1]}`, 422, "key_fields[1]"},
		{"/v1/meters", `{"slug":"m","aggregation":"sum","key_fields":"meter"}`, 422, "key_fields"},
		{"/v1/meters", `{"slug":"m","aggregation":"sum","key_fields":["nope"]}`, 422, "key_fields"},
		{"/v1/meters", `{"slug":"m","aggregation":"sum","key_bucket":5}`, 422, "key_bucket"},
		{"/v1/meters", `{"slug":"a/b","aggregation":"sum"}`, 422, "slug"},
		{"/v1/api-keys", `{}`, 422, "scopes"},
		{"/v1/api-keys", `{"scopes":[]}`, 422, "scopes"},
		{"/v1/api-keys", `{"scopes":"read"}`, 422, "scopes"},
		{"/v1/api-keys", `{"scopes":["root"]}`, 422, "scopes"},
		{"/v1/api-keys", `{"scopes":["read"],"expires_at":"2020-01-01T00:00:00Z"}`, 422, "expires_at"},
		{"/v1/api-keys", `{"scopes":["read"],"expires_at":"1799000000000"}`, 422, "expires_at"},
		{"/v1/api-keys", `{"scopes":["read"],"expires_at":true}`, 422, "expires_at"},
		{"/v1/api-keys", `{"scopes":["read"],"rate_limit":{"requests_per_second":-1,"events_per_second":1.5,"nope":1}}`,
			422, "rate_limit.requests_per_second rate_limit.events_per_second rate_limit.nope"},
		{"/v1/api-keys", `{"scopes":["read"],"rate_limit":7}`, 422, "rate_limit"},
		{"/v1/adjustments", `{}`, 422, "meter customer reason period amount"},
		{"/v1/adjustments", `{"meter":"m","customer":"c","reason":"r","period":"2026-1","amount":"x"}`, 422,
			"period amount"},
		{"/v1/adjustments", `{"meter":"m","customer":"c","reason":"r","period":"2026-11","amount":0.0000000000001}`,
			422, "amount"},
		{"/v1/adjustments", `{"meter":"m","customer":"c","reason":"r","period":"2026-11","amount":[1]}`, 422, "amount"},
		{"/v1/meters", ``, 400, ""},
		{"/v1/meters", `{"slug":"m"`, 400, ""},
		{"/v1/meters", `{"slug":"m","aggregation":"sum"} {}`, 400, ""},
		{"/v1/meters", `{"slug":"m","slug":"m","aggregation":"sum"}`, 400, ""},
		{"/v1/api-keys", `{"scopes":["read"],"rate_limit":{"events_per_second":1,"events_per_second":2}}`, 400, ""},
		{"/v1/meters", `[]`, 400, ""},
		{"/v1/meters", `null`, 400, ""},
		{"/v1/meters", `{"slug":"` + "\xff" + `","aggregation":"sum"}`, 400, ""},
		{"/v1/meters", `{"slug":"m","name":"\ud800","aggregation":"sum"}`, 400, ""},
		{"/v1/meters", `{"slug":` + strings.Repeat("[", 9) + strings.Repeat("]", 9) + `}`, 400, ""},
		{"/v1/adjustments", `{"meter":"m","customer":"c","reason":"r","period":"2026-11","amount":"1"}`, 422, "meter"},
	} {
		a := w.do(call{method: "POST", path: tc.path, key: "admin", body: tc.body}).status(t, tc.status)
		var doc struct{ Errors []struct{ Path string } }
		if err := json.Unmarshal(a.body, &doc); err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, e := range doc.Errors {
			paths = append(paths, e.Path)
		}
		if got := strings.Join(paths, " "); got != tc.paths {
			t.Errorf("%s: errors at %q, want %q", tc.body, got, tc.paths)
		}
	}
	w.do(call{method: "POST", path: "/v1/tenants", key: "operator",
		body: `{"id":"x","allowed_origins":["ftp://x"]}`}).refused(t, 422, "invalid")
	w.do(call{method: "PATCH", path: "/v1/tenants/acme", key: "admin", body: `{"id":"x"}`}).refused(t, 422, "invalid")
	w.do(call{method: "PATCH", path: "/v1/meters/nope", key: "admin",
		body: `{"name":"x"}`}).refused(t, 404, "not_found")
	w.do(call{method: "POST", path: "/v1/meters", key: "admin",
		body: `{"slug":"m","aggregation":"sum"}`}.with("Idempotency-Key", "a b")).refused(t, 400, "malformed")
}

// Whatever the bytes are, a form is read or refused as malformed; what was read never has two values for one name.
func FuzzForm(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":{"b":[1,"x",null,true]}}`, `{"a":1,"a":2}`, `{"a":"\ud800"}`, `[`,
		`{"a":1}x`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := httpkit.ParseForm(body)
		if err != nil {
			if !problem.Is(err, problem.Malformed) {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		readMeter(got)
		if _, err := readKey(got); err != nil && !problem.Is(err, problem.Invalid) {
			t.Errorf("%q: %v", body, err)
		}
	})
}
