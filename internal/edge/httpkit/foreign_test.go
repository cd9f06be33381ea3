package httpkit_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/idempotency"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
)

// foreign is an edge as a peer's API is one: a prefix, a shape of errors, a body and names of its own, on the services
// that everybody uses.
type foreign struct{ registry *registry.Service }

const (
	foreignMeters = "/foreign/v2/projects/{project}/meters"
	foreignMeter  = foreignMeters + "/{slug}"
	maxForeign    = 64
)

func (f *foreign) edge() httpkit.Edge {
	return httpkit.Edge{
		Prefix:   "/foreign",
		Problems: &httpkit.Shape{Media: "application/json", Append: appendError},
		Routes: []httpkit.Route{
			{
				Method: "POST", Pattern: foreignMeter, Who: gate.OfTenant, Need: tenant.Admin, Handle: f.post,
				Bodies: []string{httpkit.MediaForm}, MaxBody: maxForeign,
			},
			{Method: "GET", Pattern: foreignMeter, Who: gate.OfTenant, Need: tenant.Read, Handle: f.get},
			{Method: "GET", Pattern: foreignMeters, Who: gate.OfTenant, Need: tenant.Read, Handle: f.list},
			{Method: "POST", Pattern: "/foreign/hooks/{provider}/{tenant}", Who: gate.Anyone, Facts: true,
				Handle: hook},
			{Method: "GET", Pattern: "/foreign/files/{path...}", Who: gate.Anyone, AnyMedia: true, Handle: file},
			{Method: "GET", Pattern: "/foreign/panic", Who: gate.Anyone,
				Handle: func(*httpkit.Exchange) error { panic("oh") }},
		},
	}
}

// appendError writes errors as this peer's clients read them, who know no 422.
func appendError(b []byte, r *httpkit.Refusal) []byte {
	if r.Status == http.StatusUnprocessableEntity {
		r.Status = http.StatusBadRequest
	}
	b = render.String(append(b, `{"error":{`...), "type", string(r.Code))
	b = render.String(b, "message", r.Detail)
	if len(r.Fields) > 0 {
		b = render.String(b, "param", r.Fields[0].Path)
	}
	return append(render.String(b, "request", r.RequestID), '}', '}')
}

func (f *foreign) post(x *httpkit.Exchange) error {
	body, err := x.Body()
	if err != nil {
		return err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return problem.Wrap(problem.Malformed, err, "the body is no form")
	}
	a, p := meter.ParseAggregation(form.Get("aggregation"))
	if p != nil {
		return p
	}
	m := meter.Meter{Slug: x.Path("slug"), Name: x.Path("project"), Aggregation: a}
	kept, err := f.registry.CreateMeter(x.Context(), x.Caller.Actor(), x.Caller.Tenant, m)
	if err != nil {
		return err
	}
	return x.Created(x.Request().URL.EscapedPath(), appendMeter(nil, &kept))
}

func (f *foreign) get(x *httpkit.Exchange) error {
	if err := x.NoQuery(); err != nil {
		return err
	}
	m, err := f.registry.Meter(x.Context(), x.Caller.Tenant, x.Path("slug"))
	if err == nil && m.Name != x.Path("project") {
		err = problem.New(problem.NotFound, "no such meter in this project")
	}
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, appendMeter(nil, &m))
}

func (f *foreign) list(x *httpkit.Exchange) error {
	q, limit, after, err := x.Page()
	if err != nil {
		return err
	}
	meters, err := f.registry.Meters(x.Context(), x.Caller.Tenant, after, limit+1)
	if err != nil {
		return err
	}
	return httpkit.ListByName(x, q, limit, meters, func(m *store.Meter) string { return m.Slug }, appendMeter)
}

func appendMeter(b []byte, m *store.Meter) []byte {
	b = render.String(append(b, '{'), "slug", m.Slug)
	return append(render.String(b, "project", m.Name), '}')
}

func hook(x *httpkit.Exchange) error {
	body, err := x.ReadBody(maxForeign)
	if err != nil {
		return err
	}
	b := render.String([]byte{'{'}, "provider", x.Path("provider"))
	b = render.String(b, "tenant", x.Path("tenant"))
	return x.Answer(http.StatusOK, append(render.Int(b, "bytes", int64(len(body))), '}'))
}

func file(x *httpkit.Exchange) error {
	x.Delegate(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "file <"+x.Path("path")+">")
	}))
	return nil
}

// house is a server with the foreign edge beside one that has no prefix and the usual shape.
type house struct {
	t       *testing.T
	server  *httptest.Server
	handler *httpkit.Handler
	keys    map[string]string
	seen    []string // what was observed
}

const budget = 1 << 20

func newHouse(t *testing.T) *house {
	t.Helper()
	const rootKey = "the operator's own key"
	st := naive.New(naive.Options{Now: time.Now})
	requests, joined := idempotency.New(idempotency.Options{Store: st})
	r := registry.New(joined, rand.NewChaCha8([32]byte{1}))
	if err := r.FoundOperator(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &house{t: t, keys: map[string]string{}}
	var err error
	if _, w.keys["admin"], err = r.CreateTenant(t.Context(), "test", tenant.Tenant{ID: "acme"}); err != nil {
		t.Fatal(err)
	}
	if _, w.keys["read"], err = r.CreateKey(t.Context(), "test", "acme",
		tenant.APIKey{Scopes: tenant.Read}); err != nil {
		t.Fatal(err)
	}
	plain := httpkit.Edge{Routes: []httpkit.Route{{Method: "GET", Pattern: "/foreign-looking", Handle: file}}}
	w.handler = httpkit.New(httpkit.Options{
		Gate: gate.New(st, gate.Options{RootKey: rootKey, Now: time.Now}), Requests: requests, BodyBudget: budget,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		Observe: func(method, pattern string, status int, _ time.Duration) {
			w.seen = append(w.seen, fmt.Sprintf("%s %s %d", method, pattern, status))
		},
	}, (&foreign{r}).edge(), plain)
	w.server = httptest.NewServer(w.handler)
	t.Cleanup(w.server.Close)
	return w
}

// ask sends a request on the listener: "method path", a key's name, a body and headers in pairs.
func (w *house) ask(line, key, body string, headers ...string) (int, http.Header, string) {
	w.t.Helper()
	method, path, _ := strings.Cut(line, " ")
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+w.keys[key])
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err := w.server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if a.Header.Get("Tally-Request-Id") == "" {
		w.t.Errorf("%s has no request id", line)
	}
	return a.StatusCode, a.Header, string(text)
}

// refused asks and wants an error in the foreign shape.
func (w *house) refused(status int, code, line, key, body string, headers ...string) (http.Header, string) {
	w.t.Helper()
	got, h, text := w.ask(line, key, body, headers...)
	begin := `{"error":{"type":"` + code + `","message":"`
	end := `"request":"` + h.Get("Tally-Request-Id") + "\"}}\n"
	if got != status || h.Get("Content-Type") != "application/json" || !strings.HasPrefix(text, begin) ||
		!strings.HasSuffix(text, end) {
		w.t.Errorf("%s: %d %s, want %d %s", line, got, text, status, code)
	}
	return h, text
}

const form = "application/x-www-form-urlencoded"

// Given an edge of another shape, when what all edges share refuses something, then it is in the edge's shape, with the
// headers that go with the problem.
func TestForeignEdgeRefusesInItsOwnShape(t *testing.T) {
	w := newHouse(t)
	const one = "POST /foreign/v2/projects/p/meters/calls"
	h, _ := w.refused(401, "unauthorized", one, "", "aggregation=sum", "Content-Type", form)
	if h.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("401 without WWW-Authenticate: %v", h)
	}
	w.refused(403, "forbidden", one, "read", "aggregation=sum", "Content-Type", form)
	w.refused(404, "not_found", "GET /foreign/v2/nothing", "", "")
	w.refused(404, "not_found", "GET /foreign", "", "")
	h, _ = w.refused(405, "method_not_allowed", "DELETE /foreign/v2/projects/p/meters/calls", "admin", "")
	if h.Get("Allow") != "POST, GET, HEAD" {
		t.Errorf("allowed: %q", h.Get("Allow"))
	}
	w.refused(413, "too_large", one, "admin", "aggregation="+strings.Repeat("m", maxForeign), "Content-Type", form)
	w.refused(415, "unsupported_media_type", one, "admin", "{}", "Content-Type", "application/json")
	w.refused(400, "malformed", one+"?x=1", "admin", "aggregation=sum", "Content-Type", form)
	w.refused(400, "malformed", one, "admin", "aggregation=sum", "Content-Type", form, "Idempotency-Key", "a b")
	w.refused(400, "invalid", one, "admin", "aggregation=most", "Content-Type", form) // the table says 422
	w.refused(500, "internal", "GET /foreign/panic", "", "")
	for _, path := range []string{"/", "/foreign-looking/x", "/foreigner"} {
		if status, h, text := w.ask("GET "+path, "", ""); status != 404 ||
			h.Get("Content-Type") != "application/problem+json" || !strings.Contains(text, `"code":"not_found"`) {
			t.Errorf("GET %s: %d %s", path, status, text)
		}
	}
	if free := w.handler.BodyBytesFree(); free != budget {
		t.Errorf("%d bytes of the budget were not given back", budget-free)
	}
	w.server.Close()
	if last := "GET /foreign/panic 500"; !slices.Contains(w.seen, last) || !slices.Contains(w.seen, "  404") {
		t.Errorf("observed: %q", w.seen)
	}
}

// Given a POST under an Idempotency-Key, when it is sent again, then its effect is not repeated and its answer is.
func TestForeignEdgeHandlesRequestKeys(t *testing.T) {
	w := newHouse(t)
	const line = "POST /foreign/v2/projects/p%2Fq/meters/calls"
	send := func(body, key string) (int, http.Header, string) {
		return w.ask(line, "admin", body, "Content-Type", form, "Idempotency-Key", key)
	}
	status, h, first := send("aggregation=sum", "k1")
	if status != 201 || h.Get("Idempotent-Replayed") != "" || first != `{"slug":"calls","project":"p/q"}`+"\n" ||
		h.Get("Location") != "/foreign/v2/projects/p%2Fq/meters/calls" {
		t.Fatalf("first: %d %v %s", status, h, first)
	}
	status, h, again := send("aggregation=sum", "k1")
	if status != 201 || h.Get("Idempotent-Replayed") != "true" || again != first || h.Get("Location") == "" {
		t.Errorf("again: %d %v %s", status, h, again)
	}
	w.refused(400, "idempotency_key_reused", line, "admin", "aggregation=max", "Content-Type", form,
		"Idempotency-Key", "k1")
	// A refusal by the effect is kept as well, in the edge's shape, which names the first request.
	status, _, refusal := send("aggregation=sum", "k2")
	if status != 409 || !strings.HasPrefix(refusal, `{"error":{"type":"already_exists"`) {
		t.Errorf("exists: %d %s", status, refusal)
	}
	status, h, again = send("aggregation=sum", "k2")
	if status != 409 || h.Get("Idempotent-Replayed") != "true" || again != refusal ||
		h.Get("Content-Type") != "application/json" {
		t.Errorf("exists, again: %d %v %s", status, h, again)
	}
	if _, _, list := w.ask("GET /foreign/v2/projects/x/meters", "read", ""); strings.Count(list, "slug") != 1 {
		t.Errorf("meters: %s", list)
	}
	status, _, text := w.ask("GET /foreign/v2/projects/p%2Fq/meters/calls", "read", "")
	if status != 200 || text != strings.TrimSpace(first) {
		t.Errorf("read: %d %s", status, text)
	}
	w.refused(404, "not_found", "GET /foreign/v2/projects/p/meters/calls", "read", "")
}

// Given a list, then it comes in pages, and a parameter that is wrong is named.
func TestForeignEdgeLists(t *testing.T) {
	w := newHouse(t)
	var want []string
	for i := range 5 {
		slug := fmt.Sprintf("m%d", i)
		want = append(want, slug)
		line := "POST /foreign/v2/projects/p/meters/" + slug
		if status, _, text := w.ask(line, "admin", "aggregation=sum", "Content-Type", form); status != 201 {
			t.Fatalf("%d %s", status, text)
		}
	}
	var got []string
	path := "/foreign/v2/projects/p/meters?limit=2"
	for cursor := ""; ; {
		status, _, text := w.ask("GET "+path+cursor, "read", "")
		if status != 200 || len(got) > len(want) {
			t.Fatalf("%d %s", status, text)
		}
		for _, part := range strings.Split(text, `{"slug":"`)[1:] {
			slug, _, _ := strings.Cut(part, `"`)
			got = append(got, slug)
		}
		_, next, _ := strings.Cut(text, `"next_cursor":`)
		if strings.HasPrefix(next, "null") {
			break
		}
		cursor = "&cursor=" + strings.Trim(next, "\"}\n")
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	for query, param := range map[string]string{"?limit=0": "limit", "?color=red": "color", "?cursor=x": "cursor"} {
		_, text := w.refused(400, "malformed", "GET /foreign/v2/projects/p/meters"+query, "read", "")
		if !strings.Contains(text, `"param":"`+param+`"`) {
			t.Errorf("%s: %s", query, text)
		}
	}
	w.refused(406, "not_acceptable", "GET /foreign/v2/projects/p/meters", "read", "", "Accept", "text/csv")
}

// Given routes for anyone, then what is left of a path is one variable, two variables are two, and a body is bounded
// although it counts against nobody's rate.
func TestForeignEdgeForAnyone(t *testing.T) {
	w := newHouse(t)
	for path, want := range map[string]string{
		"/foreign/files/":          "file <>",
		"/foreign/files/a/b%20c.x": "file <a/b c.x>",
		"/foreign/files/a//b/../c": "file <a//b/../c>",
	} {
		if status, _, text := w.ask("GET "+path, "", "", "Accept", "image/png"); status != 200 || text != want {
			t.Errorf("%s: %d %q, want %q", path, status, text, want)
		}
	}
	w.refused(404, "not_found", "GET /foreign/files", "", "")
	w.refused(404, "not_found", "GET /foreign/files/%ff", "", "")
	status, _, text := w.ask("POST /foreign/hooks/stripe/acme", "", "12345")
	if status != 200 || text != `{"provider":"stripe","tenant":"acme","bytes":5}` {
		t.Errorf("hook: %d %s", status, text)
	}
	w.refused(413, "too_large", "POST /foreign/hooks/stripe/acme", "", strings.Repeat("x", maxForeign+1))
	w.refused(404, "not_found", "POST /foreign/hooks/stripe/", "", "x")
}
