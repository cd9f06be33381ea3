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
// an answer, alone and beside the flood, in turns on one server over HTTP. The flood comes from a process of its own, as floods do:
// what it costs to make it is its own affair, as far as there are processors.

// FairnessOptions of a run.
type FairnessOptions struct {
	Repetitions int           // of quiet and flood. Default 15
	Time        time.Duration // of each. Default 1 s
	Every       time.Duration // how often each calm connection sends. Default 80 ms
	Dir         string        // default: a temporary folder
	// Progress takes a line per measurement. Default: nobody does.
	Progress io.Writer
}

// The two tenants and how they send.
const (
	calmTenant  = 0
	floodTenant = 1

	calmConnections  = 32
	floodConnections = 16
	floodBatch       = 1000

	defaultCalmEvery    = 80 * time.Millisecond
	defaultFairTime     = time.Second
	defaultFairnessRuns = 15
)

// Fairness is what a run saw: medians over the repetitions.
type Fairness struct {
	Quiet   load.Latency `json:"quiet_us"`
	Flooded load.Latency `json:"flooded_us"`
	Ratio   float64      `json:"p99_ratio"` // of a repetition: what the machine did to it, it did to both
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
	shape := load.Shape{Seed: 1, Tenants: 2, Meters: meters, Customers: 1000, DuplicateRatio: duplicate, Hour: time.Now().Add(-time.Hour).UTC().Truncate(time.Hour)}
	if b.w, err = load.NewWorkload(shape); err != nil {
		return nil, err
	}
	s, err := startEngineHTTP(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r := &fairness{options: o, subject: s, shape: shape, w: b.w}
	if err := r.run(ctx, &s.to); err != nil {
		return nil, err
	}
	if err := s.check(ctx, r.streams, sample{}); err != nil {
		return nil, fmt.Errorf("what was counted: %w", err)
	}
	f = &Fairness{Quiet: medianLatency(r.quiet), Flooded: medianLatency(r.flooded), Ratio: medianRatio(r.quiet, r.flooded), Calm: r.calm, Flood: float64(r.flood) / r.flooding.Seconds()}
	f.judge()
	return f, nil
}

type fairness struct {
	options FairnessOptions
	subject subject
	shape   load.Shape
	w       *load.Workload
	streams []*load.Stream

	quiet, flooded []load.Latency // of each repetition

	flood    int64 // events
	flooding time.Duration

	mu   sync.Mutex // guards calm, and the histogram of a phase
	calm int64      // events
}

func medianLatency(of []load.Latency) load.Latency {
	pick := func(what func(load.Latency) float64) float64 {
		var values []float64
		for _, l := range of {
			values = append(values, what(l))
		}
		return median(values)
	}
	return load.Latency{
		P50: pick(func(l load.Latency) float64 { return l.P50 }), P99: pick(func(l load.Latency) float64 { return l.P99 }),
		P999: pick(func(l load.Latency) float64 { return l.P999 }), Max: pick(func(l load.Latency) float64 { return l.Max }),
	}
}

func medianRatio(quiet, flooded []load.Latency) float64 {
	var ratios []float64
	for i := range quiet {
		ratios = append(ratios, flooded[i].P99/max(quiet[i].P99, 1))
	}
	return median(ratios)
}

func (r *fairness) run(ctx context.Context, to *load.Target) error {
	calm, err := r.connections(ctx)
	if err != nil {
		return err
	}
	f, err := r.startFlood(ctx, to)
	if err != nil {
		return err
	}
	for i := range r.options.Repetitions {
		var quiet, flooded load.Latency
		if quiet, err = r.phase(ctx, calm); err != nil {
			break
		}
		if flooded, err = r.beside(ctx, f, calm); err != nil {
			break
		}
		r.quiet, r.flooded = append(r.quiet, quiet), append(r.flooded, flooded)
		fmt.Fprintf(r.options.Progress, "%d of %d: p99 quiet %.1f ms, beside the flood %.1f ms\n", i+1, r.options.Repetitions, quiet.P99/1000, flooded.P99/1000)
	}
	return errors.Join(err, f.kill())
}

// connection is a stream of one tenant's events.
type connection struct {
	stream *load.Stream
	send   func(*load.Batch) error
}

func (r *fairness) connections(ctx context.Context) ([]connection, error) {
	out := make([]connection, calmConnections)
	for i := range out {
		send, err := r.subject.submitter(ctx)
		if err != nil {
			return nil, err
		}
		out[i] = connection{r.stream(calmTenant), send}
	}
	return out, nil
}

func (r *fairness) stream(tenant int) *load.Stream {
	s := r.w.NewStream(len(r.streams))
	s.Stay(tenant)
	r.streams = append(r.streams, s)
	return s
}

// phase lets the calm tenant send at its pace.
func (r *fairness) phase(ctx context.Context, calm []connection) (load.Latency, error) {
	ctx, stop := context.WithTimeout(ctx, r.options.Time)
	defer stop()
	failed := make(chan error, len(calm))
	var all load.Histogram
	var wg sync.WaitGroup
	start := time.Now()
	for i, c := range calm {
		first := start.Add(r.options.Every * time.Duration(i+1) / time.Duration(len(calm)))
		wg.Go(func() { failed <- r.drip(ctx, c, first, &all) })
	}
	wg.Wait()
	close(failed)
	var err error
	for e := range failed {
		err = errors.Join(err, e)
	}
	return load.LatencyOf(&all), err
}

// drip measures from when an event was due, not from when it could be sent: a server that is slow must not make its caller
// send less.
func (r *fairness) drip(ctx context.Context, c connection, due time.Time, into *load.Histogram) error {
	var b load.Batch
	var h load.Histogram
	sent := int64(0)
	for ; ; due = due.Add(r.options.Every) {
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
	f.Targets = []Target{newTarget("p99 of one tenant while another floods the server", "<= 3 x its quiet value", "",
		bound{value: f.Ratio, must: most, atMost: true, show: func(n float64) string { return fmt.Sprintf("%.1f x", n) }})}
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
		Long:    `One tenant sends single events at a steady pace over 32 HTTP connections, alone and in turn with that while another sends batches of 1000 over 16 connections as fast as it can.`,
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
