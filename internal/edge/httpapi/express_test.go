package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/store"
)

// ingesting is a store that knows one key, keeps the ids that it was given, and waits before it answers, if it is asked
// to.
type ingesting struct {
	agreeable
	mu      sync.Mutex // guards all below
	ids     []string
	revoked bool
	cause   any // panicked with
	begun   chan struct{}
	release chan struct{}
}

func (s *ingesting) Access(ctx context.Context, id, keyID string) (store.Access, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.agreeable.Access(ctx, id, keyID)
	if s.revoked {
		a.Key.RevokedAt = 1
	}
	return a, err
}

func (s *ingesting) Record(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	s.mu.Lock()
	for i := range b.Events {
		s.ids = append(s.ids, strings.Clone(b.Events[i].ID))
	}
	cause, begun, release := s.cause, s.begun, s.release
	s.mu.Unlock()
	if cause != nil {
		panic(cause)
	}
	if begun != nil {
		begun <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.agreeable.Record(ctx, b)
}

func (s *ingesting) kept() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

var ingestToken = tenant.Token("acme.00", [32]byte{1})

// piped is a listener in memory: what is written at once is read at once.
type piped struct {
	conns  chan net.Conn
	errs   chan error
	closed chan struct{}
	once   sync.Once
}

func newPiped() *piped {
	return &piped{conns: make(chan net.Conn), errs: make(chan error), closed: make(chan struct{})}
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case err := <-p.errs:
		return nil, err
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *piped) Addr() net.Addr { return &net.TCPAddr{} }

func (p *piped) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *piped) dial() net.Conn {
	mine, theirs := net.Pipe()
	p.conns <- theirs
	return mine
}

// A road is how a connection gets to the API.
const (
	throughLane    = iota // of the listener
	throughLibrary        // the listener with its lanes switched off
	bare                  // net/http without the listener
)

// road is a server and one way to it.
type road struct {
	api   *Server
	store *ingesting
	inner *piped
	outer net.Listener
	http  *http.Server
	done  chan error
}

func newRoad(way int, change ...func(*Options)) *road {
	st := &ingesting{agreeable: agreeable{key: tenant.APIKey{ID: "acme.00", Scopes: tenant.Ingest,
		Hash: tenant.HashToken(ingestToken)}}}
	o := Options{Store: st, Gate: gate.New(st, gate.Options{}), NoExpress: way != throughLane}
	for _, c := range change {
		c(&o)
	}
	api := New(o)
	r := &road{api: api, store: st, inner: newPiped(), http: api.HTTPServer(""), done: make(chan error, 1)}
	r.outer = r.inner
	if way != bare {
		r.outer = api.Listen(r.inner)
	}
	go func() { r.done <- r.http.Serve(r.outer) }()
	return r
}

func (r *road) shutdown(t *testing.T) {
	t.Helper()
	if err := r.http.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if l, ok := r.outer.(*Listener); ok {
		l.Wait()
	}
	if err := <-r.done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// plainPost is a request as a lane takes it, with a few more lines of header if the caller wants them.
func plainPost(id string, lines ...string) string {
	body := fmt.Sprintf(`{"id":%q,"meter":"calls","customer":"c"}`, id)
	return "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + ingestToken + "\r\n" +
		strings.Join(append(lines, ""), "\r\n") + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

// scripted is a connection whose caller has sent everything and waits for nothing.
type scripted struct {
	net.Conn // nil: what is not below is not called
	mu       sync.Mutex
	chunks   []string
	answers  bytes.Buffer
	closed   chan struct{}
	once     sync.Once
}

func (c *scripted) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.chunks) > 0 && c.chunks[0] == "" {
		c.chunks = c.chunks[1:]
	}
	if len(c.chunks) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.chunks[0])
	c.chunks[0] = c.chunks[0][n:]
	return n, nil
}

func (c *scripted) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers.Write(b)
}

func (c *scripted) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (c *scripted) CloseWrite() error                { return nil }
func (c *scripted) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *scripted) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *scripted) SetDeadline(time.Time) error      { return nil }
func (c *scripted) SetReadDeadline(time.Time) error  { return nil }
func (c *scripted) SetWriteDeadline(time.Time) error { return nil }

var changing = regexp.MustCompile(`req_[0-9a-f]+_[0-9a-z]+|Date: [^\r]+|Content-Length: [^\r]+`)

// play sends the chunks and returns all answers, without what differs from time to time, and the ids that were
// recorded.
func (r *road) play(t *testing.T, chunks ...string) (answers string, ids []string) {
	t.Helper()
	before := len(r.store.kept())
	c := &scripted{chunks: slices.Clone(chunks), closed: make(chan struct{})}
	r.inner.conns <- c
	<-c.closed
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.outer != r.inner {
		checkLibraryFree(t, c.answers.String())
	}
	return changing.ReplaceAllString(c.answers.String(), "_"), r.store.kept()[before:]
}

// checkLibraryFree makes sure that every answer is ours: with a request id, and a problem where it refuses.
func checkLibraryFree(t *testing.T, answers string) {
	t.Helper()
	from := bufio.NewReader(strings.NewReader(answers))
	for {
		if _, err := from.Peek(1); err != nil {
			return
		}
		a, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatalf("answered %q: %v", answers, err)
		}
		body, err := io.ReadAll(a.Body)
		if err := errors.Join(err, a.Body.Close()); err != nil {
			t.Fatalf("answered %q: %v", answers, err)
		}
		if a.StatusCode == http.StatusContinue {
			continue
		}
		if a.Header.Get("Tally-Request-Id") == "" {
			t.Errorf("%s without a request id: %q", a.Status, answers)
		}
		if a.StatusCode >= http.StatusBadRequest && (a.Header.Get("Content-Type") != "application/problem+json" ||
			!json.Valid(body)) {
			t.Errorf("%s is no problem: %q", a.Status, answers)
		}
	}
}

func FuzzLane(f *testing.F) {
	for _, sent := range awkward() {
		f.Add(sent, len(sent)/2)
	}
	f.Fuzz(func(t *testing.T, sent string, at int) {
		synctest.Test(t, func(t *testing.T) {
			roads := newRoads(t)
			at = min(max(at, 0), len(sent))
			roads.alike(t, sent, sent[:at], sent[at:])
		})
	})
}

// exchangeOn sends a request and reads its answer, which must have the status. It reports whether that was the last.
func exchangeOn(t *testing.T, conn net.Conn, request string, status int) (last bool) {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return answerOn(t, conn, status)
}

func answerOn(t *testing.T, conn net.Conn, status int) (last bool) {
	t.Helper()
	a, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if _, err := io.Copy(io.Discard, a.Body); err != nil {
		t.Fatal(err)
	}
	if a.StatusCode != status {
		t.Errorf("answered %s, want %d", a.Status, status)
	}
	return a.Close
}

// ended reads to the end of the connection, which must come.
func ended(t *testing.T, conn net.Conn) {
	t.Helper()
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		t.Errorf("the connection goes on with %q, %v", rest, err)
	}
}

// A lane remembers heads, never who may do what.
func TestRevocationHoldsInALane(t *testing.T) {
	r := newRoad(throughLane)
	defer r.shutdown(t)
	conn := r.inner.dial()
	exchangeOn(t, conn, plainPost("a"), 200)
	r.store.mu.Lock()
	r.store.revoked = true
	r.store.mu.Unlock()
	exchangeOn(t, conn, plainPost("a"), 401)
}

// Heads that never repeat are forgotten and understood all the same.
func TestALaneRemembersFewHeads(t *testing.T) {
	r := newRoad(throughLane)
	defer r.shutdown(t)
	conn := r.inner.dial()
	for i := range 3 * maxHeads {
		exchangeOn(t, conn, plainPost("a", fmt.Sprintf("Traceparent: %d", i)), 200)
	}
	outer, ok := r.outer.(*Listener)
	if !ok {
		t.Fatal("no listener")
	}
	outer.each(func(d draining) {
		if l, ok := d.(*lane); !ok || len(l.heads) > maxHeads {
			t.Errorf("%d heads are remembered", len(l.heads))
		}
	})
}

// A panic is answered and the lane goes on; one that asks for it cuts the connection, and no other.
func TestPanicsInALane(t *testing.T) {
	r := newRoad(throughLane)
	defer r.shutdown(t)
	conn, other := r.inner.dial(), r.inner.dial()
	panics := func(cause any) {
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		r.store.cause = cause
	}
	panics("boom")
	exchangeOn(t, conn, plainPost("a"), 500)
	panics(http.ErrAbortHandler)
	if _, err := io.WriteString(conn, plainPost("a")); err != nil {
		t.Fatal(err)
	}
	ended(t, conn)
	panics(nil)
	exchangeOn(t, other, plainPost("a"), 200)
}

// Closing ends connections that wait, answers requests that have begun, and waits for them.
func TestClosingDrainsLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that nothing is late, however slow the machine
		r := newRoad(throughLane)
		idle, busy, half := r.inner.dial(), r.inner.dial(), r.inner.dial()
		exchangeOn(t, idle, plainPost("a"), 200)
		r.store.begun, r.store.release = make(chan struct{}), make(chan struct{})
		if _, err := io.WriteString(busy, plainPost("b")); err != nil {
			t.Fatal(err)
		}
		<-r.store.begun
		late := plainPost("c")
		if _, err := io.WriteString(half, late[:100]); err != nil {
			t.Fatal(err)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			r.shutdown(t)
		}()
		ended(t, idle)
		close(r.store.release)
		if !answerOn(t, busy, 200) {
			t.Error("the answer does not say that the connection ends")
		}
		ended(t, busy)
		select {
		case <-stopped:
			t.Error("closing did not wait for a request that had begun")
		default:
		}
		go func() { <-r.store.begun }()
		exchangeOn(t, half, late[100:], 200)
		<-stopped
		if got := r.store.kept(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("recorded %v", got)
		}
	})
}

// A request that does not end is cut off.
func TestClosingLanesIsBounded(t *testing.T) {
	r := newRoad(throughLane, func(o *Options) { o.DrainTimeout = time.Millisecond })
	conn := r.inner.dial()
	r.store.begun = make(chan struct{})
	if _, err := io.WriteString(conn, plainPost("a")); err != nil {
		t.Fatal(err)
	}
	<-r.store.begun
	r.shutdown(t)
	ended(t, conn)
}

// A listener that fails is the server's to judge.
func TestLanesTellOfAListenerThatFails(t *testing.T) {
	r := newRoad(throughLane)
	broken := errors.New("broken")
	r.inner.errs <- broken
	if err := <-r.done; !errors.Is(err, broken) {
		t.Errorf("serving ended with %v", err)
	}
}
