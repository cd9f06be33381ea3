// Package nats carries rows to a subject that a JetStream stream takes. It decides nothing about what is delivered or
// when it is tried again, makes no stream, and keeps nothing on disk.
//
// # What arrives
//
// One message a row, whose data is the row, an object of JSON. Headers, spelled as here:
//
//	Nats-Msg-Id     tenant:epoch:seq, the same each time the row comes; the stream drops what it knows of its window
//	tally-id        the same
//	tally-type      usage.recorded, entry.recorded or entity.action
//	content-type    application/json
//	tally-replayed  true, on rows of a delivery that comes again or out of order; else there is no such header
//
// # Order
//
// A receiver that keeps the first message of each id reads the rows of a tenant in ledger order. For that, no row may
// enter the stream whose predecessor did not. A stream may refuse a row, for its size or for want of room or of a
// leader, and take the next: so rows are sent without a wait for one another, but each on the condition that its
// predecessor is the last message in the stream. Where others write to the stream too, the condition fails at times;
// the rest of that delivery is then sent row by row. A connection is never resumed: a row that was lost with the old
// one would be overtaken on the new one.
package nats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallystick/tallystick/internal/service/sinks"
)

// Options of a Sink.
type Options struct {
	// Servers are URLs of one cluster, nats://host:port or tls://host:port, tried in any order. At least one.
	Servers []string
	// Subject takes the rows. A stream that takes it exists.
	Subject string
	// Dial opens every connection. It is given names as they stand in Servers. Default: a net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS is for servers named with tls:// and those that insist on it. Default: the system's roots and the server's
	// name.
	TLS *tls.Config
	// Timeout bounds a Deliver. Default: 30 s.
	Timeout time.Duration
	// DialTimeout bounds opening a connection and greeting on it, and a write that the server does not take. Default:
	// 5 s.
	DialTimeout time.Duration
}

const (
	defaultTimeout     = 30 * time.Second
	defaultDialTimeout = 5 * time.Second
	maxServers         = 32
	maxSubjectBytes    = 255
)

// Sink is a subject as a receiver. It is safe for concurrent use; all deliveries share one connection.
type Sink struct {
	o    Options
	turn chan struct{} // full while somebody looks at link or connects
	link *link         // nil before the first delivery
}

var _ sinks.Carrier = (*Sink)(nil)

// New checks options and makes a Sink. It does not connect yet: the servers may come later.
func New(o Options) (*Sink, error) {
	if len(o.Servers) == 0 || len(o.Servers) > maxServers {
		return nil, fmt.Errorf("%d servers: name at least one as nats://host:port, and at most %d", len(o.Servers),
			maxServers)
	}
	servers := make([]string, len(o.Servers))
	for i, text := range o.Servers {
		u, ok := serverURL(text)
		if !ok {
			// A wrong URL is not repeated: it may hold a password.
			return nil, fmt.Errorf("servers[%d] is not nats://host:port or tls://host:port", i)
		}
		servers[i] = u
	}
	o.Servers = servers
	if !isSubject(o.Subject) {
		return nil, fmt.Errorf("subject %q: it has words divided by dots, at most %d bytes, no space and no '*' "+
			"or '>', and does not begin with '$' or '_INBOX'", o.Subject, maxSubjectBytes)
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = defaultDialTimeout
	}
	return &Sink{o: o, turn: make(chan struct{}, 1)}, nil
}

// serverURL returns the URL of a server with its port.
func serverURL(text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" || u.RawQuery != "" ||
		u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return "", false
	}
	port := u.Port()
	if port == "" {
		port = strconv.Itoa(nats.DefaultPort)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", false
	}
	u.Host, u.Path = net.JoinHostPort(u.Hostname(), port), ""
	return u.String(), true
}

// secure reports whether a server is named with tls://, whatever name and password stand in its URL.
func (o *Options) secure(address string) bool {
	return slices.ContainsFunc(o.Servers, func(text string) bool {
		u, err := url.Parse(text)
		return err == nil && u.Scheme == "tls" && u.Host == address
	})
}

func isSubject(s string) bool {
	if len(s) > maxSubjectBytes || strings.HasPrefix(s, "$") || strings.HasPrefix(s, "_INBOX") {
		return false
	}
	for word := range strings.SplitSeq(s, ".") {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || r == 0x7f }) ||
			strings.ContainsAny(word, "*>") {
			return false
		}
	}
	return true
}

// errTimeout is why a Deliver ends that took as long as it may.
var errTimeout = errors.New("the time for a delivery is over")

// Deliver implements sinks.Carrier. It returns nil when the stream has acknowledged every row.
func (s *Sink) Deliver(ctx context.Context, d *sinks.Delivery) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.Timeout, errTimeout)
	defer cancel()
	l, err := s.connected(ctx)
	if err == nil {
		err = l.send(ctx, s.o.Subject, d)
	}
	if errors.Is(err, jetstream.ErrAsyncPublishTimeout) { // the client's own clock was a moment faster than ours
		err = fmt.Errorf("%w: %w", errTimeout, err)
	}
	if err != nil {
		return fmt.Errorf("deliver to subject %s: %w", s.o.Subject, s.explain(err))
	}
	return nil
}

// connected returns the connection that all share, or opens one if there is none or it was lost.
func (s *Sink) connected(ctx context.Context) (*link, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a connection: %w", context.Cause(ctx))
	}
	if s.link != nil && !s.link.isLost() {
		return s.link, nil
	}
	l, err := connect(ctx, &s.o)
	if err != nil {
		return nil, err
	}
	s.link = l
	return l, nil
}

// explain adds what an operator can do about an error.
func (s *Sink) explain(err error) error {
	for _, known := range []struct {
		is   error
		hint string
	}{
		{jetstream.ErrNoStreamResponse, "no stream takes this subject: create one in JetStream that does, or name " +
			"another subject"},
		{jetstream.ErrInvalidJSAck, "something that is no stream answers on this subject: name another"},
		{nats.ErrMaxPayload, "a row is larger than the server takes: raise its max_payload"},
		{&jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamMessageExceedsMaximum}, "a row is larger than the " +
			"stream takes: raise its maximum message size"},
		{errTimeout, "the stream did not acknowledge all rows within " + s.o.Timeout.String() +
			": is it up, and has it a leader?"},
	} {
		if errors.Is(err, known.is) {
			return fmt.Errorf("%s: %w", known.hint, err)
		}
	}
	return err
}

// Close implements sinks.Carrier.
func (s *Sink) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
	return nil
}

// message is a row as it arrives; see the package comment.
func message(subject string, d *sinks.Delivery, row *sinks.Row) *nats.Msg {
	id := rowID(d, row)
	headers := nats.Header{
		jetstream.MsgIDHeader: {id},
		"tally-id":            {id},
		"tally-type":          {row.Type},
		"content-type":        {"application/json"},
	}
	if d.Replayed {
		headers["tally-replayed"] = []string{"true"}
	}
	return &nats.Msg{Subject: subject, Data: row.Body, Header: headers}
}

func rowID(d *sinks.Delivery, row *sinks.Row) string {
	return d.Tenant + ":" + strconv.FormatUint(d.Epoch, 10) + ":" + strconv.FormatUint(row.Seq, 10)
}
