package versus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/load"
	"github.com/tallystick/tallystick/internal/store/engine"
)

const (
	growthCommand = "growth-child"
	stateFolder   = "state"
	mergesFigure  = "tallystick_engine_index_merges"

	growthSubmitters = 16
	// tellEvery is how many keys lie between two reports of progress.
	tellEvery   = 5_000_000
	sampleEvery = 100 * time.Millisecond
	// proofFacts is how many of the last acknowledged facts the next child sends again.
	proofFacts = 1000
	// killAfter is how many batches the first stream has acknowledged after the measurement when the child asks to be
	// killed; the other streams are anywhere by then.
	killAfter = 5
)

// growthJob is the job of a child. The next child's job comes from the one before it.
type growthJob struct {
	Dir     string    `json:"dir"`
	Keys    int64     `json:"keys"` // fill until so many are known; zero: open, prove and end
	Measure int64     `json:"measure"`
	Batch   int       `json:"batch"`
	Known   int64     `json:"known"`  // keys that are there already, at least
	Stream  int       `json:"stream"` // the first stream number that was never used
	Hour    time.Time `json:"hour"`
	Prove   *proof    `json:"prove"` // what must be there
}

// proof names facts that were acknowledged: those of a stream and tenant before one number.
type proof struct {
	Stream int    `json:"stream"`
	Tenant int    `json:"tenant"`
	Before uint64 `json:"before"`
}

// growthSays is one line of a child's: exactly one field is set.
type growthSays struct {
	Opened float64    `json:"opened,omitempty"` // seconds
	Proved bool       `json:"proved,omitempty"`
	Filled int64      `json:"filled,omitempty"`
	Ready  bool       `json:"ready,omitempty"`  // filled; a line of input starts each turn
	Turned bool       `json:"turned,omitempty"` // one more, not the last
	Stage  *Stage     `json:"stage,omitempty"`
	Left   *growthJob `json:"left,omitempty"` // kill me now; this is the next job
}

func newGrowthChildCommand() *cobra.Command {
	return newChildCommand(growthCommand, "The process that growth fills and kills",
		func(ctx context.Context, job growthJob, commands *bufio.Scanner, out io.Writer) error {
			return newChild(job, commands, out).run(ctx)
		})
}

// child is the engine under growth.
type child struct {
	job      growthJob
	commands *bufio.Scanner
	say      *json.Encoder
	engineSubject

	mu      sync.Mutex // guards those below
	known   int64
	shown   int64
	batches int // of the first stream
}

func newChild(job growthJob, commands *bufio.Scanner, out io.Writer) *child {
	return &child{job: job, commands: commands, say: json.NewEncoder(out), known: job.Known, shown: job.Known}
}

func (c *child) run(ctx context.Context) (err error) {
	fresh := c.job.Hour.IsZero()
	if fresh {
		c.job.Hour = time.Now().Add(-time.Hour).UTC().Truncate(time.Hour)
	}
	began := time.Now()
	if err := c.open(load.Shape{Customers: defaultCustomers / tenants, Hour: c.job.Hour}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.e.Close()) }()
	if err := c.say.Encode(growthSays{Opened: time.Since(began).Seconds()}); err != nil {
		return err
	}
	if fresh {
		if _, err := populate(ctx, c.e, c.w); err != nil {
			return err
		}
	}
	if c.job.Prove != nil {
		if err := c.prove(ctx, c.job.Prove); err != nil {
			return fmt.Errorf("prove what was acknowledged: %w", err)
		}
	}
	if c.job.Keys == 0 {
		return nil
	}
	return c.grow(ctx)
}

// open opens the store for traffic of a shape.
func (c *child) open(shape load.Shape) (err error) {
	shape.Seed, shape.Tenants, shape.Meters, shape.DuplicateRatio = 1, tenants, meters, duplicate
	if c.w, err = load.NewWorkload(shape); err != nil {
		return err
	}
	c.dir, c.figures = filepath.Join(c.job.Dir, "store"), prometheus.NewRegistry()
	if c.e, err = engine.Open(engine.Options{Dir: c.dir, Metrics: c.figures, NoSlices: true}); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	return nil
}

// prove sends acknowledged facts again: all of them must be known.
func (c *child) prove(ctx context.Context, p *proof) error {
	b := load.Batch{Tenant: p.Tenant}
	for n := p.Before - min(p.Before, proofFacts); n < p.Before; n++ {
		b.Facts = append(b.Facts, c.w.Fact(p.Stream, n))
		b.Duplicates++
	}
	if err := record(ctx, c.e, &b, appendEvents(nil, c.w, &b)); err != nil {
		return err
	}
	return c.say.Encode(growthSays{Proved: true})
}

// grow fills, measures, reports, and goes on until it is killed.
func (c *child) grow(ctx context.Context) error {
	streams := make([]*load.Stream, growthSubmitters)
	for i := range streams {
		streams[i] = c.w.NewStream(c.job.Stream + i)
	}
	if _, err := c.send(ctx, streams, c.job.Keys, nil); err != nil {
		return fmt.Errorf("fill: %w", err)
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
	_, err = c.send(ctx, streams, 1<<62, c.askToBeKilled)
	return err
}

// measure takes the rate, turn by turn, each after a command.
func (c *child) measure(ctx context.Context, streams []*load.Stream) (*Stage, error) {
	stage := &Stage{Keys: c.known}
	merges, err := c.figure(mergesFigure)
	if err != nil {
		return nil, err
	}
	peak := watchMemory()
	var took, used time.Duration
	err = c.say.Encode(growthSays{Ready: true})
	for n := int64(1); n <= turns && err == nil; n++ {
		if !c.commands.Scan() {
			err = errors.New("nobody asks for another turn")
			break
		}
		var lasted time.Duration
		before := processorTime()
		lasted, err = c.send(ctx, streams, stage.Keys+c.job.Measure*n/turns, nil)
		took += lasted
		used += processorTime() - before
		if n < turns && err == nil {
			err = c.say.Encode(growthSays{Turned: true})
		}
	}
	if stage.AnonymousBytes = peak(); err != nil {
		return nil, err
	}
	merged, err := c.figure(mergesFigure)
	if err != nil {
		return nil, err
	}
	events := float64(c.known-stage.Keys) / (1 - duplicate)
	stage.EventsPerSecond, stage.CPUPerEvent, stage.Merges = events/took.Seconds(), used.Seconds()/events,
		int64(merged-merges)
	return stage, nil
}

// processorTime is what this process has used of all cores: where others use them too, it says more than the clock on
// the wall.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// look reads what the store takes on disk. Keys that are still in memory are in the journal alone.
func (c *child) look(s *Stage) error {
	journal, err := c.figure(journalFigure)
	if err != nil {
		return err
	}
	keys, err := folderBytes(filepath.Join(c.dir, keysFolder))
	if err != nil {
		return fmt.Errorf("look at the keys: %w", err)
	}
	if s.StateBytes, err = folderBytes(filepath.Join(c.dir, stateFolder)); err != nil {
		return fmt.Errorf("look at the state: %w", err)
	}
	s.JournalPerEvent, s.KeysPerEvent = journal/float64(c.known), float64(keys)/float64(c.known)
	return nil
}

// send drives the streams until so many keys are known. After is called when the first stream's batch was acknowledged.
func (c *child) send(ctx context.Context, streams []*load.Stream, until int64,
	after func(*load.Batch, uint64) error) (time.Duration, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	began := time.Now()
	var wg sync.WaitGroup
	for i, s := range streams {
		submit, err := c.submitter(ctx)
		if err != nil {
			return 0, err
		}
		wg.Go(func() {
			var b load.Batch
			for ctx.Err() == nil && c.wants(until) {
				s.Fill(&b, c.job.Batch)
				if err := c.persist(ctx, submit, &b); err != nil {
					stop(err)
					return
				}
				if err := c.acknowledged(&b); err != nil {
					stop(err)
					return
				}
				if i == 0 && after != nil {
					if err := after(&b, s.Drawn(b.Tenant)); err != nil {
						stop(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began), context.Cause(ctx)
}

// persist sends a batch again when the store asks for patience: merges may fall behind for a while.
func (c *child) persist(ctx context.Context, submit func(*load.Batch) error, b *load.Batch) error {
	for {
		err := submit(b)
		if !problem.Is(err, problem.Busy) {
			return err
		}
		select {
		case <-time.After(sampleEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *child) wants(until int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known < until
}

func (c *child) acknowledged(b *load.Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known += int64(b.Fresh)
	if c.known-c.shown < tellEvery || c.known > c.job.Keys {
		return nil
	}
	c.shown = c.known
	return c.say.Encode(growthSays{Filled: c.known})
}

func (c *child) askToBeKilled(b *load.Batch, drawn uint64) error {
	if c.batches++; c.batches != killAfter {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.job
	next.Known, next.Stream = c.known, c.job.Stream+growthSubmitters
	next.Prove = &proof{Stream: c.job.Stream, Tenant: b.Tenant, Before: drawn}
	return c.say.Encode(growthSays{Left: &next})
}

// watchMemory samples this process's memory beyond the page cache until the function it returns is called, which
// returns the most.
func watchMemory() (peak func() int64) {
	done := make(chan struct{})
	most := make(chan int64, 1)
	go func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		top := anonymous()
		for {
			select {
			case <-tick.C:
				top = max(top, anonymous())
			case <-done:
				most <- max(top, anonymous())
				return
			}
		}
	}()
	return func() int64 {
		close(done)
		return <-most
	}
}

// anonymous is RssAnon: what the process holds that no file backs. Zero where there is no such figure.
func anonymous() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	kib, err := anonymousKiB(status)
	if err != nil {
		return 0
	}
	return kib * 1024
}

var errNoFigure = errors.New("no RssAnon")

func anonymousKiB(status []byte) (int64, error) {
	_, rest, ok := bytes.Cut(status, []byte("RssAnon:"))
	if !ok {
		return 0, errNoFigure
	}
	line, _, _ := bytes.Cut(rest, []byte("kB"))
	return strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
}
