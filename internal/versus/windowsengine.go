package versus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	rnd "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/service/windows"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
)

const (
	askedEngine   = "engine"
	askedPostgres = "PostgreSQL"
	askedDuckDB   = "DuckDB"

	askedTenant = "acme"
	askedMeter  = "calls"

	windowBatch   = 1000
	windowWriters = 16
)

// event is the nth of the run: times rise over the month, customers and quantities are drawn by its number alone, so
// that every store gets the same.
func (r *windowsRun) event(n, of int64) usage.Event {
	rng := rnd.New(rnd.NewPCG(uint64(n), 7)) //nolint:gosec // a workload, no secret
	span := int64(r.month.End() - r.month.Start())
	at := r.month.Start() + calendar.Micros(span/of*n) + calendar.Micros(rng.Int64N(max(1, min(1_000_000, span/of))))
	return usage.Event{
		ID: "evt-" + strconv.FormatInt(n, 10), Meter: askedMeter,
		Customer: fmt.Sprintf("customer-%06d", rng.IntN(r.options.Customers)),
		Time:     at, Quantity: amount.FromInt(rng.Int64N(1000)),
		Properties: `{"region":"eu-` + strconv.Itoa(rng.IntN(4)) + `"}`,
		Given: usage.GivenTime | usage.GivenQuantity | usage.GivenMeter | usage.GivenCustomer |
			usage.GivenProperties,
	}
}

func prepareAsked(ctx context.Context, s store.Store) error {
	g := registry.New(s, rand.Reader)
	if _, _, err := g.CreateTenant(ctx, "versus", tenant.Tenant{ID: askedTenant}); err != nil {
		return fmt.Errorf("make tenant: %w", err)
	}
	m := meter.Meter{Slug: askedMeter, Aggregation: meter.Sum, Lateness: meter.DefaultLateness,
		Future: meter.DefaultFuture}
	if _, err := g.CreateMeter(ctx, "versus", askedTenant, m); err != nil {
		return fmt.Errorf("make meter: %w", err)
	}
	return nil
}

// send records events from to to, in batches from several writers.
func (r *windowsRun) send(ctx context.Context, s store.Store, from, to, of int64) error {
	batches := make(chan int64)
	errs := make([]error, windowWriters)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for w := range windowWriters {
		wg.Go(func() {
			var events []usage.Event
			for first := range batches {
				events = events[:0]
				for n := first; n < min(first+windowBatch, to); n++ {
					events = append(events, r.event(n, of))
				}
				if _, err := s.Record(ctx, store.Batch{Tenant: askedTenant, Events: events}); err != nil {
					errs[w] = err
					cancel()
					return
				}
			}
		})
	}
	for first := from; first < to && ctx.Err() == nil; first += windowBatch {
		select {
		case batches <- first:
		case <-ctx.Done():
		}
	}
	close(batches)
	wg.Wait()
	return errors.Join(errs...)
}

// fill records all rows and waits until they are sliced.
func (r *windowsRun) fill(ctx context.Context, e *engine.Engine, dir string) error {
	if err := prepareAsked(ctx, e); err != nil {
		return err
	}
	if err := r.send(ctx, e, 0, r.options.Rows, r.options.Rows); err != nil {
		return err
	}
	start := time.Now()
	if err := e.Settle(ctx); err != nil {
		return err
	}
	r.result.CaughtUp = time.Since(start).Seconds()
	bytes := int64(0)
	files, err := filepath.Glob(slicesOf(dir))
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return err
		}
		bytes += info.Size()
	}
	r.result.SliceBytes = float64(bytes) / float64(r.options.Rows)
	fmt.Fprintf(r.options.Progress, "%d rows in %d sorted files\n", r.options.Rows, len(files))
	return nil
}

func slicesOf(dir string) string { return filepath.Join(dir, "slices", "*.parquet") }

// query is the question, of one customer or all.
func (r *windowsRun) query(customer string) windows.Query {
	from, to := r.month.Start(), r.month.End()
	q := windows.Query{Meter: askedMeter, Customer: customer, From: &from, To: &to, Step: calendar.StepHour,
		Zone: time.UTC}
	if customer == "" {
		q.GroupBy = []usage.Dimension{{Of: usage.ByCustomer}}
	}
	return q
}

// ours asks the engine through the service that HTTP uses.
func (r *windowsRun) ours(e *engine.Engine) asker {
	s := windows.New(e)
	return asker{askedEngine, func(ctx context.Context) (took, cpu time.Duration, err error) {
		start, used := time.Now(), ownCPU()
		report, err := s.Usage(ctx, askedTenant, r.query(""))
		if err != nil {
			return 0, 0, err
		}
		cells := 0
		for range report.Windows {
			cells++
		}
		if cells == 0 {
			return 0, 0, errors.New("the engine has no usage")
		}
		return time.Since(start), ownCPU() - used, nil
	}}
}

// ownCPU is the processor time of this process alone.
func ownCPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// lookups asks for one customer after the other.
func (r *windowsRun) lookups(ctx context.Context, e *engine.Engine) error {
	s := windows.New(e)
	rng := rnd.New(rnd.NewPCG(3, 3)) //nolint:gosec // a workload, no secret
	var times []float64
	for range r.options.Lookups {
		start := time.Now()
		if _, err := s.Usage(ctx, askedTenant,
			r.query(fmt.Sprintf("customer-%06d", rng.IntN(r.options.Customers)))); err != nil {
			return fmt.Errorf("ask for one customer: %w", err)
		}
		times = append(times, time.Since(start).Seconds())
	}
	slices.Sort(times)
	r.result.LookupP50, r.result.LookupP99 = times[len(times)/2], times[len(times)*99/100]
	return nil
}

// ingest measures a store that makes slices and one that does not, in turns.
func (r *windowsRun) ingest(ctx context.Context) (err error) {
	var stores [2]*engine.Engine
	for i, name := range [...]string{"idle", "slicing"} {
		e, err := engine.Open(engine.Options{Dir: filepath.Join(r.dir, name), NoSlices: i == 0})
		if err != nil {
			return err
		}
		stores[i] = e
		defer func() { err = errors.Join(err, e.Close(), os.RemoveAll(filepath.Join(r.dir, name))) }()
		if err := prepareAsked(ctx, e); err != nil {
			return err
		}
	}
	var rates [2][]float64
	turns := int64(r.options.Repetitions + 1)
	for turn := range turns {
		for i, e := range stores {
			start := time.Now()
			if err := r.send(ctx, e, turn*r.options.Ingest, (turn+1)*r.options.Ingest,
				turns*r.options.Ingest); err != nil {
				return err
			}
			rate := float64(r.options.Ingest) / time.Since(start).Seconds()
			fmt.Fprintf(r.options.Progress, "ingest, %s: %s/s\n", strings.Fields("without with")[i], count(rate))
			if turn > 0 {
				rates[i] = append(rates[i], rate)
			}
			if err := e.Settle(ctx); err != nil { // else it goes on in the other's turn
				return err
			}
		}
	}
	r.result.Idle, r.result.Slicing = median(rates[0]), median(rates[1])
	return nil
}
