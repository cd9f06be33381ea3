package versus

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A short run opens the slow connections, measures beside them and closes them.
func TestSlow(t *testing.T) {
	var progress, table bytes.Buffer
	s, err := RunSlow(context.Background(),
		SlowOptions{Connections: 60, Pace: 5 * time.Millisecond, Spread: time.Millisecond, Repetitions: 2,
			Time: 100 * time.Millisecond, Every: 10 * time.Millisecond,
			Dir: t.TempDir(), Progress: &progress})
	if err != nil {
		t.Fatal(err)
	}
	if s.Events == 0 || s.Ratio <= 0 || s.Without.P99 <= 0 || s.Beside.P99 <= 0 || s.Memory == 0 || s.MemoryWith == 0 ||
		strings.Count(progress.String(), "slow connections") != 2 {
		t.Errorf("%+v\n%s", s, progress.String())
	}
	s.Print(&table)
	for _, want := range []string{"alone", "beside 60 slow", "p99 of a working caller", "memory of a slow connection"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("nothing about %s in\n%s", want, table.String())
		}
	}
}

func TestSlowNeedsDescriptors(t *testing.T) {
	_, err := RunSlow(context.Background(), SlowOptions{Connections: 1 << 40})
	var wrong *usageError
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "hard limit") {
		t.Errorf("got %v", err)
	}
}
