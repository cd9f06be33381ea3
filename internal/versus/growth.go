package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Growth measures what becomes of an engine as keys gather. A child process fills the store, so that it can be killed
// like any process, with a group on its way to the disk; the next child opens what it left. What a stage is compared
// with is measured in turn with it.

// GrowthOptions of a run.
type GrowthOptions struct {
	Keys    int64  // how far to fill. Default 10 M
	First   int64  // the first stage; the next has ten times as many keys, and so on up to Keys. Default 1 M
	Measure int64  // keys over which the rate is taken at each stage, at least; see window. Default 3 M
	Batch   int    // events of a call. Default 1000
	Dir     string // default: a temporary folder
	// Progress takes a line now and then. Default: nobody does.
	Progress io.Writer
}

const (
	defaultKeys    = 10_000_000
	defaultMeasure = 3_000_000

	defaultGrowthBatch = 1000

	defaultFirst = 1_000_000

	// turns that the measurement of a stage is made in.
	turns = 6

	// windowShare of a stage's keys are added while its rate is taken.
	windowShare = 5

	// roomPerKey bounds what journal, keys, state and a merge under way take.
	roomPerKey = 150
	roomSpare  = 2 << 30

	mebi = 1 << 20
)

// Growth is what a run saw.
type Growth struct {
	Stages  []*Stage `json:"stages"`
	Targets []Target `json:"targets"`
}

// Stage is the engine at one number of keys.
type Stage struct {
	Keys            int64   `json:"keys"`
	EventsPerSecond float64 `json:"events_per_second"`
	Beside          float64 `json:"first_events_per_second"` // of a store with the first stage's keys, meanwhile
	Share           float64 `json:"share_of_first"`          // of that
	// of the whole process, the making of the events and the merges included
	CPUPerEvent     float64 `json:"cpu_seconds_each"`
	Merges          int64   `json:"merges"`             // of the key index, done while it was measured
	AnonymousBytes  int64   `json:"anonymous_bytes"`    // most memory beyond the page cache while it was measured
	JournalPerEvent float64 `json:"journal_bytes_each"` // by key
	KeysPerEvent    float64 `json:"keys_bytes_each"`
	StateBytes      int64   `json:"state_bytes"`
	ReopenSeconds   float64 `json:"reopen_seconds"` // after a kill -9 at this stage
}

// RunGrowth fills an engine stage by stage, kills it at each, and opens it again.
func RunGrowth(ctx context.Context, o GrowthOptions) (g *Growth, err error) {
	setDefault(&o.Keys, defaultKeys)
	setDefault(&o.First, defaultFirst)
	setDefault(&o.Measure, defaultMeasure)
	setDefault(&o.Batch, defaultGrowthBatch)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	dir, err := os.MkdirTemp(o.Dir, "tallystick-growth-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the store: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := enoughRoom(dir, o.Keys+window(o.Measure, o.Keys)); err != nil {
		return nil, err
	}
	g = &Growth{}
	job := growthJob{Dir: dir, Batch: o.Batch}
	for _, job.Keys = range stages(o.First, o.Keys) {
		stage, left, err := o.measure(ctx, job)
		if err != nil {
			return nil, fmt.Errorf("at %d keys: %w", job.Keys, err)
		}
		fmt.Fprintf(o.Progress, "%d keys: %s events/s over the next %d with %d merges, %s in the first stage's "+
			"store, %.0f ns of processor each, %d MiB of memory\n",
			stage.Keys, count(stage.EventsPerSecond), window(o.Measure, job.Keys), stage.Merges, count(stage.Beside),
			1e9*stage.CPUPerEvent, stage.AnonymousBytes/mebi)
		job = left
		opened, err := reopen(ctx, job)
		if err != nil {
			return nil, fmt.Errorf("open after the kill at %d keys: %w", stage.Keys, err)
		}
		stage.ReopenSeconds = opened
		g.Stages = append(g.Stages, stage)
		fmt.Fprintf(o.Progress, "killed at %d keys, opened again in %.2f s\n", stage.Keys, opened)
	}
	g.judge()
	return g, nil
}

func stages(first, last int64) []int64 {
	var out []int64
	for n := first; n < last; n *= 10 {
		out = append(out, n)
	}
	return append(out, last)
}

// window is how many keys a stage is measured over: so many that merges have their share of the time, which come once
// in sixteen memory tables.
func window(least, keys int64) int64 { return max(least, keys/windowShare) }

// enoughRoom looks before an hour is spent: a full disk would end the run far later.
func enoughRoom(dir string, keys int64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look at the disk: %w", err)
	}
	free, need := int64(fs.Bavail)*fs.Bsize, keys*roomPerKey+roomSpare
	if free < need {
		return fmt.Errorf("%d keys may need %d MiB, and %d MiB are free in %s: choose another folder with --dir, or "+
			"fewer keys", keys, need/mebi, free/mebi, dir)
	}
	return nil
}

// measure fills a child to the job's keys, takes its rate, and kills it some batches later. What it returns is the job
// of the next child, which starts with the proof of what this one acknowledged.
//
// A machine is seldom equally fast for minutes. So a stage's rate is taken in turns, and before each turn another
// child, whose store has the first stage's keys, has one of its own; whoever is not at work is stopped, its merges too.
func (o *GrowthOptions) measure(ctx context.Context, job growthJob) (stage *Stage, left growthJob, err error) {
	job.Measure = window(o.Measure, job.Keys)
	big, err := startChild[growthSays](ctx, growthCommand, job)
	if err != nil {
		return nil, left, err
	}
	defer func() { err = errors.Join(err, big.kill()) }()
	ready := func(said *growthSays) bool {
		if said.Filled > 0 {
			fmt.Fprintf(o.Progress, "%d of %d keys\n", said.Filled, job.Keys)
		}
		return said.Ready
	}
	if err := big.until(ready); err != nil {
		return nil, left, err
	}
	var small *growthProcess
	if job.Keys > o.First {
		if err := big.signal(syscall.SIGSTOP); err != nil {
			return nil, left, err
		}
		if small, err = o.startSmall(ctx, job.Dir); err != nil {
			return nil, left, err
		}
		defer func() { err = errors.Join(err, small.kill(), os.RemoveAll(filepath.Join(job.Dir, smallFolder))) }()
	}
	first, stage, err := takeTurns(small, big)
	if err != nil {
		return nil, left, err
	}
	if first == nil {
		first = stage
	}
	stage.Beside = first.EventsPerSecond
	stage.Share = stage.EventsPerSecond / stage.Beside
	err = big.until(func(said *growthSays) bool {
		if said.Left != nil {
			left = *said.Left
		}
		return said.Left != nil
	})
	return stage, left, err
}

const smallFolder = "first"

// startSmall starts a child with the first stage's keys in a store of its own, and stops it.
func (o *GrowthOptions) startSmall(ctx context.Context, dir string) (*growthProcess, error) {
	dir = filepath.Join(dir, smallFolder)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for the small store: %w", err)
	}
	small, err := startChild[growthSays](ctx, growthCommand,
		growthJob{Dir: dir, Batch: o.Batch, Keys: o.First, Measure: window(o.Measure, o.First)})
	if err != nil {
		return nil, err
	}
	if err = small.until(func(said *growthSays) bool { return said.Ready }); err == nil {
		err = small.signal(syscall.SIGSTOP)
	}
	if err != nil {
		return nil, errors.Join(err, small.kill())
	}
	return small, nil
}

// takeTurns lets the children have their turns, until both have said what they saw, and the big one go on. There may
// be no small one.
func takeTurns(small, big *growthProcess) (of, stage *Stage, err error) {
	for range turns {
		if small != nil {
			if of, err = turn(small); err != nil {
				return nil, nil, fmt.Errorf("the small store: %w", err)
			}
		}
		if stage, err = turn(big); err != nil {
			return nil, nil, err
		}
	}
	return of, stage, big.signal(syscall.SIGCONT)
}

type growthProcess = childProcess[growthSays]

// turn lets a stopped child have one turn and stops it again. The last turn ends with what was seen in all of them.
func turn(c *growthProcess) (stage *Stage, err error) {
	if err := c.signal(syscall.SIGCONT); err != nil {
		return nil, err
	}
	if err := c.send("go"); err != nil {
		return nil, err
	}
	err = c.until(func(said *growthSays) bool {
		stage = said.Stage
		return said.Turned || stage != nil
	})
	if err != nil {
		return nil, err
	}
	return stage, c.signal(syscall.SIGSTOP)
}

// reopen lets a child open the store, prove that the last acknowledged facts are there, and end.
func reopen(ctx context.Context, job growthJob) (seconds float64, err error) {
	job.Keys = 0
	child, err := startChild[growthSays](ctx, growthCommand, job)
	if err != nil {
		return 0, err
	}
	err = child.until(func(said *growthSays) bool {
		if said.Opened > 0 {
			seconds = said.Opened
		}
		return said.Proved
	})
	if err != nil {
		return 0, errors.Join(err, child.kill())
	}
	return seconds, child.wait()
}

func (g *Growth) judge() {
	last := g.Stages[len(g.Stages)-1]
	at := strconv.FormatInt(last.Keys/1_000_000, 10) + " M known keys"
	if last.Keys < 1_000_000 {
		at = strconv.FormatInt(last.Keys, 10) + " known keys"
	}
	mib := func(n float64) string { return fmt.Sprintf("%.0f MiB", n) }
	seconds := func(n float64) string { return fmt.Sprintf("%.2f s", n) }
	g.Targets = []Target{
		newTarget("throughput at "+at+" against the first stage's", ">= 80%", "95%",
			bound{value: last.Share, must: 0.8, goal: 0.95, show: showShare("the first")}),
		newTarget("memory beyond the page cache with "+at, "<= 1024 MiB", "512 MiB",
			bound{value: float64(last.AnonymousBytes) / mebi, must: 1024, goal: 512, atMost: true, show: mib}),
		diskTarget(last.JournalPerEvent + last.KeysPerEvent),
		newTarget("start after kill -9 with "+at, "<= 5 s", "1 s",
			bound{value: last.ReopenSeconds, must: 5, goal: 1, atMost: true, show: seconds}),
	}
}

// Print writes the tables for people.
func (g *Growth) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%12s %12s %10s %9s %10s %7s %10s %12s %12s %10s %12s\n", "keys", "events/s", "first", "of first",
		"cpu/ev", "merges", "memory", "journal/ev", "keys/ev", "state", "reopen")
	for _, s := range g.Stages {
		fmt.Fprintf(w, "%12d %12s %10s %8.0f%% %7.0f ns %7d %6d MiB %10.1f B %10.1f B %6d MiB %10.2f s\n", s.Keys,
			count(s.EventsPerSecond), count(s.Beside), 100*s.Share, 1e9*s.CPUPerEvent, s.Merges, s.AnonymousBytes/mebi,
			s.JournalPerEvent, s.KeysPerEvent, s.StateBytes/mebi,
			s.ReopenSeconds)
	}
	printTargets(w, g.Targets)
}

func newGrowthCommand(dir, file *string) *cobra.Command {
	var o GrowthOptions
	c := &cobra.Command{
		Use:   "growth",
		Short: "Measure the engine as its known keys grow",
		Long: `Fills an engine to 1 M, 10 M, 100 M known keys, and measures at each: throughput in turn with
that of a store with the first stage's keys, memory, disk, and the start after a kill -9.`,
		Example: `  tallystick-versus growth --keys 100000000 --dir /mnt/disk`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if min(o.Keys, o.First, o.Measure) < 1 {
				return &usageError{errors.New("--keys, --first and --measure start at 1")}
			}
			o.Dir, o.Progress = *dir, c.ErrOrStderr()
			began := time.Now()
			g, err := RunGrowth(c.Context(), o)
			if err != nil {
				return err
			}
			g.Print(c.OutOrStdout())
			fmt.Fprintf(c.OutOrStdout(), "\ntook %s\n", time.Since(began).Round(time.Second))
			return writeJSON(*file, g)
		},
	}
	c.Flags().Int64Var(&o.Keys, "keys", defaultKeys, "how far to fill; a key takes some 70 bytes of disk")
	c.Flags().Int64Var(&o.First, "first", defaultFirst,
		"the first stage; each has ten times the keys of the one before")
	c.Flags().Int64Var(&o.Measure, "measure", defaultMeasure,
		"keys over which the rate is taken at each stage, or a fifth of the stage's if that is more")
	return c
}
