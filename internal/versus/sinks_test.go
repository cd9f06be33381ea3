package versus

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/kafkatest"
	"github.com/tallystick/tallystick/internal/natstest"
)

// A short run delivers every row to every kind of sink, on every store, and judges what it saw.
func TestSinksRunsThrough(t *testing.T) {
	kafka, at := kafkatest.Shared(t), natstest.Start(t)
	for _, store := range []string{engineStore, postgresStore} {
		t.Run(store, func(t *testing.T) {
			var progress, table bytes.Buffer
			r, err := RunSinks(t.Context(), SinksOptions{Store: store, Fleeting: true, Kafka: kafka,
				Repetitions: 1, Time: time.Millisecond, Connections: 1, Rows: 1, Burst: 1, NATS: at.URL(),
				Dir: t.TempDir(), Progress: &progress})
			if err != nil {
				t.Fatal(err)
			}
			n := r.Ingest
			if n.Without <= 0 || n.With <= 0 || n.Ratio <= 0 || len(r.Targets) != 1 || len(r.Kinds) != 3 {
				t.Errorf("%+v", r)
			}
			for _, k := range r.Kinds {
				if k.Median <= 0 || k.Lag <= 0 {
					t.Errorf("%+v", k)
				}
			}
			r.Print(&table)
			for _, want := range []string{store + " store", "webhook", "Kafka", "NATS", "80% of without"} {
				if !strings.Contains(table.String(), want) {
					t.Errorf("nothing about %s in\n%s", want, table.String())
				}
			}
			if n := strings.Count(progress.String(), "alone"); n != 3 {
				t.Errorf("%d kinds of sink are spoken of in\n%s", n, progress.String())
			}
		})
	}
}

// Counts that would measure nothing, and stores that are not there, are wrong use.
func TestSinksIsUsedWrongly(t *testing.T) {
	for _, args := range [][]string{{"--store", "redis"}, {"--repetitions", "0"}, {"--connections", "-1"},
		{"--batch", "1001"}, {"--burst", "0"}, {"and", "more"}} {
		var out bytes.Buffer
		if code := Main(append([]string{"sinks"}, args...), &out, &out); code != 2 {
			t.Errorf("sinks %q ended with %d: %s", args, code, out.String())
		}
	}
}
