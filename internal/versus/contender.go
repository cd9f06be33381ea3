package versus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/load"
)

// The names of the contenders, in tables and on the command line.
const (
	pgTxName        = "pg-tx-per-event"
	pgSetName       = "pg-set"
	pgCoalescedName = "pg-coalesced"
	pgPlainName     = "pg-coal-plain"
	pgStoreName     = "pg-store"
	engineName      = "engine"
	engineHTTPName  = "engine-http"
	bareName        = "http-bare"
	decodeName      = "http-decode"
)

// contender is one way to take events.
type contender struct {
	name     string
	what     string
	postgres bool
	// single takes events one at a time whatever a request holds. Its submitters are given batches of one, which is the
	// same and lets a slow cell end in time.
	single bool
	open   func(ctx context.Context, b *bench, c Cell) (subject, error)
}

func all() []contender {
	return []contender{
		{pgTxName, "PostgreSQL, one transaction per event, a counter per tenant and meter", true, true, openPgTx},
		{pgSetName, "PostgreSQL, one set-based transaction per request, counters per customer", true, false, openPgSet},
		{pgCoalescedName, "PostgreSQL, set-based, coalesced across requests, counters per customer", true, false,
			openPgCoalesced},
		{pgPlainName, "the same with no customer in rows and counters: less than a bill needs", true, false,
			openPgCoalescedPlain},
		{pgStoreName, "Tallystick's PostgreSQL store, in process: all rules, chain and walls", true, false,
			openPgStore},
		{engineName, "Tallystick's engine, in process", false, false, openEngine},
		{engineHTTPName, "Tallystick over HTTP JSON", false, false, openEngineHTTP},
		{bareName, "net/http that drops the body: no store, a limit", false, false, openBare},
		{decodeName, "net/http that decodes the events: no store, a limit", false, false, openDecode},
	}
}

// subject is a contender with an empty store, ready for one measurement.
type subject interface {
	// submitter makes what one submitter calls, one call at a time. It returns once the events are durable and has then
	// compared what became of them with what must have.
	submitter(ctx context.Context) (submit func(*load.Batch) error, err error)
	// check compares what was counted with what the streams sent.
	check(ctx context.Context, streams []*load.Stream, sent sample) error
	close() error
}

// sample is one measurement.
type sample struct {
	requests int64
	events   int64
	elapsed  time.Duration
	latency  load.Latency
}

func (s sample) eventsPerSecond() float64 { return float64(s.events) / s.elapsed.Seconds() }

// expect compares the verdicts on a batch with what they must be.
func expect(b *load.Batch, accepted int) error {
	if accepted != b.Fresh {
		return fmt.Errorf("of %d new and %d repeated events %d were counted", b.Fresh, b.Duplicates, accepted)
	}
	return nil
}

// measure runs one contender in one cell on a fresh store.
func (b *bench) measure(ctx context.Context, c *contender, cell Cell) (s sample, err error) {
	sub, err := c.open(ctx, b, cell)
	if err != nil {
		return sample{}, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, sub.close()) }()
	size := cell.Batch
	if c.single {
		size = 1
	}
	s, streams, err := b.drive(ctx, sub, size, cell.Submitters, b.o.CellEvents, b.o.CellTime)
	if err != nil {
		return sample{}, err
	}
	if err := sub.check(ctx, streams, s); err != nil {
		return sample{}, fmt.Errorf("check what was counted: %w", err)
	}
	return s, nil
}

// drive lets submitters send at once until the time or the events are used up; each sends at least one batch.
func (b *bench) drive(ctx context.Context, sub subject, size, submitters int, events int64,
	limit time.Duration) (sample, []*load.Stream, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	submits := make([]func(*load.Batch) error, submitters)
	streams := make([]*load.Stream, submitters)
	for i := range submits {
		var err error
		if submits[i], err = sub.submitter(ctx); err != nil {
			return sample{}, nil, fmt.Errorf("make submitter: %w", err)
		}
		streams[i] = b.w.NewStream(i)
	}
	latencies := make([]load.Histogram, submitters)
	var sent, requests atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for i := range submits {
		wg.Go(func() {
			var batch load.Batch
			for first := true; first || ctx.Err() == nil && sent.Load() < events &&
				time.Since(began) < limit; first = false {
				streams[i].Fill(&batch, size)
				at := time.Now()
				if err := submits[i](&batch); err != nil {
					stop(err)
					return
				}
				latencies[i].Add(time.Since(at))
				sent.Add(int64(size))
				requests.Add(1)
			}
		})
	}
	wg.Wait()
	s := sample{requests: requests.Load(), events: sent.Load(), elapsed: time.Since(began)}
	for i := range latencies[1:] {
		latencies[0].Merge(&latencies[i+1])
	}
	s.latency = load.LatencyOf(&latencies[0])
	return s, streams, context.Cause(ctx)
}
