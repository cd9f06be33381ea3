package versus

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/load"
)

// Result is what a run saw.
type Result struct {
	Taken       time.Time `json:"taken"`
	CPUs        int       `json:"cpus"`
	Go          string    `json:"go"`
	Postgres    string    `json:"postgres,omitempty"`
	Repetitions int       `json:"repetitions"`
	Rates       []*Rate   `json:"rates"`
	Disk        *Disk     `json:"disk,omitempty"`
	Reads       *Reads    `json:"reads,omitempty"`
	Targets     []Target  `json:"targets"`
}

// Rate is one contender in one cell.
type Rate struct {
	Contender string `json:"contender"`
	Cell
	EventsPerSecond []float64      `json:"events_per_second"` // by repetition
	Latency         []load.Latency `json:"latency_us"`        // of requests, by repetition
	Median          float64        `json:"median_events_per_second"`
}

func (r *Result) add(name string, c Cell, s sample) {
	rate := r.rate(name, c)
	if rate == nil {
		rate = &Rate{Contender: name, Cell: c}
		r.Rates = append(r.Rates, rate)
	}
	rate.EventsPerSecond = append(rate.EventsPerSecond, s.eventsPerSecond())
	rate.Latency = append(rate.Latency, s.latency)
	rate.Median = median(rate.EventsPerSecond)
}

func (r *Result) rate(name string, c Cell) *Rate {
	for _, rate := range r.Rates {
		if rate.Contender == name && rate.Cell == c {
			return rate
		}
	}
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// ratio is the median over the repetitions of one contender's rate against another's: what the machine did to a
// repetition it did to both.
func (r *Result) ratio(c Cell, name, against string) (float64, bool) {
	a, b := r.rate(name, c), r.rate(against, c)
	if a == nil || b == nil {
		return 0, false
	}
	ratios := make([]float64, len(a.EventsPerSecond))
	for i := range ratios {
		ratios[i] = a.EventsPerSecond[i] / b.EventsPerSecond[i]
	}
	return median(ratios), true
}

// Print writes the tables for people.
func (r *Result) Print(w io.Writer) {
	fmt.Fprintf(w, "\nevents/s, batch x submitters; medians of %d interleaved repetitions on %d CPUs, %s",
		r.Repetitions, r.CPUs, r.Go)
	if r.Postgres != "" {
		fmt.Fprintf(w, ", PostgreSQL %s with fsync and synchronous_commit on", r.Postgres)
	}
	fmt.Fprintln(w)
	cells, contenders := r.axes()
	r.printGrid(w, cells, contenders, func(name string, c Cell) string {
		if rate := r.rate(name, c); rate != nil {
			return count(rate.Median)
		}
		return "-"
	})
	if slices.Contains(contenders, pgCoalescedName) {
		fmt.Fprintf(w, "\nratio to %s\n", pgCoalescedName)
		r.printGrid(w, cells, contenders, func(name string, c Cell) string {
			return r.printRatio(c, name, pgCoalescedName)
		})
	}
	if slices.Contains(contenders, pgTxName) {
		fmt.Fprintf(w, "\nratio to %s\n", pgTxName)
		r.printGrid(w, cells, contenders, func(name string, c Cell) string { return r.printRatio(c, name, pgTxName) })
	}
	fmt.Fprintln(w)
	for _, c := range all() {
		if slices.Contains(contenders, c.name) {
			fmt.Fprintf(w, "%-16s %s\n", c.name, c.what)
		}
	}
	if r.Disk != nil {
		fmt.Fprintf(w, "\ndisk per event: journal %.1f B + keys %.1f B (%d events in requests of 100)\n",
			r.Disk.JournalPerEvent, r.Disk.KeysPerEvent, r.Disk.Events)
	}
	if r.Reads != nil {
		fmt.Fprintf(w, "counter read after the write that changed it: p50 %.1f us, p99 %.1f us (%d reads, all of "+
			"them saw it)\n", r.Reads.Latency.P50, r.Reads.Latency.P99, r.Reads.Reads)
	}
	printTargets(w, r.Targets)
}

// axes are the cells and contenders that were measured, in order of appearance.
func (r *Result) axes() (cells []Cell, contenders []string) {
	for _, rate := range r.Rates {
		if !slices.Contains(cells, rate.Cell) {
			cells = append(cells, rate.Cell)
		}
		if !slices.Contains(contenders, rate.Contender) {
			contenders = append(contenders, rate.Contender)
		}
	}
	return cells, contenders
}

func (r *Result) printGrid(w io.Writer, cells []Cell, contenders []string, value func(string, Cell) string) {
	fmt.Fprintf(w, "%-16s", "")
	for _, c := range cells {
		fmt.Fprintf(w, "%9s", c)
	}
	fmt.Fprintln(w)
	for _, name := range contenders {
		fmt.Fprintf(w, "%-16s", name)
		for _, c := range cells {
			fmt.Fprintf(w, "%9s", value(name, c))
		}
		fmt.Fprintln(w)
	}
}

func (r *Result) printRatio(c Cell, name, against string) string {
	ratio, ok := r.ratio(c, name, against)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1fx", ratio)
}

// count writes a rate in as many digits as a noisy machine deserves.
func count(n float64) string {
	switch {
	case n >= 999_500:
		return fmt.Sprintf("%.2f M", n/1e6)
	case n >= 99_950:
		return fmt.Sprintf("%.0f k", n/1e3)
	case n >= 1000:
		return fmt.Sprintf("%.1f k", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

func printTargets(w io.Writer, targets []Target) {
	if len(targets) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%-58s %-34s %-26s %-8s %-12s %s\n", "target", "measured", "must", "reached", "goal", "reached")
	for _, t := range targets {
		fmt.Fprintf(w, "%-58s %-34s %-26s %-8s %-12s %s\n", t.What, strings.Join(t.Measured, ", "), t.Must,
			yesNo(t.MustReached), t.Goal, goalReached(&t))
	}
}

func goalReached(t *Target) string {
	if t.Goal == "" {
		return ""
	}
	return yesNo(t.GoalReached)
}

func yesNo(reached bool) string {
	if reached {
		return "yes"
	}
	return "NO"
}
