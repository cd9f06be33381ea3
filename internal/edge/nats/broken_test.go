package nats

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/tallystick/tallystick/internal/natstest"
	"github.com/tallystick/tallystick/internal/service/sinks"
)

// breaking dials connections on which a chosen write, counted over all of them, happens differently.
type breaking struct {
	writes atomic.Int64
	at     atomic.Int64 // the write that breaks; 0 is none
	broken func(c net.Conn, b []byte) (int, error)
}

// breakAfter lets n writes pass and breaks the next.
func (d *breaking) breakAfter(n int64) { d.at.Store(d.writes.Load() + n + 1) }

func (d *breaking) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &breakingConn{Conn: c, of: d}, nil
}

type breakingConn struct {
	net.Conn
	of *breaking
}

func (c *breakingConn) Write(b []byte) (int, error) {
	if c.of.writes.Add(1) == c.of.at.Load() {
		return c.of.broken(c.Conn, b)
	}
	return c.Conn.Write(b)
}

// deliver tries a delivery until it succeeds, as the service does.
func deliver(t *testing.T, s *Sink, d *sinks.Delivery) {
	t.Helper()
	const tries = 1000
	var err error
	for range tries {
		if err = s.Deliver(t.Context(), d); err == nil {
			return
		}
	}
	t.Fatalf("%d tries failed: %v", tries, err)
}

// Given a connection that breaks at any of its writes, before the server has it, in its middle and after, when
// deliveries are tried until they succeed, then every row has arrived in order.
func TestConnectionsThatBreak(t *testing.T) {
	broker := natstest.Start(t)
	stream(t, broker, unchanged)
	d := &breaking{}
	s := sink(t, Options{Servers: []string{broker.URL()}, Dial: d.dial})
	seq := uint64(1)
	for _, broken := range []func(c net.Conn, b []byte) (int, error){
		func(c net.Conn, _ []byte) (int, error) { return 0, errors.Join(net.ErrClosed, c.Close()) },
		func(c net.Conn, b []byte) (int, error) {
			n, err := c.Write(b[:len(b)/2])
			return n, errors.Join(net.ErrClosed, err, c.Close())
		},
		func(c net.Conn, b []byte) (int, error) {
			n, err := c.Write(b)
			return n, errors.Join(err, c.Close())
		},
	} {
		d.broken = broken
		for ahead := range int64(8) {
			d.breakAfter(ahead)
			deliver(t, s, delivery("acme", seq, 50, 3000))
			seq += 50
		}
	}
	inOrder(t, messages(t, broker), "acme", int(seq)-1)
}

// Given a server that stops while it has rows that it did not acknowledge, when it comes back and deliveries are tried
// until they succeed, then every row is there in order.
func TestAServerStops(t *testing.T) {
	broker := natstest.Start(t)
	stream(t, broker, unchanged)
	d := &breaking{}
	s := sink(t, Options{Servers: []string{broker.URL()}, Dial: d.dial})
	seq := uint64(1)
	for ahead := range int64(5) {
		began := make(chan error, 1)
		d.broken = func(c net.Conn, b []byte) (int, error) {
			n, err := c.Write(b)
			broker.Stop()
			began <- broker.Begin()
			return n, err
		}
		d.breakAfter(ahead)
		for len(began) == 0 {
			deliver(t, s, delivery("acme", seq, 100, 3000))
			seq += 100
		}
		if err := <-began; err != nil {
			t.Fatal(err)
		}
	}
	inOrder(t, messages(t, broker), "acme", int(seq)-1)
}
