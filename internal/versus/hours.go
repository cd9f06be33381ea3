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
	"github.com/tallystick/tallystick/internal/service/windows"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/postgres"
	"github.com/tallystick/tallystick/internal/versus/pgserver"
)

// Hours measures the question that every dashboard asks, a month by hour over all customers, which is answered from
// hours that were added up: while rows come in, right after the last one, and at rest, on the embedded store and on the
// PostgreSQL store; and what adding up takes from ingest on the latter. The embedded store adds up as it decides, so
// that there is nothing to leave out.

// HoursOptions of a run.
type HoursOptions struct {
	Rows         int64  // of the tenant in the embedded store, all in one month. Default 10 M
	PostgresRows int64  // in the PostgreSQL store; zero: it is left out. Default 10 M
	Customers    int    // Default 1000
	Repetitions  int    // of the question at rest, and of the turns of ingest. Default 5
	Ingest       int64  // rows of each turn in which ingest is measured. Default 500,000
	Dir          string // default: a temporary folder
	// Fleeting is for tests: PostgreSQL does not sync.
	Fleeting bool
	// Progress takes a line now and then. Default: nobody does.
	Progress io.Writer
}

const defaultHourIngest = 500_000

// HoursResult is what a run saw.
type HoursResult struct {
	Customers int           `json:"customers"`
	Stores    []*HoursTimes `json:"month_by_hour"`
	Alone     float64       `json:"postgres_ingest_events_per_second_without"`
	Beside    float64       `json:"postgres_ingest_events_per_second_with"`
	Targets   []Target      `json:"targets"`
}

// HoursTimes are those of the question on one store.
type HoursTimes struct {
	Name   string  `json:"name"`
	Rows   int64   `json:"rows"`
	Rate   float64 `json:"ingest_events_per_second"` // while it was asked
	During Spread  `json:"during_ingest"`
	After  float64 `json:"right_after_seconds"`
	Settle float64 `json:"seconds_until_all_was_added_up"`
	AtRest Spread  `json:"at_rest"`
}

// Spread is what some answers took.
type Spread struct {
	Count  int     `json:"count"`
	Median float64 `json:"median_seconds"`
	Worst  float64 `json:"worst_seconds"`
}

func spread(seconds []float64) Spread {
	if len(seconds) == 0 {
		return Spread{}
	}
	return Spread{len(seconds), median(slices.Clone(seconds)), slices.Max(seconds)}
}

// RunHours measures.
func RunHours(ctx context.Context, o HoursOptions) (_ *HoursResult, err error) {
	setDefault(&o.Rows, defaultWindowRows)
	setDefault(&o.Customers, defaultWindowBuyers)
	setDefault(&o.Repetitions, defaultWindowRuns)
	setDefault(&o.Ingest, defaultHourIngest)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	dir, err := os.MkdirTemp(o.Dir, "tallystick-hours-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the store: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &hoursRun{options: o, result: &HoursResult{Customers: o.Customers},
		rows: windowsRun{options: WindowsOptions{Customers: o.Customers},
			month: calendar.MonthOf(calendar.FromTime(time.Now())) - 1}}
	if err := r.embedded(ctx, filepath.Join(dir, "data")); err != nil {
		return nil, fmt.Errorf("measure the embedded store: %w", err)
	}
	if o.PostgresRows > 0 {
		if err := r.postgres(ctx); err != nil {
			return nil, fmt.Errorf("measure the PostgreSQL store: %w", err)
		}
	}
	r.result.judge()
	return r.result, nil
}

// hoursRun is a run under way.
type hoursRun struct {
	options HoursOptions
	rows    windowsRun // makes and sends the rows
	result  *HoursResult
}

func (r *hoursRun) embedded(ctx context.Context, dir string) (err error) {
	e, err := engine.Open(engine.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if err := prepareAsked(ctx, e); err != nil {
		return err
	}
	return r.measure(ctx, askedEngine, e, r.options.Rows, func(context.Context) error { return nil })
}

// postgres measures ingest with and without adding up, in turns, and then goes on with the former.
func (r *hoursRun) postgres(ctx context.Context) (err error) {
	server, err := startCluster(ctx, r.options.Fleeting)
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	alone, err := openAsked(ctx, server, "alone", true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, alone.Close()) }()
	beside, err := openAsked(ctx, server, "beside", false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, beside.Close()) }()
	if err := r.turns(ctx, alone, beside); err != nil {
		return err
	}
	return r.measure(ctx, askedPostgres, beside, r.options.PostgresRows, beside.RollUp)
}

func openAsked(ctx context.Context, server *pgserver.Server, name string, noRollups bool) (*postgres.Store, error) {
	if err := anew(ctx, server.URL(adminDatabase), name); err != nil {
		return nil, err
	}
	s, err := postgres.Open(ctx, postgres.Options{URL: server.URL(name), NoRollups: noRollups})
	if err != nil {
		return nil, err
	}
	if err := prepareAsked(ctx, s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// turns measures ingest on both stores. What was not added up in a turn is before the other's begins.
func (r *hoursRun) turns(ctx context.Context, alone, beside *postgres.Store) error {
	var rates [2][]float64
	turns := int64(r.options.Repetitions + 1)
	for turn := range turns {
		for i, s := range []*postgres.Store{alone, beside} {
			start, n := time.Now(), r.options.Ingest
			if err := r.rows.send(ctx, s, turn*n, (turn+1)*n, turns*n); err != nil {
				return err
			}
			rate := float64(n) / time.Since(start).Seconds()
			fmt.Fprintf(r.options.Progress, "ingest, store %d: %s/s\n", i, count(rate))
			if turn > 0 {
				rates[i] = append(rates[i], rate)
			}
			if err := beside.RollUp(ctx); err != nil {
				return err
			}
		}
	}
	r.result.Alone, r.result.Beside = median(rates[0]), median(rates[1])
	return nil
}

// measure sends rows and asks all along, right after the last one, and when everything is added up.
func (r *hoursRun) measure(
	ctx context.Context, name string, s store.Store, rows int64, settle func(context.Context) error,
) error {
	t := &HoursTimes{Name: name, Rows: rows}
	r.result.Stores = append(r.result.Stores, t)
	asked := windows.New(s)
	stop, ended := make(chan struct{}), make(chan error, 1)
	var during []float64
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			case <-time.After(askEvery):
			}
			took, _, err := r.ask(ctx, asked)
			if err != nil {
				ended <- err
				return
			}
			during = append(during, took)
		}
	}()
	// The rows of the turns have the numbers before.
	first, start := int64(r.options.Repetitions+1)*r.options.Ingest, time.Now()
	err := r.rows.send(ctx, s, first, first+rows, first+rows)
	t.Rate = float64(rows) / time.Since(start).Seconds()
	close(stop)
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	t.During = spread(during)
	if t.After, _, err = r.ask(ctx, asked); err != nil {
		return err
	}
	start = time.Now()
	if err := settle(ctx); err != nil {
		return err
	}
	t.Settle = time.Since(start).Seconds()
	var rest []float64
	for range 10 * r.options.Repetitions {
		took, shown, err := r.ask(ctx, asked)
		if err != nil {
			return err
		}
		if shown == 0 {
			return errors.New("the store shows no usage")
		}
		rest = append(rest, took)
	}
	t.AtRest = spread(rest)
	fmt.Fprintf(r.options.Progress, "%s: %+v\n", name, *t)
	return nil
}

// askEvery is how often a dashboard asks while rows come in.
const askEvery = 200 * time.Millisecond

// ask asks once, and returns how many seconds the answer took and how many windows it has.
func (r *hoursRun) ask(ctx context.Context, s *windows.Service) (seconds float64, shown int, err error) {
	q := r.rows.query("")
	q.GroupBy = nil
	start := time.Now()
	report, err := s.Usage(ctx, askedTenant, q)
	if err != nil {
		return 0, 0, err
	}
	for range report.Windows {
		shown++
	}
	return time.Since(start).Seconds(), shown, nil
}

// judge holds the figures against the targets.
func (r *HoursResult) judge() {
	shown := func(n float64) string { return fmt.Sprintf("%.1f ms", 1e3*n) }
	for _, t := range r.Stores {
		r.Targets = append(r.Targets, newTarget(
			fmt.Sprintf("a month by hour over all customers, %s, %s rows", t.Name, count(float64(t.Rows))), "≤ 20 ms",
			"≤ 5 ms", bound{value: t.AtRest.Median, must: 0.020, goal: 0.005, atMost: true, show: shown}))
		if t.Name == askedEngine {
			r.Targets = append(r.Targets, newTarget("the same during ingest (median) and right after", "≤ 100 ms", "",
				bound{value: t.During.Median, must: 0.1, atMost: true, show: shown},
				bound{value: t.After, must: 0.1, atMost: true, show: shown}))
		}
	}
	if r.Alone > 0 {
		r.Targets = append(r.Targets, newTarget("PostgreSQL store, ingest while hours are added up", "≥ 75 %", "",
			bound{value: r.Beside / r.Alone, must: 0.75, show: showShare("without")}))
	}
}

// Print writes the table for people.
func (r *HoursResult) Print(w io.Writer) {
	fmt.Fprintf(w, "\na month by hour over all customers, %d of them\n%12s %10s %12s %22s %12s %22s\n", r.Customers, "",
		"rows", "ingest", "during (worst)", "right after", "at rest (worst)")
	for _, t := range r.Stores {
		fmt.Fprintf(w, "%12s %10s %10s/s %10.1f ms (%5.1f) %9.1f ms %10.1f ms (%5.1f)\n", t.Name,
			count(float64(t.Rows)), count(t.Rate), 1e3*t.During.Median, 1e3*t.During.Worst, 1e3*t.After,
			1e3*t.AtRest.Median,
			1e3*t.AtRest.Worst)
	}
	if r.Alone > 0 {
		fmt.Fprintf(w, "\nPostgreSQL store, ingest: %s/s without adding up, %s/s beside it\n", count(r.Alone),
			count(r.Beside))
	}
	fmt.Fprintln(w)
	printTargets(w, r.Targets)
}
