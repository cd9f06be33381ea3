package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/load"
)

// Fairness measures what one tenant that floods the server does to another that sends an event now and then: the other's time to
// an answer, alone and beside the flood, in turns on one server over HTTP.

// FairnessOptions of a run.
type FairnessOptions struct {
	Repetitions int           // of quiet and flood. Default 5
	Time        time.Duration // of each. Default 3 s
	Every       time.Duration // how often each calm connection sends. Default 10 ms
	Dir         string        // default: a temporary folder
	// Progress takes a line per measurement. Default: nobody does.
	Progress io.Writer
}

// The two tenants and how they send.
const (
	calmTenant  = 0
	floodTenant = 1

	calmConnections  = 4
	floodConnections = 16
	floodBatch       = 1000

	defaultCalmEvery    = 10 * time.Millisecond
	defaultFairTime     = 3 * time.Second
	defaultFairnessRuns = 5
)

// Fairness is what a run saw.
type Fairness struct {
	Quiet   load.Latency `json:"quiet_us"`
	Flooded load.Latency `json:"flooded_us"`
	Calm    int64        `json:"calm_events"`
	Flood   float64      `json:"flood_events_per_second"`
	Targets []Target     `json:"targets"`
}

// RunFairness measures.
func RunFairness(ctx context.Context, o FairnessOptions) (f *Fairness, err error) {
	setDefault(&o.Repetitions, defaultFairnessRuns)
	setDefault(&o.Time, defaultFairTime)
	setDefault(&o.Every, defaultCalmEvery)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	dir, err := os.MkdirTemp(o.Dir, "tallystick-fairness-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the store: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{dir: dir}
	if b.w, err = load.NewWorkload(load.Shape{Seed: 1, Tenants: 2, Meters: meters, Customers: 1000, DuplicateRatio: duplicate}); err != nil {
		return nil, err
	}
	s, err := openEngineHTTP(ctx, b, Cell{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r := &fairness{options: o, subject: s, w: b.w}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	if err := s.check(ctx, r.streams, sample{}); err != nil {
		return nil, fmt.Errorf("what was counted: %w", err)
	}
	f = &Fairness{Quiet: load.LatencyOf(&r.quiet), Flooded: load.LatencyOf(&r.flooded), Calm: r.calm, Flood: float64(r.flood) / (float64(o.Repetitions) * o.Time.Seconds())}
	f.judge()
	return f, nil
}

type fairness struct {
	options FairnessOptions
	subject subject
	w       *load.Workload
	streams []*load.Stream

	mu             sync.Mutex // guards those below
	quiet, flooded load.Histogram
	calm, flood    int64
}

func (r *fairness) run(ctx context.Context) error {
	calm, err := r.connections(ctx, calmConnections, calmTenant)
	if err != nil {
		return err
	}
	flood, err := r.connections(ctx, floodConnections, floodTenant)
	if err != nil {
		return err
	}
	for i := range r.options.Repetitions {
		if err := r.phase(ctx, calm, nil, &r.quiet); err != nil {
			return err
		}
		if err := r.phase(ctx, calm, flood, &r.flooded); err != nil {
			return err
		}
		fmt.Fprintf(r.options.Progress, "%d of %d: p99 quiet %s, beside the flood %s\n", i+1, r.options.Repetitions, r.quiet.Quantile(990), r.flooded.Quantile(990))
	}
	return nil
}

// connection is a stream of one tenant's events.
type connection struct {
	stream *load.Stream
	send   func(*load.Batch) error
}

func (r *fairness) connections(ctx context.Context, n, tenant int) ([]connection, error) {
	out := make([]connection, n)
	for i := range out {
		send, err := r.subject.submitter(ctx)
		if err != nil {
			return nil, err
		}
		s := r.w.NewStream(len(r.streams))
		s.Stay(tenant)
		r.streams = append(r.streams, s)
		out[i] = connection{s, send}
	}
	return out, nil
}

// phase lets the calm tenant send at its pace, and the other as fast as it can.
func (r *fairness) phase(ctx context.Context, calm, flood []connection, into *load.Histogram) error {
	ctx, stop := context.WithTimeout(ctx, r.options.Time)
	defer stop()
	failed := make(chan error, len(calm)+len(flood))
	var wg sync.WaitGroup
	for _, c := range flood {
		wg.Go(func() { failed <- r.pour(ctx, c) })
	}
	for _, c := range calm {
		wg.Go(func() { failed <- r.drip(ctx, c, into) })
	}
	wg.Wait()
	close(failed)
	var err error
	for e := range failed {
		err = errors.Join(err, e)
	}
	return err
}

func (r *fairness) pour(ctx context.Context, c connection) error {
	var b load.Batch
	sent := int64(0)
	for ctx.Err() == nil {
		c.stream.Fill(&b, floodBatch)
		if err := c.send(&b); err != nil {
			return fmt.Errorf("flood: %w", err)
		}
		sent += floodBatch
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flood += sent
	return nil
}

// drip measures from when an event was due, not from when it could be sent: a server that is slow must not make its caller
// send less.
func (r *fairness) drip(ctx context.Context, c connection, into *load.Histogram) error {
	var b load.Batch
	var h load.Histogram
	sent := int64(0)
	for due := time.Now().Add(r.options.Every); ; due = due.Add(r.options.Every) {
		if wait := time.Until(due); wait > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
		if ctx.Err() != nil {
			break
		}
		c.stream.Fill(&b, 1)
		if err := c.send(&b); err != nil {
			return fmt.Errorf("calm tenant: %w", err)
		}
		h.Add(time.Since(due))
		sent++
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	into.Merge(&h)
	r.calm += sent
	return nil
}

func (f *Fairness) judge() {
	const most = 3
	ratio := f.Flooded.P99 / max(f.Quiet.P99, 1)
	f.Targets = []Target{newTarget("p99 of one tenant while another floods the server", "<= 3 x its quiet value", "",
		bound{value: ratio, must: most, atMost: true, show: func(n float64) string { return fmt.Sprintf("%.1f x", n) }})}
}

// Print writes the table for people.
func (f *Fairness) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%-24s %10s %10s %10s\n", "one event at a time", "p50", "p99", "max")
	for _, row := range []struct {
		name string
		l    load.Latency
	}{{"quiet", f.Quiet}, {"beside the flood", f.Flooded}} {
		fmt.Fprintf(w, "%-24s %7.0f us %7.0f us %7.0f us\n", row.name, row.l.P50, row.l.P99, row.l.Max)
	}
	fmt.Fprintf(w, "%d events of the calm tenant; the flood was %s events/s\n", f.Calm, count(f.Flood))
	printTargets(w, f.Targets)
}

func newFairnessCommand(dir, file *string) *cobra.Command {
	var o FairnessOptions
	c := &cobra.Command{
		Use:     "fairness",
		Short:   "Measure what a flood by one tenant does to another",
		Long:    `One tenant sends single events at a steady pace over HTTP, alone and while another sends batches of 1000 over 16 connections as fast as it can.`,
		Example: `  tallystick-versus fairness --repetitions 10`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Repetitions < 1 || o.Time <= 0 || o.Every <= 0 {
				return &usageError{errors.New("--repetitions, --time and --every must be more than 0")}
			}
			o.Dir, o.Progress = *dir, c.ErrOrStderr()
			f, err := RunFairness(c.Context(), o)
			if err != nil {
				return err
			}
			f.Print(c.OutOrStdout())
			return writeJSON(*file, f)
		},
	}
	c.Flags().IntVar(&o.Repetitions, "repetitions", defaultFairnessRuns, "turns of quiet and flood")
	c.Flags().DurationVar(&o.Time, "time", defaultFairTime, "of each")
	c.Flags().DurationVar(&o.Every, "every", defaultCalmEvery, "how often each of the calm tenant's connections sends")
	return c
}
