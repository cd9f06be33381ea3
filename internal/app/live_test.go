package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// Given a server whose sorted file is damaged, when it is verified, then the file is named as a difference, once, and
// logged.
func TestVerifyingWhileServingNamesADamagedFile(t *testing.T) {
	dir, noted, figures := t.TempDir(), atomic.Int64{}, prometheus.NewRegistry()
	e, err := engine.Open(engine.Options{
		Dir: dir, Now: storetest.NewClock().Now, SliceBytes: 1, Metrics: figures,
		Damaged: func(error) { noted.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	facts := store.Batch{Tenant: "acme"}
	facts.Events = append(facts.Events, storetest.Fact("a", "calls", "c", storetest.Ago(0), "5"))
	if _, err := e.Record(ctx, facts); err != nil {
		t.Fatal(err)
	}
	flip(t, sortedFile(t, dir, figures))
	ignore := func(string, uint64, uint64) {}
	first, err := verifyLive(ctx, e, "", ignore)
	if err != nil || first.OK() || len(first.Differences) != 1 ||
		!strings.Contains(first.Differences[0].Got, "slice damaged") {
		t.Fatalf("%+v, %v", first, err)
	}
	if noted.Load() != 1 {
		t.Errorf("noted %d times", noted.Load())
	}
	if again, err := verifyLive(ctx, e, "", ignore); err != nil || !again.OK() {
		t.Errorf("again: %+v, %v", again, err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if report, err := verifyLive(ended, e, "", ignore); err == nil {
		t.Errorf("a verification that was given up: %+v", report)
	}
}

// sortedFile waits until a sorted file is in use, which is when the engine counts it.
func sortedFile(t *testing.T, dir string, figures *prometheus.Registry) string {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for figure(t, figures, "tallystick_engine_slices_files") < 1 {
		<-tick.C
	}
	names, err := filepath.Glob(filepath.Join(dir, "slices", "*.parquet"))
	if err != nil || len(names) != 1 {
		t.Fatalf("sorted files %v: %v", names, err)
	}
	return names[0]
}

// figure is the value of a gauge.
func figure(t *testing.T, figures *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := figures.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no figure %s", name)
	return 0
}

func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0x41
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
