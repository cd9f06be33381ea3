package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallystick/tallystick/internal/service/sinks"
)

const (
	// window is how many rows of a delivery are sent before the first acknowledgement.
	window = 256
	// maxPending bounds the rows of all deliveries that wait for one.
	maxPending = 64 * window
	// A connection that does not answer is given up after pingEvery times maxPings.
	pingEvery = 5 * time.Second
	maxPings  = 2
)

// wrongLastID is the stream's refusal of a row whose predecessor is not the last message.
const wrongLastID jetstream.ErrorCode = 10070

// errLost is why deliveries end whose connection does.
var errLost = errors.New("the connection was lost")

// link is one connection. When it is lost it stays so.
type link struct {
	conn   *nats.Conn
	stream jetstream.JetStream
	lost   chan struct{} // closed then
}

// connect opens a connection to any of the servers.
func connect(ctx context.Context, o *Options) (*link, error) {
	l := &link{lost: make(chan struct{})}
	d := &dialer{ctx: ctx, o: o}
	settings := nats.GetDefaultOptions()
	settings.Name, settings.Servers = "tallystick", o.Servers
	settings.CustomDialer, settings.SkipHostLookup, settings.IgnoreDiscoveredServers = d, true, true
	settings.AllowReconnect = false
	settings.Timeout, settings.FlusherTimeout = o.DialTimeout, o.DialTimeout
	settings.PingInterval, settings.MaxPingsOut = pingEvery, maxPings
	settings.ClosedCB = func(*nats.Conn) { close(l.lost) }
	settings.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {} // else it is printed
	conn, err := settings.Connect()
	if err = d.release(err); err != nil {
		if conn != nil {
			conn.Close()
		}
		return nil, fmt.Errorf("no server answers: %w", err)
	}
	l.conn = conn
	l.stream, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(maxPending),
		jetstream.WithPublishAsyncTimeout(o.Timeout))
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// dialer opens the connections of one connect, and closes them if its context ends before that does: the client looks
// at no context.
type dialer struct {
	ctx    context.Context
	o      *Options
	failed error // the last failure to open one, which the client does not always return
	stops  []func() bool
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.o.DialTimeout)
	defer cancel()
	c, err := d.o.Dial(ctx, network, address)
	if d.failed = err; err != nil {
		return nil, err
	}
	d.stops = append(d.stops, context.AfterFunc(d.ctx, func() { _ = c.Close() })) // the client sees that it is
	greeted, err := greet(ctx, c, address, d.o.secure(address), d.o.TLS)
	if d.failed = err; err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return greeted, nil
}

// SkipTLSHandshake keeps the client from beginning TLS a second time.
func (d *dialer) SkipTLSHandshake() bool { return true }

// release leaves connections alone from now on, and returns the reason of an error from connecting.
func (d *dialer) release(err error) error {
	for _, stop := range d.stops {
		stop()
	}
	switch {
	case d.ctx.Err() != nil:
		return context.Cause(d.ctx)
	case err != nil && d.failed != nil:
		return fmt.Errorf("%w (last connection: %w)", err, d.failed)
	}
	return err
}

func (l *link) isLost() bool {
	select {
	case <-l.lost:
		return true
	default:
		return false
	}
}

func (l *link) close() {
	l.conn.Close()
	<-l.lost
}

// send returns nil when the stream has acknowledged all rows of a delivery.
func (l *link) send(ctx context.Context, subject string, d *sinks.Delivery) error {
	rows, size := d.Rows, window
	for len(rows) > 0 {
		n, err := l.sendWindow(ctx, subject, d, rows[:min(size, len(rows))])
		rows = rows[n:]
		var refused *jetstream.APIError
		switch {
		case errors.As(err, &refused) && refused.ErrorCode == wrongLastID:
			size = 1 // others write to the stream; at least the first row of the window was taken
		case err != nil:
			return fmt.Errorf("row %d of %d bytes: %w", rows[0].Seq, len(rows[0].Body), err)
		}
	}
	return nil
}

// sendWindow sends rows, each after the first on the condition that its predecessor is the last in the stream, and
// returns when the outcome of all is known: how many were acknowledged before the first that was not, and why that was
// not.
func (l *link) sendWindow(ctx context.Context, subject string, d *sinks.Delivery, rows []sinks.Row) (int, error) {
	sent := make([]jetstream.PubAckFuture, 0, len(rows))
	for i := range rows {
		m := message(subject, d, &rows[i])
		if i > 0 {
			m.Header[jetstream.ExpectedLastMsgIDHeader] = []string{rowID(d, &rows[i-1])}
		}
		// The client would send a row again that nobody answered, behind the rows that follow it.
		future, err := l.stream.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
		if err != nil {
			return i, l.reason(ctx, err)
		}
		sent = append(sent, future)
	}
	acknowledged, refused := 0, error(nil)
	for _, future := range sent {
		select {
		case <-future.Ok():
			if refused == nil {
				acknowledged++
			}
		case err := <-future.Err():
			if refused == nil {
				refused = l.reason(ctx, err)
			}
		case <-l.lost:
			return acknowledged, l.reason(ctx, errLost)
		case <-ctx.Done():
			return acknowledged, context.Cause(ctx)
		}
	}
	return acknowledged, refused
}

// reason is what an error of a row comes from.
func (l *link) reason(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, nats.ErrConnectionClosed) && l.isLost(), errors.Is(err, errLost):
		if last := l.conn.LastError(); last != nil {
			return fmt.Errorf("%w: %w", errLost, last)
		}
		return errLost
	}
	return err
}
