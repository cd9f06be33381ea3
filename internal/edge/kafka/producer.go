package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// maxAnswerBytes bounds what a broker can make us read: answers hold a few numbers a partition.
	maxAnswerBytes = 4 << 20
	// metadataApart is the least time between two questions for a topic. A topic that is not there is asked for
	// unknownTopicRetries times more, because not all brokers know of a new one at once.
	metadataApart       = 250 * time.Millisecond
	unknownTopicRetries = 2
	// maxBatchBytes is above every part, headers included, so that a part makes one batch a partition. Only a row that
	// is sent alone can reach it, and the topic's own limit, a megabyte unless it was raised, comes first.
	maxBatchBytes = 16 << 20
)

// producer is one idempotent producer and its connections. It serves one delivery at a time.
type producer struct {
	client *kgo.Client
	reach  *reach
	mu     sync.Mutex // guards what follows
	loose  int        // records of the part under way that are not in a batch yet
	placed chan struct{}
}

var _ kgo.HookProduceRecordPartitioned = (*producer)(nil)

// open makes a producer that has reached the cluster: why it cannot be reached is answered at once.
func open(ctx context.Context, o *Options) (*producer, error) {
	r := &reach{dial: o.Dial, timeout: o.DialTimeout, conns: map[*conn]struct{}{}}
	p := &producer{reach: r}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(o.Brokers...), kgo.WithHooks(p),
		kgo.DefaultProduceTopicAlways(), kgo.DefaultProduceTopic(o.Topic),
		kgo.Dialer(r.open),
		kgo.ClientID("tallystick"), kgo.DisableClientMetrics(),
		// The client tries again for as long as the delivery may take, and does not go on after lost records.
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.StopProducerOnDataLossDetected(),
		kgo.UnknownTopicRetries(unknownTopicRetries), kgo.MetadataMinAge(metadataApart),
		kgo.ManualFlushing(), kgo.MaxBufferedRecords(maxPartRows), kgo.ProducerBatchMaxBytes(maxBatchBytes),
		kgo.FetchMaxBytes(maxAnswerBytes), kgo.BrokerMaxReadBytes(maxAnswerBytes),
	)
	if err != nil {
		return nil, fmt.Errorf("configure the producer: %w", err)
	}
	p.client = client
	// A client that connects does not look at a context.
	stop := context.AfterFunc(ctx, r.cut)
	err = client.Ping(ctx)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		p.abandon()
		return nil, fmt.Errorf("no broker answers: %w", err)
	}
	return p, nil
}

// ended returns why ctx ended, if that is what an error is about.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// abandon ends the producer without a wait for brokers that do not answer.
func (p *producer) abandon() {
	p.reach.cut()
	p.client.Close()
}

// send returns nil when all records are acknowledged. After an error the producer is of no use.
func (p *producer) send(ctx context.Context, records []*kgo.Record) error {
	placed := p.expect(len(records))
	failed := make(chan error, 1) // the first failure
	for _, r := range records {
		p.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err == nil {
				return
			}
			select {
			case failed <- err:
			default:
			}
		})
	}
	// Partitions are not known before the first answer about the topic. A flush that began earlier would send each
	// record as it comes.
	select {
	case <-placed:
	case err := <-failed:
		return p.reach.explain(ended(ctx, err))
	case <-ctx.Done():
		return p.reach.explain(context.Cause(ctx))
	}
	if err := p.client.Flush(ctx); err != nil {
		return p.reach.explain(context.Cause(ctx))
	}
	select { // all outcomes are in
	case err := <-failed:
		return p.reach.explain(ended(ctx, err))
	default:
		return nil
	}
}

// expect returns a channel that is closed when n records are in their batches.
func (p *producer) expect(n int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loose, p.placed = n, make(chan struct{})
	return p.placed
}

// OnProduceRecordPartitioned implements kgo's hook.
func (p *producer) OnProduceRecordPartitioned(*kgo.Record, int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loose--; p.loose == 0 {
		close(p.placed)
	}
}

// reach opens connections and remembers why the last one failed: a client that keeps trying does not say. It can cut
// them all: a client that is closed waits for the first answers on each.
type reach struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	timeout time.Duration
	mu      sync.Mutex // guards what follows
	failed  error
	conns   map[*conn]struct{}
	over    bool
}

// errCut is why a producer that is abandoned gets no more connections.
var errCut = errors.New("the delivery ended")

func (r *reach) open(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	c, err := r.dial(ctx, network, address)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = err
	if err != nil {
		return nil, err
	}
	if r.over {
		return nil, errors.Join(errCut, c.Close())
	}
	counted := &conn{Conn: c, of: r}
	r.conns[counted] = struct{}{}
	return counted, nil
}

func (r *reach) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for c := range r.conns {
		_ = c.Conn.Close() // nobody reads from it any more
	}
}

// explain adds the last failure to an error.
func (r *reach) explain(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		return err
	}
	return fmt.Errorf("%w (last connection: %w)", err, r.failed)
}

// conn is a connection that reach knows of until it is closed.
type conn struct {
	net.Conn
	of *reach
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
