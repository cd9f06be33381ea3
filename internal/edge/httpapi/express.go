package httpapi

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// # The express lane
//
// A request with one event costs net/http more than it costs the store: a goroutine and a read that watch for the caller to
// hang up, timers, maps of headers, a context. Measured with 64 connections on two busy cores, a request in a lane takes 50 to 65 %
// of the processor time that it takes through net/http, the client's part included, and a third of the memory.
//
// So a connection starts in a lane. The lane serves requests that are plain: POST /v1/events, framed by a Content-Length, small,
// with nothing said about the connection. At the first that is not, the connection goes to net/http with every byte that was
// read and not answered, and stays there. What a lane does not know it need not refuse.
//
// What the lane does not do itself:
//
//  1. It parses no header. http.ReadRequest does, so that there is one opinion on where a request ends; a lane remembers the heads
//     of its connection, which repeat, and the requests that came of them.
//  2. It answers nothing of its own. A head that is malformed, late or too large is passed on, and net/http says what it says.
//  3. It decides nothing: ServeHTTP cannot tell a lane from net/http.
//
// What is lost: a caller that hangs up is noticed when the answer is written, not before.

// express is a listener that serves plain requests itself and hands out the other connections.
type express struct {
	inner  net.Listener
	api    *Server
	passed chan net.Conn
	failed chan error // of accepting

	ctx     context.Context // of every request; ends when what is under way is cut off
	cut     context.CancelFunc
	closing atomic.Bool
	closed  chan struct{}
	running sync.WaitGroup // the lanes and who opens them

	mu    sync.Mutex // guards lanes
	lanes map[*lane]struct{}
}

// Express puts an express lane before a listener; HTTPServer serves what it returns. Closing it closes the connections that wait
// for a request, lets requests under way finish within the drain timeout, and returns when no lane is left.
func (s *Server) Express(inner net.Listener) net.Listener {
	e := &express{inner: inner, api: s, passed: make(chan net.Conn), failed: make(chan error), closed: make(chan struct{}), lanes: map[*lane]struct{}{}}
	e.ctx, e.cut = context.WithCancel(context.Background())
	e.running.Go(e.acceptAll)
	return e
}

// acceptAll opens a lane for every connection. Errors are the server's to judge, which waits after those that pass.
func (e *express) acceptAll() {
	for {
		conn, err := e.inner.Accept()
		if err == nil {
			l := newLane(e, conn)
			e.enter(l)
			e.running.Go(l.run)
			continue
		}
		select {
		case e.failed <- err:
		case <-e.closed:
			return
		}
	}
}

// Accept returns the next connection that is not for a lane.
func (e *express) Accept() (net.Conn, error) {
	select {
	case conn := <-e.passed:
		return conn, nil
	case err := <-e.failed:
		return nil, err
	case <-e.closed:
		return nil, net.ErrClosed
	}
}

// Addr is the inner listener's.
func (e *express) Addr() net.Addr { return e.inner.Addr() }

// Close implements net.Listener.
func (e *express) Close() error {
	if e.closing.Swap(true) {
		return net.ErrClosed
	}
	close(e.closed)
	err := e.inner.Close()
	e.each(func(l *lane) { _ = l.conn.SetReadDeadline(longAgo) })
	late := time.AfterFunc(e.api.options.DrainTimeout, func() {
		e.cut()
		e.each(func(l *lane) { _ = l.conn.Close() })
	})
	e.running.Wait()
	late.Stop()
	e.cut()
	return err
}

// longAgo makes a read that waits return.
var longAgo = time.Unix(1, 0)

func (e *express) enter(l *lane) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lanes[l] = struct{}{}
}

func (e *express) leave(l *lane) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.lanes, l)
}

func (e *express) each(do func(*lane)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := range e.lanes {
		do(l)
	}
}

// pass hands a connection to net/http with what was read of it. It reports false when nobody takes connections any more.
func (e *express) pass(conn net.Conn, read []byte) bool {
	_ = conn.SetDeadline(time.Time{}) // a connection that is gone says so when it is read
	select {
	case e.passed <- &begun{Conn: conn, read: read}:
		return true
	case <-e.closed:
		return false
	}
}

// begun is a connection of which a part was read already.
type begun struct {
	net.Conn
	read []byte
}

func (c *begun) Read(b []byte) (int, error) {
	if len(c.read) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.read)
	if c.read = c.read[n:]; len(c.read) == 0 {
		c.read = nil
	}
	return n, nil
}

// CloseWrite lets net/http end a connection so that the caller can still read the answer to a body that was refused.
func (c *begun) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
