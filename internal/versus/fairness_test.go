package versus

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// A short run sends from both processes, and what the server counted is what both sent.
func TestFairness(t *testing.T) {
	for store := range fairnessStores {
		t.Run(store, func(t *testing.T) { beFair(t, store) })
	}
}

func beFair(t *testing.T, store string) {
	var progress, table bytes.Buffer
	f, err := RunFairness(context.Background(),
		FairnessOptions{Store: store, Fleeting: true, Repetitions: 2, Time: 100 * time.Millisecond,
			Every: 10 * time.Millisecond, Dir: t.TempDir(), Progress: &progress})
	if err != nil {
		t.Fatal(err)
	}
	if f.Calm == 0 || f.Flood == 0 || f.Ratio <= 0 || f.Quiet.P99 <= 0 || f.Flooded.P99 <= 0 ||
		strings.Count(progress.String(), "beside the flood") != 2 {
		t.Errorf("%+v\n%s", f, progress.String())
	}
	f.Print(&table)
	for _, want := range []string{"quiet", "beside the flood", "p99 of one tenant"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("nothing about %s in\n%s", want, table.String())
		}
	}
}
