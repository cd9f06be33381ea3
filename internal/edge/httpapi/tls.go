package httpapi

import (
	"crypto/tls"
	"errors"
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// http2 is how a client and a server agree on HTTP/2.
const http2 = "h2"

// shaking is a connection in its TLS handshake: it has no request, so closing ends it.
type shaking struct{ *connection }

func (s *shaking) wake()   { _ = s.Close() }
func (s *shaking) giveUp() { _ = s.Close() }
func (s *shaking) end()    { _ = s.Close() }

// handshake returns nil when there is no agreement; the connection is closed then. It has the time of a request's head.
func (l *Listener) handshake(c *connection) *tls.Conn {
	s := &shaking{c}
	l.enter(s)
	defer l.leave(s)
	if l.closing.Load() != nil { // before it was entered
		_ = c.Close()
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(l.api.options.ReadHeaderTimeout))
	secured := tls.Server(c, l.tls)
	if err := secured.HandshakeContext(l.ctx); err != nil {
		l.refusePlain(c, err)
		_ = c.Close()
		l.api.log.Debug("no TLS handshake", "address", c.RemoteAddr(), "error", err)
		return nil
	}
	_ = c.SetDeadline(time.Time{})
	return secured
}

// methods that a request in plain HTTP begins with, as many bytes as a TLS record's header has.
var plainMethods = []string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO"}

// refusePlain answers a caller that speaks HTTP where TLS is wanted.
func (l *Listener) refusePlain(c *connection, err error) {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) || !slices.Contains(plainMethods, string(record.RecordHeader[:])) {
		return
	}
	_ = c.SetDeadline(time.Now().Add(turnFor))
	refused := problem.New(problem.Malformed, "this address speaks HTTPS: use https://")
	if _, err := c.Write(l.api.refusal(refused)); err == nil {
		linger(c)
	}
}
