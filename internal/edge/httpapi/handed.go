package httpapi

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
)

// handed is a connection of HTTP/1 in net/http's hands. It is between the library and the caller for three reasons:
//
//  1. What a lane has read, and the time that took, belong to the first request.
//  2. What the library refuses before there is a handler (a head that is no HTTP, too large, of another version, with
//     an expectation that nobody meets) it writes itself, as plain text. Everything that is written while no handler
//     answers is such a refusal, and is written as a problem instead. A head that did not arrive in time is no request,
//     and nobody answers it; the library would take a line that breaks off for malformed.
//  3. A drain must not wait for the rest of a request.
type handed struct {
	net.Conn
	listener *Listener
	base     *connection
	read     []byte       // read already, and not by net/http
	spent    atomic.Int64 // of the time of the first request, in nanoseconds

	expired   atomic.Bool // a read of a head has met its deadline
	answering atomic.Bool // a handler has begun, and its answer is not complete
	received  atomic.Bool // and its request has arrived whole
}

func newHanded(l *Listener, base *connection, conn net.Conn, read []byte, spent time.Duration) *handed {
	h := &handed{Conn: conn, listener: l, base: base, read: read}
	h.spent.Store(int64(spent))
	return h
}

func (h *handed) Read(b []byte) (int, error) {
	if len(h.read) == 0 {
		n, err := h.Conn.Read(b)
		if err != nil && !h.answering.Load() && isTimeout(err) {
			h.expired.Store(true)
		}
		return n, err
	}
	n := copy(b, h.read)
	if h.read = h.read[n:]; len(h.read) == 0 {
		h.read = nil
	}
	return n, nil
}

func (h *handed) Write(b []byte) (int, error) {
	if h.answering.Load() {
		return h.Conn.Write(b)
	}
	refused := h.listener.api.refusedByLibrary(string(b))
	if refused == nil {
		return h.Conn.Write(b)
	}
	if h.expired.Load() {
		return len(b), nil
	}
	if _, err := h.Conn.Write(h.listener.api.refusal(refused)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// SetReadDeadline counts what the first request has used up.
func (h *handed) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		t = t.Add(-time.Duration(h.spent.Load()))
	}
	return h.Conn.SetReadDeadline(t)
}

// CloseWrite lets net/http end a connection so that the caller can still read the answer to a body that was refused.
func (h *handed) CloseWrite() error {
	if half, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (h *handed) Close() error {
	h.listener.leave(h)
	return h.Conn.Close()
}

func (h *handed) wake() {} // net/http closes those without a request by itself
func (h *handed) end()  {} // and so does http.Server.Close

// giveUp ends a read that waits for more of a request. A read while a request is handled only watches for the caller to
// hang up.
func (h *handed) giveUp() {
	if !h.received.Load() {
		_ = h.Conn.SetReadDeadline(longAgo)
	}
}

// ShowedKey keeps the connection from being displaced.
func (h *handed) ShowedKey() { h.base.ShowedKey() }

// Received lets a drain wait for the answer.
func (h *handed) Received() { h.received.Store(true) }

// HangUp reads for a moment what is on its way, so that the caller can read the refusal.
func (h *handed) HangUp() { _ = h.Conn.SetReadDeadline(time.Now().Add(turnFor)) }

// handle is the handler of HTTPServer.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	if h, ok := httpkit.ConnectionOf(r).(*handed); ok {
		h.answering.Store(true)
		h.received.Store(r.Body == http.NoBody)
	}
	s.ServeHTTP(w, r)
}

// connState is http.Server.ConnState.
func connState(conn net.Conn, state http.ConnState) {
	if h, ok := conn.(*handed); ok && state == http.StateIdle {
		h.spent.Store(0)
		h.expired.Store(false)
		h.answering.Store(false)
		h.received.Store(false)
	}
}

// refusedByLibrary is the problem that the library's own answer stands for; nil: it is not known here.
func (s *Server) refusedByLibrary(answer string) *problem.Error {
	line, _, _ := strings.Cut(answer, "\r\n")
	_, line, _ = strings.Cut(line, " ")
	digits, text, _ := strings.Cut(line, " ")
	status, _ := strconv.Atoi(digits)
	switch status {
	case http.StatusBadRequest:
		_, why, given := strings.Cut(text, ": ")
		if !given {
			why = "a line of its head cannot be understood, or it ends too early"
		}
		return problem.New(problem.Malformed, "the request is not HTTP/1.1: %s", why)
	case http.StatusExpectationFailed:
		return problem.New(problem.ExpectationFailed, "the header Expect may only be 100-continue")
	case http.StatusRequestHeaderFieldsTooLarge:
		return problem.New(problem.HeaderTooLarge, "the request line and the header may have at most %d bytes",
			s.options.MaxHeaderBytes)
	case http.StatusNotImplemented:
		return problem.New(problem.NotImplemented, "the only Transfer-Encoding is chunked")
	case http.StatusHTTPVersionNotSupported:
		return problem.New(problem.VersionNotSupported, "the versions are HTTP/1.1, HTTP/1.0 and, with TLS, HTTP/2")
	}
	return nil
}
