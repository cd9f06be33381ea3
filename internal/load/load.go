// Package load drives a Tallystick server with generated usage over its public contract and proves in the end that the
// server counted every event it acknowledged, exactly once.
//
// It owns the traffic (a pure function of a shape and a seed), the connections, the latencies and the proof. It works
// on tenants of its own making and never touches those of others. It knows the server by its HTTP contract alone.
package load

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/client"
)

// Options of a run. URL, Key and one of Events and Duration are required.
type Options struct {
	URL string // of the server
	Key string // the operator's: the run makes tenants of its own

	Shape
	Batch       int // events of a request; default 1000
	Connections int // default 16

	// Events ends the run after that many. Zero: Duration ends it, and every connection sends at least one batch.
	Events   int64
	Duration time.Duration

	// Progress is called, some ten times a second and once at the end of the sending, with how many events were
	// answered and how long that took. Default: nobody is.
	Progress func(answered int64, elapsed time.Duration)
}

const (
	defaultBatch       = 1000
	defaultConnections = 16
	// maxBatch is the contract's.
	maxBatch       = 10_000
	maxConnections = 4096
	progressEvery  = 100 * time.Millisecond
)

// Run makes tenants, sends the traffic, and compares the server's counters with it. When they differ the error is
// ErrTotals, and the report is there beside it.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	w, err := NewWorkload(o.Shape)
	if err != nil {
		return nil, err
	}
	r := &run{o: o, w: w, to: Target{URL: u}}
	defer r.closeClients()
	if err := r.setUp(ctx); err != nil {
		return nil, fmt.Errorf("set up tenants: %w", err)
	}
	before := scrape(ctx, u, o.Key)
	report, err := r.send(ctx)
	if err != nil {
		return report, err
	}
	report.serverFigures(before, scrape(ctx, u, o.Key))
	began := time.Now()
	report.Counters, err = r.prove(ctx)
	report.ProofSeconds = time.Since(began).Seconds()
	report.Proved = err == nil
	return report, err
}

// Check completes the options with their defaults and says what is wrong with them.
func (o *Options) Check() error {
	setDefault(&o.Batch, defaultBatch)
	setDefault(&o.Connections, defaultConnections)
	o.Shape.setDefaults()
	u, err := url.Parse(o.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("url: want http:// or https:// and a host")
	}
	switch {
	case o.Key == "":
		return errors.New("key: the operator's key is needed to make tenants")
	case strings.ContainsAny(o.Key, "\r\n"):
		return errors.New("key: holds a line end")
	case o.Batch < 1 || o.Batch > maxBatch:
		return fmt.Errorf("batch: from 1 to %d, not %d", maxBatch, o.Batch)
	case o.Connections < 1 || o.Connections > maxConnections:
		return fmt.Errorf("connections: from 1 to %d, not %d", maxConnections, o.Connections)
	case o.Events < 0 || o.Duration < 0 || (o.Events == 0) == (o.Duration == 0):
		return errors.New("state either a number of events or a duration")
	}
	return o.Shape.check()
}

type run struct {
	o       Options
	w       *Workload
	to      Target
	clients []*client.Client // by tenant
	streams []*Stream

	left     atomic.Int64 // events nobody has taken yet, when they are bounded
	answered atomic.Int64
	ends     time.Time // when the time is bounded
}

// setUp makes tenants whose names nobody has used: only then is everything they count known.
func (r *run) setUp(ctx context.Context) error {
	operator, err := client.New(r.o.URL, r.o.Key)
	if err != nil {
		return err
	}
	defer operator.CloseIdleConnections()
	name := "bench-" + strings.ToLower(rand.Text()[:10])
	for i := range r.w.Tenants() {
		t, err := operator.CreateTenant(ctx, client.NewTenant{ID: name + "-" + strconv.Itoa(i), Name: "Load generator"})
		if err != nil {
			return err
		}
		c, err := client.New(r.o.URL, t.APIKey)
		if err != nil {
			return err
		}
		r.clients = append(r.clients, c)
		r.to.Keys = append(r.to.Keys, t.APIKey)
		for _, slug := range r.w.Meters() {
			if _, err := c.CreateMeter(ctx, client.Meter{Slug: slug, Aggregation: "sum"}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) closeClients() {
	for _, c := range r.clients {
		c.CloseIdleConnections()
	}
}

// lane is one connection and what it saw.
type lane struct {
	sender    *Sender
	stream    *Stream
	latencies Histogram
	requests  int64
	fresh     int64
	repeated  int64
}

// send drives all connections until the traffic is sent or one of them fails, which stops the others.
func (r *run) send(ctx context.Context) (*Report, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	lanes := make([]*lane, 0, r.o.Connections)
	defer func() {
		for _, l := range lanes {
			_ = l.sender.Close()
		}
	}()
	for i := range r.o.Connections {
		sender, err := NewSender(ctx, r.w, r.to)
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, &lane{sender: sender, stream: r.w.NewStream(i)})
		r.streams = append(r.streams, lanes[i].stream)
	}
	r.left.Store(r.o.Events)
	began := time.Now()
	r.ends = began.Add(r.o.Duration)
	quiet := r.tellProgress(began)
	var wg sync.WaitGroup
	for _, l := range lanes {
		wg.Go(func() {
			if err := r.drive(ctx, l); err != nil {
				stop(err)
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(began)
	quiet()
	return r.report(lanes, elapsed), context.Cause(ctx)
}

func (r *run) drive(ctx context.Context, l *lane) error {
	var b Batch
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		size := r.take(l)
		if size == 0 {
			return nil
		}
		l.stream.Fill(&b, size)
		sent := time.Now()
		if err := l.sender.Send(&b); err != nil {
			return err
		}
		l.latencies.Add(time.Since(sent))
		l.requests++
		l.fresh += int64(b.Fresh)
		l.repeated += int64(b.Duplicates)
		r.answered.Add(int64(size))
	}
}

// take returns the size of the lane's next batch; zero ends it.
func (r *run) take(l *lane) int {
	if r.o.Events == 0 {
		if l.requests > 0 && time.Now().After(r.ends) {
			return 0
		}
		return r.o.Batch
	}
	batch := int64(r.o.Batch)
	left := r.left.Add(-batch) + batch
	return int(max(min(left, batch), 0))
}

// tellProgress reports until the function it returns is called.
func (r *run) tellProgress(began time.Time) (stop func()) {
	if r.o.Progress == nil {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.o.Progress(r.answered.Load(), time.Since(began))
			case <-done:
				r.o.Progress(r.answered.Load(), time.Since(began))
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
