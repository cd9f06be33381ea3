package versus

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// shownPerEvent is the least that a relation takes of an event to have a line of its own.
const shownPerEvent = 0.05

// Print writes the tables for people.
func (g *PgGrowthResult) Print(w io.Writer) {
	fmt.Fprintf(w, "\nPostgreSQL %s with fsync and synchronous_commit on, filled through the store\n", g.Postgres)
	fmt.Fprintf(w, "%12s %12s %9s %10s %12s\n", "rows", "events/s", "of first", "cpu/ev", "bytes/ev")
	for _, s := range g.Stages {
		fmt.Fprintf(w, "%12d %12s %8.0f%% %7.1f us %10.0f B\n", s.Rows, count(s.EventsPerSecond), 100*s.Share,
			1e6*s.CPUPerEvent, s.BytesPerEvent)
	}
	for _, s := range g.Stages {
		fmt.Fprintf(w, "\nat %d rows and those of the measurement\n", s.Rows)
		for _, r := range s.Relations {
			if r.BytesPerEvent < shownPerEvent {
				continue
			}
			kind := "table"
			if r.Index {
				kind = "index"
			}
			fmt.Fprintf(w, "  %s %-24s %10d MiB %8.1f B/event\n", kind, r.Name, r.Bytes/mebi, r.BytesPerEvent)
		}
	}
}

func newPgGrowthCommand(file *string) *cobra.Command {
	var o PgGrowthOptions
	c := &cobra.Command{
		Use:   "pg-growth",
		Short: "Measure the PostgreSQL store as its tables grow",
		Long: `Fills the PostgreSQL store on a private server and measures at each number of rows:
throughput, processor time, and bytes by table and index.`,
		Example: `  tallystick-versus pg-growth --rows 1000000,20000000`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Progress = c.ErrOrStderr()
			began := time.Now()
			g, err := RunPgGrowth(c.Context(), o)
			if err != nil {
				return err
			}
			g.Print(c.OutOrStdout())
			fmt.Fprintf(c.OutOrStdout(), "\ntook %s\n", time.Since(began).Round(time.Second))
			return writeJSON(*file, g)
		},
	}
	c.Flags().Int64SliceVar(&o.Rows, "rows", defaultPgRows,
		"the stages, rising; a row takes some 250 bytes of disk, and as much of the server's log")
	c.Flags().Int64Var(&o.Measure, "measure", defaultPgMeasure, "events over which the rate is taken at each stage")
	return c
}

// familyCPU is the processor time of this process and of all that descend from it, such as the server's backends, ended
// ones included.
func familyCPU() (total time.Duration) {
	type process struct {
		parent int
		used   time.Duration
	}
	all := map[int]process{}
	entries, _ := os.ReadDir("/proc") // where there is none nothing is known of others
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The name may hold anything; what follows it are numbers: state, parent, and from the 12th on the times.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		var p process
		p.parent, _ = strconv.Atoi(fields[1])
		for _, f := range fields[11:15] {
			ticks, _ := strconv.Atoi(f)
			p.used += time.Duration(ticks) * time.Second / ticksPerSecond
		}
		all[pid] = p
	}
	self := os.Getpid()
	for pid, p := range all {
		ancestor := pid
		for ancestor != self && ancestor > 1 {
			ancestor = all[ancestor].parent
		}
		if ancestor == self && pid != self {
			total += p.used
		}
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err == nil {
		total += time.Duration(own.Utime.Nano() + own.Stime.Nano())
	}
	return total
}

// ticksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100
