package versus

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Two stages, each ended by a kill in the middle of writing; what was acknowledged is there when the next child opens.
func TestGrowth(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "growth.json")
	var out, errOut bytes.Buffer
	code := Main([]string{"growth", "--first", "2000", "--keys", "5000", "--measure", "1500", "--dir", dir, "--json", file}, &out, &errOut)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errOut.String())
	}
	for _, want := range []string{"events/s", "start after kill -9 with ", "disk per event"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nothing about %s in\n%s", want, out.String())
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), `"reopen_seconds"`) != 2 {
		t.Errorf("%v: %s", err, text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A store that lost what it acknowledged fails the proof.
func TestGrowthProofFindsALoss(t *testing.T) {
	ctx := context.Background()
	job := childJob{Dir: t.TempDir()}
	var said bytes.Buffer
	if err := newChild(job, &said).run(ctx); err != nil {
		t.Fatal(err)
	}
	first := said.String()
	if !strings.Contains(first, "opened") || strings.Contains(first, "proved") {
		t.Errorf("the child said %s", first)
	}
	job.Hour = time.Now().Add(-time.Hour) // not the first child: the tenants are there
	job.Prove = &proof{Stream: 3, Tenant: 1, Before: 40}
	if err := newChild(job, &said).run(ctx); err == nil || !strings.Contains(err.Error(), "40 were counted") {
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

func TestAnonymousMemory(t *testing.T) {
	if kib, err := anonymousKiB([]byte("VmRSS:\t 99 kB\nRssAnon:\t  1234 kB\nRssFile:\t 7 kB\n")); err != nil || kib != 1234 {
		t.Errorf("%d, %v", kib, err)
	}
	if _, err := anonymousKiB([]byte("VmRSS: 99 kB\n")); err == nil {
		t.Error("a figure out of nothing")
	}
}

func TestCommandIsUsedWrong(t *testing.T) {
	for _, args := range [][]string{{"--only", "oracle"}, {"--nonsense"}, {"growth", "--keys", "0"}, {childCommand, "{"}, {"stray"}} {
		var out bytes.Buffer
		if code := Main(args, &out, &out); code != 2 {
			t.Errorf("%v: exit %d: %s", args, code, out.String())
		}
	}
}
