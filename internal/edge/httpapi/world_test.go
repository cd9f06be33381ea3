package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/service/billing"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/idempotency"
	"github.com/tallystick/tallystick/internal/service/plans"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/service/secrets"
	"github.com/tallystick/tallystick/internal/service/sinks"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/service/windows"
	"github.com/tallystick/tallystick/internal/store"
)

const rootKey = "the operator's own key"

var now = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// troubled is a store that can be made to fail.
type troubled struct {
	store.Store
	mu      sync.Mutex // guards all below
	err     error
	cause   any // panicked with
	inside  any // panicked with by the function of an update
	verdict func(*usage.Verdict)
}

func (s *troubled) set(change func(*troubled)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *troubled) trouble() (func(*usage.Verdict), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		panic(s.cause)
	}
	return s.verdict, s.err
}

func (s *troubled) Record(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	change, err := s.trouble()
	if err != nil {
		return nil, err
	}
	verdicts, err := s.Store.Record(ctx, b)
	for i := range verdicts {
		if change != nil {
			change(&verdicts[i])
		}
	}
	return verdicts, err
}

func (s *troubled) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	if _, err := s.trouble(); err != nil {
		return err
	}
	s.mu.Lock()
	inside := s.inside
	s.mu.Unlock()
	if inside == nil {
		return s.Store.Update(ctx, id, fn)
	}
	return s.Store.Update(ctx, id, func(tx store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		panic(inside)
	})
}

func (s *troubled) View(ctx context.Context, id string, fn func(store.View) error) error {
	if _, err := s.trouble(); err != nil {
		return err
	}
	return s.Store.View(ctx, id, fn)
}

func (s *troubled) Access(ctx context.Context, tenantID, keyID string) (store.Access, error) {
	if _, err := s.trouble(); err != nil {
		return store.Access{}, err
	}
	return s.Store.Access(ctx, tenantID, keyID)
}

func (s *troubled) Tenants(ctx context.Context, after string, limit int) ([]store.Listed, error) {
	if _, err := s.trouble(); err != nil {
		return nil, err
	}
	return s.Store.Tenants(ctx, after, limit)
}

func (s *troubled) Ready(ctx context.Context) error {
	if _, err := s.trouble(); err != nil {
		return err
	}
	return s.Store.Ready(ctx)
}

// world is a server on loopback with the tenant acme, and keys of every kind.
type world struct {
	t      *testing.T
	api    *Server
	store  *troubled
	server *httptest.Server
	clock  atomic.Int64 // nanoseconds
	keys   map[string]string
	check  func(c call, a answer) // every exchange passes here; nil: none
	before func(c call) call      // every request passes here; nil: none
	holder *holder                // an edge beside the product's own

	tooMany atomic.Bool // no request key is admitted any more
}

func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	return newLimitedWorld(t, gate.Options{}, change...)
}

// newLimitedWorld is one whose gate has these limits; the operator is not limited.
func newLimitedWorld(t *testing.T, limits gate.Options, change ...func(*Options)) *world {
	t.Helper()
	return newWorldOn(t, openNaive, limits, change...)
}

// newWorldOn is one on a store of the test's choice.
func newWorldOn(t *testing.T, open opener, limits gate.Options, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, keys: map[string]string{"operator": rootKey}, holder: newHolder()}
	w.clock.Store(now.UnixNano())
	clock := func() time.Time { return time.Unix(0, w.clock.Load()) }
	limits.RootKey, limits.Now = rootKey, clock
	w.store = &troubled{Store: open(t, clock)}
	requests, joined := idempotency.New(idempotency.Options{Store: w.store,
		Admit: func(string) (time.Duration, bool) { return time.Second, !w.tooMany.Load() }})
	o := Options{
		Store:    w.store,
		Requests: requests,
		Gate:     gate.New(w.store, limits),
		Registry: registry.New(joined, &lockedRandom{from: rand.NewChaCha8([32]byte{1})}),
		Billing:  billing.New(joined),
		Plans:    plans.New(joined),
		Windows:  windows.New(w.store),
		Sinks: sinks.New(joined, sinks.Options{Vault: openVault{}, Overlap: secrets.Overlap,
			Check:  func(context.Context, *sink.Sink) error { return nil },
			Random: &lockedRandom{from: rand.NewChaCha8([32]byte{2})}}),
		Verify: func(ctx context.Context, _ string,
			progress func(stage string, done, total uint64)) (verify.Report, error) {
			return verify.Run(ctx, w.store,
				verify.Options{Progress: func(done, total uint64) { progress("recounting", done, total) }})
		},
		Metrics: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(rw, "tallystick_up 1\n")
		}),
		Version: "1.2.3",
		Streams: StreamOptions{Heartbeat: time.Millisecond}, // see readAnswer
		Edges:   []httpkit.Edge{w.holder.edge()},
	}
	for _, c := range change {
		c(&o)
	}
	w.api = New(o)
	w.server = httptest.NewUnstartedServer(nil)
	w.server.Config = w.api.HTTPServer("")
	w.server.Listener = w.api.Listen(w.server.Listener)
	w.server.Start()
	t.Cleanup(w.server.Close)
	if transport, ok := w.server.Client().Transport.(*http.Transport); ok {
		transport.ExpectContinueTimeout = time.Minute
	}
	if err := o.Registry.FoundOperator(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.addTenant("acme")
	for _, scope := range []string{"ingest", "read", "audit", "billing"} {
		w.keys[scope] = w.makeKey("acme", scope)
	}
	return w
}

// openVault hides nothing.
type openVault struct{}

func (openVault) Seal(plain []byte, _ secrets.Owner) ([]byte, error)  { return plain, nil }
func (openVault) Open(sealed []byte, _ secrets.Owner) ([]byte, error) { return sealed, nil }

// lockedRandom makes keys that are the same in every run.
type lockedRandom struct {
	mu   sync.Mutex
	from io.Reader
}

func (r *lockedRandom) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from.Read(b)
}

// addTenant makes a tenant; its admin key is named after it, and acme's is also "admin".
func (w *world) addTenant(id string) {
	w.t.Helper()
	a := w.do(call{method: "POST", path: "/v1/tenants", key: "operator", body: `{"id":"` + id + `"}`})
	a.status(w.t, 201)
	w.keys[id] = a.text("api_key")
	if id == "acme" {
		w.keys["admin"] = w.keys[id]
	}
}

func (w *world) makeKey(tenantID, scope string) string {
	w.t.Helper()
	// The operator is not limited, whatever the world is.
	c := call{method: "POST", path: "/v1/api-keys", key: "operator", body: `{"name":"` + scope + `","scopes":["` +
		scope + `"]}`}
	return w.do(c.with("Tally-Tenant", tenantID)).status(w.t, 201).text("api_key")
}

// call is one request. The key is a name in world.keys, or a token.
type call struct {
	method, path string
	key          string
	header       map[string]string
	body         string
	chunked      bool
}

func (c call) with(name, value string) call {
	h := map[string]string{}
	maps.Copy(h, c.header)
	h[http.CanonicalHeaderKey(name)] = value // two spellings of one name would leave it to chance which is sent
	c.header = h
	return c
}

type answer struct {
	code   int
	header http.Header
	body   []byte
	doc    map[string]any
}

func (w *world) request(c call) *http.Request {
	w.t.Helper()
	var body io.Reader = strings.NewReader(c.body)
	if c.chunked {
		body = struct{ io.Reader }{body} // hides the length
	}
	r, err := http.NewRequest(c.method, w.server.URL+c.path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if c.key != "" {
		token := c.key
		if known, ok := w.keys[c.key]; ok {
			token = known
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for n, v := range c.header {
		r.Header.Set(n, v)
	}
	if len(c.body) > httpkit.DefaultMaxBody && !c.chunked {
		// A body that is refused unread must not be under way, or the connection's end could overtake the answer.
		r.Header.Set("Expect", "100-continue")
	}
	return r
}

func (w *world) do(c call) answer {
	w.t.Helper()
	if w.before != nil {
		c = w.before(c)
	}
	if c.method == http.MethodPost && c.path == eventsPath {
		w.server.Client().CloseIdleConnections() // a new connection starts in a lane
	}
	resp, err := w.server.Client().Do(w.request(c))
	if err != nil {
		w.t.Fatalf("%s %s: %v", c.method, c.path, err)
	}
	defer resp.Body.Close()
	body, err := readAnswer(resp)
	if err != nil {
		w.t.Fatal(err)
	}
	a := answer{code: resp.StatusCode, header: resp.Header, body: body}
	if strings.HasSuffix(resp.Header.Get("Content-Type"), "json") && len(body) > 0 {
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		if err := d.Decode(&a.doc); err != nil {
			w.t.Fatalf("%s %s: the answer is not JSON: %v\n%s", c.method, c.path, err, body)
		}
	}
	w.always(c, a)
	if w.check != nil {
		w.check(c, a)
	}
	return a
}

// readAnswer reads a whole answer. Of one without an end it is all up to the first heartbeat, which comes when there is
// nothing more to say.
func readAnswer(resp *http.Response) ([]byte, error) {
	if resp.Header.Get("Content-Type") != httpkit.MediaEvents {
		return io.ReadAll(resp.Body)
	}
	var body []byte
	for in := bufio.NewReader(resp.Body); ; {
		line, err := in.ReadBytes('\n')
		if body = append(body, line...); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return body, err
		}
		if bytes.HasPrefix(line, []byte(": heartbeat")) {
			return body, nil
		}
	}
}

// always is what holds for every answer.
func (w *world) always(c call, a answer) {
	w.t.Helper()
	id := a.header.Get("Tally-Request-Id")
	if id == "" {
		w.t.Errorf("%s %s: no request id", c.method, c.path)
	}
	if a.code < 400 || c.method == http.MethodHead {
		return
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		w.t.Errorf("%s %s: %d is %s", c.method, c.path, a.code, got)
		return
	}
	status, _ := a.doc["status"].(json.Number)
	first := a.header.Get("Idempotent-Replayed") == "" // else the body is that of the first answer
	if status.String() != strconv.Itoa(a.code) || first && a.text("request_id") != id || a.text("type") != "/problems/"+
		a.text("code") {
		w.t.Errorf("%s %s: %d with %s", c.method, c.path, a.code, a.body)
	}
	if a.code == 401 && a.header.Get("WWW-Authenticate") != "Bearer" {
		w.t.Errorf("%s %s: 401 without WWW-Authenticate", c.method, c.path)
	}
	if a.code == 503 && a.header.Get("Retry-After") == "" {
		w.t.Errorf("%s %s: 503 without Retry-After", c.method, c.path)
	}
}

func (a answer) status(t *testing.T, want int) answer {
	t.Helper()
	if a.code != want {
		t.Fatalf("status %d, want %d: %s", a.code, want, a.body)
	}
	return a
}

// refused checks status and code.
func (a answer) refused(t *testing.T, status int, code string) answer {
	t.Helper()
	if a.code != status || a.text("code") != code {
		t.Fatalf("got %d %s, want %d %s: %s", a.code, a.text("code"), status, code, a.body)
	}
	return a
}

// text returns a string field of the answer.
func (a answer) text(name string) string {
	s, _ := a.doc[name].(string)
	return s
}

// part returns a field as compact JSON, for comparing.
func (a answer) part(name string) string {
	b, _ := json.Marshal(a.doc[name])
	return string(b)
}

func (a answer) items(t *testing.T) []map[string]any {
	t.Helper()
	list, ok := a.doc["items"].([]any)
	if !ok {
		t.Fatalf("no items: %s", a.body)
	}
	out := make([]map[string]any, len(list))
	for i := range list {
		out[i], _ = list[i].(map[string]any)
	}
	return out
}

// pages walks a list and returns the named field of every item.
func (w *world) pages(key, path, field string) []string {
	w.t.Helper()
	var out []string
	for cursor := ""; ; {
		at := path
		if cursor != "" {
			separator := "?"
			if strings.Contains(path, "?") {
				separator = "&"
			}
			at += separator + "cursor=" + url.QueryEscape(cursor)
		}
		a := w.do(call{method: "GET", path: at, key: key}).status(w.t, 200)
		for _, item := range a.items(w.t) {
			s, _ := item[field].(string)
			out = append(out, s)
		}
		if cursor = a.text("next_cursor"); cursor == "" {
			return out
		}
	}
}

// meter makes one of acme's meters.
func (w *world) meter(body string) {
	w.t.Helper()
	w.do(call{method: "POST", path: "/v1/meters", key: "admin", body: body}).status(w.t, 201)
}

// send posts events as acme.
func (w *world) send(body string) answer {
	w.t.Helper()
	return w.do(call{method: "POST", path: "/v1/events", key: "ingest", body: body})
}

// correct posts events, corrections among them, as someone of acme's who may correct.
func (w *world) correct(body string) answer {
	w.t.Helper()
	return w.do(call{method: "POST", path: "/v1/events", key: "admin", body: body})
}

func (w *world) get(path string) answer {
	w.t.Helper()
	return w.do(call{method: "GET", path: path, key: "read"})
}
