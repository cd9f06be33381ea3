package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/heap"
	"github.com/tallystick/tallystick/internal/load"
)

// benchDuration is long enough to see merges and checkpoints, and short enough to wait for.
const benchDuration = 10 * time.Second

type benchOptions struct {
	load.Options
	allowRemote bool
	json        bool
}

func newBenchCommand() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use:   "bench",
		Short: "Load a server with events and prove that it counted each of them once",
		Long: `Makes tenants of its own on the server, sends them generated events, some of them twice,
and then compares every counter with what was sent. Exit code 1 means that they differ.
Without --url it measures a server inside its own process, with a store in a temporary
directory; generator and server then share the processors and the CPU figure.`,
		Example: `  tallystick bench
  tallystick bench --batch 1 --connections 64 --duration 5s
  TALLYSTICK_ROOT_KEY=… tallystick bench --url http://127.0.0.1:8080 --events 1000000 --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return bench(c, o) },
	}
	f := c.Flags()
	f.StringVar(&o.URL, "url", "", "server to measure; default: one in this process")
	f.StringVar(&o.Key, "key", "", "the operator's key; default: "+rootKeyVariable)
	f.BoolVar(&o.allowRemote, "allow-remote", false, "let --url name another machine")
	f.IntVar(&o.Batch, "batch", 1000, "events of a request; 1 sends single events")
	f.IntVar(&o.Connections, "connections", 16, "requests under way at once")
	f.Float64Var(&o.DuplicateRatio, "duplicates", 0.05, "share of events that were sent before")
	f.IntVar(&o.Customers, "customers", 100_000, "customers of each tenant, most of the usage from a few")
	f.IntVar(&o.Tenants, "tenants", 1, "tenants to make")
	f.IntVar(&o.Meters, "meters", 1, "meters of each tenant")
	f.Int64Var(&o.Events, "events", 0, "events to send, in place of --duration")
	f.DurationVar(&o.Duration, "duration", benchDuration, "how long to send")
	f.Uint64Var(&o.Seed, "seed", 1, "of the generated events")
	f.BoolVar(&o.json, "json", false, "print the report as JSON, without progress")
	return c
}

func bench(c *cobra.Command, o benchOptions) (err error) {
	if c.Flags().Changed("events") {
		if c.Flags().Changed("duration") {
			return wrongUse("state either --events or --duration")
		}
		o.Duration = 0
	}
	// The generator takes a zero for its default; here it was typed.
	if min(o.Batch, o.Connections, o.Customers, o.Tenants, o.Meters) < 1 {
		return wrongUse("--batch, --connections, --customers, --tenants and --meters start at 1")
	}
	if o.Key == "" {
		o.Key = os.Getenv(rootKeyVariable)
	}
	if o.URL != "" && !o.allowRemote && !isLoopback(o.URL) {
		return wrongUse("--url names another machine: load it only if it is yours to load, and say so with " +
			"--allow-remote")
	}
	if o.URL == "" {
		stop, failed := o.startServer(c)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err := o.Check(); err != nil {
		return &usageError{err}
	}
	bar := progressFor(c, o.json)("sending")
	o.Progress = func(answered int64, elapsed time.Duration) { o.show(bar, answered, elapsed) }
	report, err := load.Run(c.Context(), o.Options)
	bar.end()
	if report != nil {
		if err := showBench(c.OutOrStdout(), report, o.json); err != nil {
			return err
		}
	}
	return err
}

// show draws how far the sending has come, by events or by time.
func (o *benchOptions) show(bar *progressBar, answered int64, elapsed time.Duration) {
	bar.label = fmt.Sprintf("sending %9.0f events/s", float64(answered)/max(elapsed.Seconds(), 1e-9))
	if o.Events != 0 {
		bar.bytes(answered, o.Events)
		return
	}
	bar.bytes(int64(elapsed), int64(o.Duration))
}

// isLoopback reports whether the URL cannot leave this machine. A name is not looked up: what it means may change.
func isLoopback(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// startServer makes a server in this process the one to measure.
func (o *benchOptions) startServer(c *cobra.Command) (stop func() error, err error) {
	heap.Tune()
	settings := defaultSettings()
	settings.Listen, settings.Log.Level, settings.RootKey = "127.0.0.1:0", "warn", "bench-"+rand.Text()
	if settings.Data, err = os.MkdirTemp("", "tallystick-bench-"); err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	// The server outlives an interrupt, so that requests under way are answered.
	s, err := Start(context.WithoutCancel(c.Context()),
		ServerOptions{Settings: settings, Logger: newLogger(c.ErrOrStderr(), settings.Log)})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(settings.Data))
	}
	o.URL, o.Key = s.URL(), settings.RootKey
	return func() error { return errors.Join(s.Shutdown(), os.RemoveAll(settings.Data)) }, nil
}

func showBench(out io.Writer, r *load.Report, asJSON bool) error {
	if asJSON {
		return printJSON(out, r)
	}
	fmt.Fprintf(out, "%s in %.2f s: %.0f events/s, %.0f requests/s\n", counted(r.Events, "event"), r.Seconds,
		r.EventsPerSecond, r.RequestsPerSecond)
	fmt.Fprintf(out, "accepted %d, duplicates %d, requests sent again because the server was busy %d\n", r.Accepted,
		r.Duplicates, r.Retries)
	fmt.Fprintf(out, "latency of a request: p50 %s, p99 %s, p99.9 %s, longest %s\n", micros(r.Latency.P50),
		micros(r.Latency.P99), micros(r.Latency.P999), micros(r.Latency.Max))
	fmt.Fprintf(out, "per event: %.1f bytes of body", r.BodyBytes)
	if r.JournalBytes != nil {
		fmt.Fprintf(out, ", %.1f bytes of journal", *r.JournalBytes)
	}
	if r.ServerCPUMicros != nil {
		fmt.Fprintf(out, ", %.2f us of the server process's CPU", *r.ServerCPUMicros)
	}
	fmt.Fprintln(out)
	if r.Proved {
		fmt.Fprintf(out, "proved: %s, each equal to what was sent (%.2f s)\n", counted(r.Counters, "counter"),
			r.ProofSeconds)
	}
	return nil
}

func micros(us float64) time.Duration {
	return (time.Duration(us * float64(time.Microsecond))).Round(time.Microsecond)
}
