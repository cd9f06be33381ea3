package versus

import "fmt"

// Target is a number that the design promises, and whether this run reached it. On a shared machine the ratios say more
// than the rates.
type Target struct {
	What        string   `json:"what"`
	Measured    []string `json:"measured"`
	Must        string   `json:"must"`
	MustReached bool     `json:"must_reached"`
	Goal        string   `json:"goal,omitempty"`
	GoalReached bool     `json:"goal_reached"`
}

// bound is one condition of a target.
type bound struct {
	value  float64
	must   float64
	goal   float64 // zero: none
	atMost bool
	show   func(float64) string
}

func (b *bound) holds(limit float64) bool {
	if b.atMost {
		return b.value <= limit
	}
	return b.value >= limit
}

func newTarget(what, must, goal string, bounds ...bound) Target {
	t := Target{What: what, Must: must, Goal: goal, MustReached: true, GoalReached: goal != ""}
	for i := range bounds {
		b := &bounds[i]
		t.Measured = append(t.Measured, b.show(b.value))
		t.MustReached = t.MustReached && b.holds(b.must)
		t.GoalReached = t.GoalReached && (b.goal == 0 || b.holds(b.goal))
	}
	return t
}

func showRate(n float64) string { return count(n) + "/s" }

func showRatio(of string) func(float64) string {
	return func(n float64) string { return fmt.Sprintf("%.1fx %s", n, of) }
}

func showShare(of string) func(float64) string {
	return func(n float64) string { return fmt.Sprintf("%.0f%% of %s", 100*n, of) }
}

// judge holds what was measured against the targets. What was not measured is not judged.
func (r *Result) judge() {
	large, small := Cell{1000, 16}, Cell{1, 64}
	r.judgeRates(large, engineHTTPName, pgCoalescedName, "HTTP JSON, batches of 1000, 16 connections",
		rates{700_000, 8, 1_000_000})
	r.judgeSmallHTTP(small)
	r.judgeRates(large, engineName, pgCoalescedName, "engine in process, 1000 x 16", rates{800_000, 10, 1_200_000})
	r.judgeRates(small, engineName, pgTxName, "engine in process, 1 x 64", rates{150_000, 20, 200_000})
	r.judgeShare(large, pgStoreName, pgCoalescedName, "PostgreSQL store, batches of 1000, 16 submitters", 0.9, 1.2)
	r.judgeShare(small, pgStoreName, pgTxName, "PostgreSQL store, single events, 64 submitters", 3, 0)
	if r.Disk != nil {
		r.Targets = append(r.Targets, diskTarget(r.Disk.JournalPerEvent+r.Disk.KeysPerEvent))
	}
	if r.Reads != nil {
		const most = 1000 // microseconds
		r.Targets = append(r.Targets, newTarget("a counter read after the write that changed it, p99",
			"always sees it, <= 1 ms", "",
			bound{value: r.Reads.Latency.P99, must: most, atMost: true, show: func(us float64) string {
				return fmt.Sprintf("%.0f us", us)
			}}))
	}
}

func diskTarget(bytes float64) Target {
	return newTarget("disk per event, journal + keys, groups of 100 or more", "<= 100 B", "70 B",
		bound{value: bytes, must: 100, goal: 70, atMost: true, show: func(n float64) string {
			return fmt.Sprintf("%.1f B", n)
		}})
}

// rates are the least rate, the least ratio to a reference, and the rate aimed at.
type rates struct{ rate, ratio, goal float64 }

func (r *Result) judgeRates(c Cell, name, reference, what string, least rates) {
	rate := r.rate(name, c)
	if rate == nil {
		return
	}
	bounds := []bound{{value: rate.Median, must: least.rate, goal: least.goal, show: showRate}}
	must := ">= " + showRate(least.rate)
	if ratio, ok := r.ratio(c, name, reference); ok {
		bounds = append(bounds, bound{value: ratio, must: least.ratio, show: showRatio(reference)})
		must += fmt.Sprintf(" and >= %.0fx", least.ratio)
	}
	r.Targets = append(r.Targets, newTarget(what, must, showRate(least.goal), bounds...))
}

// judgeShare holds one contender against another.
func (r *Result) judgeShare(c Cell, name, reference, what string, must, goal float64) {
	ratio, ok := r.ratio(c, name, reference)
	if !ok {
		return
	}
	aim := ""
	if goal > 0 {
		aim = fmt.Sprintf("%.1fx", goal)
	}
	r.Targets = append(r.Targets, newTarget(what, fmt.Sprintf(">= %.1fx %s", must, reference), aim,
		bound{value: ratio, must: must, goal: goal, show: showRatio(reference)}))
}

func (r *Result) judgeSmallHTTP(c Cell) {
	share, ok := r.ratio(c, engineHTTPName, bareName)
	if !ok {
		return
	}
	bounds := []bound{{value: share, must: 0.5, goal: 0.9, show: showShare("bare")}}
	must := ">= 50% of bare"
	if ratio, ok := r.ratio(c, engineHTTPName, pgTxName); ok {
		bounds = append(bounds, bound{value: ratio, must: 5, show: showRatio(pgTxName)})
		must += " and >= 5x"
	}
	r.Targets = append(r.Targets, newTarget("HTTP JSON, one event a request, 64 connections", must, "90%", bounds...))
}
