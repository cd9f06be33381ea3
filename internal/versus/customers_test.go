package versus

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
)

// Two numbers of customers: each has all of its counters, every counter is what was sent, and nothing is left behind.
func TestCustomers(t *testing.T) {
	dir := t.TempDir()
	var progress, table bytes.Buffer
	r, err := RunCustomers(context.Background(),
		CustomersOptions{Customers: []int64{40, 200}, Measure: 600, Batch: 10, Dir: dir, Progress: &progress})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sizes) != 2 || r.Sizes[0].Counters != 80 || r.Sizes[1].Counters != 400 {
		t.Fatalf("%d sizes:\n%s", len(r.Sizes), progress.String())
	}
	for _, s := range r.Sizes {
		if s.EventsPerSecond <= 0 || s.Share != s.EventsPerSecond/s.Beside || s.AnonymousBytes <= 0 ||
			s.CPUPerEvent <= 0 {
			t.Errorf("size %+v", s)
		}
	}
	r.Print(&table)
	for _, want := range []string{"events/s", "ingest with 200 customers against 40"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("nothing about %s in\n%s", want, table.String())
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
