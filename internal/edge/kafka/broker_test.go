package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallystick/tallystick/internal/kafkatest"
	"github.com/tallystick/tallystick/internal/service/sinks"
)

// The tests of this file run on a real Kafka.

var topics atomic.Int64 // made or looked for by tests

// topicName returns a name that no test had before, also when tests run again.
func topicName(t *testing.T) string { return fmt.Sprintf("%s-%d", t.Name(), topics.Add(1)) }

// realTopic returns the broker and makes a topic named for the test.
func realTopic(t *testing.T, partitions int32, settings ...string) (broker *kafkatest.Server, name string) {
	t.Helper()
	broker = kafkatest.Shared(t)
	name = topicName(t)
	if err := broker.CreateTopic(t.Context(), name, partitions, settings...); err != nil {
		t.Fatal(err)
	}
	return broker, name
}

func TestWhatArrives(t *testing.T) {
	broker, name := realTopic(t, 4)
	s := sink(t, Options{Brokers: []string{broker.Address()}, Topic: name})
	d := &sinks.Delivery{ID: "d1", Tenant: "acme", Sink: "s", Epoch: 2, From: 7, To: 9, Rows: []sinks.Row{
		{Seq: 7, Type: "usage.recorded", Key: "cust:1", Body: []byte(`{"seq":7}`)},
		{Seq: 8, Type: "meter.created", Body: []byte(`{"seq":8}`)},
		{Seq: 9, Type: "entry.recorded", Key: "A10", Body: []byte(`{"seq":9}`)},
	}}
	if err := s.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	again := *d
	again.Replayed = true
	again.Rows = d.Rows[:1]
	if err := s.Deliver(t.Context(), &again); err != nil {
		t.Fatal(err)
	}
	if err := s.Deliver(t.Context(), &sinks.Delivery{Tenant: "acme", From: 10, To: 10}); err != nil {
		t.Errorf("a delivery of no rows: %v", err)
	}
	got := map[string]int{}
	for _, m := range topic(t.Context(), t, broker.Address(), name, func(m []*kgo.Record) bool { return len(m) == 4 }) {
		var headers []string
		for _, h := range m.Headers {
			headers = append(headers, h.Key+"="+string(h.Value))
		}
		got[fmt.Sprintf("%s %s %s", m.Key, m.Value, strings.Join(headers, " "))]++
	}
	for _, want := range []string{
		`acme:cust:1 {"seq":7} tally-id=acme:2:7 tally-type=usage.recorded content-type=application/json`,
		`acme {"seq":8} tally-id=acme:2:8 tally-type=meter.created content-type=application/json`,
		`acme:A10 {"seq":9} tally-id=acme:2:9 tally-type=entry.recorded content-type=application/json`,
		`acme:cust:1 {"seq":7} tally-id=acme:2:7 tally-type=usage.recorded content-type=application/json ` +
			`tally-replayed=true`,
	} {
		if got[want] != 1 {
			t.Errorf("%d times %s; all: %v", got[want], want, got)
		}
	}
}

// Given several tenants at once and fewer producers, when each delivers its rows, then each has them in order.
func TestTenantsSideBySide(t *testing.T) {
	broker, name := realTopic(t, 4)
	s := sink(t, Options{Brokers: []string{broker.Address()}, Topic: name, Producers: 2})
	var tenants sync.WaitGroup
	for tenant := range 5 {
		tenants.Go(func() {
			for from := uint64(1); from < 2000; from += 500 {
				if err := s.Deliver(t.Context(), delivery(fmt.Sprintf("t%d", tenant), from, 500, 7, 20)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	tenants.Wait()
	all := topic(t.Context(), t, broker.Address(), name, func(m []*kgo.Record) bool { return len(m) >= 10_000 })
	for tenant := range 5 {
		inOrder(t, all, fmt.Sprintf("t%d", tenant), 2000)
	}
	if len(all) != 10_000 {
		t.Errorf("%d messages arrived, want each once", len(all))
	}
}

func TestATopicThatIsNotThere(t *testing.T) {
	broker := kafkatest.Shared(t)
	name := topicName(t)
	s := sink(t, Options{Brokers: []string{broker.Address()}, Topic: name})
	d := delivery("acme", 1, 3, 1, 10)
	err := s.Deliver(t.Context(), d)
	if err == nil || !strings.Contains(err.Error(), "deliver to topic "+name) ||
		!strings.Contains(err.Error(), "create it") {
		t.Fatalf("the error is %v", err)
	}
	if err := broker.CreateTopic(t.Context(), name, 1); err != nil {
		t.Fatal("the failed delivery made the topic: ", err)
	}
	if err := s.Deliver(t.Context(), d); err != nil {
		t.Error(err)
	}
}

// Given a topic that takes little at a time, when rows are too many together, then they arrive one by one; when one of
// them is too large by itself, then the error names it and those before it have arrived.
func TestRowsThatAreTooLarge(t *testing.T) {
	broker, name := realTopic(t, 1, "max.message.bytes=2000", "compression.type=uncompressed")
	s := sink(t, Options{Brokers: []string{broker.Address()}, Topic: name})
	d := delivery("acme", 1, 10, 1, 1)
	for i := range d.Rows {
		d.Rows[i].Body = incompressible(1500)
	}
	if err := s.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	inOrder(t, topic(t.Context(), t, broker.Address(), name, hasRows("acme", 10)), "acme", 10)
	d = delivery("acme", 11, 3, 1, 1)
	d.Rows[1].Body = incompressible(4000)
	err := s.Deliver(t.Context(), d)
	if err == nil || !strings.Contains(err.Error(), "row 12 of 4000 bytes") ||
		!strings.Contains(err.Error(), "max.message.bytes") {
		t.Fatalf("the error is %v", err)
	}
	inOrder(t, topic(t.Context(), t, broker.Address(), name, hasRows("acme", 11)), "acme", 11)
}

// incompressible is text that no codec makes much smaller, the same each time.
func incompressible(n int) []byte {
	out := make([]byte, n)
	x := uint32(1)
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = ' ' + byte(x>>24)%94
	}
	return out
}

// breaking dials connections on which a chosen write, counted over all of them, happens differently.
type breaking struct {
	writes atomic.Int64
	at     atomic.Int64 // the write that breaks; 0 is none
	broken func(c net.Conn, b []byte) (int, error)
}

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
	const tries = 50
	var err error
	for range tries {
		if err = s.Deliver(t.Context(), d); err == nil {
			return
		}
	}
	t.Fatalf("%d tries failed: %v", tries, err)
}

// Given a connection that breaks at any of its writes, before the broker has it, in its middle and after, when
// deliveries are tried until they succeed, then every row has arrived in order.
func TestConnectionsThatBreak(t *testing.T) {
	broker, name := realTopic(t, 2)
	d := &breaking{}
	s := sink(t, Options{Brokers: []string{broker.Address()}, Topic: name, Dial: d.dial})
	breaks := map[string]func(c net.Conn, b []byte) (int, error){
		"before": func(c net.Conn, _ []byte) (int, error) { return 0, errors.Join(net.ErrClosed, c.Close()) },
		"within": func(c net.Conn, b []byte) (int, error) {
			n, err := c.Write(b[:len(b)/2])
			return n, errors.Join(net.ErrClosed, err, c.Close())
		},
		"after": func(c net.Conn, b []byte) (int, error) {
			n, err := c.Write(b)
			return n, errors.Join(err, c.Close())
		},
	}
	seq := uint64(1)
	for _, broken := range breaks {
		d.broken = broken
		for ahead := int64(1); ahead <= 4; ahead++ {
			d.at.Store(d.writes.Load() + ahead)
			for range 2 {
				deliver(t, s, delivery("acme", seq, 20, 3, 40_000)) // two parts
				seq += 20
			}
		}
	}
	inOrder(t, topic(t.Context(), t, broker.Address(), name, hasRows("acme", int(seq)-1)), "acme", int(seq)-1)
}

// Given a broker that is killed while it has rows that it did not acknowledge, when it comes back and deliveries are
// tried until they succeed, then every row is there in order.
func TestABrokerIsKilled(t *testing.T) {
	broker, name := realTopic(t, 2)
	d := &breaking{}
	s := sink(t, Options{Brokers: []string{broker.Address()}, Topic: name, Dial: d.dial})
	began := make(chan error, 1)
	d.broken = func(c net.Conn, b []byte) (int, error) {
		n, err := c.Write(b)
		broker.Kill()
		go func() { began <- broker.Begin() }()
		return n, err
	}
	seq := uint64(1)
	next := func() {
		deliver(t, s, delivery("acme", seq, 20, 3, 40_000))
		seq += 20
	}
	for range 5 {
		next()
	}
	d.at.Store(d.writes.Load() + 2) // of the second part
	next()
	if err := <-began; err != nil {
		t.Fatal(err)
	}
	for range 5 {
		next()
	}
	inOrder(t, topic(t.Context(), t, broker.Address(), name, hasRows("acme", int(seq)-1)), "acme", int(seq)-1)
}
