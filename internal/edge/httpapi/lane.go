package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/edge/httpkit"
)

const (
	// laneBuffer bounds a plain request, head and body: one event of usual size. It is what net/http sets aside for
	// reading, too.
	laneBuffer = 4 << 10
	// firstBuffer is what a connection has until it sends more: most of those that send little never do.
	firstBuffer = 512
	// maxHeads bounds the heads that a lane remembers. Those of one caller differ in the Content-Length alone.
	maxHeads = 32
	// shortestMethod is what net/http waits for between requests: fewer bytes before the end are not worth an answer.
	shortestMethod = 4
	// exactness is the part of a timeout, one in so many, by which the deadlines for idling and for writing may come
	// early: to set them for every request would cost more than exact ones are worth.
	exactness = 16
)

var plainStart = []byte("POST " + eventsPath + " HTTP/1.1\r\n")

// lane serves the plain requests of one connection, one after the other. All of it belongs to the goroutine of run;
// others only set deadlines on the connection and close it.
type lane struct {
	listener *Listener
	base     *connection
	conn     net.Conn        // what speaks HTTP on it
	ctx      context.Context // a lane has its own, so that lanes do not contend for one
	cancel   context.CancelFunc
	buf      []byte
	have     int // bytes of buf that were read and not served
	least    int // bytes that are the start of a request
	heads    map[string]*http.Request
	body     plainBody
	answer   plainAnswer
	began    time.Time // when the time of this request began to run; zero: with the bytes that are there
	readBy   time.Time // the deadlines that are set
	writeBy  time.Time
	late     bool // the head did not arrive in time
	passed   bool // the connection is no longer the lane's
}

// plainBody is the part of the buffer that the request's head announces. It is read while it arrives, so that a handler
// which refuses the head need not wait for it.
type plainBody struct {
	lane    *lane
	at, end int // in the lane's buffer
}

func (b *plainBody) Read(into []byte) (int, error) {
	if b.at == b.end {
		return 0, io.EOF
	}
	if b.at == b.lane.have {
		if err := b.lane.more(b.lane.listener.api.options.ReadTimeout); err != nil {
			return 0, err
		}
	}
	n := copy(into, b.lane.buf[b.at:min(b.lane.have, b.end)])
	b.at += n
	return n, nil
}

// skip waits for the rest, as net/http does for the connection to go on.
func (b *plainBody) skip() error {
	for b.lane.have < b.end {
		if err := b.lane.more(b.lane.listener.api.options.ReadTimeout); err != nil {
			return err
		}
	}
	return nil
}

func (*plainBody) Close() error { return nil }

func newLane(l *Listener, base *connection, conn net.Conn) *lane {
	n := &lane{listener: l, base: base, conn: conn, buf: make([]byte, firstBuffer), least: 1, began: time.Now()}
	n.ctx, n.cancel = context.WithCancel(httpkit.WithConnection(l.ctx, base))
	return n
}

// run serves until the connection ends, or passes it on.
func (l *lane) run() {
	l.listener.enter(l)
	defer l.finish()
	l.readUntil(l.began.Add(l.listener.api.options.ReadHeaderTimeout)) // as net/http has it for the first request
	for l.await() {
		r, size := l.plain()
		if r == nil {
			l.passOn()
			return
		}
		l.answer.begin()
		l.listener.api.ServeHTTP(&l.answer, r)
		refused := l.answer.closes()
		var lost error
		if !refused {
			lost = l.body.skip()
		}
		last := refused || isTimeout(lost) || l.listener.closing.Load() != nil
		now := time.Now()
		if _, err := l.conn.Write(l.answer.bytes(now, last)); err != nil {
			return
		}
		if refused && l.have < size {
			_ = l.conn.SetDeadline(now.Add(turnFor))
			linger(l.conn)
		}
		if last || lost != nil {
			return
		}
		l.have, l.least, l.began = copy(l.buf, l.buf[size:l.have]), shortestMethod, time.Time{}
		l.idleFrom(now)
	}
}

// finish closes the connection, if it was not passed on. A handler that panics has logged why and wants the connection
// cut.
func (l *lane) finish() {
	cause := recover()
	if cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // a sentinel that is never wrapped
		l.listener.api.log.Error("panic in a lane", "panic", cause, "stack", string(debug.Stack()))
	}
	l.cancel()
	l.listener.leave(l)
	if !l.passed {
		_ = l.conn.Close()
	}
}

func (l *lane) wake()   { _ = l.conn.SetReadDeadline(longAgo) }
func (l *lane) giveUp() {} // it knows by when its request must arrive
func (l *lane) end()    { _ = l.base.Close() }

// await returns when the buffer holds the start of a request, and reports false when the connection has ended or
// should.
func (l *lane) await() bool {
	// Closing sets a deadline after it has said so: the one that was set before this is either seen here or overruled.
	if l.listener.closing.Load() != nil {
		return false
	}
	for l.have < l.least {
		n, err := l.conn.Read(l.buf[l.have:])
		l.have += n
		if err != nil {
			return false
		}
	}
	if l.least == shortestMethod { // not the first: the one before was a POST, after which net/http forgives line ends
		extra := leadingLineEnds(l.buf[:shortestMethod])
		l.have = copy(l.buf, l.buf[extra:l.have])
	}
	return true
}

func leadingLineEnds(b []byte) (n int) {
	for n < len(b) && (b[n] == '\r' || b[n] == '\n') {
		n++
	}
	return n
}

// idleFrom bounds the wait for the next request.
func (l *lane) idleFrom(now time.Time) {
	wait := l.listener.api.options.IdleTimeout
	if l.readBy.Sub(now) < wait-wait/exactness || l.readBy.Sub(now) > wait {
		l.readUntil(now.Add(wait))
	}
}

// answerFrom bounds the answer to a request whose head has come.
func (l *lane) answerFrom(now time.Time) {
	wait := l.listener.api.options.WriteTimeout
	if l.writeBy.Sub(now) < wait-wait/exactness {
		l.writeBy = now.Add(wait)
		_ = l.conn.SetWriteDeadline(l.writeBy) // a connection that is gone says so when it is used
	}
}

func (l *lane) readUntil(t time.Time) {
	l.readBy = t
	_ = l.conn.SetReadDeadline(t)
}

// plain returns the request that the buffer starts with, and its length; its body may still be on its way. It is nil if
// the request is not plain, or does not come.
func (l *lane) plain() (r *http.Request, size int) {
	for {
		b := l.buf[:l.have]
		if n := min(len(b), len(plainStart)); !bytes.Equal(b[:n], plainStart[:n]) {
			return nil, 0
		}
		if head := headEnd(b); head > 0 {
			if r = l.request(b[:head]); r == nil || r.ContentLength > int64(laneBuffer-head) {
				return nil, 0
			}
			l.answerFrom(time.Now())
			size = head + int(r.ContentLength)
			l.body = plainBody{lane: l, at: head, end: size}
			return r, size
		}
		if err := l.more(l.listener.api.options.ReadHeaderTimeout); err != nil {
			l.late = isTimeout(err)
			return nil, 0
		}
	}
}

// headEnd is where the head ends: after the first blank line, however it and the line before it are spelled. Zero: it
// does not yet.
func headEnd(b []byte) int {
	end := bytes.Index(b, []byte("\n\r\n")) + len("\n\r\n")
	if end < len("\n\r\n") {
		end = len(b)
	}
	if bare := bytes.Index(b[:end], []byte("\n\n")); bare >= 0 {
		return bare + len("\n\n")
	}
	if !bytes.HasSuffix(b[:end], []byte("\n\r\n")) {
		return 0
	}
	return end
}

// more reads on, until a time after the request began. Closing wakes it, as it wakes those that wait for a request, but
// a request that has begun may still come for a little while.
func (l *lane) more(within time.Duration) error {
	if l.have == laneBuffer {
		return bufio.ErrBufferFull
	}
	if l.have == len(l.buf) {
		l.buf = append(make([]byte, 0, laneBuffer), l.buf...)[:laneBuffer]
	}
	if l.began.IsZero() {
		l.began = time.Now()
	}
	until := l.began.Add(within)
	for {
		if !l.readBy.Equal(until) {
			l.readUntil(until)
		}
		if closing := l.listener.closing.Load(); closing != nil && closing.Before(until) {
			until = *closing
			continue
		}
		n, err := l.conn.Read(l.buf[l.have:])
		l.have += n
		if n > 0 || !isTimeout(err) || !time.Now().Before(until) {
			return err
		}
		l.readBy = time.Time{} // closing has replaced it
	}
}

// passOn gives the connection to net/http, with what was read. A head that did not arrive in time is no request, and
// nobody answers it, unless what there is of it is malformed.
func (l *lane) passOn() {
	if l.late && !l.answerable() {
		return
	}
	spent := time.Duration(0)
	if !l.began.IsZero() {
		spent = time.Since(l.began)
	}
	l.listener.leave(l) // from here on closing leaves the connection alone
	l.passed = l.listener.pass(l.base, l.conn, l.buf[:l.have], spent)
}

// answerable reports whether there is something to answer: a head that is malformed. A first line that is right so far
// is not, although net/http would take it for malformed: ten thousand that break off at once are not worth that much
// work.
func (l *lane) answerable() bool {
	if l.have < len(plainStart) {
		return false
	}
	_, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(l.buf[:l.have])))
	return !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF)
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
	if l.heads == nil {
		l.heads = map[string]*http.Request{}
	}
	if len(l.heads) == maxHeads {
		clear(l.heads)
	}
	l.heads[string(head)] = r
	return r
}

// isPlain refuses all that would change how the body is framed or what becomes of the connection, and what net/http
// looks at more closely than its parser.
func isPlain(r *http.Request) bool {
	if r.ContentLength < 0 || len(r.TransferEncoding) > 0 || r.Trailer != nil || r.Close || r.Host == "" ||
		!isWord(r.Host, ".:_") {
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
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' &&
			!strings.ContainsRune(others, c)
	}) < 0
}

// isOdd reports whether a header's value is more than printable ASCII.
func isOdd(value string) bool {
	return strings.IndexFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) >= 0
}
