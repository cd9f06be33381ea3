package versus

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// Two stages, each ended by a kill in the middle of writing; what was acknowledged is there when the next child opens.
func TestGrowth(t *testing.T) {
	dir := t.TempDir()
	var progress, table bytes.Buffer
	g, err := RunGrowth(context.Background(),
		GrowthOptions{First: 200, Keys: 500, Measure: 300, Batch: 10, Dir: dir, Progress: &progress})
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Stages) != 2 || strings.Count(progress.String(), "opened again") != 2 {
		t.Fatalf("%d stages:\n%s", len(g.Stages), progress.String())
	}
	for _, s := range g.Stages {
		if s.EventsPerSecond <= 0 || s.Beside <= 0 || s.Share != s.EventsPerSecond/s.Beside || s.AnonymousBytes <= 0 ||
			s.JournalPerEvent <= 0 || s.ReopenSeconds <= 0 || s.CPUPerEvent <= 0 {
			t.Errorf("stage %+v", s)
		}
	}
	if g.Stages[0].Keys < 200 || g.Stages[1].Keys <= g.Stages[0].Keys+300 {
		t.Errorf("stages at %d and %d keys", g.Stages[0].Keys, g.Stages[1].Keys)
	}
	g.Print(&table)
	for _, want := range []string{"events/s", "start after kill -9 with ", "disk per event"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("nothing about %s in\n%s", want, table.String())
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A store that lost what it acknowledged fails the proof.
func TestGrowthProofFindsALoss(t *testing.T) {
	ctx := context.Background()
	job := growthJob{Dir: t.TempDir()}
	var said bytes.Buffer
	if err := newChild(job, bufio.NewScanner(strings.NewReader("")), &said).run(ctx); err != nil {
		t.Fatal(err)
	}
	first := said.String()
	if !strings.Contains(first, "opened") || strings.Contains(first, "proved") {
		t.Errorf("the child said %s", first)
	}
	job.Hour = time.Now().Add(-time.Hour) // not the first child: the tenants are there
	job.Prove = &proof{Stream: 3, Tenant: 1, Before: 40}
	if err := newChild(job, bufio.NewScanner(strings.NewReader("")), &said).run(ctx); err == nil ||
		!strings.Contains(err.Error(), "40 were counted") {
		t.Errorf("error %v", err)
	}
}

func TestStages(t *testing.T) {
	for _, c := range []struct {
		first, last int64
		want        []int64
	}{
		{10, 1000, []int64{10, 100, 1000}},
		{10, 50, []int64{10, 50}},
		{10, 10, []int64{10}},
		{10, 3, []int64{3}},
	} {
		if got := stages(c.first, c.last); !slices.Equal(got, c.want) {
			t.Errorf("from %d to %d: %v", c.first, c.last, got)
		}
	}
}

func TestWindow(t *testing.T) {
	for _, c := range []struct{ least, keys, want int64 }{{300, 500, 300}, {3, 15, 3}, {3, 100, 20}} {
		if got := window(c.least, c.keys); got != c.want {
			t.Errorf("at least %d at %d keys: %d", c.least, c.keys, got)
		}
	}
}

func TestAnonymousMemory(t *testing.T) {
	if kib, err := anonymousKiB([]byte("VmRSS:\t 99 kB\nRssAnon:\t  1234 kB\nRssFile:\t 7 kB\n")); err != nil ||
		kib != 1234 {
		t.Errorf("%d, %v", kib, err)
	}
	if _, err := anonymousKiB([]byte("VmRSS: 99 kB\n")); err == nil {
		t.Error("a figure out of nothing")
	}
}

func TestCommandIsUsedWrong(t *testing.T) {
	for _, args := range [][]string{{"--only", "oracle"}, {"--nonsense"}, {"growth", "--keys", "0"},
		{"customers", "--customers", "3"}, {growthCommand, "{"}, {callerCommand, "{"}, {"stray"}} {
		var out bytes.Buffer
		if code := Main(args, &out, &out); code != 2 {
			t.Errorf("%v: exit %d: %s", args, code, out.String())
		}
	}
}

func TestChildrenRefuseWhatIsNoJob(t *testing.T) {
	for _, name := range []string{growthCommand, customersCommand, callerCommand, sinksServerCommand} {
		for _, job := range []string{"", "\n", "{\n", "[]\n", "go\n"} {
			c := newCommand()
			c.SetArgs([]string{name})
			c.SetIn(strings.NewReader(job))
			c.SetOut(io.Discard)
			c.SetErr(io.Discard)
			var wrong *usageError
			if err := c.Execute(); !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), "job: ") {
				t.Errorf("%s of %q: %v", name, job, err)
			}
		}
	}
}
