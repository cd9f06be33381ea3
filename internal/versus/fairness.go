package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/load"
)

// Fairness measures what one tenant that floods the server does to another that sends an event now and then: the
// other's time to an answer, alone and beside the flood, in turns on one server over HTTP. Both come from processes of
// their own, as callers do: what it costs to make a flood is its own affair, as far as there are processors, and who
// waits for an answer does not wait for the server's threads.

// FairnessOptions of a run.
type FairnessOptions struct {
	Store       string        // engine or postgres. Default engine
	Fleeting    bool          // a PostgreSQL that keeps nothing, for tests
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

// The stores that a run can be on.
const engineStore, postgresStore = "engine", "postgres"

var fairnessStores = map[string]func(context.Context, *bench) (*wholeHTTP, error){engineStore: startEngineHTTP,
	postgresStore: startPgStoreHTTP}

// Fairness is what a run saw: medians over the repetitions.
type Fairness struct {
	Store   string       `json:"store"`
	Quiet   load.Latency `json:"quiet_us"`
	Flooded load.Latency `json:"flooded_us"`
	Ratio   float64      `json:"p99_ratio"` // of a repetition: what the machine did to it, it did to both
	Calm    int64        `json:"calm_events"`
	Flood   float64      `json:"flood_events_per_second"`
	Targets []Target     `json:"targets"`
}

// RunFairness measures.
func RunFairness(ctx context.Context, o FairnessOptions) (f *Fairness, err error) {
	setDefault(&o.Store, engineStore)
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
	shape := load.Shape{Seed: 1, Tenants: 2, Meters: meters, Customers: 1000, DuplicateRatio: duplicate,
		Hour: time.Now().Add(-time.Hour).UTC().Truncate(time.Hour)}
	if b.w, err = load.NewWorkload(shape); err != nil {
		return nil, err
	}
	if o.Store == postgresStore {
		if b.cluster, err = startCluster(ctx, o.Fleeting); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	}
	s, err := fairnessStores[o.Store](ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r := &fairness{options: o, shape: shape, w: b.w, to: s.to}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	if err := s.check(ctx, r.streams, sample{}); err != nil {
		return nil, fmt.Errorf("what was counted: %w", err)
	}
	f = &Fairness{Store: o.Store, Quiet: medianLatency(r.quiet), Flooded: medianLatency(r.flooded),
		Ratio: medianRatio(r.quiet, r.flooded), Calm: r.calm, Flood: float64(r.flood) / r.flooding.Seconds()}
	f.judge()
	return f, nil
}

type fairness struct {
	options FairnessOptions
	shape   load.Shape
	w       *load.Workload
	to      load.Target
	streams []*load.Stream

	quiet, flooded []load.Latency // of each repetition

	calm, flood int64 // events
	flooding    time.Duration
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
		P50:  pick(func(l load.Latency) float64 { return l.P50 }),
		P99:  pick(func(l load.Latency) float64 { return l.P99 }),
		P999: pick(func(l load.Latency) float64 { return l.P999 }),
		Max:  pick(func(l load.Latency) float64 { return l.Max }),
	}
}

func medianRatio(quiet, flooded []load.Latency) float64 {
	var ratios []float64
	for i := range quiet {
		ratios = append(ratios, flooded[i].P99/max(quiet[i].P99, 1))
	}
	return median(ratios)
}

func (r *fairness) run(ctx context.Context) (err error) {
	calm, err := r.start(ctx, callerJob{Tenant: calmTenant, Connections: calmConnections, Batch: 1,
		Every: r.options.Every})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, calm.kill()) }()
	flood, err := r.start(ctx, callerJob{Tenant: floodTenant, Connections: floodConnections, Batch: floodBatch})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flood.kill()) }()
	for i := range r.options.Repetitions {
		quiet, err := r.phase(ctx, calm)
		if err != nil {
			return err
		}
		flooded, err := r.beside(ctx, flood, calm)
		if err != nil {
			return err
		}
		r.quiet, r.flooded = append(r.quiet, quiet), append(r.flooded, flooded)
		fmt.Fprintf(r.options.Progress, "%d of %d: p99 quiet %.1f ms, beside the flood %.1f ms\n", i+1,
			r.options.Repetitions, quiet.P99/1000, flooded.P99/1000)
	}
	return nil
}

// calls is a process that calls the server, with the streams that it sends.
type calls struct {
	*childProcess[callerSays]
	batch   int
	streams []*load.Stream
}

func (r *fairness) start(ctx context.Context, job callerJob) (*calls, error) {
	job.Shape, job.URL, job.Keys, job.Stream = r.shape, r.to.URL.String(), r.to.Keys, len(r.streams)
	p, err := startChild[callerSays](ctx, callerCommand, job)
	if err != nil {
		return nil, err
	}
	c := &calls{childProcess: p, batch: job.Batch}
	for range job.Connections {
		c.streams = append(c.streams, stay(r.w.NewStream(len(r.streams)+len(c.streams)), job.Tenant))
	}
	r.streams = append(r.streams, c.streams...)
	return c, nil
}

// begin lets the process send.
func (c *calls) begin() error {
	if err := c.send("go"); err != nil {
		return err
	}
	return c.until(func(s *callerSays) bool { return s.Begun })
}

// end stops it and repeats its draws, so that its streams can be checked here.
func (c *calls) end() (said callerSays, events int64, err error) {
	if err := c.send("stop"); err != nil {
		return said, 0, err
	}
	if err := c.until(func(s *callerSays) bool { said = *s; return true }); err != nil {
		return said, 0, err
	}
	var b load.Batch
	for i, n := range said.Batches {
		for range n {
			c.streams[i].Fill(&b, c.batch)
		}
		events += int64(n * c.batch)
	}
	return said, events, nil
}

// phase lets the calm tenant send at its pace for a while.
func (r *fairness) phase(ctx context.Context, calm *calls) (load.Latency, error) {
	if err := calm.begin(); err != nil {
		return load.Latency{}, err
	}
	select {
	case <-time.After(r.options.Time):
	case <-ctx.Done():
		return load.Latency{}, ctx.Err()
	}
	said, events, err := calm.end()
	r.calm += events
	return said.Latency, err
}

// beside is a phase of the calm tenant while the other floods.
func (r *fairness) beside(ctx context.Context, flood, calm *calls) (load.Latency, error) {
	if err := flood.begin(); err != nil {
		return load.Latency{}, err
	}
	seen, err := r.phase(ctx, calm)
	if err != nil {
		return seen, err
	}
	said, events, err := flood.end()
	r.flood += events
	r.flooding += time.Duration(said.Seconds * float64(time.Second))
	return seen, err
}

func (f *Fairness) judge() {
	const most = 3
	f.Targets = []Target{newTarget("p99 of one tenant while another floods the "+f.Store+" store",
		"<= 3 x its quiet value", "",
		bound{value: f.Ratio, must: most, atMost: true, show: func(n float64) string {
			return fmt.Sprintf("%.1f x", n)
		}})}
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
		Use:   "fairness",
		Short: "Measure what a flood by one tenant does to another",
		Long: `One tenant sends single events at a steady pace over 32 HTTP connections, alone and in turn with that
while another sends batches of 1000 over 16 connections as fast as it can.`,
		Example: `  tallystick-versus fairness --repetitions 10
  tallystick-versus fairness --store postgres`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Repetitions < 1 || o.Time <= 0 || o.Every <= 0 {
				return &usageError{errors.New("--repetitions, --time and --every must be more than 0")}
			}
			if fairnessStores[o.Store] == nil {
				return &usageError{fmt.Errorf("--store %q: it is engine or postgres", o.Store)}
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
	c.Flags().StringVar(&o.Store, "store", engineStore, "engine, or postgres on a private server")
	c.Flags().IntVar(&o.Repetitions, "repetitions", defaultFairnessRuns, "turns of quiet and flood")
	c.Flags().DurationVar(&o.Time, "time", defaultFairTime, "of each")
	c.Flags().DurationVar(&o.Every, "every", defaultCalmEvery, "how often each of the calm tenant's connections sends")
	return c
}
