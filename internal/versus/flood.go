package versus

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/load"
)

const floodCommand = "fairness-flood"

// lowestPriority is the flood's: it lives on what the server leaves of the processors, as if it came from elsewhere.
const lowestPriority = 19

// floodJob is what the process that floods is told. It pours while it is told to go, until it is told to stop.
type floodJob struct {
	Shape  load.Shape `json:"shape"`
	URL    string     `json:"url"`
	Keys   []string   `json:"keys"`   // of the tenants
	Stream int        `json:"stream"` // the first of its streams
}

// floodSays is one line of that process: that it has begun, or what it has sent since.
type floodSays struct {
	Begun   bool    `json:"begun,omitempty"`
	Batches []int   `json:"batches,omitempty"` // of each stream
	Seconds float64 `json:"seconds,omitempty"`
}

func (r *fairness) startFlood(ctx context.Context, to *load.Target) (*childProcess[floodSays], error) {
	return startChild[floodSays](ctx, floodCommand, floodJob{Shape: r.shape, URL: to.URL.String(), Keys: to.Keys, Stream: calmConnections})
}

// beside is a phase of the calm tenant while the other floods.
func (r *fairness) beside(ctx context.Context, f *childProcess[floodSays], calm []connection) (load.Latency, error) {
	if err := f.tell("go"); err != nil {
		return load.Latency{}, err
	}
	if err := f.until(func(s *floodSays) bool { return s.Begun }); err != nil {
		return load.Latency{}, err
	}
	seen, err := r.phase(ctx, calm)
	if err != nil {
		return seen, err
	}
	if err := f.tell("stop"); err != nil {
		return seen, err
	}
	return seen, f.until(func(s *floodSays) bool {
		r.poured(s)
		return true
	})
}

// poured repeats the draws of the other process, so that its streams can be checked here.
func (r *fairness) poured(s *floodSays) {
	var b load.Batch
	for i, n := range s.Batches {
		if calmConnections+i == len(r.streams) {
			r.stream(floodTenant)
		}
		for range n {
			r.streams[calmConnections+i].Fill(&b, floodBatch)
		}
		r.flood += int64(n) * floodBatch
	}
	r.flooding += time.Duration(s.Seconds * float64(time.Second))
}

func newFloodCommand() *cobra.Command {
	return newChildCommand(floodCommand, "The process that floods the server of fairness", pour)
}

// pour connects and floods as it is told, until there is nobody to tell it.
func pour(ctx context.Context, job floodJob, told *bufio.Scanner, out io.Writer) error {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, lowestPriority); err != nil {
		return fmt.Errorf("step back: %w", err)
	}
	w, err := load.NewWorkload(job.Shape)
	if err != nil {
		return err
	}
	to := load.Target{Keys: job.Keys}
	if to.URL, err = url.Parse(job.URL); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	connections := make([]connection, floodConnections)
	for i := range connections {
		s, err := load.NewSender(ctx, w, to)
		if err != nil {
			return err
		}
		stream := w.NewStream(job.Stream + i)
		stream.Stay(floodTenant)
		connections[i] = connection{stream, s.Send}
	}
	say := json.NewEncoder(out)
	for told.Scan() {
		if err := say.Encode(floodSays{Begun: true}); err != nil {
			return err
		}
		said, err := pourUntil(ctx, connections, told)
		if err != nil {
			return err
		}
		if err := say.Encode(said); err != nil {
			return err
		}
	}
	return told.Err()
}

// pourUntil sends over all connections until the next line.
func pourUntil(ctx context.Context, connections []connection, told *bufio.Scanner) (*floodSays, error) {
	stop := make(chan struct{})
	failed := make(chan error, len(connections))
	batches := make([]int, len(connections))
	began := time.Now()
	var wg sync.WaitGroup
	for i, c := range connections {
		wg.Go(func() {
			var b load.Batch
			for {
				select {
				case <-stop:
					return
				default:
				}
				c.stream.Fill(&b, floodBatch)
				if err := c.send(&b); err != nil {
					failed <- fmt.Errorf("flood: %w", err)
					return
				}
				batches[i]++
			}
		})
	}
	told.Scan()
	close(stop)
	wg.Wait()
	close(failed)
	err := ctx.Err()
	for e := range failed {
		err = errors.Join(err, e)
	}
	return &floodSays{Batches: batches, Seconds: time.Since(began).Seconds()}, err
}
