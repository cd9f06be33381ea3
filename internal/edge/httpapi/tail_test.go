package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/store"
)

// quiet makes heartbeats rare, so that a stream says nothing but what the test is about.
func quiet(o *Options) { o.Streams.Heartbeat = time.Hour }

// block is an event of a stream, or a mark, which has no name.
type block struct{ id, name, data string }

// following reads a stream.
type following struct {
	t      *testing.T
	answer *http.Response
	in     *bufio.Reader
}

func newFollowing(t *testing.T, a *http.Response) *following {
	return &following{t, a, bufio.NewReader(a.Body)}
}

// follow opens a stream and reads its first mark.
func (w *world) follow(c call) *following {
	w.t.Helper()
	c.method = http.MethodGet
	a, err := w.server.Client().Do(w.request(c)) //nolint:bodyclose // by f.close
	if err != nil {
		w.t.Fatal(err)
	}
	f := newFollowing(w.t, a)
	w.t.Cleanup(f.close)
	if a.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(a.Body)
		w.t.Fatalf("%s: %s %s", c.path, a.Status, text)
	}
	if b := f.mustNext(); b.name != "" || b.id == "" {
		w.t.Fatalf("the stream begins with %+v", b)
	}
	return f
}

func (f *following) close() { _ = f.answer.Body.Close() }

// next reads a block. It is strict: the server writes one line of data, after id and event.
func (f *following) next() (b block, err error) {
	for {
		line, err := f.in.ReadString('\n')
		if err != nil {
			return b, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "":
			if line == "\n" {
				return b, nil
			}
		case "id":
			b.id = value
		case "event":
			b.name = value
		case "data":
			b.data = value
		case "retry":
		default:
			return b, fmt.Errorf("a line that is none of a stream: %q", line)
		}
	}
}

func (f *following) mustNext() block {
	f.t.Helper()
	b, err := f.next()
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

// wantRow reads a row and holds it against itself.
func (f *following) wantRow(id string) (seq uint64) {
	f.t.Helper()
	b := f.mustNext()
	var r struct {
		Seq      uint64
		Type, ID string
	}
	if err := json.Unmarshal([]byte(b.data), &r); err != nil {
		f.t.Fatalf("%v: %+v", err, b)
	}
	if strconv.FormatUint(r.Seq, 10) != b.id || r.Type != b.name || r.ID != id {
		f.t.Fatalf("%+v is not the row %s", b, id)
	}
	return r.Seq
}

// wantEnd reads the last event, which says why.
func (f *following) wantEnd(name, code string) {
	f.t.Helper()
	b := f.mustNext()
	var p struct{ Code, Detail string }
	if err := json.Unmarshal([]byte(b.data), &p); err != nil || b.name != name || p.Code != code || b.id != "" ||
		p.Detail == "" {
		f.t.Fatalf("%+v, want %s with %s", b, name, code)
	}
	if _, err := f.next(); !errors.Is(err, io.EOF) {
		f.t.Fatalf("after the end: %v", err)
	}
}

// until waits for a condition.
func until(holds func() bool) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		<-tick.C
	}
}

func (w *world) event(id string) {
	w.t.Helper()
	w.eventOf(id, "calls", "c1")
}

func (w *world) eventOf(id, meter, customer string) {
	w.t.Helper()
	w.send(`{"id":"`+id+`","meter":"`+meter+`","customer":"`+customer+`"}`).status(w.t, 200)
}

func tailWorld(t *testing.T, open opener, change ...func(*Options)) *world {
	t.Helper()
	w := newWorldOn(t, open, gate.Options{}, append([]func(*Options){quiet}, change...)...)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	return w
}

// On every store: a stream begins with now, with a row or behind one; rows come as they are committed.
func TestAStreamFollowsTheLedger(t *testing.T) {
	for name, open := range openers {
		t.Run(name, func(t *testing.T) {
			w := tailWorld(t, open, func(o *Options) { o.Streams.Poll = time.Hour }) // commits alone wake it
			w.event("before")
			live := w.follow(call{path: "/v1/stream", key: "read"})
			for n, v := range map[string]string{"Content-Type": httpkit.MediaEvents, "Cache-Control": "no-store",
				"X-Accel-Buffering": "no", "Content-Encoding": ""} {
				if got := live.answer.Header.Get(n); got != v {
					t.Errorf("%s: %s", n, got)
				}
			}
			w.event("a")
			first := live.wantRow("a")
			w.event("b")
			live.wantRow("b")
			from := fmt.Sprint("/v1/stream?from_seq=", first)
			past := w.follow(call{path: from, key: "read"})
			past.wantRow("a")
			past.wantRow("b")
			resumed := w.follow(call{path: from, key: "read"}.with("Last-Event-ID", fmt.Sprint(first)))
			resumed.wantRow("b")
			next := w.follow(call{path: fmt.Sprint("/v1/stream?from_seq=", first+2), key: "read"})
			w.event("c")
			for _, f := range []*following{live, past, resumed, next} {
				f.wantRow("c")
			}
		})
	}
}

// What a key may read is what it gets; changes need the scope that the audit log needs.
func TestAStreamHasTheKindsThatAKeyMayRead(t *testing.T) {
	w := tailWorld(t, openNaive, func(o *Options) { o.Streams.Heartbeat = time.Millisecond })
	w.meter(`{"slug":"other","aggregation":"sum"}`)
	w.event("a")
	w.eventOf("b", "other", "c2")
	w.eventOf("c", "calls", "c2")
	types := func(key, query string) string {
		a := w.do(call{method: "GET", path: "/v1/stream?from_seq=1" + query, key: key}).status(t, 200)
		var out []string
		for line := range strings.Lines(string(a.body)) {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				var r struct{ Type, ID string }
				if err := json.Unmarshal([]byte(data), &r); err != nil {
					t.Fatal(err)
				}
				if r.Type == ledger.UsageRecorded {
					r.Type = r.ID
				}
				out = append(out, r.Type)
			}
		}
		return strings.Join(out, " ")
	}
	all := "tenant.created api_key.created api_key.created api_key.created api_key.created api_key.created " +
		"meter.created meter.created"
	for _, c := range []struct{ key, query, want string }{
		{"read", "", "a b c"}, {"admin", "", all + " a b c"}, {"admin", "&rows=change", all},
		{"read", "&rows=event", "a b c"}, {"read", "&rows=entry", ""}, {"admin", "&meter=calls", "a c"},
		{"admin", "&customer=c2", "b c"}, {"read", "&meter=calls&customer=c2&rows=entry,event", "c"},
		{"admin", "&meter=other&rows=change,event", all + " b"},
	} {
		if got := types(c.key, c.query); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.key, c.query, got, c.want)
		}
	}
	for _, rows := range []string{"change", "event,change"} {
		a := w.get("/v1/stream?rows="+rows).refused(t, 403, "forbidden")
		if !strings.Contains(a.text("detail"), "audit") {
			t.Error(a.text("detail"))
		}
	}
	w.do(call{method: "GET", path: "/v1/stream", key: "audit"}).refused(t, 403, "forbidden")
	w.get("/v1/stream?meter=nothing").refused(t, 404, "not_found")
}

// Places that cannot be are refused before the stream begins, each with the name of what was wrong.
func TestAStreamRefusesPlacesThatAreNot(t *testing.T) {
	w := tailWorld(t, openNaive)
	w.event("a")
	mark := w.follow(call{path: "/v1/stream", key: "read"})
	mark.close()
	head, err := strconv.Atoi(w.do(call{method: "GET", path: "/v1/events/a", key: "read"}).part("seq"))
	if err != nil {
		t.Fatal(err)
	}
	w.get(fmt.Sprint("/v1/stream?from_seq=", head+2)).refused(t, 400, "malformed")
	for _, id := range []string{fmt.Sprint(head + 1), "x", "-1", "1.5", "99999999999999999999", "1,2"} {
		c := call{method: "GET", path: "/v1/stream?from_seq=1", key: "read"}.with("Last-Event-ID", id)
		a := w.do(c).refused(t, 400, "malformed")
		if !strings.Contains(a.part("errors"), `"Last-Event-ID"`) {
			t.Errorf("%s: %s", id, a.body)
		}
	}
	twice := w.request(call{method: "GET", path: "/v1/stream", key: "read"})
	twice.Header["Last-Event-Id"] = []string{"1", "2"}
	a, err := w.server.Client().Do(twice)
	if err != nil || a.StatusCode != http.StatusBadRequest {
		t.Errorf("%v %v", a, err)
	}
	_ = a.Body.Close()
	w.do(call{method: "GET", path: "/v1/stream", key: "read"}.with("Accept", "application/json")).
		refused(t, 406, "not_acceptable")
	bare := w.do(call{method: "HEAD", path: "/v1/stream", key: "read"}).status(t, 200)
	if bare.header.Get("Content-Type") != httpkit.MediaEvents || len(bare.body) > 0 {
		t.Errorf("HEAD: %v", bare.header)
	}
}

// pruned is a store whose rows up to one have left.
type pruned struct {
	store.Store
	last uint64
}

func (s *pruned) View(ctx context.Context, id string, fn func(store.View) error) error {
	return s.Store.View(ctx, id, func(v store.View) error { return fn(prunedView{v, s.last}) })
}

type prunedView struct {
	store.View
	last uint64
}

func (v prunedView) Rows(after uint64, h store.RowHint, fn func(*ledger.Row) bool) (uint64, bool, error) {
	if after < v.last && h.Events {
		return after, false, problem.New(problem.Archived, "the usage rows of 2026-10 are archived")
	}
	return v.View.Rows(after, h, fn)
}

// Rows that have left are missed before the stream begins, also by who resumes; the rows behind them are there.
func TestAStreamOfArchivedRows(t *testing.T) {
	w := tailWorld(t, openNaive)
	w.event("a")
	left := &pruned{Store: w.store.Store, last: 8} // the row of a
	w.store.Store = left
	w.event("b")
	w.get("/v1/stream?from_seq=1").refused(t, 410, "archived")
	w.do(call{method: "GET", path: "/v1/stream", key: "read"}.with("Last-Event-ID", "7")).refused(t, 410, "archived")
	w.follow(call{path: "/v1/stream?from_seq=9", key: "read"}).wantRow("b")
	if b := w.follow(call{path: "/v1/stream?from_seq=1&rows=change", key: "admin"}).mustNext(); b.id != "1" {
		t.Errorf("%+v", b)
	}
}

// A stream ends when its key is revoked or has expired, when its tenant is closed and when the server stops, and says
// so; of a closed tenant all rows are sent first.
func TestAStreamEndsWithItsRight(t *testing.T) {
	soon := func(o *Options) { o.Streams.Poll = time.Millisecond }
	t.Run("revoked", func(t *testing.T) {
		w := tailWorld(t, openNaive, soon)
		k := w.do(call{method: "POST", path: "/v1/api-keys", key: "admin", body: `{"scopes":["read"]}`})
		f := w.follow(call{path: "/v1/stream", key: k.text("api_key")})
		w.do(call{method: "DELETE", path: "/v1/api-keys/" + k.text("id"), key: "admin"}).status(t, 204)
		f.wantEnd("closing", "unauthorized")
	})
	t.Run("expired", func(t *testing.T) {
		w := tailWorld(t, openNaive, soon)
		k := w.do(call{method: "POST", path: "/v1/api-keys", key: "admin",
			body: `{"scopes":["read"],"expires_at":"2026-11-15T13:00:00Z"}`})
		f := w.follow(call{path: "/v1/stream", key: k.text("api_key")})
		w.clock.Store(now.Add(time.Hour).UnixNano())
		f.wantEnd("closing", "unauthorized")
	})
	t.Run("closed", func(t *testing.T) {
		w := tailWorld(t, openNaive, soon)
		w.event("a")
		f := w.follow(call{path: "/v1/stream?rows=change", key: "admin"})
		w.do(call{method: "POST", path: "/v1/tenants/acme/close", key: "operator"}).status(t, 200)
		if b := f.mustNext(); b.name != "tenant.closed" {
			t.Errorf("%+v", b)
		}
		f.wantEnd("closing", "tenant_closed")
		rest := w.follow(call{path: "/v1/stream?from_seq=1&rows=event", key: "read"})
		rest.wantRow("a")
		rest.wantEnd("closing", "tenant_closed")
		w.get("/v1/stream").refused(t, 409, "tenant_closed")
	})
	t.Run("server", func(t *testing.T) {
		w := tailWorld(t, openNaive)
		f := w.follow(call{path: "/v1/stream", key: "read"})
		w.api.Drain()
		f.wantEnd("closing", "unavailable")
		w.get("/v1/stream").refused(t, 503, "unavailable")
	})
}

// A tenant sees no row of another, and neither its numbers nor its growth.
func TestAStreamIsOfOneTenant(t *testing.T) {
	w := tailWorld(t, openNaive)
	w.addTenant("beta")
	f := w.follow(call{path: "/v1/stream?from_seq=1&rows=event", key: "beta"})
	operator := w.follow(call{path: "/v1/stream?rows=event", key: "operator"}.with("Tally-Tenant", "beta"))
	w.event("acmes")
	w.do(call{method: "POST", path: "/v1/meters", key: "beta", body: `{"slug":"m","aggregation":"sum"}`}).status(t, 201)
	w.do(call{method: "POST", path: "/v1/events", key: "beta", body: `{"id":"betas","meter":"m","customer":"c"}`}).
		status(t, 200)
	f.wantRow("betas")
	operator.wantRow("betas")
	w.do(call{method: "GET", path: "/v1/stream", key: "beta"}.with("Tally-Tenant", "acme")).refused(t, 403, "forbidden")
	w.do(call{method: "GET", path: "/v1/stream", key: "operator"}).refused(t, 400, "malformed")
}

// There are places for so many streams of a tenant and so many in all; who leaves frees one.
func TestStreamsAreBounded(t *testing.T) {
	w := tailWorld(t, openNaive, func(o *Options) { o.Streams.Max, o.Streams.MaxPerTenant = 3, 2 })
	w.addTenant("beta")
	first := w.follow(call{path: "/v1/stream", key: "read"})
	w.follow(call{path: "/v1/stream", key: "read"})
	a := w.get("/v1/stream").refused(t, 429, "rate_limited")
	if a.header.Get("Retry-After") == "" || !strings.Contains(a.text("detail"), "http.max_streams_per_tenant") {
		t.Errorf("%v %s", a.header, a.body)
	}
	w.follow(call{path: "/v1/stream", key: "beta"})
	b := w.do(call{method: "GET", path: "/v1/stream", key: "beta"}).refused(t, 503, "busy")
	if !strings.Contains(b.text("detail"), "http.max_streams") {
		t.Error(b.text("detail"))
	}
	first.close()
	until(func() bool { return w.api.Streams().Open == 2 })
	w.follow(call{path: "/v1/stream", key: "beta"})
	if c := w.api.Streams(); c.Open != 3 || c.Refused != 2 || c.Dropped != 0 {
		t.Errorf("%+v", c)
	}
}
