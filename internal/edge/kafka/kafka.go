// Package kafka carries rows to a topic of a Kafka cluster. It decides nothing about what is delivered or when it is
// tried again, makes no topic, and keeps nothing on disk.
//
// # What arrives
//
// One message a row. Its value is the row, an object of JSON. Its key is tenant:key, where key is the row's account or
// customer, and the tenant alone for a change; names of tenants have no colon, so the first one ends them. The default
// partitioner of Java's clients puts the messages of one key into one partition. Headers:
//
//	tally-id        tenant:epoch:seq, the same each time the row comes
//	tally-type      usage.recorded, entry.recorded or entity.action
//	content-type    application/json
//	tally-replayed  true, on rows of a delivery that comes again or out of order; else there is no such header
//
// # Order
//
// A receiver that keeps the first message of each id reads the rows of a key in ledger order. For that, no row may
// enter a partition whose predecessor did not. So rows are sent in parts that make one batch a partition, which a
// broker writes whole or not at all, and a part is sent when the one before it was acknowledged. A producer serves one
// delivery at a time, and sends nothing before all rows of a part are in their batches. It is idempotent, so that what
// it sends again by itself is written once. A producer that failed is closed and never used again: what it left in a
// connection may still arrive beside the next try, but it is a beginning of the same rows in the same order. One
// producer shared by all tenants would send fewer requests, and have to guess which batches a failure took along.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallystick/tallystick/internal/service/sinks"
)

// Options of a Sink.
type Options struct {
	// Brokers are the addresses, host:port, that the cluster is learned from. At least one.
	Brokers []string
	// Topic takes the rows. The cluster has it, or makes it by itself.
	Topic string
	// Dial opens every connection, to Brokers and to the brokers that these name. Default: a net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout bounds a Deliver. Default: 30 s.
	Timeout time.Duration
	// DialTimeout bounds opening a connection. Default: 5 s.
	DialTimeout time.Duration
	// Producers is how many deliveries go on at a time; more wait. Each has a connection or two to each broker that
	// leads a partition of the topic. Default: 8.
	Producers int
}

const (
	defaultTimeout     = 30 * time.Second
	defaultDialTimeout = 5 * time.Second
	defaultProducers   = 8
	maxBrokers         = 32
	maxTopicBytes      = 249 // of Kafka
	// maxPartRows and maxPartBytes bound a part of a delivery. One row may be larger, alone.
	maxPartRows  = 1000
	maxPartBytes = 512 << 10
)

// Sink is a topic as a receiver. It is safe for concurrent use.
type Sink struct {
	o      Options
	places chan struct{} // one is taken for each delivery under way
	mu     sync.Mutex    // guards idle
	idle   []*producer   // the last used is used next, so that connections nobody needs can end
}

var _ sinks.Carrier = (*Sink)(nil)

// New checks options and makes a Sink. It does not connect yet: the cluster may come later.
func New(o Options) (*Sink, error) {
	if len(o.Brokers) == 0 || len(o.Brokers) > maxBrokers {
		return nil, fmt.Errorf("%d brokers: name at least one as host:port, and at most %d", len(o.Brokers), maxBrokers)
	}
	for i, b := range o.Brokers {
		// A wrong address is not repeated: it may hold a password.
		if !isHostPort(b) {
			return nil, fmt.Errorf("brokers[%d] is not host:port", i)
		}
	}
	if !isTopic(o.Topic) {
		return nil, fmt.Errorf("topic %q: it has 1 to %d letters, digits, '.', '_' and '-', and is not '.' or '..'",
			o.Topic, maxTopicBytes)
	}
	o.Brokers = slices.Clone(o.Brokers)
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = defaultDialTimeout
	}
	if o.Producers <= 0 {
		o.Producers = defaultProducers
	}
	return &Sink{o: o, places: make(chan struct{}, o.Producers)}, nil
}

func isHostPort(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func isTopic(name string) bool {
	if name == "" || len(name) > maxTopicBytes || name == "." || name == ".." {
		return false
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return strings.Trim(name, letters) == ""
}

// errTimeout is why a Deliver ends that took as long as it may.
var errTimeout = errors.New("the time for a delivery is over")

// Deliver implements sinks.Carrier. It returns nil when every row is in the log of all replicas in sync.
func (s *Sink) Deliver(ctx context.Context, d *sinks.Delivery) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.Timeout, errTimeout)
	defer cancel()
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return fmt.Errorf("deliver to topic %s: wait for other deliveries: %w", s.o.Topic, context.Cause(ctx))
	}
	for part := range parts(d.Rows) {
		err := s.send(ctx, d, part)
		if errors.Is(err, kerr.MessageTooLarge) {
			err = s.sendEach(ctx, d, part)
		}
		if err != nil {
			return fmt.Errorf("deliver to topic %s: %w", s.o.Topic, s.explain(err))
		}
	}
	return nil
}

// parts cuts rows into parts, in order.
func parts(rows []sinks.Row) iter.Seq[[]sinks.Row] {
	return func(yield func([]sinks.Row) bool) {
		first, size := 0, 0
		for i := range rows {
			n := len(rows[i].Key) + len(rows[i].Body)
			if i > first && (i-first == maxPartRows || size+n > maxPartBytes) {
				if !yield(rows[first:i]) {
					return
				}
				first, size = i, 0
			}
			size += n
		}
		if first < len(rows) {
			yield(rows[first:])
		}
	}
}

// send has rows acknowledged together, by a producer that is used again only if all were.
func (s *Sink) send(ctx context.Context, d *sinks.Delivery, rows []sinks.Row) error {
	p, err := s.take(ctx)
	if err != nil {
		return err
	}
	if err := p.send(ctx, messages(d, rows)); err != nil {
		p.abandon()
		return err
	}
	s.mu.Lock()
	s.idle = append(s.idle, p)
	s.mu.Unlock()
	return nil
}

// sendEach has one row after the other acknowledged. A topic may take less at a time than a part holds: then the rows
// pass alone, and one that does not is named.
func (s *Sink) sendEach(ctx context.Context, d *sinks.Delivery, rows []sinks.Row) error {
	for i := range rows {
		if err := s.send(ctx, d, rows[i:i+1]); err != nil {
			return fmt.Errorf("row %d of %d bytes: %w", rows[i].Seq, len(rows[i].Body), err)
		}
	}
	return nil
}

// take returns a producer that nobody else uses.
func (s *Sink) take(ctx context.Context) (*producer, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		p := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return p, nil
	}
	s.mu.Unlock()
	return open(ctx, &s.o)
}

// explain adds what an operator can do about an error.
func (s *Sink) explain(err error) error {
	for _, known := range []struct {
		is   error
		hint string
	}{
		{kerr.UnknownTopicOrPartition, "the brokers do not have this topic: create it, or name another"},
		{kerr.MessageTooLarge, "a row is larger than the topic takes: raise max.message.bytes of the topic (and " +
			"replica.fetch.max.bytes of the brokers)"},
		{kerr.TopicAuthorizationFailed, "the brokers do not let us write to this topic: allow it"},
		{kerr.ClusterAuthorizationFailed, "the brokers do not allow idempotent writes: allow them"},
		{errTimeout, "the brokers did not acknowledge all rows within " + s.o.Timeout.String() +
			": are they up, and are enough replicas in sync?"},
	} {
		if errors.Is(err, known.is) {
			return fmt.Errorf("%s: %w", known.hint, err)
		}
	}
	return err
}

// Close implements sinks.Carrier.
func (s *Sink) Close() error {
	s.mu.Lock()
	idle := s.idle
	s.idle = nil
	s.mu.Unlock()
	for _, p := range idle {
		p.client.Close()
	}
	return nil
}

// messages are rows as they arrive; see the package comment.
func messages(d *sinks.Delivery, rows []sinks.Row) []*kgo.Record {
	ledger := d.Tenant + ":" + strconv.FormatUint(d.Epoch, 10) + ":"
	out := make([]*kgo.Record, len(rows))
	for i, row := range rows {
		key := d.Tenant
		if row.Key != "" {
			key += ":" + row.Key
		}
		headers := []kgo.RecordHeader{
			{Key: "tally-id", Value: []byte(ledger + strconv.FormatUint(row.Seq, 10))},
			{Key: "tally-type", Value: []byte(row.Type)},
			{Key: "content-type", Value: []byte("application/json")},
		}
		if d.Replayed {
			headers = append(headers, kgo.RecordHeader{Key: "tally-replayed", Value: []byte("true")})
		}
		out[i] = &kgo.Record{Key: []byte(key), Value: row.Body, Headers: headers}
	}
	return out
}
