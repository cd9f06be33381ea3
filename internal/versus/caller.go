package versus

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tallystick/tallystick/internal/load"
)

const callerCommand = "fairness-caller"

// callerJob is the job of a process that calls the server. It sends from the command go on until the command stop.
type callerJob struct {
	Shape       load.Shape    `json:"shape"`
	URL         string        `json:"url"`
	Keys        []string      `json:"keys"` // of the tenants
	Tenant      int           `json:"tenant"`
	Stream      int           `json:"stream"` // the first of its streams
	Connections int           `json:"connections"`
	Batch       int           `json:"batch"`
	Every       time.Duration `json:"every"` // how often each connection sends; zero: as fast as it can
}

// callerSays is one line of that process: that it has begun, or what it has sent since.
type callerSays struct {
	Begun   bool         `json:"begun,omitempty"`
	Batches []int        `json:"batches,omitempty"` // of each stream
	Seconds float64      `json:"seconds,omitempty"`
	Latency load.Latency `json:"latency_us"`
}

func newCallerCommand() *cobra.Command {
	return newChildCommand(callerCommand, "A process that calls the server of fairness",
		func(ctx context.Context, job callerJob, commands *bufio.Scanner, out io.Writer) error {
			c, err := connectCaller(ctx, job)
			if err != nil {
				return err
			}
			return c.obey(ctx, commands, json.NewEncoder(out))
		})
}

// caller is the streams of one tenant's events that a process sends.
type caller struct {
	job         callerJob
	connections []*callerConnection
}

func connectCaller(ctx context.Context, job callerJob) (*caller, error) {
	if err := job.fromElsewhere(); err != nil {
		return nil, err
	}
	w, err := load.NewWorkload(job.Shape)
	if err != nil {
		return nil, err
	}
	to := load.Target{Keys: job.Keys}
	if to.URL, err = url.Parse(job.URL); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	c := &caller{job: job}
	for i := range job.Connections {
		s, err := load.NewSender(ctx, w, to)
		if err != nil {
			return nil, err
		}
		c.connections = append(c.connections,
			&callerConnection{sender: s, stream: stay(w.NewStream(job.Stream+i), job.Tenant)})
	}
	return c, nil
}

// promptly is the slice of processor time of a process that waits for answers: one that asks for little need not wait
// until another has used up its own.
const promptly = 100 * time.Microsecond

// fromElsewhere keeps the process from competing with the server for processors, as if it ran on another machine: a
// flood lives on what is left, and who waits for an answer gets it when it is there.
func (j *callerJob) fromElsewhere() error {
	attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Runtime: uint64(promptly)}
	if j.Every == 0 {
		attr = &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	}
	threads, err := os.ReadDir("/proc/self/task") // those that are made later have it from those that make them
	for _, t := range threads {
		id, e := strconv.Atoi(t.Name())
		if e == nil {
			e = unix.SchedSetAttr(id, attr, 0)
		}
		err = errors.Join(err, e)
	}
	if err != nil {
		return fmt.Errorf("step aside for the server: %w", err)
	}
	return nil
}

func stay(s *load.Stream, tenant int) *load.Stream {
	s.Stay(tenant)
	return s
}

// obey sends as the commands say, until there are no more.
func (c *caller) obey(ctx context.Context, commands *bufio.Scanner, say *json.Encoder) error {
	for commands.Scan() {
		if err := say.Encode(callerSays{Begun: true}); err != nil {
			return err
		}
		said, err := c.sendUntil(ctx, func() { commands.Scan() })
		if err != nil {
			return err
		}
		if err := say.Encode(said); err != nil {
			return err
		}
	}
	return commands.Err()
}

// sendUntil sends over all connections until enough returns.
func (c *caller) sendUntil(ctx context.Context, enough func()) (*callerSays, error) {
	stop := make(chan struct{})
	failed := make(chan error, len(c.connections))
	began := time.Now()
	var wg sync.WaitGroup
	for i, one := range c.connections {
		first := began.Add(c.job.Every * time.Duration(i+1) / time.Duration(len(c.connections)))
		wg.Go(func() { failed <- one.send(c.job.Batch, c.job.Every, first, stop) })
	}
	enough()
	close(stop)
	wg.Wait()
	close(failed)
	err := ctx.Err()
	for e := range failed {
		err = errors.Join(err, e)
	}
	said := &callerSays{Seconds: time.Since(began).Seconds()}
	var all load.Histogram
	for _, one := range c.connections {
		said.Batches = append(said.Batches, one.batches)
		all.Merge(&one.took)
	}
	said.Latency = load.LatencyOf(&all)
	return said, err
}

// callerConnection is a stream over one connection, and what became of it since the last go.
type callerConnection struct {
	stream  *load.Stream
	sender  *load.Sender
	batches int
	took    load.Histogram
}

// send sends a batch at a pace, or one after the other without one. What is sent on time is measured from when it is
// sent. What is late because the answer before it was is measured from when it was due: a server that is slow must not
// make its caller send less.
func (c *callerConnection) send(batch int, every time.Duration, due time.Time, stop <-chan struct{}) error {
	c.batches, c.took = 0, load.Histogram{}
	var b load.Batch
	for ; ; due = due.Add(every) {
		from := due
		if wait := time.Until(due); wait > 0 {
			select {
			case <-stop:
			case <-time.After(wait):
			}
			from = time.Now()
		}
		select {
		case <-stop:
			return nil
		default:
		}
		c.stream.Fill(&b, batch)
		if err := c.sender.Send(&b); err != nil {
			return fmt.Errorf("caller: %w", err)
		}
		c.took.Add(time.Since(from))
		c.batches++
	}
}
