package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallystick/tallystick/internal/loopback"
	"github.com/tallystick/tallystick/internal/service/sinks"
)

// cluster is a broker in this process that errs as it is asked to.
func cluster(t *testing.T, partitions int32) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(partitions, "rows"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// refuseOnce answers the first request to write with an error, and writes nothing.
func refuseOnce(c *kfake.Cluster, with *kerr.Error) {
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: with})
}

// Given rows that need several requests, when a broker refuses the first of them for good, then nothing that follows
// it is written before it is.
func TestNothingOvertakesARefusedRow(t *testing.T) {
	for _, with := range []*kerr.Error{kerr.InvalidRecord, kerr.MessageTooLarge, kerr.TopicAuthorizationFailed,
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID} {
		t.Run(with.Message, func(t *testing.T) {
			c := cluster(t, 1)
			s := sink(t, Options{Brokers: c.ListenAddrs(), Topic: "rows"})
			d := delivery("acme", 1, 40, 3, 100_000)
			refuseOnce(c, with)
			if err := s.Deliver(t.Context(), d); err == nil && with != kerr.MessageTooLarge {
				t.Error("a refused delivery succeeds")
			}
			if err := s.Deliver(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			inOrder(t, topic(t.Context(), t, c.ListenAddrs()[0], "rows", hasRows("acme", 40)), "acme", 40)
		})
	}
}

// Given a producer that does not know the topic's partitions yet, when it sends a part, then the rows of a partition
// are one batch all the same: a broker takes them together or not at all.
func TestAPartIsOneBatch(t *testing.T) {
	c := cluster(t, 1)
	s := sink(t, Options{Brokers: c.ListenAddrs(), Topic: "rows"})
	batches := make(chan int32, 1000)
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			for _, p := range topic.Partitions {
				var batch kmsg.RecordBatch
				if err := batch.ReadFrom(p.Records); err != nil {
					t.Error(err)
				}
				batches <- batch.NumRecords
			}
		}
		return nil, nil, false
	})
	if err := s.Deliver(t.Context(), delivery("acme", 1, maxPartRows, 3, 10)); err != nil {
		t.Fatal(err)
	}
	if n := <-batches; n != maxPartRows || len(batches) != 0 {
		t.Errorf("the first batch has %d rows, and %d follow it", n, len(batches))
	}
}

// Given one address of a cluster of two brokers, when rows go to partitions of both, then every connection was opened
// by the given Dial, also those to the broker that nobody named.
func TestEveryConnectionIsDialedAsGiven(t *testing.T) {
	c := cluster(t, 8)
	if err := c.MoveTopicPartition("rows", 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := c.MoveTopicPartition("rows", 1, 1); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	dialed := map[string]bool{}
	s := sink(t, Options{Brokers: c.ListenAddrs()[:1], Topic: "rows",
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dialed[address] = true
			return new(net.Dialer).DialContext(ctx, network, address)
		}})
	if err := s.Deliver(t.Context(), delivery("acme", 1, 100, 50, 10)); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, address := range c.ListenAddrs() {
		if !dialed[address] {
			t.Errorf("%s was reached by another path: %v", address, dialed)
		}
	}
}

// Given a cluster whose other broker may not be dialed, when rows are led by it, then the delivery fails with that
// reason and not for time alone.
func TestADialThatIsRefusedIsTheReason(t *testing.T) {
	c := cluster(t, 1)
	if err := c.MoveTopicPartition("rows", 0, 1); err != nil {
		t.Fatal(err)
	}
	named := c.ListenAddrs()[:1]
	s := sink(t, Options{Brokers: named, Topic: "rows", Timeout: time.Second,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != named[0] {
				return nil, errors.New("not an address to call")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}})
	err := s.Deliver(t.Context(), delivery("acme", 1, 1, 1, 10))
	if err == nil || !strings.Contains(err.Error(), "not an address to call") {
		t.Errorf("the error is %v", err)
	}
}

// Given brokers that are down, when a delivery is tried, then it fails with the reason; when they come up, then the
// same sink delivers.
func TestBrokersThatComeLater(t *testing.T) {
	address := loopback.Address()
	s := sink(t, Options{Brokers: []string{address}, Topic: "rows"})
	d := delivery("acme", 1, 5, 2, 10)
	err := s.Deliver(t.Context(), d)
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "no broker answers") {
		t.Fatalf("the error is %v", err)
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "rows"),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) { return net.Listen(network, address) }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := s.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	inOrder(t, topic(t.Context(), t, address, "rows", hasRows("acme", 5)), "acme", 5)
}

// silent accepts connections and never answers. It sends on the channel what it accepted.
func silent(t *testing.T) (address string, accepted <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", loopback.Address())
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan struct{}, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			came <- struct{}{}
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	return l.Addr().String(), came
}

// Given brokers that take connections and never answer, when a delivery is tried, then it ends when its own time is
// over, and not when the client's is.
func TestABrokerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sink(t, Options{Brokers: []string{"silent:9092"}, Topic: "rows", Timeout: time.Second,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, theirs) }() // until ours is closed
				return ours, nil
			}})
		began := time.Now()
		if err := s.Deliver(t.Context(), delivery("acme", 1, 5, 2, 10)); !errors.Is(err, errTimeout) {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("the delivery took %v", took)
		}
	})
}

// Given rows that a broker has received, when the caller gives up before the broker answers, then Deliver returns all
// the same, and the next try delivers.
func TestACancelledDeliveryDoesNotWaitForTheAnswer(t *testing.T) {
	c := cluster(t, 1)
	s := sink(t, Options{Brokers: c.ListenAddrs(), Topic: "rows", Timeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		<-returned
		return nil, nil, false
	})
	d := delivery("acme", 1, 5, 2, 10)
	err := s.Deliver(ctx, d)
	close(returned)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if err := s.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	inOrder(t, topic(t.Context(), t, c.ListenAddrs()[0], "rows", hasRows("acme", 5)), "acme", 5)
}

// Given as many deliveries under way as there are producers, when one more comes, then it waits no longer than its
// context lasts.
func TestDeliveriesWaitForAProducer(t *testing.T) {
	address, accepted := silent(t)
	s := sink(t, Options{Brokers: []string{address}, Topic: "rows", Timeout: time.Hour, Producers: 1})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { first <- s.Deliver(ctx, delivery("acme", 1, 1, 1, 10)) }()
	<-accepted
	impatient, giveUp := context.WithCancel(t.Context())
	giveUp()
	err := s.Deliver(impatient, delivery("globex", 1, 1, 1, 10))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "wait for other deliveries") {
		t.Errorf("the error is %v", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first delivery's error is %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"no broker":     {Topic: "rows"},
		"no port":       {Topic: "rows", Brokers: []string{"kafka.example"}},
		"no host":       {Topic: "rows", Brokers: []string{":9092"}},
		"a bad port":    {Topic: "rows", Brokers: []string{"kafka.example:99999"}},
		"a port of 0":   {Topic: "rows", Brokers: []string{"kafka.example:0"}},
		"a password":    {Topic: "rows", Brokers: []string{"ada:hunter2@kafka.example:9092"}},
		"no topic":      {Brokers: []string{"kafka.example:9092"}},
		"a bad topic":   {Topic: "rows of acme", Brokers: []string{"kafka.example:9092"}},
		"a long topic":  {Topic: strings.Repeat("a", 250), Brokers: []string{"kafka.example:9092"}},
		"a topic of ..": {Topic: "..", Brokers: []string{"kafka.example:9092"}},
	} {
		s, err := New(o)
		if err == nil {
			t.Errorf("%s: accepted as %v", name, s.o)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows it: %v", name, err)
		}
	}
}

func TestPartsAreBounded(t *testing.T) {
	rows := slices.Concat(delivery("acme", 1, 2*maxPartRows+1, 1, 1).Rows,
		delivery("acme", 9000, 3, 1, maxPartBytes).Rows, delivery("acme", 9100, 4, 1, maxPartBytes/3).Rows)
	var sizes []int
	var all []sinks.Row
	for part := range parts(rows) {
		sizes = append(sizes, len(part))
		all = append(all, part...)
	}
	if want := []int{maxPartRows, maxPartRows, 1, 1, 1, 1, 2, 2}; !slices.Equal(sizes, want) {
		t.Errorf("the parts have %v rows, want %v", sizes, want)
	}
	if !slices.EqualFunc(all, rows, func(a, b sinks.Row) bool { return a.Seq == b.Seq }) {
		t.Error("the parts do not add up to the rows")
	}
}
