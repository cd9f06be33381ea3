package httpapi

import (
	linked "container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
)

// ConnectionCounts is how many connections there are, and what became of those that were too many.
type ConnectionCounts struct {
	Open      int64
	Refused   int64 // for want of a place
	Crowded   int64 // refused because its address had too many
	Displaced int64 // closed to make room for a newcomer
}

// connectionCounts are those of a server, over all its listeners.
type connectionCounts struct{ open, refused, crowded, displaced atomic.Int64 }

// Connections counts.
func (s *Server) Connections() ConnectionCounts {
	c := &s.connections
	return ConnectionCounts{Open: c.open.Load(), Refused: c.refused.Load(), Crowded: c.crowded.Load(),
		Displaced: c.displaced.Load()}
}

// bounds keep a place for every connection. Without them connections could take the descriptors that the store needs
// for its files.
//
// When all places are taken, a newcomer gets that of the connection which is open for longest without a valid key. So
// callers without one cannot keep out, nor push out, those who have one. Is there none, the newcomer is refused.
type bounds struct {
	all, perAddress int // zero: no bound
	counts          *connectionCounts

	mu      sync.Mutex // guards all below
	open    int
	from    map[netip.Prefix]int
	unknown linked.List // of *connection: those that have not shown a valid key, the oldest first
}

func newBounds(o *Options, counts *connectionCounts) *bounds {
	return &bounds{all: o.MaxConnections, perAddress: o.MaxConnectionsPerAddress, counts: counts,
		from: map[netip.Prefix]int{}}
}

// connection is at the bottom of all that reads and writes it: closing it frees its place.
type connection struct {
	net.Conn
	bounds  *bounds
	address netip.Prefix
	known   atomic.Bool // a request on it came with a valid key
	// waits is its place among the unknown, left once that it is out. bounds.mu guards both.
	waits *linked.Element
	left  bool
}

// enter gives a connection a place, or says why it has none.
func (b *bounds) enter(conn net.Conn) (*connection, *problem.Error) {
	c := &connection{Conn: conn, bounds: b, address: addressOf(conn)}
	displaced, refused := b.place(c)
	if displaced != nil {
		b.counts.displaced.Add(1)
		_ = displaced.Close()
	}
	if refused != nil {
		return nil, refused
	}
	return c, nil
}

func (b *bounds) place(c *connection) (displaced *connection, refused *problem.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.perAddress > 0 && b.from[c.address] >= b.perAddress {
		b.counts.crowded.Add(1)
		return nil, problem.New(problem.Busy, "this address has %d connections open, which is all that it may have "+
			"(http.max_connections_per_address): use them again, or close some", b.perAddress)
	}
	if b.all > 0 && b.open >= b.all {
		oldest := b.unknown.Front()
		if oldest == nil {
			b.counts.refused.Add(1)
			return nil, problem.New(problem.Busy, "%d connections are open, which is all that this server takes "+
				"(http.max_connections): try again", b.all)
		}
		displaced, _ = oldest.Value.(*connection)
		b.remove(displaced)
	}
	b.open++
	b.counts.open.Add(1)
	if b.perAddress > 0 {
		b.from[c.address]++
	}
	c.waits = b.unknown.PushBack(c)
	return displaced, nil
}

// remove frees a connection's place. mu is held.
func (b *bounds) remove(c *connection) {
	if c.left {
		return
	}
	c.left = true
	b.open--
	b.counts.open.Add(-1)
	b.forget(c)
	if b.perAddress == 0 {
		return
	}
	if b.from[c.address]--; b.from[c.address] == 0 {
		delete(b.from, c.address)
	}
}

// forget takes a connection off the unknown. mu is held.
func (b *bounds) forget(c *connection) {
	if c.waits != nil {
		b.unknown.Remove(c.waits)
		c.waits = nil
	}
}

// Close frees the place after the descriptor.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.bounds.mu.Lock()
	defer c.bounds.mu.Unlock()
	c.bounds.remove(c)
	return err
}

// CloseWrite ends what is written, so that the caller can still read an answer although more of its request is coming.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Received and HangUp change nothing: what reads and writes the connection sees for itself.
func (*connection) Received() {}
func (*connection) HangUp()   {}

// ShowedKey keeps the connection from being displaced.
func (c *connection) ShowedKey() {
	if c.known.Swap(true) {
		return
	}
	c.bounds.mu.Lock()
	defer c.bounds.mu.Unlock()
	c.bounds.forget(c)
}

// wholeNetwork is what one caller has of IPv6 addresses.
const wholeNetwork = 64

// addressOf is who a connection comes from.
func addressOf(conn net.Conn) netip.Prefix {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	a := remote.AddrPort().Addr().Unmap()
	bits := a.BitLen()
	if a.Is6() {
		bits = wholeNetwork
	}
	p, _ := a.WithZone("").Prefix(bits) // of no address: none
	return p
}

// acceptedFor is how long accepting must have gone well before a failure is over: at the limit of open files it fails
// and goes well by turns, with every connection that ends.
const acceptedFor = 10 * time.Second

// accepting is whether a listener can take connections. It belongs to the goroutine that accepts.
type accepting struct {
	bounds *bounds
	log    *slog.Logger
	failed int // times; zero: it works
	since  time.Time
	last   time.Time
}

// failure reports, when it begins, why no connection is taken: net/http waits and tries again without a word that an
// operator sees.
func (a *accepting) failure(err error) {
	if errors.Is(err, net.ErrClosed) {
		return
	}
	a.last = time.Now()
	if a.failed++; a.failed > 1 {
		return
	}
	a.since = a.last
	hint := "it is tried again"
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		hint = "raise the limit of open files (ulimit -n), or lower http.max_connections"
	}
	a.log.Warn("connections cannot be accepted", "error", err, "open", a.bounds.counts.open.Load(),
		"http.max_connections", a.bounds.all, "hint", hint)
}

// success reports that a failure is over.
func (a *accepting) success() {
	if a.failed == 0 || time.Since(a.last) < acceptedFor {
		return
	}
	a.log.Warn("connections are accepted again", "failures", a.failed, "after", a.last.Sub(a.since))
	a.failed = 0
}

// withConnection is http.Server.ConnContext.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	switch c := conn.(type) {
	case *handed:
		return httpkit.WithConnection(ctx, c)
	case *tls.Conn: // HTTP/2
		if base, ok := c.NetConn().(*connection); ok {
			return httpkit.WithConnection(ctx, base)
		}
	}
	return ctx
}

// linger reads until the caller has closed or the connection's deadline has passed.
func linger(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, conn)
}
