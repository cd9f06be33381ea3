package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/client"
)

// The stream of the demo: slow enough for a laptop, and bounded, because nobody looks for longer.
const (
	streamEvery     = time.Second
	streamBatch     = 8
	maxStreamEvents = 100_000
	reportEvery     = 15 // batches between two reports
)

// stream sends a few events a second, good and bad, until the context ends or wait returns.
func (s *story) stream(wait func(context.Context) error) error {
	defer s.disconnect()
	ctx, stop := context.WithCancelCause(s.ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() {
		err := wait(ctx)
		stop(err)
		ended <- err
	}()
	s.pump(ctx)
	return <-ended
}

// pump sends batches, each with a repeated, a contradicting, a late and an early event among good ones.
func (s *story) pump(ctx context.Context) {
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	prefix, sum := newStreamID(), client.BatchAnswer{}
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n*streamBatch >= maxStreamEvents {
			<-ctx.Done()
			return
		}
		a, err := s.tenant.SendEvents(ctx, streamOf(prefix, n, time.Now().UTC()))
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				fmt.Fprintf(s.out, "stream: %v\n", err)
			}
			continue
		}
		sum.Accepted, sum.Duplicates, sum.Adjusted = sum.Accepted+a.Accepted, sum.Duplicates+a.Duplicates,
			sum.Adjusted+a.Adjusted
		sum.Conflicts, sum.Rejected = sum.Conflicts+a.Conflicts, sum.Rejected+a.Rejected
		if n%reportEvery == 0 && !s.json {
			fmt.Fprintf(s.out, "stream: %d accepted (%d of them adjusted), %s, %s, %d rejected\n",
				sum.Accepted, sum.Adjusted, counted(sum.Duplicates, "duplicate"), counted(sum.Conflicts, "conflict"),
				sum.Rejected)
		}
	}
}

func streamOf(prefix string, n int, now time.Time) []client.Event {
	event := func(i int, quantity string) client.Event {
		return client.Event{ID: fmt.Sprintf("%s_%d_%d", prefix, n, i), Meter: "api_calls",
			Customer: fmt.Sprint("cus_", 42+i%3), Time: now, Quantity: client.Decimal(quantity)}
	}
	var out []client.Event
	for i := range streamBatch - 4 {
		out = append(out, event(i, fmt.Sprint(1+i)))
	}
	late, early := event(streamBatch-2, "1"), event(streamBatch-1, "1")
	late.Time, early.Time = now.Add(-2*demoLateness), now.Add(48*time.Hour)
	return append(out, out[0], event(1, "99"), late, early)
}

// disconnect leaves no connection for the server to wait for.
func (s *story) disconnect() {
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
}
