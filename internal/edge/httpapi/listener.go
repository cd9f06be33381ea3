package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// # The way of a connection
//
// A connection is counted (connections.go), speaks TLS if that is configured (tls.go), and starts in an express lane
// (lane.go). What is not for a lane goes to net/http (handed.go), with every byte that was read and not answered, and
// stays there.
//
// A request with one event costs net/http more than it costs the store: a goroutine and a read that watch for the
// caller to hang up, timers, maps of headers, a context. Measured with 64 connections on two busy cores, a request in a
// lane takes 50 to 65 % of the processor time that it takes through net/http, the client's part included, and a third
// of the memory.
//
// A lane serves requests that are plain: POST /v1/events, framed by a Content-Length, small, with nothing said about
// the connection. What a lane does not know it need not refuse. What it does not do itself:
//
//  1. It parses no header. http.ReadRequest does, so that there is one opinion on where a request ends; a lane
//     remembers the heads of its connection, which repeat, and the requests that came of them.
//  2. It answers nothing of its own. A head that is malformed or too large is passed on, and net/http refuses it.
//  3. It decides nothing: ServeHTTP cannot distinguish a lane from net/http.
//
// The timeouts mean what they mean in net/http, and time spent in a lane counts: a request has one deadline for its
// head and one for all of it, however its bytes arrive and whoever reads them.
//
// What is lost: a caller that hangs up is noticed when the answer is written, not before.

// Listener accepts connections, serves plain requests itself and hands out the other connections.
type Listener struct {
	inner  net.Listener
	api    *Server
	tls    *tls.Config // nil: plain HTTP
	bounds *bounds
	passed chan net.Conn
	failed chan error // of accepting

	turning chan struct{} // holds one of those who are turned away and wait for the end of their connection

	ctx     context.Context // of every request; ends when what is under way is cut off
	cut     context.CancelFunc
	closing atomic.Pointer[time.Time] // set once it closes: until then a request that has begun may still arrive
	closed  chan struct{}
	running sync.WaitGroup // what serves connections, and who accepts them
	late    *time.Timer    // set by Close: the drain timeout

	mu   sync.Mutex // guards open
	open map[draining]struct{}
}

// draining is a connection that closing concerns. Its methods are called from other goroutines than its own.
type draining interface {
	wake()   // closing begins: a connection without a request ends
	giveUp() // the rest of a request need not be waited for any more
	end()    // the drain timeout has passed
}

// Listen puts bounds, TLS and the express lane before a listener; HTTPServer serves what it returns.
func (s *Server) Listen(inner net.Listener) *Listener {
	l := &Listener{
		inner: inner, api: s, tls: s.options.TLS, bounds: newBounds(&s.options, &s.connections),
		passed: make(chan net.Conn), failed: make(chan error), turning: make(chan struct{}, maxTurning),
		closed: make(chan struct{}), open: map[draining]struct{}{},
	}
	l.ctx, l.cut = context.WithCancel(context.Background())
	l.running.Go(l.acceptAll)
	return l
}

// acceptAll serves every connection that finds a place. Errors are net/http's to judge, which waits after those that
// pass.
func (l *Listener) acceptAll() {
	state := accepting{bounds: l.bounds, log: l.api.log}
	for {
		conn, err := l.inner.Accept()
		if err == nil {
			state.success()
			c, refused := l.bounds.enter(conn)
			if refused != nil {
				l.turnAway(conn, refused)
				continue
			}
			l.running.Go(func() { l.serve(c) })
			continue
		}
		state.failure(err)
		select {
		case l.failed <- err:
		case <-l.closed:
			return
		}
	}
}

const (
	// maxTurning bounds those who are turned away at a time; more are closed without a word.
	maxTurning = 64
	// turnFor is how long one who is turned away has to read why: a connection that is closed while bytes of its
	// request are still coming may lose the answer.
	turnFor = time.Second
)

// turnAway refuses a connection without making others wait. Inside TLS nothing can be said before a handshake.
func (l *Listener) turnAway(conn net.Conn, refused *problem.Error) {
	select {
	case l.turning <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	l.running.Go(func() {
		defer func() {
			_ = conn.Close()
			<-l.turning
		}()
		if l.tls != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(turnFor))
		if _, err := conn.Write(l.api.refusal(refused)); err == nil {
			linger(conn)
		}
	})
}

// serve takes a connection through its handshake to a lane, or to net/http.
func (l *Listener) serve(c *connection) {
	var conn net.Conn = c
	if l.tls != nil {
		secured := l.handshake(c)
		if secured == nil {
			return
		}
		if secured.ConnectionState().NegotiatedProtocol == http2 {
			if !l.hand(secured) {
				_ = secured.Close()
			}
			return
		}
		conn = secured
	}
	if l.api.options.NoExpress {
		if !l.pass(c, conn, nil, 0) {
			_ = conn.Close()
		}
		return
	}
	newLane(l, c, conn).run()
}

// Accept returns the next connection that is for net/http.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.passed:
		return conn, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Addr is the inner listener's.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Close takes no more connections and closes those that wait for a request. Requests that have begun may arrive within
// DrainReceive and be answered within DrainTimeout; Wait waits for them.
func (l *Listener) Close() error {
	arriveBy := time.Now().Add(l.api.options.DrainReceive)
	l.mu.Lock()
	if l.closing.Load() != nil {
		l.mu.Unlock()
		return net.ErrClosed
	}
	l.closing.Store(&arriveBy)
	l.late = time.AfterFunc(l.api.options.DrainTimeout, func() {
		l.cut()
		l.each(draining.end)
	})
	l.mu.Unlock()
	close(l.closed)
	err := l.inner.Close()
	l.each(draining.wake)
	// Those that give up are net/http's connections, which outlive Wait.
	time.AfterFunc(l.api.options.DrainReceive, func() { l.each(draining.giveUp) })
	return err
}

// Wait returns when it is closed and no connection is in its hands any more. Those of net/http are
// http.Server.Shutdown's to wait for.
func (l *Listener) Wait() {
	<-l.closed
	l.running.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late.Stop()
	l.cut()
}

// longAgo makes a read that waits return.
var longAgo = time.Unix(1, 0)

func (l *Listener) enter(d draining) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[d] = struct{}{}
}

func (l *Listener) leave(d draining) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, d)
}

func (l *Listener) each(do func(draining)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for d := range l.open {
		do(d)
	}
}

// pass gives a connection of HTTP/1 to net/http with what was read of it. spent is how much of its first request's time
// is over. It reports false when nobody takes connections any more.
func (l *Listener) pass(c *connection, conn net.Conn, read []byte, spent time.Duration) bool {
	_ = conn.SetDeadline(time.Time{}) // a connection that is gone says so when it is read
	h := newHanded(l, c, conn, read, spent)
	l.enter(h)
	if !l.hand(h) {
		l.leave(h)
		return false
	}
	return true
}

func (l *Listener) hand(conn net.Conn) bool {
	select {
	case l.passed <- conn:
		return true
	case <-l.closed:
		return false
	}
}

// isTimeout reports whether a read or write ended because of its deadline.
func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
