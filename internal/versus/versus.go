// Package versus measures the embedded engine beside what people would write by hand: PostgreSQL handlers of three
// kinds, tuned fairly and durable by default, and beside the limits of any HTTP server. All see the same events in one
// interleaved run, so that what a noisy machine does to one it does to the others.
//
// It owns the contenders, the private PostgreSQL they run on, and the tables. Every cell of a table ends by checking
// what was counted: a contender that is fast and wrong fails the run. It is for measuring only; no server imports it.
package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/tallystick/tallystick/internal/load"
	"github.com/tallystick/tallystick/internal/versus/pgserver"
)

// Options of a run. The zero value is the full comparison.
type Options struct {
	Batches     []int         // default 1, 100, 1000
	Submitters  []int         // default 1, 16, 64
	Repetitions int           // default 3
	CellTime    time.Duration // of one measurement; every submitter sends at least one batch. Default 2 s
	CellEvents  int64         // ends a measurement early. Default 20 M
	Customers   int           // over all tenants. Default 100,000
	Seed        uint64
	Only        Only
	// Dir is where the stores live, each for as long as it is measured. Default: a temporary one.
	Dir string
	// Fleeting gives up PostgreSQL's durability, so that tests are quick. Figures taken so compare nothing.
	Fleeting bool
	// Progress takes a line per measurement. Default: nobody does.
	Progress io.Writer
}

const (
	tenants   = 4
	meters    = 2
	duplicate = 0.05

	defaultRepetitions = 3
	defaultCellTime    = 2 * time.Second
	// defaultCellEvents is what the fastest contender does in some seconds; the proof of the totals needs memory for no
	// more.
	defaultCellEvents = 20_000_000
	defaultCustomers  = 100_000

	diskEvents   = 1_000_000
	defaultReads = 2000
)

func (o *Options) setDefaults() {
	if o.Batches == nil {
		o.Batches = []int{1, 100, 1000}
	}
	if o.Submitters == nil {
		o.Submitters = []int{1, 16, 64}
	}
	setDefault(&o.Repetitions, defaultRepetitions)
	setDefault(&o.CellTime, defaultCellTime)
	setDefault(&o.CellEvents, defaultCellEvents)
	setDefault(&o.Customers, defaultCustomers)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
}

func setDefault[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}

// Cell is one row of the tables: how many events a request has, and how many requests are under way at once.
type Cell struct {
	Batch      int `json:"batch"`
	Submitters int `json:"submitters"`
}

func (c Cell) String() string { return strconv.Itoa(c.Batch) + "x" + strconv.Itoa(c.Submitters) }

// bench is a run under way.
type bench struct {
	o       Options
	w       *load.Workload
	dir     string
	cluster *pgserver.Server // nil when no contender needs it
	stores  int              // made so far, to name their folders
}

// Run measures every chosen contender in every chosen cell, then disk and reads, and judges the figures.
func Run(ctx context.Context, o Options) (r *Result, err error) {
	o.setDefaults()
	dir, err := os.MkdirTemp(o.Dir, "tallystick-versus-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the stores: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w, err := load.NewWorkload(load.Shape{Seed: o.Seed, Tenants: tenants, Meters: meters,
		Customers: max(o.Customers/tenants, 1), DuplicateRatio: duplicate})
	if err != nil {
		return nil, err
	}
	b := &bench{o: o, w: w, dir: dir}
	chosen := o.Only.contenders()
	if slices.ContainsFunc(chosen, func(c contender) bool { return c.postgres }) {
		if b.cluster, err = startCluster(ctx, o.Fleeting); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	}
	r = &Result{Taken: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Go: runtime.Version(),
		Repetitions: o.Repetitions}
	if b.cluster != nil {
		r.Postgres = b.cluster.Version()
	}
	if err := b.cells(ctx, chosen, r); err != nil {
		return nil, err
	}
	if o.Only.extras() {
		if err := b.extras(ctx, r); err != nil {
			return nil, err
		}
	}
	r.judge()
	return r, nil
}

// cells interleaves: within one repetition every cell is measured on every contender before the next begins.
func (b *bench) cells(ctx context.Context, chosen []contender, r *Result) error {
	for repetition := range b.o.Repetitions {
		for _, batch := range b.o.Batches {
			for _, submitters := range b.o.Submitters {
				cell := Cell{batch, submitters}
				if !b.o.Only.cell(cell) {
					continue
				}
				for i := range chosen {
					s, err := b.measure(ctx, &chosen[i], cell)
					if err != nil {
						return fmt.Errorf("%s %s: %w", chosen[i].name, cell, err)
					}
					r.add(chosen[i].name, cell, s)
					fmt.Fprintf(b.o.Progress, "%d/%d  %-9s %-15s %12.0f events/s  p99 %.1f ms\n", repetition+1,
						b.o.Repetitions, cell, chosen[i].name, s.eventsPerSecond(), s.latency.P99/1000)
				}
			}
		}
	}
	return nil
}

// extras measures what is not a rate: once, after the cells.
func (b *bench) extras(ctx context.Context, r *Result) error {
	disk, err := b.diskPerEvent(ctx, min(diskEvents, b.o.CellEvents))
	if err != nil {
		return fmt.Errorf("disk per event: %w", err)
	}
	r.Disk = disk
	reads, err := b.readBack(ctx, int(min(defaultReads, b.o.CellEvents)))
	if err != nil {
		return fmt.Errorf("reads after writes: %w", err)
	}
	r.Reads = reads
	return nil
}

// folder names a new folder for a store. Whoever uses it removes it.
func (b *bench) folder() string {
	b.stores++
	return filepath.Join(b.dir, "store-"+strconv.Itoa(b.stores))
}
