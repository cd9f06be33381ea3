package versus

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/load"
)

func rateOf(events int64) sample { return sample{requests: 1, events: events, elapsed: time.Second} }

// Ratios are taken within a repetition: a machine that was slow in one of them was slow for both.
func TestRatiosAreWithinARepetition(t *testing.T) {
	r := &Result{}
	cell := Cell{1000, 16}
	for i, slow := range []int64{1, 10, 2} {
		r.add(engineName, cell, rateOf(1_000_000/slow))
		r.add(pgCoalescedName, cell, rateOf(100_000/slow))
		if i == 0 {
			r.add(engineHTTPName, Cell{1, 64}, rateOf(9))
		}
	}
	if got, ok := r.ratio(cell, engineName, pgCoalescedName); !ok || got != 10 {
		t.Errorf("ratio %v, %t", got, ok)
	}
	if m := r.rate(engineName, cell).Median; m != 500_000 {
		t.Errorf("median %v", m)
	}
	if _, ok := r.ratio(Cell{1, 64}, engineHTTPName, bareName); ok {
		t.Error("a ratio to what was not measured")
	}
	if m := median([]float64{1, 9, 2, 4}); m != 3 {
		t.Errorf("median of four is %v", m)
	}
}

func TestTargets(t *testing.T) {
	r := &Result{Disk: &Disk{JournalPerEvent: 60, KeysPerEvent: 20}, Reads: &Reads{Latency: load.Latency{P99: 1001}}}
	large, small := Cell{1000, 16}, Cell{1, 64}
	r.add(engineHTTPName, large, rateOf(1_000_000))
	r.add(engineName, large, rateOf(1_300_000))
	r.add(pgCoalescedName, large, rateOf(131_000))
	r.add(engineHTTPName, small, rateOf(30_000))
	r.add(engineName, small, rateOf(160_000))
	r.add(pgTxName, small, rateOf(5000))
	r.add(bareName, small, rateOf(50_000))
	r.judge()
	var got strings.Builder
	for _, target := range r.Targets {
		got.WriteString(target.What + ": " + strings.Join(target.Measured, " ") + " " + yesNo(target.MustReached) +
			" " + goalReached(&target) + "\n")
	}
	const want = `HTTP JSON, batches of 1000, 16 connections: 1.00 M/s 7.6x pg-coalesced NO yes
HTTP JSON, one event a request, 64 connections: 60% of bare 6.0x pg-tx-per-event yes NO
engine in process, 1000 x 16: 1.30 M/s 9.9x pg-coalesced NO yes
engine in process, 1 x 64: 160 k/s 32.0x pg-tx-per-event yes NO
disk per event, journal + keys, groups of 100 or more: 80.0 B yes NO
a counter read after the write that changed it, p99: 1001 us NO 
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
	var table bytes.Buffer
	r.Print(&table)
	if !strings.Contains(table.String(), "7.6x pg-coalesced") {
		t.Errorf("table:\n%s", table.String())
	}
}

func TestCounts(t *testing.T) {
	for n, want := range map[float64]string{7: "7", 999: "999", 1234: "1.2 k", 99_949: "99.9 k", 99_951: "100 k",
		1_234_567: "1.23 M"} {
		if got := count(n); got != want {
			t.Errorf("%v is written %s, want %s", n, got, want)
		}
	}
}
