package versus

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
)

// Two stages of a small store: each has its rate and its bytes, the totals were proved, and nothing is left behind.
func TestPgGrowth(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if err := os.Chmod(os.TempDir(), 0o755); err != nil { // the server may run as another user
		t.Fatal(err)
	}
	var progress, table bytes.Buffer
	g, err := RunPgGrowth(context.Background(),
		PgGrowthOptions{Rows: []int64{500, 2000}, Measure: 500, Batch: 50, Fleeting: true, Progress: &progress})
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Stages) != 2 || strings.Count(progress.String(), "events/s") != 2 {
		t.Fatalf("%d stages:\n%s", len(g.Stages), progress.String())
	}
	for i, least := range []int64{500, 2000} {
		s := g.Stages[i]
		if s.Rows < least || s.EventsPerSecond <= 0 || s.CPUPerEvent <= 0 || s.BytesPerEvent < 100 {
			t.Errorf("stage %+v", s)
		}
	}
	if first := g.Stages[0].Relations[0]; first.Bytes <= 0 || first.BytesPerEvent <= 0 {
		t.Errorf("the largest relation is %+v", first)
	}
	g.Print(&table)
	for _, want := range []string{"events/s", "table usage_events ", "index usage_events_pkey",
		"index usage_events_seq", "table counters"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("nothing about %s in\n%s", want, table.String())
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Stages that do not rise, and such that would never end, are wrong use.
func TestPgGrowthRefusesSenselessStages(t *testing.T) {
	for _, rows := range [][]int64{{}, {0}, {-1}, {5, 4}, {maxPgRows + 1}} {
		if _, err := RunPgGrowth(context.Background(), PgGrowthOptions{Rows: rows}); err == nil {
			t.Errorf("stages %v were run", rows)
		}
	}
}
