package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/tallystick/tallystick/api"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/store"
)

// contract holds exchanges against the published document and remembers which answers were seen.
type contract struct {
	t    *testing.T
	doc  *openapi3.T
	seen map[string]bool // "GET /v1/events 200"
}

func newContract(t *testing.T) *contract {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	openapi3filter.RegisterBodyDecoder("application/cloudevents+json", openapi3filter.JSONBodyDecoder)
	openapi3filter.RegisterBodyDecoder("application/cloudevents-batch+json", openapi3filter.JSONBodyDecoder)
	openapi3filter.RegisterBodyDecoder("application/x-ndjson", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.PlainBodyDecoder)
	return &contract{t: t, doc: doc, seen: map[string]bool{}}
}

// patternOf finds the route that a path is for, and the values of its variables. It is another
// search than the server's own, so that the two can disagree.
func patternOf(routes []route, path string) (pattern string, params map[string]string) {
	segments := strings.Split(path, "/")
	for _, rt := range routes {
		want, values := strings.Split(rt.pattern, "/"), map[string]string{}
		same := len(want) == len(segments)
		for i := 0; same && i < len(want); i++ {
			name, variable := strings.CutPrefix(want[i], "{")
			if !variable {
				same = want[i] == segments[i]
				continue
			}
			value, err := url.PathUnescape(segments[i])
			values[strings.TrimSuffix(name, "}")] = value
			same = err == nil && value != ""
		}
		if same {
			return rt.pattern, values
		}
	}
	return "", nil
}

// check validates the answer, and the request too when it was accepted.
func (ct *contract) check(w *world, c call, a answer) {
	ct.t.Helper()
	r := w.request(c)
	pattern, params := patternOf((*Server)(nil).routes(), r.URL.EscapedPath())
	item := ct.doc.Paths.Value(pattern)
	if item == nil || item.GetOperation(r.Method) == nil {
		ct.t.Errorf("%s %s (%s) is not documented", r.Method, c.path, pattern)
		return
	}
	ct.seen[fmt.Sprintf("%s %s %d", r.Method, pattern, a.code)] = true
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params,
		Route: &routers.Route{Spec: ct.doc, Path: pattern, PathItem: item, Method: r.Method,
			Operation: item.GetOperation(r.Method)},
		Options: &openapi3filter.Options{
			IncludeResponseStatus: true, MultiError: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
			ExcludeRequestBody: c.header["Content-Encoding"] != "" || c.body == "",
		},
	}
	if c.body != "" && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.code < 300 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			ct.t.Errorf("%s %s was answered %d, but the document refuses the request: %v", c.method,
				c.path, a.code, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: a.code, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		Options: in.Options,
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		ct.t.Errorf("%s %s: the answer %d is not as documented: %v\n%s", c.method, c.path, a.code, err, a.body)
	}
}

// documented lists every "GET /v1/events 200" of the document.
func (ct *contract) documented() map[string]bool {
	out := map[string]bool{}
	for path, item := range ct.doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status := range op.Responses.Map() {
				out[method+" "+path+" "+status] = true
			}
		}
	}
	return out
}

// The document and the server say the same: every route is documented and the other way round, every documented status
// of every route is driven over a real connection, and every exchange on the way is as documented.
func TestContract(t *testing.T) {
	ct := newContract(t)
	w := newWorld(t)
	w.check = func(c call, a answer) { ct.check(w, c, a) }
	w.addTenant("shut")
	w.story()
	w.driveExamples(ct)
	w.do(call{method: "POST", path: "/v1/tenants/shut/close", key: "operator"}).status(t, 200)
	for _, rt := range (*Server)(nil).routes() {
		w.driveRefusals(rt)
	}
	w.driveStreams()
	w.driveQuota()
	w.driveLimits()

	served := map[string]bool{}
	for _, rt := range (*Server)(nil).routes() {
		served[rt.method+" "+rt.pattern] = true
	}
	published := map[string]bool{}
	for key := range ct.documented() {
		published[key[:strings.LastIndexByte(key, ' ')]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(served)) {
		if !published[name] {
			t.Errorf("%s is served but not documented", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(published)) {
		if !served[name] {
			t.Errorf("%s is documented but not served", name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(ct.documented())) {
		if !ct.seen[key] {
			t.Errorf("%s is documented, but nothing here was answered so", key)
		}
	}
}

// story makes every route succeed, and the conflicts that need a history.
func (w *world) story() {
	t := w.t
	w.addTenant("beta")
	w.do(call{method: "POST", path: "/v1/tenants", key: "operator",
		body: `{"id":"gamma","name":"G","allowed_origins":["https://app.example.com"]}`}).status(t, 201)
	w.do(call{method: "POST", path: "/v1/tenants", key: "operator",
		body: `{"id":"beta"}`}).refused(t, 409, "already_exists")
	for _, path := range []string{"/v1/tenants?limit=1", "/v1/tenants/beta"} {
		w.do(call{method: "GET", path: path, key: "operator"}).status(t, 200)
	}
	w.do(call{method: "PATCH", path: "/v1/tenants/beta", key: "beta", body: `{"name":"Beta"}`}).status(t, 200)
	k := w.do(call{method: "POST", path: "/v1/api-keys", key: "admin",
		body: `{"name":"k","scopes":["read","ingest"],"expires_at":"2027-01-01T00:00:00Z",` +
			`"rate_limit":{"events_per_second":10}}`}).status(t, 201)
	w.do(call{method: "GET", path: "/v1/api-keys?limit=2", key: "admin"}).status(t, 200)
	w.do(call{method: "GET", path: "/v1/api-keys/" + k.text("id"), key: "admin"}).status(t, 200)
	w.do(call{method: "DELETE", path: "/v1/api-keys/" + k.text("id"), key: "admin"}).status(t, 204)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	w.meter(`{"slug":"tokens","aggregation":"sum","event_type":"llm","value_property":"tokens","lateness":"7d",` +
		`"future":"30m","rounding":"half_even"}`)
	w.meter(`{"slug":"views","aggregation":"count","key_policy":"derived","key_fields":["meter","customer",` +
		`"properties.url","time"],"key_bucket":"5s","late":"reject","name":null}`)
	w.do(call{method: "POST", path: "/v1/meters", key: "admin",
		body: `{"slug":"calls","aggregation":"sum"}`}).refused(t, 409, "already_exists")
	w.send(`{"id":"a","meter":"calls","customer":"c1","time":"2026-11-15T02:10:00Z","quantity":"3",`+
		`"properties":{"region":"eu","n":1,"b":true,"z":null}}`).status(t, 200)
	w.send(`{"id":"a","meter":"calls","customer":"c1","time":"2026-11-15T02:10:00Z",`+
		`"quantity":"4"}`).refused(t, 409, "conflict")
	w.send(`[{"id":"a","meter":"calls","customer":"c1"},{"id":"old","meter":"calls","customer":"c1",`+
		`"time":1793923200000},{"id":"b","meter":"nope","customer":"c1"}]`).status(t, 200)
	w.correct(`{"events":[{"id":"fix","corrects":"a","quantity":-1,"reason":"twice"},{"id":"sent","meter":"views",`+
		`"customer":"c1","time":"2026-11-15T02:10:00Z"}]}`).status(t, 200)
	lines := call{method: "POST", path: "/v1/events", key: "ingest", body: `{"meter":"calls","customer":"c2"}` + "\n"}
	lines = lines.with("Content-Type", "application/x-ndjson").with("Idempotency-Key", "k1").
		with("Prefer", "return=representation")
	w.do(lines).status(t, 200)
	cloud := `{"specversion":"1.0","id":"7","source":"/gateway","type":"llm","subject":"c1",` +
		`"time":"2026-11-15T02:10:00Z","data":{"tokens":812}}`
	w.do(call{method: "POST", path: "/v1/events", key: "ingest",
		body: cloud}.with("Content-Type", "application/cloudevents+json")).status(t, 200)
	w.do(call{method: "POST", path: "/v1/events", key: "ingest",
		body: "[" + cloud + "]"}.with("Content-Type", "application/cloudevents-batch+json")).status(t, 200)
	for _, path := range []string{
		"/v1/meters?limit=1", "/v1/meters/views", "/v1/events?limit=2", "/v1/events?status=adjusted",
		"/v1/events?meter=tokens&from=2026-11-01T00:00:00Z&to=1826668800000",
		"/v1/events/a", "/v1/counters?limit=1", "/v1/counters?meter=calls&customer=c1&period=2026-11",
		"/v1/adjustments", "/v1/periods", "/v1/periods/2026-11",
		"/v1/counters?as_of=9", "/v1/periods?as_of=9", "/v1/periods/2026-11?as_of=2026-11-15T12:00:00Z",
		"/v1/usage?meter=calls",
		"/v1/usage?meter=calls&window=week&fill=zero&from=2026-11-01",
		"/v1/usage?meter=calls&window=hour&timezone=Asia/Kolkata" +
			"&group_by=customer,resource,properties.region,properties.n,properties.b,properties.z" +
			"&from=2026-11-01T00:00:00Z&to=1826668800000&limit=1",
	} {
		w.get(path).status(t, 200)
	}
	for _, path := range []string{"/v1/counters", "/v1/periods", "/v1/periods/2026-11", "/v1/usage"} {
		w.get(path+"?as_of=1000000").refused(t, 400, "malformed")
	}
	w.store.set(func(s *troubled) { s.err = problem.New(problem.Overflow, "does not fit") })
	w.do(call{method: "GET", path: "/v1/usage?meter=calls",
		key: "operator"}.with("Tally-Tenant", "acme")).refused(t, 422, "overflow")
	w.store.set(func(s *troubled) { s.err = nil })
	for _, path := range []string{"/v1/usage?meter=calls&group_by=customer", "/v1/counters?limit=1",
		"/v1/events?limit=1"} {
		w.do(call{method: "GET", path: path, key: "read"}.with("Accept", "text/csv")).status(t, 200)
	}
	w.do(call{method: "PATCH", path: "/v1/meters/calls", key: "admin",
		body: `{"lateness":null,"name":"Calls"}`}).status(t, 200)
	w.do(call{method: "PATCH", path: "/v1/meters/calls", key: "admin",
		body: `{"aggregation":"max"}`}).refused(t, 409, "fixed_after_first_event")
	a := w.do(call{method: "POST", path: "/v1/adjustments", key: "billing",
		body: `{"meter":"calls","customer":"c9","period":"2026-10","amount":-2.5,"reason":"goodwill"}`}).status(t, 201)
	w.get("/v1/adjustments/"+a.text("id")).status(t, 200)
	w.do(call{method: "POST", path: "/v1/adjustments/" + a.text("id") + "/revert", key: "billing"}).status(t, 201)
	w.do(call{method: "POST", path: "/v1/adjustments/" + a.text("id") + "/revert", key: "billing",
		body: "{}"}).refused(t, 409, "conflict")
	w.do(call{method: "POST", path: "/v1/periods/2026-10/close", key: "billing"}).status(t, 200)
	w.get("/v1/periods/2026-10").status(t, 200)
	w.get("/v1/counters?period=2026-10").status(t, 200)
	w.plans()
	w.sinks()
	for _, path := range []string{"/v1/audit-events?limit=2",
		"/v1/audit-events?entity_type=meter&entity_id=calls&offset=1", "/v1/audit-events/aud_1"} {
		w.do(call{method: "GET", path: path, key: "audit"}).status(t, 200)
	}
	w.do(call{method: "GET", path: "/metrics", key: "operator"}).status(t, 200)
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml"} {
		w.do(call{method: "GET", path: path}).status(t, 200)
	}
}

// sinks makes one of each kind, changes one, and has a delivery that failed tried again.
func (w *world) sinks() {
	t := w.t
	for _, body := range []string{
		`{"name":"k","kind":"kafka","brokers":["broker.example:9092"],"topic":"rows","start":1}`,
		`{"name":"n","kind":"nats","servers":["nats://n.example:4222"],"subject":"rows","rows":["event"],"batch":5}`,
	} {
		w.do(call{method: "POST", path: "/v1/sinks", key: "admin", body: body}).status(t, 201)
	}
	a := w.do(call{method: "POST", path: "/v1/sinks", key: "admin", body: `{"name":"w","kind":"webhook",` +
		`"url":"https://r.example/hook","types":["usage.*"],"start":"beginning"}`}).status(t, 201)
	id := a.text("id")
	if !strings.HasPrefix(a.text("secret"), "whsec_") || bytes.Contains(w.get("/v1/sinks/"+id).body, []byte("whsec")) {
		t.Errorf("the secret is shown once, when it is made: %s", a.body)
	}
	w.get("/v1/sinks?limit=1").status(t, 200)
	w.get("/v1/sinks/"+id).status(t, 200)
	w.do(call{method: "PATCH", path: "/v1/sinks/" + id, key: "admin", body: `{"state":"paused"}`}).status(t, 200)
	b := w.do(call{method: "POST", path: "/v1/sinks/" + id + "/rotate-secret", key: "admin"}).status(t, 200)
	if b.text("secret") == a.text("secret") {
		t.Error("rotating gives the same secret")
	}
	r := w.do(call{method: "POST", path: "/v1/sinks/" + id + "/replay", key: "admin",
		body: `{"from_seq":1,"to_seq":2}`}).status(t, 201)
	w.get("/v1/sinks/"+id+"/failures?limit=1").status(t, 200)
	again := call{method: "POST", path: "/v1/sinks/" + id + "/failures/" + r.text("id") + "/replay", key: "admin"}
	w.do(again).refused(t, 409, "conflict")
	w.failed(id, r.text("id"))
	w.do(again).status(t, 200)
	w.do(call{method: "DELETE", path: "/v1/sinks/" + id, key: "admin"}).status(t, 204)
	w.get("/v1/sinks/"+id).refused(t, 404, "not_found")
}

// failed has an item given up.
func (w *world) failed(sinkID, id string) {
	w.t.Helper()
	err := w.store.Update(context.Background(), "acme", func(tx store.Tx) error {
		item, err := store.Get(tx, &sink.ItemKind, id)
		if err != nil {
			return err
		}
		item.State = sink.Failed
		_, err = tx.Append(ledger.Change{Event: audit.Of("sink", "delivery_failed", sinkID),
			State: sink.ItemKind.State(&item)})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// creations are the routes by which a tenant makes something, with the document's example of a body.
func creations(t *testing.T, doc *openapi3.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, rt := range (*Server)(nil).routes() {
		if rt.method != "POST" || rt.who != ofTenant || strings.Contains(rt.pattern, "{") || rt.pattern == eventsPath {
			continue
		}
		body := doc.Paths.Value(rt.pattern).Post.RequestBody.Value.Content.Get(httpkit.MediaJSON)
		example, err := json.Marshal(body.Schema.Value.Example)
		if err != nil || body.Schema.Value.Example == nil {
			t.Errorf("the body of POST %s has no example: %v", rt.pattern, err)
		}
		out[rt.pattern] = string(example)
	}
	return out
}

// driveExamples makes what the story does not know of, as the document's example has it, and reads it.
func (w *world) driveExamples(ct *contract) {
	for path, body := range creations(w.t, ct.doc) {
		if ct.seen["POST "+path+" 201"] {
			continue
		}
		a := w.do(call{method: "POST", path: path, key: "admin", body: body}).status(w.t, 201)
		for _, read := range []string{path, a.header.Get("Location")} {
			w.do(call{method: "GET", path: read, key: "admin"}).status(w.t, 200)
		}
	}
}

// driveStreams has answers that are streamed, and a second one of each that only one caller at a time may have.
func (w *world) driveStreams() {
	replay := call{method: "POST", path: "/v1/periods/2026-11/replay", key: "billing",
		body: `{"meter":"calls","aggregation":"max"}`}
	verification := call{method: "GET", path: "/v1/verification", key: "operator"}
	for _, c := range []call{
		verification, verification.with("Tally-Tenant", "acme"), replay,
		{method: "GET", path: "/v1/ledgers?meter=calls", key: "operator"},
		{method: "GET", path: "/v1/ledgers/acme/rows?rows=events&after_seq=2&until_seq=9&meter=calls&customer=c1" +
			"&from=2026-11-01T00:00:00Z&to=2027-01-01T00:00:00Z", key: "admin"},
	} {
		if a := w.do(c).status(w.t, 200); a.header.Get("Content-Type") != httpkit.MediaNDJSON ||
			!bytes.Contains(a.body, []byte(`{"result":`)) {
			w.t.Errorf("%s %s: %s", c.method, c.path, a.body)
		}
	}
	for name, c := range map[string]call{"verification ": verification, "replay acme": replay} {
		release := w.hold(name)
		w.do(c).refused(w.t, 409, "conflict")
		release()
	}
	w.get("/v1/stream?from_seq=1&rows=event,entry&meter=calls&customer=c1").status(w.t, 200)
	w.do(call{method: "GET", path: "/v1/stream", key: "shut"}).refused(w.t, 409, "tenant_closed")
}

// example is a request of the route that would be let in.
func (w *world) example(rt route) call {
	path := rt.pattern
	for _, v := range [][2]string{{"/tenants/{id}", "/tenants/acme"}, {"/ledgers/{id}", "/ledgers/acme"},
		{"{id}", "nobody"}, {"{slug}", "calls"}, {"{period}", "2026-11"}, {"{name}", "nothing"},
		{"{failure}", "none"}} {
		path = strings.Replace(path, v[0], v[1], 1)
	}
	c := call{method: rt.method, path: path}
	switch rt.who {
	case ofOperator, ofNamed, ofAll:
		c.key = "operator"
	case ofTenant:
		c.key = "admin"
	}
	return c
}

// driveRefusals asks a route for everything that can be refused without a history.
func (w *world) driveRefusals(rt route) {
	t := w.t
	ok := w.example(rt)
	writes := rt.method != "GET"
	if rt.who != anyone {
		none := ok
		none.key = ""
		w.do(none).refused(t, 401, "unauthorized")
		lacking := "audit"
		if rt.need == tenant.Audit {
			lacking = "read"
		}
		w.do(ok.with("Authorization", "Bearer "+w.keys[lacking])).refused(t, 403, "forbidden")
		lost := ok
		lost.key = "operator"
		w.do(lost.with("Tally-Tenant", "nobody")).refused(t, 404, "not_found")
		if rt.pattern != "/metrics" {
			bad := ok
			bad.path += "?nope=1"
			w.do(bad).refused(t, 400, "malformed")
		}
	}
	if !writes && !slices.Contains(forMachines, rt.pattern) {
		w.do(ok.with("Accept", "image/png")).refused(t, 406, "not_acceptable")
	}
	if writes {
		w.driveBodies(ok)
	}
	if writes && rt.who == ofTenant && rt.method != "DELETE" { // a closed tenant's keys can be revoked
		closed := w.closedExample(rt, ok)
		closed.key = "shut"
		w.do(closed).refused(t, 409, "tenant_closed")
	}
	if rt.method == "PATCH" && rt.who == ofNamed {
		w.do(call{method: "PATCH", path: "/v1/tenants/shut", key: "operator",
			body: `{"name":"x"}`}).refused(t, 409, "tenant_closed")
	}
	if rt.who == anyone && rt.pattern != "/readyz" {
		return
	}
	w.failing(ok, rt)
}

func (w *world) driveBodies(ok call) {
	t := w.t
	big := ok
	big.body = strings.Repeat(" ", httpkit.MaxBody+1)
	w.do(big).refused(t, 413, "too_large")
	form := ok.with("Content-Type", "text/csv")
	form.body = "a=b"
	w.do(form).refused(t, 415, "unsupported_media_type")
	unknown := ok
	unknown.body = `{"nope":1}`
	w.do(unknown).refused(t, 422, "invalid")
}

// closedExample has a body that is valid, so that only the tenant's state is in the way.
func (w *world) closedExample(rt route, c call) call {
	switch rt.pattern {
	case "/v1/api-keys":
		c.body = `{"scopes":["read"]}`
	case "/v1/meters":
		c.body = `{"slug":"x","aggregation":"sum"}`
	case "/v1/meters/{slug}":
		c.body = `{"name":"x"}`
	case "/v1/sinks/{id}":
		c.body = `{"name":"x"}`
	case "/v1/sinks/{id}/replay":
		c.body = `{"from_seq":1}`
	case "/v1/events":
		c.body = `{"id":"x","meter":"calls","customer":"c"}`
	case "/v1/plans/{name}":
		c.body = `{}`
	case "/v1/tenant-plan", "/v1/customers/{id}/plan":
		c.body = `{"plan":null}`
	case "/v1/periods/{period}/replay":
		c.body = `{"apply":true,"reason":"r"}`
	case "/v1/adjustments":
		c.body = `{"meter":"calls","customer":"c","period":"2026-11","amount":"1","reason":"r"}`
	default:
		if example, known := creations(w.t, newContract(w.t).doc)[rt.pattern]; known {
			c.body = example
		}
	}
	return c
}

// rowReads are the routes that may need rows that have left the ledger.
var rowReads = map[string]bool{
	"GET /v1/events": true, "GET /v1/events/{id}": true, "GET /v1/counters": true, "GET /v1/usage": true,
	"GET /v1/periods": true, "GET /v1/periods/{period}": true, "GET /v1/ledgers/{id}/rows": true,
	"GET /v1/stream": true,
}

// failing drives the two ways in which the server itself is at fault.
func (w *world) failing(c call, rt route) {
	t := w.t
	if rt.pattern == "/metrics" {
		c = c.with("Tally-Tenant", "acme") // or the store is never asked
	}
	if rt.who == ofNamed || rt.who == ofOperator || rt.who == ofAll {
		c = c.with("Tally-Tenant", "acme")
	}
	w.store.set(func(s *troubled) { s.err = problem.New(problem.Unavailable, "disk full") })
	w.do(c).refused(t, 503, "unavailable")
	if rowReads[rt.method+" "+rt.pattern] {
		archived := problem.New(problem.Archived, "the usage rows of 2025-01 are archived")
		w.store.set(func(s *troubled) { s.err = archived })
		w.do(c).refused(t, 410, "archived")
	}
	w.store.set(func(s *troubled) { s.err, s.cause = nil, "boom" })
	if a := w.do(c).refused(t, 500, "internal"); bytes.Contains(a.body, []byte("boom")) ||
		bytes.Contains(a.body, []byte(".go")) {
		t.Errorf("the answer shows the panic: %s", a.body)
	}
	w.store.set(func(s *troubled) { s.cause = nil })
}

// driveQuota has acme run into a plan.
func (w *world) driveQuota() {
	w.do(call{method: "PUT", path: "/v1/plans/nothing", key: "billing",
		body: `{"quotas":[{"meter":"calls","limit":0}]}`}).status(w.t, 200)
	w.do(call{method: "PUT", path: "/v1/tenant-plan", key: "billing", body: `{"plan":"nothing"}`}).status(w.t, 200)
	w.send(`{"id":"q","meter":"calls","customer":"c1"}`).refused(w.t, http.StatusTooManyRequests, "quota_exceeded")
	w.send(`[{"id":"q","meter":"calls","customer":"c1"}]`).status(w.t, 200)
}

// driveLimits has a key that is spent meet every route that can be too much for it, and every write of the operator too
// many keys.
func (w *world) driveLimits() {
	c := call{method: "POST", path: "/v1/api-keys", key: "operator",
		body: `{"scopes":["admin"],"rate_limit":{"requests_per_second":1}}`}
	spent := w.do(c.with("Tally-Tenant", "acme")).status(w.t, 201).text("api_key")
	w.do(call{method: "GET", path: "/v1/meters", key: spent}).status(w.t, 200)
	w.tooMany.Store(true)
	for _, rt := range (*Server)(nil).routes() {
		c := w.example(rt)
		switch {
		case rt.who == ofTenant || rt.who == ofNamed || rt.who == ofAll:
			c.key = spent
		case rt.who == ofOperator && rt.method == "POST":
			c = c.with("Idempotency-Key", "one-too-many")
			c.body = `{"id":"late"}`
		default:
			continue
		}
		if a := w.do(c).refused(w.t, http.StatusTooManyRequests, "rate_limited"); a.header.Get("Retry-After") == "" ||
			a.header.Get("Tally-Ratelimit") != "1" {
			w.t.Errorf("%s %s: %v", c.method, c.path, a.header)
		}
	}
	w.tooMany.Store(false)
}
