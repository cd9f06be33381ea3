package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tallystick/tallystick/internal/load"
)

// Slow measures what many slow connections do to a caller that works: its time to an answer and the server's memory,
// without them and beside them, in turns. Server, caller and slow connections are processes of their own.

// SlowOptions of a run.
type SlowOptions struct {
	Connections int           // slow ones. Default 10,000
	Pace        time.Duration // between two bytes of one. Default 2 s
	// over which they come. Default 10 s: as long as the server waits for a head, so that they do not all end at once
	Spread      time.Duration
	Repetitions int // of without and with. Default 5
	// of each. Default 15 s: longer than the server waits for a head, so that it closes them and they come again
	Time  time.Duration
	Every time.Duration // how often each working connection sends. Default 80 ms
	Dir   string        // default: a temporary folder
	// Progress takes a line per measurement. Default: nobody does.
	Progress io.Writer
}

const (
	defaultSlowConnections = 10_000
	defaultSlowPace        = 2 * time.Second
	defaultSlowSpread      = 10 * time.Second
	defaultSlowRuns        = 5
	defaultSlowTime        = 15 * time.Second
	// spareDescriptors are for all that is not a slow connection: files of the store, the working caller, pipes.
	spareDescriptors = 500
)

// Slow is what a run saw: medians over the repetitions.
type Slow struct {
	Connections int          `json:"connections"`
	Without     load.Latency `json:"without_us"`
	Beside      load.Latency `json:"beside_us"`
	// of a repetition: what the machine did to it, it did to both
	Ratio float64 `json:"p99_ratio"`
	// before the first slow connection: pages once used are given back late
	Memory     int64    `json:"memory_without_bytes"`
	MemoryWith int64    `json:"memory_beside_bytes"` // the most
	Events     int64    `json:"events"`
	Closed     int64    `json:"closed_by_server"`
	Targets    []Target `json:"targets"`
}

// RunSlow measures.
func RunSlow(ctx context.Context, o SlowOptions) (s *Slow, err error) {
	setDefault(&o.Connections, defaultSlowConnections)
	setDefault(&o.Pace, defaultSlowPace)
	setDefault(&o.Spread, defaultSlowSpread)
	setDefault(&o.Repetitions, defaultSlowRuns)
	setDefault(&o.Time, defaultSlowTime)
	setDefault(&o.Every, defaultCalmEvery)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if err := enoughDescriptors(o.Connections); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.Dir, "tallystick-slow-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the store: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	shape := load.Shape{Seed: 1, Tenants: 1, Meters: meters, Customers: 1000, DuplicateRatio: duplicate,
		Hour: time.Now().Add(-time.Hour).UTC().Truncate(time.Hour)}
	r := &slow{options: o}
	if r.server, err = startChild[slowServerSays](ctx, slowServerCommand,
		slowServerJob{Dir: dir, Shape: shape}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.server.kill()) }()
	var at slowServerSays
	if err := r.server.until(func(said *slowServerSays) bool { at = *said; return true }); err != nil {
		return nil, err
	}
	r.caller, err = startChild[callerSays](ctx, callerCommand,
		callerJob{Shape: shape, URL: at.URL, Keys: at.Keys, Connections: calmConnections, Batch: 1, Every: o.Every})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.caller.kill()) }()
	r.slow, err = startChild[slowSays](ctx, slowCommand,
		slowJob{URL: at.URL, Connections: o.Connections, Pace: o.Pace, Spread: o.Spread})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.slow.kill()) }()
	for i := range o.Repetitions {
		if err := r.turn(ctx, i); err != nil {
			return nil, err
		}
	}
	s = &Slow{Connections: o.Connections, Without: medianLatency(r.without), Beside: medianLatency(r.beside),
		Ratio:  medianRatio(r.without, r.beside),
		Memory: r.memory, MemoryWith: r.memoryWith, Events: r.events, Closed: r.closed}
	s.judge()
	return s, nil
}

// enoughDescriptors looks at the limit, which Go has raised as far as it may be.
func enoughDescriptors(connections int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if need := uint64(connections) + spareDescriptors; limit.Max < need {
		return &usageError{fmt.Errorf("%d connections need %d open files in each process, and the hard limit is %d: "+
			"raise it (ulimit -Hn), or ask for fewer with --connections", connections, need, limit.Max)}
	}
	return nil
}

type slow struct {
	options SlowOptions
	server  *childProcess[slowServerSays]
	caller  *childProcess[callerSays]
	slow    *childProcess[slowSays]

	without, beside    []load.Latency // of each repetition
	memory, memoryWith int64
	events, closed     int64
}

// turn measures the caller without the slow connections, and beside them.
func (r *slow) turn(ctx context.Context, i int) error {
	without, err := r.phase(ctx)
	if err != nil {
		return err
	}
	before, err := r.resident()
	if err != nil {
		return err
	}
	if err := r.slow.send("go"); err != nil {
		return err
	}
	if err := r.slow.until(func(said *slowSays) bool { return said.Begun }); err != nil {
		return err
	}
	beside, err := r.phase(ctx)
	if err != nil {
		return err
	}
	with, err := r.resident()
	if err != nil {
		return err
	}
	if err := r.slow.send("stop"); err != nil {
		return err
	}
	var said slowSays
	if err := r.slow.until(func(s *slowSays) bool { said = *s; return true }); err != nil {
		return err
	}
	r.without, r.beside, r.closed = append(r.without, without), append(r.beside, beside), r.closed+said.Closed
	if i == 0 {
		r.memory = before
	}
	r.memoryWith = max(r.memoryWith, with)
	fmt.Fprintf(r.options.Progress, "%d of %d: p99 without %.1f ms, beside %d slow connections %.1f ms; the server "+
		"closed %d of them\n",
		i+1, r.options.Repetitions, without.P99/1000, said.Open, beside.P99/1000, said.Closed)
	return nil
}

// phase lets the caller send for a while.
func (r *slow) phase(ctx context.Context) (load.Latency, error) {
	if err := r.caller.send("go"); err != nil {
		return load.Latency{}, err
	}
	if err := r.caller.until(func(s *callerSays) bool { return s.Begun }); err != nil {
		return load.Latency{}, err
	}
	select {
	case <-time.After(r.options.Time):
	case <-ctx.Done():
		return load.Latency{}, ctx.Err()
	}
	var said callerSays
	if err := r.caller.send("stop"); err != nil {
		return load.Latency{}, err
	}
	err := r.caller.until(func(s *callerSays) bool { said = *s; return true })
	for _, n := range said.Batches {
		r.events += int64(n)
	}
	return said.Latency, err
}

// resident asks for the server's memory.
func (r *slow) resident() (bytes int64, err error) {
	if err := r.server.send("memory"); err != nil {
		return 0, err
	}
	err = r.server.until(func(s *slowServerSays) bool { bytes = s.Memory; return true })
	return bytes, err
}

const (
	mostSlowRatio = 2
	// mostSlowMemory is of one slow connection: its goroutines, their stacks and its buffers.
	mostSlowMemory = 32 << 10
)

func (s *Slow) judge() {
	s.Targets = []Target{
		newTarget(fmt.Sprintf("p99 of a working caller beside %d slow connections", s.Connections),
			"<= 2 x its value without", "",
			bound{value: s.Ratio, must: mostSlowRatio, atMost: true, show: func(n float64) string {
				return fmt.Sprintf("%.1f x", n)
			}}),
		newTarget("memory of a slow connection", "<= 32 KiB", "",
			bound{value: s.perConnection(), must: mostSlowMemory, atMost: true, show: func(n float64) string {
				return fmt.Sprintf("%.1f KiB", n/1024)
			}}),
	}
}

func (s *Slow) perConnection() float64 {
	return float64(max(s.MemoryWith-s.Memory, 0)) / float64(s.Connections)
}

// Print writes the table for people.
func (s *Slow) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%-28s %10s %10s %10s %12s\n", "one event at a time", "p50", "p99", "max", "memory")
	for _, row := range []struct {
		name   string
		l      load.Latency
		memory int64
	}{{"alone", s.Without, s.Memory}, {fmt.Sprintf("beside %d slow", s.Connections), s.Beside, s.MemoryWith}} {
		fmt.Fprintf(w, "%-28s %7.0f us %7.0f us %7.0f us %8.1f MiB\n", row.name, row.l.P50, row.l.P99, row.l.Max,
			float64(row.memory)/(1<<20))
	}
	fmt.Fprintf(w, "%d events; the server closed %d slow connections, which came again\n", s.Events, s.Closed)
	printTargets(w, s.Targets)
}

func newSlowCommandLine(dir, file *string) *cobra.Command {
	var o SlowOptions
	c := &cobra.Command{
		Use:   "slow",
		Short: "Measure what many slow connections do to a caller that works",
		Long: `A caller sends single events at a steady pace over 32 HTTP connections, alone and in turn with that
while many other connections trickle requests without a key, a byte at a time: heads, bodies, and requests for
another route. The server closes them when their time is over, and they come again.`,
		Example: `  tallystick-versus slow --connections 10000`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Repetitions < 1 || o.Time <= 0 || o.Every <= 0 || o.Pace <= 0 || o.Spread <= 0 || o.Connections < 1 {
				return &usageError{errors.New("--connections, --repetitions, --time, --every, --pace and --spread " +
					"must be more than 0")}
			}
			o.Dir, o.Progress = *dir, c.ErrOrStderr()
			s, err := RunSlow(c.Context(), o)
			if err != nil {
				return err
			}
			s.Print(c.OutOrStdout())
			return writeJSON(*file, s)
		},
	}
	c.Flags().IntVar(&o.Connections, "connections", defaultSlowConnections, "slow ones")
	c.Flags().DurationVar(&o.Pace, "pace", defaultSlowPace, "between two bytes of a slow connection")
	c.Flags().DurationVar(&o.Spread, "spread", defaultSlowSpread, "over which the slow connections come")
	c.Flags().IntVar(&o.Repetitions, "repetitions", defaultSlowRuns, "turns of without and with")
	c.Flags().DurationVar(&o.Time, "time", defaultSlowTime, "of each")
	c.Flags().DurationVar(&o.Every, "every", defaultCalmEvery, "how often each working connection sends")
	return c
}
