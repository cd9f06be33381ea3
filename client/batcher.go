package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	// ErrFull is returned by Add when the queue is full and FailWhenFull is set.
	ErrFull = errors.New("batcher: queue full")
	// ErrClosed is returned by Add after Close, and is the cause given for
	// events that a cut-short Close left unsent.
	ErrClosed = errors.New("batcher: closed")
	// ErrEventTooLarge is wrapped by Add's error for an event beyond MaxBytes.
	ErrEventTooLarge = errors.New("batcher: event larger than a batch may be")
)

// BatcherConfig shapes a Batcher. Zero fields take their defaults.
type BatcherConfig struct {
	// MaxEvents and MaxBytes (before compression) fill a batch. Default 1000 and
	// 1 MiB; at most the server's 10,000 and 16 MiB.
	MaxEvents, MaxBytes int
	// Interval is the longest an event waits for company. Default 1s.
	Interval time.Duration
	// QueueSize bounds the events added and not yet answered, sent or not.
	// Default 10 × MaxEvents; at least MaxEvents.
	QueueSize int
	// MaxInFlight is how many requests run at once. Default 4. With 1, outcomes
	// come in the order of Add.
	MaxInFlight int
	// FailWhenFull makes Add return ErrFull instead of waiting.
	FailWhenFull bool
	// AllResults asks for the seq of plainly accepted events too.
	AllResults bool
	// OnOutcome is required: it is the only place where the refusal of an event
	// is reported. It is called exactly once for each event that Add took, in order
	// within a batch, from MaxInFlight goroutines at once. It must not call Add,
	// Flush or Close, which may wait for it.
	OnOutcome func(Outcome)
}

// Outcome is what became of one event.
type Outcome struct {
	Event Event
	// Verdict is set when Err is nil. Seq is 0 for plainly accepted events
	// unless AllResults is set.
	Verdict Verdict
	// Err is set when the batch as a whole failed: the event may or may not be in
	// the ledger, and adding it again with the same ID is safe.
	Err error
	// Attempts is how many times the batch was sent; 0 when Err is set.
	Attempts int
}

// UndeliveredError reports batches that failed after all retries. Each of their
// events had its Outcome; this is the summary for Flush and Close.
type UndeliveredError struct {
	Events int
	// First is the first failure.
	First error
}

func (e *UndeliveredError) Error() string {
	return fmt.Sprintf("%d events not acknowledged; first failure: %v", e.Events, e.First)
}

func (e *UndeliveredError) Unwrap() error { return e.First }

// Batcher collects events from many goroutines and sends them in batches. Make
// one with NewBatcher, and Close it.
//
// An event's path: Add takes a slot of the bounded queue and puts the event into
// the pending batch; the batch is cut when it is full, when its interval has
// passed, or by Flush; a sender takes it, sends it, reports the outcomes and gives
// the slots back. Since a cut batch holds at least one slot, there are never
// more cut batches than slots, and handing one over never blocks.
type Batcher struct {
	client *Client
	config BatcherConfig
	slots  chan struct{}
	ready  chan *batch
	// closing is closed when Close begins, done when every goroutine has ended.
	closing, done chan struct{}
	running       sync.WaitGroup
	// life ends when Close runs out of patience.
	life context.Context
	kill context.CancelCauseFunc

	mu sync.Mutex // guards what follows
	// pending is the batch being filled, nil when there is none.
	pending *batch
	// unfinished are cut batches whose outcomes have not all been reported.
	unfinished map[*batch]struct{}
	closed     bool
	failed     *UndeliveredError // since the last Flush or Close
}

type batch struct {
	events    []Event
	body      []byte
	stopTimer context.CancelFunc
	finished  chan struct{}
}

// NewBatcher starts a Batcher on the client, whose retry policy, ids and clock
// it uses.
func (c *Client) NewBatcher(config BatcherConfig) (*Batcher, error) {
	config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("batcher: %w", err)
	}
	b := &Batcher{
		client:     c,
		config:     config,
		slots:      make(chan struct{}, config.QueueSize),
		ready:      make(chan *batch, config.QueueSize),
		closing:    make(chan struct{}),
		done:       make(chan struct{}),
		unfinished: map[*batch]struct{}{},
	}
	b.life, b.kill = context.WithCancelCause(context.Background())
	for range config.MaxInFlight {
		b.running.Go(b.sendReady)
	}
	return b, nil
}

func (c *BatcherConfig) withDefaults() {
	setDefault := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	setDefault(&c.MaxEvents, 1000)
	setDefault(&c.MaxBytes, 1<<20)
	setDefault(&c.QueueSize, 10*c.MaxEvents)
	setDefault(&c.MaxInFlight, 4)
	if c.Interval == 0 {
		c.Interval = time.Second
	}
}

func (c *BatcherConfig) validate() error {
	switch {
	case c.OnOutcome == nil:
		return errors.New("OnOutcome is required: without it a refused event would go unnoticed")
	case c.MaxEvents < 1 || c.MaxEvents > MaxEvents:
		return fmt.Errorf("MaxEvents %d: want 1 to %d", c.MaxEvents, MaxEvents)
	case c.MaxBytes < 1 || c.MaxBytes > MaxBody:
		return fmt.Errorf("MaxBytes %d: want 1 to %d", c.MaxBytes, MaxBody)
	case c.QueueSize < c.MaxEvents:
		return fmt.Errorf("QueueSize %d cannot hold one batch of %d", c.QueueSize, c.MaxEvents)
	case c.MaxInFlight < 1:
		return fmt.Errorf("MaxInFlight %d: want at least 1", c.MaxInFlight)
	case c.Interval < 0:
		return fmt.Errorf("interval %v is negative", c.Interval)
	}
	return nil
}

// Add queues an event. An error means that it was not taken and that no outcome
// will follow: ErrFull, ErrClosed, the context's error while waiting for
// room, or an event that cannot be encoded.
func (b *Batcher) Add(ctx context.Context, e Event) error {
	if b.client.generateIDs && e.ID == "" {
		e.ID = newID(b.client.clock.Now())
	}
	encoded, err := e.appendJSON(nil)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	if size := len(encoded) + len("[]"); size > b.config.MaxBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrEventTooLarge, size, b.config.MaxBytes)
	}
	if err := b.takeSlot(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		<-b.slots
		return ErrClosed
	}
	if b.pending != nil && len(b.pending.body)+len(encoded)+len(",]") > b.config.MaxBytes {
		b.cut()
	}
	if b.pending == nil {
		b.begin()
	}
	p := b.pending
	separator := byte(',')
	if len(p.events) == 0 {
		separator = '['
	}
	p.body = append(append(p.body, separator), encoded...)
	p.events = append(p.events, e)
	if len(p.events) >= b.config.MaxEvents {
		b.cut()
	}
	return nil
}

func (b *Batcher) takeSlot(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-b.closing:
		return ErrClosed
	default:
	}
	select {
	case b.slots <- struct{}{}:
		return nil
	default:
	}
	if b.config.FailWhenFull {
		return ErrFull
	}
	select {
	case b.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closing:
		return ErrClosed
	}
}

// begin opens a batch and its timer. The caller holds mu.
func (b *Batcher) begin() {
	ctx, stop := context.WithCancel(b.life)
	p := &batch{stopTimer: stop, finished: make(chan struct{})}
	b.pending = p
	b.running.Go(func() {
		if b.client.clock.Sleep(ctx, b.config.Interval) != nil {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		// The batch may have been cut while this goroutine waited for mu.
		if b.pending == p {
			b.cut()
		}
	})
}

// cut hands the pending batch to the senders. The caller holds mu.
func (b *Batcher) cut() {
	p := b.pending
	if p == nil {
		return
	}
	b.pending = nil
	p.stopTimer()
	p.body = append(p.body, ']')
	b.unfinished[p] = struct{}{}
	b.ready <- p
}

func (b *Batcher) sendReady() {
	for p := range b.ready {
		b.send(p)
	}
}

func (b *Batcher) send(p *batch) {
	r := b.client.factCall(nil)
	r.body, r.allResults = p.body, b.config.AllResults
	answer, err := b.client.sendBatch(b.life, r, len(p.events))
	if err != nil && b.life.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(b.life), err)
	}
	b.report(p, answer, err)
	for range p.events {
		<-b.slots
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if b.failed == nil {
			b.failed = &UndeliveredError{First: err}
		}
		b.failed.Events += len(p.events)
	}
	delete(b.unfinished, p)
	close(p.finished)
}

func (b *Batcher) report(p *batch, answer *BatchAnswer, err error) {
	if err != nil {
		for _, e := range p.events {
			b.config.OnOutcome(Outcome{Event: e, Err: err})
		}
		return
	}
	// What the answer does not list was plainly accepted; sendBatch has held
	// the list against the counts.
	verdicts := make([]Verdict, len(p.events))
	for i, e := range p.events {
		verdicts[i] = Verdict{Index: i, ID: e.ID, Status: Accepted}
	}
	for _, v := range answer.Results {
		verdicts[v.Index] = v
	}
	for i, e := range p.events {
		b.config.OnOutcome(Outcome{Event: e, Verdict: verdicts[i], Attempts: answer.Attempts})
	}
}

// Flush sends what is pending and waits until every event added before it has
// had its outcome. The error is the context's, or an *UndeliveredError for what
// failed since the last Flush.
func (b *Batcher) Flush(ctx context.Context) error {
	b.mu.Lock()
	b.cut()
	waiting := make([]*batch, 0, len(b.unfinished))
	for p := range b.unfinished {
		waiting = append(waiting, p)
	}
	b.mu.Unlock()
	for _, p := range waiting {
		select {
		case <-p.finished:
		case <-ctx.Done():
			return fmt.Errorf("flush: %w", ctx.Err())
		}
	}
	return b.takeFailed()
}

// Close refuses further events, sends what is queued and waits for every
// outcome and for the Batcher's goroutines. When ctx ends first, requests under
// way are abandoned and what is left has ErrClosed as its outcome. The error is
// as for Flush. Calling it again waits as well.
func (b *Batcher) Close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
		b.cut()
		close(b.ready)
		// Started here and not with the senders, because a WaitGroup must not
		// grow from zero while it is waited for: nothing begins after closed.
		go func() {
			b.running.Wait()
			close(b.done)
		}()
	}
	b.mu.Unlock()

	var stopped error
	select {
	case <-b.done:
	case <-ctx.Done():
		stopped = fmt.Errorf("close: %w", ctx.Err())
		b.kill(ErrClosed)
		<-b.done
	}
	b.kill(ErrClosed)
	return errors.Join(stopped, b.takeFailed())
}

func (b *Batcher) takeFailed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed == nil {
		return nil
	}
	failed := b.failed
	b.failed = nil
	return failed
}
