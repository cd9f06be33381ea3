package versus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/load"
	"github.com/tallystick/tallystick/internal/store"
)

// customersJob is the job of a child of customers.
type customersJob struct {
	Dir       string `json:"dir"`
	Customers int64  `json:"customers"`
	Measure   int64  `json:"measure"`
	Batch     int    `json:"batch"`
	Uniform   bool   `json:"uniform"`
}

func newCustomersChildCommand() *cobra.Command {
	return newChildCommand(customersCommand, "The process that customers fills and measures",
		func(ctx context.Context, job customersJob, commands *bufio.Scanner, out io.Writer) error {
			return job.run(ctx, commands, out)
		})
}

func (j *customersJob) run(ctx context.Context, commands *bufio.Scanner, out io.Writer) (err error) {
	c := newChild(growthJob{Dir: j.Dir, Measure: j.Measure, Batch: j.Batch}, commands, out)
	if err := c.open(load.Shape{Customers: int(j.Customers / tenants), Uniform: j.Uniform,
		Hour: time.Now().Add(-time.Hour)}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.e.Close()) }()
	if _, err := populate(ctx, c.e, c.w); err != nil {
		return err
	}
	if err := c.everyCounter(ctx); err != nil {
		return fmt.Errorf("make every counter: %w", err)
	}
	streams := make([]*load.Stream, growthSubmitters)
	for i := range streams {
		streams[i] = c.w.NewStream(i)
	}
	// The counters that the traffic is about come into memory before it is measured.
	if _, err := c.send(ctx, streams, j.Measure/2, nil); err != nil {
		return fmt.Errorf("warm: %w", err)
	}
	stage, err := c.measure(ctx, streams)
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	if err := c.look(stage); err != nil {
		return err
	}
	if err := c.say.Encode(growthSays{Stage: stage}); err != nil {
		return err
	}
	if err := checkCounters(ctx, c.e, c.w, streams, 1); err != nil {
		return err
	}
	return c.say.Encode(growthSays{Proved: true})
}

// everyCounter sends one fact of 1 for each counter, all tenants at once.
func (c *child) everyCounter(ctx context.Context) error {
	failed := make([]error, c.w.Tenants())
	var wg sync.WaitGroup
	for i := range failed {
		wg.Go(func() { failed[i] = c.everyCounterOf(ctx, i) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

func (c *child) everyCounterOf(ctx context.Context, tenant int) error {
	at := calendar.FromTime(c.w.Hour())
	var events []usage.Event
	send := func(*load.Batch) error {
		_, err := c.e.Record(ctx, store.Batch{Tenant: tenantID(tenant), Events: events})
		return err
	}
	for n, name := range c.w.Customers() {
		for _, slug := range c.w.Meters() {
			events = append(events, usage.Event{
				ID: "first-" + slug + "-" + strconv.Itoa(n), Meter: slug, Customer: name, Time: at,
				Quantity: amount.FromInt(1),
				Given:    usage.GivenMeter | usage.GivenCustomer | usage.GivenTime | usage.GivenQuantity,
			})
		}
		if len(events) < c.job.Batch && n < len(c.w.Customers())-1 {
			continue
		}
		if err := c.persist(ctx, send, nil); err != nil {
			return err
		}
		events = events[:0]
	}
	return nil
}
