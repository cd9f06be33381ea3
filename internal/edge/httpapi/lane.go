package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const (
	// laneBuffer bounds a plain request, head and body: one event of usual size. It is what net/http sets aside for reading, too.
	laneBuffer = 4 << 10
	// straggle is how long the rest of a request may take before net/http waits for it, with bounds and an answer of its own.
	straggle = time.Second
	// maxHeads bounds the heads that a lane remembers. Those of one caller differ in the Content-Length alone.
	maxHeads = 32
	// shortestMethod is what net/http waits for between requests: fewer bytes before the end are not worth an answer.
	shortestMethod = 4
	// rearmAfter is the part of a timeout, one in so many, that may pass before the connection's deadlines are set anew: to set
	// them for every request would cost more than exact ones are worth.
	rearmAfter = 16
)

var (
	plainStart = []byte("POST " + eventsPath + " HTTP/1.1\r\n")
	blankLine  = []byte("\r\n\r\n")
)

// lane serves the plain requests of one connection, one after the other. All of it belongs to the goroutine of run; others only set
// deadlines on the connection and close it.
type lane struct {
	express *express
	conn    net.Conn
	ctx     context.Context // a lane has its own, so that lanes do not contend for one
	leave   context.CancelFunc
	buf     []byte
	have    int // bytes of buf that were read and not served
	least   int // bytes that are the start of a request
	heads   map[string]*http.Request
	body    plainBody
	answer  plainAnswer
	armed   time.Time // when the deadlines were last set
	passed  bool      // the connection is no longer the lane's
}

// plainBody is the part of the buffer that the request's head announces.
type plainBody struct{ bytes.Reader }

func (*plainBody) Close() error { return nil }

func newLane(e *express, conn net.Conn) *lane {
	l := &lane{express: e, conn: conn, buf: make([]byte, laneBuffer), least: 1, heads: map[string]*http.Request{}}
	l.ctx, l.leave = context.WithCancel(e.ctx)
	l.answer.header = http.Header{}
	return l
}

// run serves until the connection ends, or passes it on.
func (l *lane) run() {
	defer l.end()
	for l.await() {
		r, size := l.plain()
		if r == nil {
			l.express.leave(l) // from here on closing leaves the connection alone
			l.passed = l.express.pass(l.conn, l.buf[:l.have])
			return
		}
		l.answer.begin()
		l.express.api.ServeHTTP(&l.answer, r)
		if _, err := l.conn.Write(l.answer.bytes(time.Now(), l.express.closing.Load())); err != nil {
			return
		}
		l.have, l.least = copy(l.buf, l.buf[size:l.have]), shortestMethod
	}
}

// end closes the connection, if it was not passed on. A handler that panics has logged why and wants the connection cut.
func (l *lane) end() {
	if cause := recover(); cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // a sentinel that is panicked with, never wrapped
		l.express.api.log.Error("panic in a lane", "panic", cause, "stack", string(debug.Stack()))
	}
	l.leave()
	l.express.leave(l)
	if !l.passed {
		_ = l.conn.Close()
	}
}

// await returns when the buffer holds the start of a request, and reports false when the connection has ended or should.
func (l *lane) await() bool {
	l.rearm()
	if l.express.closing.Load() {
		return false
	}
	// Closing sets a deadline after it has said so: what was set here before is either seen above or overruled.
	for l.have < l.least {
		n, err := l.conn.Read(l.buf[l.have:])
		l.have += n
		if err != nil {
			return false
		}
	}
	return true
}

// rearm bounds the wait for the next request and the writing of its answer. The first request may take as long as its head.
func (l *lane) rearm() {
	o := &l.express.api.options
	now := time.Now()
	if now.Sub(l.armed) <= min(o.IdleTimeout, o.WriteTimeout)/rearmAfter {
		return
	}
	wait, armed := o.IdleTimeout, now
	if l.armed.IsZero() {
		wait, armed = o.ReadHeaderTimeout, longAgo
	}
	_ = l.conn.SetReadDeadline(now.Add(wait)) // a connection that is gone says so when it is used
	_ = l.conn.SetWriteDeadline(now.Add(o.WriteTimeout))
	l.armed = armed
}

// plain returns the request that the buffer starts with, and its length. It is nil if the request is not plain, or does not come.
func (l *lane) plain() (r *http.Request, size int) {
	for {
		b := l.buf[:l.have]
		if n := min(len(b), len(plainStart)); !bytes.Equal(b[:n], plainStart[:n]) {
			return nil, 0
		}
		if end := bytes.Index(b, blankLine); end >= 0 {
			head := end + len(blankLine)
			if r = l.request(b[:head]); r == nil || r.ContentLength > int64(len(l.buf)-head) {
				return nil, 0
			}
			if size = head + int(r.ContentLength); size <= len(b) {
				l.body.Reset(b[head:size])
				return r, size
			}
		}
		if !l.more() {
			return nil, 0
		}
	}
}

// more reads on. Closing wakes it, as it wakes those that wait for a request, but a request that has begun may still come.
func (l *lane) more() bool {
	if l.have == len(l.buf) {
		return false
	}
	until := time.Now().Add(min(straggle, l.express.api.options.ReadTimeout))
	l.armed = longAgo // this deadline is not the next request's
	for {
		_ = l.conn.SetReadDeadline(until)
		n, err := l.conn.Read(l.buf[l.have:])
		l.have += n
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(until) {
			return n > 0 && err == nil
		}
	}
}

// request returns what a head says, or nil if it is not that of a plain request.
func (l *lane) request(head []byte) *http.Request {
	if r := l.heads[string(head)]; r != nil {
		return r
	}
	from := bufio.NewReaderSize(bytes.NewReader(head), len(head))
	r, err := http.ReadRequest(from)
	// What is left of the head would belong to the body: a blank line of another spelling came before ours.
	if err != nil || from.Buffered() > 0 || !isPlain(r) {
		return nil
	}
	r = r.WithContext(l.ctx)
	r.RemoteAddr, r.Body = l.conn.RemoteAddr().String(), &l.body
	if len(l.heads) == maxHeads {
		clear(l.heads)
	}
	l.heads[string(head)] = r
	return r
}

// isPlain refuses all that would change how the body is framed or what becomes of the connection, and what net/http looks at more
// closely than its parser.
func isPlain(r *http.Request) bool {
	if r.ContentLength < 0 || len(r.TransferEncoding) > 0 || r.Trailer != nil || r.Close || r.Host == "" || !isWord(r.Host, ".:_") {
		return false
	}
	for name, values := range r.Header {
		switch name {
		case "Expect", "Upgrade", "Transfer-Encoding", "Trailer":
			return false
		case "Connection":
			if len(values) > 1 || !strings.EqualFold(values[0], "keep-alive") {
				return false
			}
		}
		if !isWord(name, "_") || slices.ContainsFunc(values, isOdd) {
			return false
		}
	}
	return true
}

// isWord reports whether s is letters, digits, hyphens and some other characters.
func isWord(s, others string) bool {
	return strings.IndexFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && !strings.ContainsRune(others, c)
	}) < 0
}

// isOdd reports whether a header's value is more than printable ASCII.
func isOdd(value string) bool {
	return strings.IndexFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) >= 0
}
