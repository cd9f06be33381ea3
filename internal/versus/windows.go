package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/store/engine"
)

// Windows measures questions about a span of time: a month by hour grouped by customer, over all rows of one tenant,
// beside the same query in PostgreSQL over the same rows and in DuckDB over the engine's own files; one customer's
// month; and what making the files takes from ingest.

// WindowsOptions of a run.
type WindowsOptions struct {
	Rows        int64  // of the tenant, all in one month. Default 10 M
	Customers   int    // Default 1000
	Lookups     int    // questions for one customer. Default 500
	Repetitions int    // of each query, interleaved. Default 5
	Ingest      int64  // rows of each of the turns in which ingest is measured. Default 1 M
	DuckDB      string // the command that runs queries in DuckDB; empty: it is left out
	NoPostgres  bool   // PostgreSQL is left out
	Dir         string // default: a temporary folder
	// Fleeting is for tests: PostgreSQL does not sync.
	Fleeting bool
	// Progress takes a line now and then. Default: nobody does.
	Progress io.Writer
}

const (
	defaultWindowRows   = 10_000_000
	defaultWindowBuyers = 1000
	defaultLookups      = 500
	defaultWindowRuns   = 5
	defaultWindowIngest = 1_000_000
)

// WindowsResult is what a run saw.
type WindowsResult struct {
	Rows       int64        `json:"rows"`
	Customers  int          `json:"customers"`
	Queries    []QueryTimes `json:"month_by_hour_by_customer"`
	LookupP50  float64      `json:"one_customer_p50_seconds"`
	LookupP99  float64      `json:"one_customer_p99_seconds"`
	Idle       float64      `json:"ingest_events_per_second_without_slices"`
	Slicing    float64      `json:"ingest_events_per_second_with_slices"`
	SliceBytes float64      `json:"slice_bytes_each"`
	CaughtUp   float64      `json:"seconds_until_all_was_sliced"`
	Targets    []Target     `json:"targets"`
}

// QueryTimes are those of one query on one contender.
type QueryTimes struct {
	Name          string    `json:"name"`
	Seconds       []float64 `json:"seconds"`
	Median        float64   `json:"median_seconds"`
	CPU           float64   `json:"cpu_seconds"` // median, of all processes that answered
	RowsPerSecond float64   `json:"rows_per_second"`
}

// asker runs the query once and returns how long it took, and how much processor time.
type asker struct {
	name string
	ask  func(ctx context.Context) (took, cpu time.Duration, err error)
}

// windowsRun is a run under way.
type windowsRun struct {
	options WindowsOptions
	dir     string
	month   calendar.Month
	result  *WindowsResult
}

// RunWindows measures.
func RunWindows(ctx context.Context, o WindowsOptions) (_ *WindowsResult, err error) {
	setDefault(&o.Rows, defaultWindowRows)
	setDefault(&o.Customers, defaultWindowBuyers)
	setDefault(&o.Lookups, defaultLookups)
	setDefault(&o.Repetitions, defaultWindowRuns)
	setDefault(&o.Ingest, defaultWindowIngest)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	dir, err := os.MkdirTemp(o.Dir, "tallystick-windows-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the stores: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The month before this one: all of it lies in the past.
	r := &windowsRun{options: o, dir: dir, month: calendar.MonthOf(calendar.FromTime(time.Now())) - 1,
		result: &WindowsResult{Rows: o.Rows, Customers: o.Customers}}
	if err := r.ingest(ctx); err != nil {
		return nil, fmt.Errorf("measure ingest: %w", err)
	}
	if err := r.queries(ctx); err != nil {
		return nil, err
	}
	r.result.judge()
	return r.result, nil
}

// queries fills a store and asks it and the others in turns.
func (r *windowsRun) queries(ctx context.Context) (err error) {
	dir := filepath.Join(r.dir, "asked")
	e, err := engine.Open(engine.Options{Dir: dir})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if err := r.fill(ctx, e, dir); err != nil {
		return fmt.Errorf("fill the store: %w", err)
	}
	askers := []asker{r.ours(e)}
	if !r.options.NoPostgres {
		server, err := startCluster(ctx, r.options.Fleeting)
		if err != nil {
			return fmt.Errorf("start PostgreSQL: %w", err)
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		pg, end, err := r.postgres(ctx, server)
		if err != nil {
			return fmt.Errorf("fill PostgreSQL: %w", err)
		}
		defer func() { err = errors.Join(err, end()) }()
		askers = append(askers, pg)
	}
	if r.options.DuckDB != "" {
		askers = append(askers, r.duckdb(dir))
	}
	if err := r.interleave(ctx, askers); err != nil {
		return err
	}
	return r.lookups(ctx, e)
}

// interleave runs the query on all, turn by turn, after one turn that nobody counts.
func (r *windowsRun) interleave(ctx context.Context, askers []asker) error {
	times, cpus := make([]QueryTimes, len(askers)), make([][]float64, len(askers))
	for turn := range r.options.Repetitions + 1 {
		for i, a := range askers {
			took, cpu, err := a.ask(ctx)
			if err != nil {
				return fmt.Errorf("ask %s: %w", a.name, err)
			}
			fmt.Fprintf(r.options.Progress, "%s: %.3f s, %.3f s of processor time\n", a.name, took.Seconds(),
				cpu.Seconds())
			if times[i].Name = a.name; turn > 0 {
				times[i].Seconds = append(times[i].Seconds, took.Seconds())
				cpus[i] = append(cpus[i], cpu.Seconds())
			}
		}
	}
	for i := range times {
		times[i].Median, times[i].CPU = median(slices.Clone(times[i].Seconds)), median(cpus[i])
		times[i].RowsPerSecond = float64(r.options.Rows) / times[i].Median
	}
	r.result.Queries = times
	return nil
}

func (r *WindowsResult) query(name string) *QueryTimes {
	for i := range r.Queries {
		if r.Queries[i].Name == name {
			return &r.Queries[i]
		}
	}
	return nil
}

// judge holds the figures against the targets.
func (r *WindowsResult) judge() {
	ours := r.query(askedEngine)
	bounds := []bound{{value: ours.RowsPerSecond, must: 10e6, show: func(n float64) string {
		return count(n) + " rows/s"
	}}}
	must := "≥ 10 M rows/s"
	if pg := r.query(askedPostgres); pg != nil {
		bounds = append(bounds, bound{value: pg.Median / ours.Median, must: 10, show: showRatio(askedPostgres)})
		must += ", ≥ 10 × PostgreSQL"
	}
	r.Targets = append(r.Targets,
		newTarget("a month by hour grouped by customer", must, "", bounds...),
		newTarget(fmt.Sprintf("one customer's month at %s rows, p99", count(float64(r.Rows))), "≤ 20 ms", "",
			bound{value: r.LookupP99, must: 0.020, atMost: true, show: func(n float64) string {
				return fmt.Sprintf("%.1f ms", 1e3*n)
			}}),
		newTarget("ingest while slices are made", "≥ 80 %", "",
			bound{value: r.Slicing / r.Idle, must: 0.8, show: showShare("without")}))
}

// Print writes the table for people.
func (r *WindowsResult) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%s rows of one tenant in one month, %d customers; sorted files take %.1f bytes a row\n",
		count(float64(r.Rows)), r.Customers, r.SliceBytes)
	fmt.Fprintf(w, "\na month by hour grouped by customer\n%14s %12s %14s %14s\n", "", "median", "rows/s", "cpu/row")
	for _, q := range r.Queries {
		fmt.Fprintf(w, "%14s %10.3f s %14s %11.0f ns\n", q.Name, q.Median, count(q.RowsPerSecond),
			1e9*q.CPU/float64(r.Rows))
	}
	fmt.Fprintf(w, "\none customer's month by hour: p50 %.2f ms, p99 %.2f ms\n", 1e3*r.LookupP50, 1e3*r.LookupP99)
	fmt.Fprintf(w, "ingest: %s/s without slices, %s/s while they are made; all sliced %.1f s after the last event\n\n",
		count(r.Idle), count(r.Slicing), r.CaughtUp)
	printTargets(w, r.Targets)
}
