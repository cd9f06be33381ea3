package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/tallystick/tallystick/internal/edge/httpkit"
)

var errDeadline, errCanceled = context.DeadlineExceeded, context.Canceled

func gzipped(t testing.TB, parts ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, p); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// zstded is one frame for each part; streamed frames do not state their size in advance.
func zstded(t testing.TB, streamed bool, parts ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithWindowSize(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		if !streamed {
			b.Write(w.EncodeAll([]byte(p), nil))
			continue
		}
		for len(p) > 0 {
			n := min(len(p), 1<<20)
			if _, err := io.WriteString(w, p[:n]); err != nil {
				t.Fatal(err)
			}
			p = p[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestBodiesInEveryEncoding(t *testing.T) {
	w := ingestWorld(t)
	event := `[{"id":"e","meter":"calls","customer":"c"}]`
	half := len(event) / 2
	full := event + strings.Repeat(" ", httpkit.MaxBody-len(event))
	over := full + " "
	bomb := strings.Repeat(" ", httpkit.MaxBody)
	for _, tc := range []struct {
		name, encoding, body string
		chunked              bool
		status               int
		code                 string
	}{
		{"plain", "", event, false, 200, ""},
		{"plain in chunks", "", event, true, 200, ""},
		{"identity", "identity", event, false, 200, ""},
		{"just fits", "", full, false, 200, ""},
		{"just fits in chunks", "", full, true, 200, ""},
		{"too large", "", over, false, 413, "too_large"},
		{"too large in chunks", "", over, true, 413, "too_large"},
		{"gzip", "gzip", gzipped(t, event), false, 200, ""},
		{"GZIP in chunks", "GZIP", gzipped(t, event), true, 200, ""},
		{"gzip in members", "gzip", gzipped(t, event[:half], event[half:]), false, 200, ""},
		{"gzip just fits", "gzip", gzipped(t, full), false, 200, ""},
		{"gzip bomb", "gzip", gzipped(t, over), false, 413, "too_large"},
		{"gzip bomb in members", "gzip", gzipped(t, bomb, bomb, bomb), false, 413, "too_large"},
		{"gzip cut", "gzip", gzipped(t, event)[:20], false, 400, "malformed"},
		{"gzip bad sum", "gzip", gzipped(t, event)[:len(gzipped(t, event))-8] + "12345678", false, 400, "malformed"},
		{"not gzip", "gzip", event, false, 400, "malformed"},
		{"gzip of nothing", "gzip", "", false, 400, "malformed"},
		{"zstd", "zstd", zstded(t, false, event), false, 200, ""},
		{"zstd in chunks", "zstd", zstded(t, true, event), true, 200, ""},
		{"zstd in frames", "zstd", zstded(t, true, event[:half], event[half:]), false, 200, ""},
		{"zstd just fits", "zstd", zstded(t, true, full), false, 200, ""},
		{"zstd bomb", "zstd", zstded(t, true, over), false, 413, "too_large"},
		{"zstd bomb that states its size", "zstd", zstded(t, false, over), false, 413, "too_large"},
		{"zstd bomb in frames", "zstd", zstded(t, true, bomb, bomb, bomb), false, 413, "too_large"},
		{"zstd cut", "zstd", zstded(t, false, event)[:20], false, 400, "malformed"},
		{"zstd window", "zstd", "\x28\xb5\x2f\xfd\x00\x90\x01\x00\x00", false, 413, "too_large"}, // 2^28 bytes
		{"not zstd", "zstd", event, false, 400, "malformed"},
		{"brotli", "br", event, false, 415, "unsupported_media_type"},
		{"twice", "gzip, gzip", gzipped(t, gzipped(t, event)), false, 415, "unsupported_media_type"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := call{method: "POST", path: "/v1/events", key: "ingest", body: tc.body, chunked: tc.chunked}
			if tc.encoding != "" {
				c = c.with("Content-Encoding", tc.encoding)
			}
			a := w.do(c).status(t, tc.status)
			if a.text("code") != tc.code {
				t.Errorf("code %s, want %s", a.text("code"), tc.code)
			}
			if tc.code == "too_large" && tc.name != "zstd window" && !strings.Contains(a.text("detail"), "16777216") {
				t.Errorf("the limit is not in %q", a.text("detail"))
			}
		})
	}
	if got := w.api.kit.BodyBytesFree(); got != DefaultBodyBudget {
		t.Errorf("%d bytes of the budget were not given back", DefaultBodyBudget-got)
	}
	setup := call{method: "POST", path: "/v1/meters", key: "admin",
		body: gzipped(t, `{"slug":"z","aggregation":"sum"}`)}.with("Content-Encoding", "gzip")
	w.do(setup).status(t, 201)
	setup.body = gzipped(t, strings.Repeat(" ", httpkit.DefaultMaxBody+1))
	w.do(setup).refused(t, 413, "too_large")
	setup.body = zstded(t, true, strings.Repeat(" ", httpkit.DefaultMaxBody+1))
	w.do(setup.with("Content-Encoding", "zstd")).refused(t, 413, "too_large")
}

// While one body holds the budget, others are turned away at once; when it is done, they are let in.
func TestBodiesShareABudget(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.BodyBudget = 4 << 10 })
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	event := `{"id":"e","meter":"calls","customer":"c"}`
	held, release := io.Pipe()
	done := make(chan answer)
	entered := make(chan struct{})
	go func() {
		defer close(done)
		r, err := http.NewRequest("POST", w.server.URL+"/v1/events", held)
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Authorization", "Bearer "+w.keys["ingest"])
		resp, err := w.server.Client().Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		done <- answer{code: resp.StatusCode}
	}()
	go func() {
		// The first byte is taken from the pipe when the request is under way.
		_, _ = io.WriteString(release, event[:1])
		close(entered)
	}()
	<-entered
	for w.api.kit.BodyBytesFree() != 0 {
		runtime.Gosched() // an unknown length takes 4 KiB at once; the server gets there without further help
	}
	w.send(event).refused(t, 503, "busy")
	_, _ = io.WriteString(release, event[1:])
	_ = release.Close()
	if a := <-done; a.code != 200 {
		t.Errorf("the holder was answered %d", a.code)
	}
	for w.api.kit.BodyBytesFree() != 4<<10 {
		runtime.Gosched() // the answer may arrive before the handler has returned
	}
	w.send(event).status(t, 200)
}

// A sender that stops in the middle of a body is answered so when its time is over, and nothing was kept.
func TestBodyThatNeverEnds(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.ReadTimeout = 20 * time.Millisecond })
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	server := httptest.NewUnstartedServer(nil)
	server.Config = w.api.HTTPServer("")
	server.Listener = w.api.Listen(server.Listener)
	server.Start()
	defer server.Close()
	for _, tc := range []struct{ header, want string }{
		{"", `"code":"timeout"`},
		{"Content-Encoding: gzip\r\n", `"code":"timeout"`},
		{"Content-Encoding: zstd\r\n", `"code":"timeout"`},
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		start := gzipped(t, "x")[:4]
		_, err = fmt.Fprintf(conn, "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+
			"%s\r\n%sContent-Length: 100\r\n\r\n%s", w.keys["ingest"], tc.header, start)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 503 ")) || !bytes.Contains(got, []byte(tc.want)) {
			t.Errorf("%s: got %v %s", tc.header, err, got)
		}
		_ = conn.Close()
	}
}

// A connection that breaks within a body commits nothing.
func TestBodyCutShort(t *testing.T) {
	w := ingestWorld(t)
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	event := `{"id":"e","meter":"calls","customer":"c"}`
	_, err = fmt.Fprintf(conn, "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: "+
		"%d\r\n\r\n%s", w.keys["ingest"], len(event)+1, event)
	if err != nil {
		t.Fatal(err)
	}
	if half, ok := conn.(*net.TCPConn); !ok || half.CloseWrite() != nil {
		t.Fatal("cannot close half of the connection")
	}
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 400 ")) {
		t.Errorf("got %v %s", err, got)
	}
	w.get("/v1/events/e").refused(t, 404, "not_found")
}
