package sinks_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/service/sinks"
	"github.com/tallystick/tallystick/internal/store"
)

// rounds of chaos are one in an ordinary test run; TALLYSTICK_CHAOS_ROUNDS sets another number for a soak.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("TALLYSTICK_CHAOS_ROUNDS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("TALLYSTICK_CHAOS_ROUNDS=%q is not a number of rounds", text)
	}
	return n
}

// Given receivers that fail in every way and nodes that come and go, when rows are committed meanwhile, then every row
// arrives, in order, and under one id are always the same rows.
func TestEveryRowArrives(t *testing.T) {
	for name, open := range map[string]func(*testing.T) store.Store{"naive": openNaive, "engine": openEngine} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chaos(t, open(t), 300)
		})
	}
}

func TestEveryRowArrivesFromPostgres(t *testing.T) {
	t.Parallel()
	chaos(t, openPostgres(t, database(t)), 120)
}

// chaos plays rounds on one store, each with tenants of its own: sinks of earlier ones have nothing to do.
func chaos(t *testing.T, s store.Store, events int) {
	t.Helper()
	calls, faults := 0, 0
	for round := range rounds(t) {
		c, f := chaosRound(t, s, round, events)
		calls, faults = calls+c, faults+f
	}
	t.Logf("%d attempts to deliver, of which %d met a fault", calls, faults)
	if faults == 0 {
		t.Errorf("%d attempts without a fault prove nothing", calls)
	}
}

// chaosRound is one round. It returns how many attempts there were and how many of them met a fault.
func chaosRound(t *testing.T, s store.Store, round, events int) (calls, faults int) {
	t.Helper()
	flaky, calm := fmt.Sprint("acme-", round), fmt.Sprint("globex-", round)
	w := newWorld(t, s, flaky, calm)
	seed := rand.Uint64()
	t.Logf("round %d, seed %d", round, seed)
	random := rand.New(rand.NewPCG(seed, 1))
	r := newReceiver(func(_ int, d *sinks.Delivery) fault {
		if d.Tenant != flaky {
			return takes
		}
		what := chaosFault(random)
		if what != takes {
			faults++ // under the receiver's lock
		}
		return what
	})
	all := []struct {
		tenant string
		sink   sink.Sink
	}{
		{flaky, w.create(flaky, nil, sinks.Start{Seq: 1})},
		{flaky, w.create(flaky, func(s *sink.Sink) { s.Rows, s.Batch = sink.Events, 7 }, sinks.Start{Now: true})},
		{calm, w.create(calm, func(s *sink.Sink) { s.Types = []string{"usage.*"} }, sinks.Start{Seq: 1})},
	}
	quick := func(o *sinks.RunnerOptions) { o.AttemptTime = 50 * time.Millisecond }
	stop, _ := w.run(r, quick)
	other, _ := w.run(r, quick)
	for i := range events {
		w.record(flaky, fmt.Sprint("a", i))
		if i%3 == 0 {
			w.record(calm, fmt.Sprint("g", i), fmt.Sprint("h", i))
		}
		if i%40 == 39 { // a node goes and comes back
			stop()
			stop = other
			other, _ = w.run(r, quick)
		}
	}
	for i := range all {
		w.expects(r, &all[i].sink, all[i].tenant)
	}
	stop()
	other()
	return r.calls, faults
}

func chaosFault(random *rand.Rand) fault {
	switch random.IntN(10) {
	case 0, 1:
		return fails
	case 2, 3:
		return takesAndCut
	case 4:
		if random.IntN(10) == 0 {
			return hangs
		}
	}
	return takes
}
