package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// Customers measures what becomes of ingest when there are millions of counters. Each number
// of customers has a store and a child process of its own. Every counter exists before anything is measured; then the
// stores take turns, and whoever is not at work is stopped, as in growth.

// CustomersOptions of a run.
type CustomersOptions struct {
	Customers []int64 // over all tenants, the first is what the others are compared with. Default 100 k and 2 M
	Measure   int64   // events over which each rate is taken. Default 6 M
	Batch     int     // events of a call. Default 1000
	Uniform   bool    // every customer is as busy as any other; default: zipfian
	Dir       string  // default: a temporary folder
	// Progress takes a line now and then. Default: nobody does.
	Progress io.Writer
}

const (
	customersCommand = "customers-child"

	defaultCustomersMeasure = 6_000_000

	// roomPerCustomer bounds what the counters of a customer take on the disk, and their first facts.
	roomPerCustomer = 2000
)

func defaultCustomersCounts() []int64 { return []int64{100_000, 2_000_000} }

// Customers is what a run saw.
type Customers struct {
	Uniform bool          `json:"uniform"`
	Sizes   []*Population `json:"sizes"`
	Targets []Target      `json:"targets"`
}

// Population is the engine with one number of customers.
type Population struct {
	Customers       int64   `json:"customers"`
	Counters        int64   `json:"counters"`
	EventsPerSecond float64 `json:"events_per_second"`
	// of the store with the first number of customers, meanwhile
	Beside         float64 `json:"first_events_per_second"`
	Share          float64 `json:"share_of_first"`   // of that
	CPUPerEvent    float64 `json:"cpu_seconds_each"` // of the whole process, the making of the events included
	AnonymousBytes int64   `json:"anonymous_bytes"`  // most memory beyond the page cache while it was measured
	StateBytes     int64   `json:"state_bytes"`
}

// RunCustomers measures each number of customers in turn with the first.
func RunCustomers(ctx context.Context, o CustomersOptions) (out *Customers, err error) {
	if len(o.Customers) == 0 {
		o.Customers = defaultCustomersCounts()
	}
	setDefault(&o.Measure, defaultCustomersMeasure)
	setDefault(&o.Batch, defaultGrowthBatch)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	dir, err := os.MkdirTemp(o.Dir, "tallystick-customers-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the stores: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	out = &Customers{Uniform: o.Uniform}
	for i := range o.Customers {
		size, err := o.measure(ctx, dir, i)
		if err != nil {
			return nil, fmt.Errorf("with %d customers: %w", o.Customers[i], err)
		}
		fmt.Fprintf(o.Progress, "%d customers: %s events/s, %s with %d, %.0f ns of processor each, %d MiB of memory\n",
			size.Customers, count(size.EventsPerSecond), count(size.Beside), o.Customers[0], 1e9*size.CPUPerEvent,
			size.AnonymousBytes/mebi)
		out.Sizes = append(out.Sizes, size)
	}
	out.judge()
	return out, nil
}

// measure takes the rate of one number of customers, in turn with the first unless it is that.
func (o *CustomersOptions) measure(ctx context.Context, dir string, i int) (size *Population, err error) {
	var first *growthProcess
	if i > 0 {
		if first, err = o.startFilled(ctx, dir, 0); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, first.kill()) }()
	}
	big, err := o.startFilled(ctx, dir, i)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, big.kill()) }()
	of, stage, err := takeTurns(first, big)
	if err != nil {
		return nil, err
	}
	if of == nil {
		of = stage
	}
	proved := func(said *growthSays) bool { return said.Proved }
	if err := big.until(proved); err != nil {
		return nil, fmt.Errorf("compare the counters with what was sent: %w", err)
	}
	return &Population{
		Customers: o.Customers[i], Counters: o.Customers[i] / tenants * tenants * meters,
		EventsPerSecond: stage.EventsPerSecond,
		Beside:          of.EventsPerSecond, Share: stage.EventsPerSecond / of.EventsPerSecond,
		CPUPerEvent:    stage.CPUPerEvent,
		AnonymousBytes: stage.AnonymousBytes, StateBytes: stage.StateBytes,
	}, nil
}

// startFilled starts a child with a fresh store, waits until all counters are there, and stops it.
func (o *CustomersOptions) startFilled(ctx context.Context, dir string, i int) (*growthProcess, error) {
	job := customersJob{Customers: o.Customers[i], Measure: o.Measure, Batch: o.Batch, Uniform: o.Uniform}
	job.Dir = filepath.Join(dir, fmt.Sprint(i))
	if err := errors.Join(os.RemoveAll(job.Dir), os.Mkdir(job.Dir, 0o700)); err != nil {
		return nil, fmt.Errorf("make a folder for a store: %w", err)
	}
	if err := enoughRoom(job.Dir, job.Customers*roomPerCustomer/roomPerKey+job.Measure); err != nil {
		return nil, err
	}
	child, err := startChild[growthSays](ctx, customersCommand, job)
	if err != nil {
		return nil, err
	}
	if err = child.until(func(said *growthSays) bool { return said.Ready }); err == nil {
		err = child.signal(syscall.SIGSTOP)
	}
	if err != nil {
		return nil, errors.Join(err, child.kill())
	}
	return child, nil
}

func (c *Customers) judge() {
	first := c.Sizes[0].Customers
	for _, s := range c.Sizes[1:] {
		what := fmt.Sprintf("ingest with %d customers against %d", s.Customers, first)
		c.Targets = append(c.Targets, newTarget(what, ">= 80%", "",
			bound{value: s.Share, must: 0.8, show: showShare("the first")}))
	}
}

// Print writes the tables for people.
func (c *Customers) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%12s %12s %12s %12s %9s %10s %10s %10s\n", "customers", "counters", "events/s", "first",
		"of first", "cpu/ev", "memory", "state")
	for _, s := range c.Sizes {
		fmt.Fprintf(w, "%12d %12d %12s %12s %8.0f%% %7.0f ns %6d MiB %6d MiB\n", s.Customers, s.Counters,
			count(s.EventsPerSecond), count(s.Beside), 100*s.Share, 1e9*s.CPUPerEvent, s.AnonymousBytes/mebi,
			s.StateBytes/mebi)
	}
	printTargets(w, c.Targets)
}

func newCustomersCommand(dir, file *string) *cobra.Command {
	var o CustomersOptions
	c := &cobra.Command{
		Use:   "customers",
		Short: "Measure ingest with millions of counters",
		Long: `Fills a store for each number of customers, four tenants and two meters, until every counter exists,
and measures batches of 1000 from 16 submitters in process, in turn with the first number of customers;
then compares all counters with what was sent.`,
		Example: `  tallystick-versus customers --customers 100000,2000000`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, n := range o.Customers {
				if n < tenants {
					return &usageError{fmt.Errorf("--customers: %d at least, one for each tenant", tenants)}
				}
			}
			o.Dir, o.Progress = *dir, c.ErrOrStderr()
			r, err := RunCustomers(c.Context(), o)
			if err != nil {
				return err
			}
			r.Print(c.OutOrStdout())
			return writeJSON(*file, r)
		},
	}
	c.Flags().Int64SliceVar(&o.Customers, "customers", defaultCustomersCounts(),
		"over all tenants; the first is what the others are compared with")
	c.Flags().Int64Var(&o.Measure, "measure", defaultCustomersMeasure, "events over which each rate is taken")
	c.Flags().BoolVar(&o.Uniform, "uniform", false,
		"every customer is as busy as any other, which no memory helps with")
	return c
}
