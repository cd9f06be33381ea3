package versus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/kafkatest"
	"github.com/tallystick/tallystick/internal/load"
)

// The children of growth and fairness are this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{growthCommand, customersCommand, callerCommand, slowServerCommand,
		slowCommand, sinksServerCommand}, os.Args[1]) {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	code := m.Run()
	if err := kafkatest.Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// tiny is a run in which every submitter sends one batch.
func tiny(t *testing.T) Options {
	return Options{Batches: []int{1, 30}, Submitters: []int{5}, Repetitions: 2, CellTime: 1, CellEvents: 300,
		Customers: 40, Dir: t.TempDir(), Fleeting: true}
}

func TestEveryContenderInEveryCell(t *testing.T) {
	var progress bytes.Buffer
	o := tiny(t)
	o.Progress = &progress
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(all()) * 2; len(r.Rates) != want || strings.Count(progress.String(), "\n") != 2*want {
		t.Errorf("%d rates, want %d; progress:\n%s", len(r.Rates), want, progress.String())
	}
	for _, rate := range r.Rates {
		if len(rate.EventsPerSecond) != 2 || rate.Median <= 0 || rate.Latency[0].Max <= 0 {
			t.Errorf("%s %s: %+v", rate.Contender, rate.Cell, rate)
		}
	}
	if r.Disk.JournalPerEvent <= 0 || r.Disk.KeysPerEvent <= 0 || r.Disk.Events < 300 {
		t.Errorf("disk: %+v", r.Disk)
	}
	if r.Reads.Reads != 300 || r.Reads.Latency.P50 <= 0 {
		t.Errorf("reads: %+v", r.Reads)
	}
	var table bytes.Buffer
	r.Print(&table)
	for _, want := range append(names(), "30x5", "disk per event", "counter read", "PostgreSQL "+r.Postgres) {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table says nothing of %s:\n%s", want, table.String())
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A contender that loses or doubles events fails its cell, whichever it is.
func TestWrongCountsAreFound(t *testing.T) {
	ctx := context.Background()
	w, err := load.NewWorkload(load.Shape{Tenants: tenants, Meters: meters, Customers: 20, DuplicateRatio: duplicate})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{o: tiny(t), w: w, dir: t.TempDir()}
	if b.cluster, err = startCluster(ctx, true); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range all() {
		t.Run(c.name, func(t *testing.T) {
			s, err := c.open(ctx, b, Cell{20, 3})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.close(); err != nil {
					t.Error(err)
				}
			}()
			sent, streams, err := b.drive(ctx, s, 20, 3, 1, time.Nanosecond)
			if err != nil {
				t.Fatal(err)
			}
			if sent.events != 60 || sent.requests != 3 {
				t.Errorf("sent %+v", sent)
			}
			if err := s.check(ctx, streams, sent); err != nil {
				t.Errorf("the right count: %v", err)
			}
			if c.name != bareName && c.name != decodeName { // which have no verdicts
				checkVerdicts(ctx, t, s, w.NewStream(0))
			}
			more := sent
			more.requests++
			streams[1].Fill(&load.Batch{}, 20)
			if s.check(ctx, streams, more) == nil {
				t.Error("a lost batch is not missed")
			}
			fewer := sent
			fewer.requests--
			if s.check(ctx, streams[2:], fewer) == nil {
				t.Error("two batches too many are not noticed")
			}
		})
	}
}

// checkVerdicts sends what was sent before: it must not pass for new, and must pass for known.
func checkVerdicts(ctx context.Context, t *testing.T, s subject, sentBefore *load.Stream) {
	t.Helper()
	submit, err := s.submitter(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var batch load.Batch
	sentBefore.Fill(&batch, 5)
	if submit(&batch) == nil {
		t.Error("known events pass for new ones")
	}
	batch.Fresh, batch.Duplicates = 0, 5
	if err := submit(&batch); err != nil {
		t.Errorf("known events: %v", err)
	}
}

func TestOnly(t *testing.T) {
	o, err := ParseOnly(" engine, 1x64,pg-set ,100x1")
	if err != nil {
		t.Fatal(err)
	}
	var chosen []string
	for _, c := range o.contenders() {
		chosen = append(chosen, c.name)
	}
	if !slices.Equal(chosen, []string{pgSetName, engineName}) || !o.cell(Cell{1, 64}) || o.cell(Cell{64, 1}) ||
		o.extras() {
		t.Errorf("chosen %v of %+v", chosen, o)
	}
	if o, err := ParseOnly(""); err != nil || len(o.contenders()) != len(all()) || !o.cell(Cell{7, 7}) || !o.extras() {
		t.Errorf("everything is %+v, %v", o, err)
	}
	for _, wrong := range []string{"oracle", "1x", "0x1", "1x64,x"} {
		if _, err := ParseOnly(wrong); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}
