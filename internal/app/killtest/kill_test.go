package killtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tallystick/tallystick/client"
)

// defaultCycles of start, load and kill -9 in an ordinary test run; TALLYSTICK_KILL_CYCLES sets another number for a
// soak.
const defaultCycles = 100

func cycles(t *testing.T) int {
	t.Helper()
	text := os.Getenv("TALLYSTICK_KILL_CYCLES")
	if text == "" {
		return defaultCycles
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("TALLYSTICK_KILL_CYCLES=%q is not a number of cycles", text)
	}
	return n
}

// Given a server under load that is killed over and over, when all that was in doubt has been sent again, then every
// fact that was ever acknowledged stands in the ledger once, under the number it was acknowledged with, the counters
// are exactly what was sent, and verify finds nothing to object to.
func TestKilledServerLosesNothingAndCountsNothingTwice(t *testing.T) {
	b := build(t, "--data", filepath.Join(t.TempDir(), "data"))
	p := b.start(t)
	setUp(t, p.ready(t))
	p.stop(t)
	before := b.verify(t)
	m := &memory{facts: map[string]answer{}}
	var all []*sender
	for s := range streams {
		for range senders {
			all = append(all, &sender{stream: s})
		}
	}
	random := rand.New(rand.NewPCG(20261115, 7))
	for range cycles(t) {
		live(t, b, all, m, random)
		m.check(t)
	}

	p = b.start(t)
	m.life++
	c := connect(t, p.ready(t), rootKey, client.WithTenant(tenant))
	settle(t, c, all, m)
	t.Logf("%d facts over %d lives", len(m.facts), cycles(t))
	checkRows(t, c, m)
	checkLookups(t, c, m, random)
	checkCounters(t, c, all)
	c.CloseIdleConnections()
	p.stop(t)
	if rows := b.verify(t); rows != before+uint64(len(m.facts)) {
		t.Errorf("verify saw %d rows, the ledger should hold %d", rows, before+uint64(len(m.facts)))
	}
}

// setUp makes the tenant and its meter.
func setUp(t *testing.T, url string) {
	t.Helper()
	c := connect(t, url, rootKey)
	if _, err := c.CreateTenant(context.Background(), client.NewTenant{ID: tenant}); err != nil {
		t.Fatal(err)
	}
	c.CloseIdleConnections()
	c = connect(t, url, rootKey, client.WithTenant(tenant))
	if _, err := c.CreateMeter(context.Background(), client.Meter{Slug: meterName, Aggregation: "sum"}); err != nil {
		t.Fatal(err)
	}
	c.CloseIdleConnections()
}

// settle sends what the senders have no answer to, and brings those of a stream to the same place.
func settle(t *testing.T, c *client.Client, all []*sender, m *memory) {
	t.Helper()
	last := map[int]int{}
	for _, s := range all {
		last[s.stream] = max(last[s.stream], s.next)
	}
	for _, s := range all {
		for ; s.next <= last[s.stream]; s.next++ {
			verdicts, _, err := deliver(context.Background(), c, unitAt(s.stream, s.next))
			if err != nil {
				t.Fatal(err)
			}
			m.heard(verdicts)
		}
	}
	m.check(t)
}

// checkRows reads the whole ledger: each fact once, where it was acknowledged.
func checkRows(t *testing.T, c *client.Client, m *memory) {
	t.Helper()
	seen := map[string]bool{}
	last := uint64(0)
	for row, err := range c.AllEvents(context.Background(), client.EventFilter{Paging: client.Paging{Limit: 1000}}) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[row.ID] || m.facts[row.ID].seq != row.Seq || row.Seq <= last {
			t.Fatalf("row %d after %d is %s (seen before: %t), acknowledged as row %d", row.Seq, last, row.ID,
				seen[row.ID], m.facts[row.ID].seq)
		}
		seen[row.ID], last = true, row.Seq
	}
	if len(seen) != len(m.facts) {
		t.Errorf("%d facts were acknowledged, the ledger has %d", len(m.facts), len(seen))
	}
}

// maxLookups bounds the single reads; checkRows has seen all rows already.
const maxLookups = 2000

func checkLookups(t *testing.T, c *client.Client, m *memory, random *rand.Rand) {
	t.Helper()
	for name, fact := range m.facts {
		if random.IntN(len(m.facts)) >= maxLookups {
			continue
		}
		row, err := c.Event(context.Background(), name)
		if err != nil || row.Seq != fact.seq {
			t.Fatalf("event %s: %+v, %v; acknowledged as row %d", name, row, err, fact.seq)
		}
	}
}

// checkCounters compares with what the streams add up to.
func checkCounters(t *testing.T, c *client.Client, all []*sender) {
	t.Helper()
	type total struct{ count, sum int64 }
	want := map[string]total{}
	done := map[int]bool{}
	for _, s := range all {
		if done[s.stream] {
			continue
		}
		done[s.stream] = true
		for i := range unitAt(s.stream, s.next).first {
			w := want[customer(i)]
			want[customer(i)] = total{w.count + 1, w.sum + int64(quantity(i))}
		}
	}
	for counter, err := range c.AllCounters(context.Background(), client.CounterFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		w := want[counter.Customer]
		if counter.Count != w.count || string(counter.Total) != fmt.Sprint(w.sum) || counter.Sum != counter.Total {
			t.Errorf("counter of %s: %d facts, total %s; sent %d facts, %d", counter.Customer, counter.Count,
				counter.Total, w.count, w.sum)
		}
		delete(want, counter.Customer)
	}
	if len(want) > 0 {
		t.Errorf("no counters for %v", want)
	}
}
