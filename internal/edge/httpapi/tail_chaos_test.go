package httpapi

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/postgres"
)

// resumable is a caller who comes back with the last id that it has seen.
type resumable struct {
	w    *world
	path string
	last string
	rows []string
}

// connect opens the stream from where the last one ended, and returns what was seen before the reader had enough or
// the stream ended.
func (r *resumable) connect(enough func(rows int) bool) error {
	c := call{method: http.MethodGet, path: r.path, key: "read"}
	if r.last != "" {
		c = c.with("Last-Event-ID", r.last)
	}
	a, err := r.w.server.Client().Do(r.w.request(c))
	if err != nil {
		return err
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(a.Body)
		return fmt.Errorf("%s %s", a.Status, text)
	}
	f := newFollowing(r.w.t, a)
	for n := 0; !enough(n); {
		b, err := f.next()
		if err != nil {
			return nil // the stream was cut off
		}
		if b.id != "" {
			r.last = b.id
		}
		if b.name == ledger.UsageRecorded {
			r.rows = append(r.rows, b.id)
			n++
		}
	}
	return nil
}

// Given writers who do not stop, when readers leave and come back at random, then each has seen every row once, in
// order, and no other.
func TestAStreamHasNoGapOverReconnects(t *testing.T) {
	const batches, size, readers = 40, 25, 4
	for _, name := range []string{"engine", "postgres"} {
		t.Run(name, func(t *testing.T) {
			w := tailWorld(t, openers[name])
			var writing, reading sync.WaitGroup
			got := make([]*resumable, readers)
			for i := range readers {
				random := rand.New(rand.NewPCG(uint64(i), 7))
				got[i] = &resumable{w: w, path: "/v1/stream?from_seq=1"}
				reading.Go(func() {
					for len(got[i].rows) < batches*size {
						limit := 1 + random.IntN(200)
						left := batches*size - len(got[i].rows)
						if err := got[i].connect(func(n int) bool { return n >= min(limit, left) }); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			for writer := range 2 {
				writing.Go(func() {
					for b := range batches / 2 {
						var body strings.Builder
						for i := range size {
							fmt.Fprintf(&body, `{"id":"w%d-%d-%d","meter":"calls","customer":"c%d"}`+"\n",
								writer, b, i, i%3)
						}
						a, err := w.server.Client().Do(w.request(call{method: "POST", path: "/v1/events", key: "ingest",
							body: body.String()}.with("Content-Type", "application/x-ndjson")))
						if err != nil || a.StatusCode != http.StatusOK {
							t.Error(a, err)
							return
						}
						_ = a.Body.Close()
					}
				})
			}
			writing.Wait()
			reading.Wait()
			want := w.ledgerOf(t)
			for i, r := range got {
				if strings.Join(r.rows, " ") != want {
					t.Errorf("reader %d has %d rows, and not those of the ledger", i, len(r.rows))
				}
			}
		})
	}
}

// ledgerOf lists the numbers of acme's events.
func (w *world) ledgerOf(t *testing.T) string {
	t.Helper()
	var out []string
	err := w.store.View(t.Context(), "acme", func(v store.View) error {
		_, end, err := v.Rows(0, store.RowHint{Events: true}, func(r *ledger.Row) bool {
			if r.Event != nil {
				out = append(out, strconv.FormatUint(r.Seq, 10))
			}
			return true
		})
		if !end {
			t.Error("there are more rows")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

// Given a caller who reads nothing, then it is cut off, which is counted, and when it comes back it has missed nothing.
func TestASlowReaderIsDroppedAndResumes(t *testing.T) {
	const batches, size = 40, 100 // with their properties far more than the buffers of a connection
	w := tailWorld(t, openEngine, func(o *Options) { o.Streams.WriteTimeout = 500 * time.Millisecond })
	for b := range batches {
		var body strings.Builder
		for i := range size {
			fmt.Fprintf(&body, `{"id":"%d-%d","meter":"calls","customer":"c","properties":{"p":"%s"}}`+"\n", b, i,
				strings.Repeat("x", 4000))
		}
		w.do(call{method: "POST", path: "/v1/events", key: "ingest", body: body.String()}.
			with("Content-Type", "application/x-ndjson")).status(t, 200)
	}
	r := &resumable{w: w, path: "/v1/stream?from_seq=1"}
	waited := false
	err := r.connect(func(n int) bool {
		if n == 1 && !waited {
			waited = true
			until(func() bool { return w.api.Streams().Dropped == 1 })
		}
		return n == batches*size
	})
	if err != nil || len(r.rows) == batches*size {
		t.Fatalf("%v: it has %d rows although it was dropped", err, len(r.rows))
	}
	for len(r.rows) < batches*size {
		left := batches*size - len(r.rows)
		if err := r.connect(func(n int) bool { return n == left }); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Join(r.rows, " ") != w.ledgerOf(t) {
		t.Error("it does not have the rows of the ledger")
	}
}

// A write that took too long and came to an end all the same is followed by the reason.
func TestADroppedReaderLearnsWhy(t *testing.T) {
	w := tailWorld(t, openNaive, func(o *Options) { o.Streams.WriteTimeout = 1 })
	f := w.follow(call{path: "/v1/stream", key: "read"})
	f.wantEnd("dropped", "timeout")
	until(func() bool { return w.api.Streams() == StreamCounts{Dropped: 1} })
}

// A filter that nothing passes does not keep the place from moving on: heartbeats carry it.
func TestHeartbeatsMoveThePlace(t *testing.T) {
	w := tailWorld(t, openNaive, func(o *Options) { o.Streams.Heartbeat = time.Millisecond })
	f := w.follow(call{path: "/v1/stream?customer=nobody", key: "read"})
	w.event("a")
	seq := w.get("/v1/events/a").part("seq")
	for b := f.mustNext(); b.id != seq; b = f.mustNext() {
		if b.name != "" {
			t.Fatalf("%+v", b)
		}
	}
}

// Neither over HTTP/1 nor over HTTP/2 does a bound end a stream that is idle for longer: not those of a request, and
// not that of its own last write.
func TestAStreamOutlivesTheBoundsOfItsConnection(t *testing.T) {
	const bound = 2 * time.Second // time enough for a handshake
	w := tailWorld(t, openNaive, func(o *Options) {
		o.Streams.WriteTimeout, o.Streams.Heartbeat = time.Second, bound+200*time.Millisecond
	})
	for proto := 1; proto <= 2; proto++ {
		t.Run(fmt.Sprint("HTTP/", proto), func(t *testing.T) {
			t.Parallel()
			hasty := httptest.NewUnstartedServer(w.api)
			hasty.Config.ReadTimeout, hasty.Config.WriteTimeout = bound, bound
			hasty.EnableHTTP2 = proto == 2
			hasty.StartTLS()
			defer hasty.Close()
			q := w.request(call{method: http.MethodGet, path: "/v1/stream", key: "read"})
			q.URL.Scheme, q.URL.Host = "https", hasty.Listener.Addr().String()
			a, err := hasty.Client().Do(q)
			if err != nil || a.ProtoMajor != proto {
				t.Fatal(a, err)
			}
			defer func() { _ = a.Body.Close() }()
			f := newFollowing(t, a)
			for range 2 { // the place where it begins, and a heartbeat
				if b := f.mustNext(); b.name != "" {
					t.Errorf("%+v", b)
				}
			}
		})
	}
}

// A row that another node on the same database commits arrives, and so does the end of a key that it revokes.
func TestAStreamHasTheRowsOfOtherNodes(t *testing.T) {
	url, err := pgtest.Shared(t).Migrated(postgres.Migrate)
	if err != nil {
		t.Fatal(err)
	}
	node := func(t *testing.T, clock func() time.Time) store.Store {
		s, err := postgres.Open(t.Context(), postgres.Options{URL: url, SkipMigrations: true, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, s)
		return s
	}
	w := tailWorld(t, node)
	o := w.api.options
	o.Store = node(t, func() time.Time { return time.Unix(0, w.clock.Load()) })
	o.Gate = gate.New(o.Store, gate.Options{RootKey: rootKey, Now: func() time.Time {
		return time.Unix(0, w.clock.Load())
	}})
	other := httptest.NewServer(New(o))
	t.Cleanup(other.Close)
	k := w.do(call{method: "POST", path: "/v1/api-keys", key: "admin", body: `{"scopes":["read"]}`})
	q := w.request(call{method: http.MethodGet, path: "/v1/stream", key: k.text("api_key")})
	q.URL.Host = other.Listener.Addr().String()
	a, err := other.Client().Do(q) //nolint:bodyclose // by f.close
	if err != nil || a.StatusCode != http.StatusOK {
		t.Fatal(a, err)
	}
	f := newFollowing(t, a)
	t.Cleanup(f.close)
	f.mustNext()
	for _, id := range []string{"a", "b"} {
		w.event(id)
		f.wantRow(id)
	}
	w.do(call{method: "DELETE", path: "/v1/api-keys/" + k.text("id"), key: "admin"}).status(t, 204)
	f.wantEnd("closing", "unauthorized")
}
