package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// Given facts in more sections than are remembered, when they are corrected in any order, then the caller reads each
// section once and deciding none, nor any counter, however cold they all are.
func TestABatchBringsItsTargetsAlong(t *testing.T) {
	const sections, facts = 5, 40
	e := withFacts(t, vfs.NewMem(), 1, sections, facts)
	var events []usage.Event
	for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(sections * facts / 2) {
		// The larger one of its counter stays so: the counter's rows are not needed.
		target := factName(i%sections, i/sections*2+1)
		events = append(events, storetest.Correction("raise-"+target, target, "5"))
	}
	checkpointNow(t, e)
	forgetAll(e)
	cold := figure(t, e, "counters_read_deciding_total")
	mustKeep(t, e, events)
	for name, want := range map[string]float64{"sections_fetched_total": sections, "sections_read_deciding_total": 0,
		"counters_read_deciding_total": cold} {
		if n := figure(t, e, name); n != want {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}
	if n := e.waiting.Load(); n != 0 {
		t.Errorf("room for %d counters is still taken", n)
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}

// Given a batch that has read its targets and waits to be decided, whatever happens meanwhile, then its corrections are
// decided by what is true when their turn comes.
func TestTargetsThatWereBroughtAlong(t *testing.T) {
	lower := func(id, q string) usage.Event { return storetest.Correction(id, factName(0, 1), q) }
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, e *Engine)
		want      string
	}{
		"nothing": {func(*testing.T, *Engine) {}, "accepted rejected"},
		"another correction takes what is left": {func(t *testing.T, e *Engine) {
			mustKeep(t, e, []usage.Event{lower("first", "-11")})
		}, "rejected rejected"},
		"another raises it": {func(t *testing.T, e *Engine) {
			mustKeep(t, e, []usage.Event{lower("first", "100")})
		}, "accepted accepted"},
		"a checkpoint": {func(t *testing.T, e *Engine) {
			checkpointNow(t, e)
			forgetAll(e)
		}, "accepted rejected"},
		"its meter changes": {func(t *testing.T, e *Engine) {
			err := e.Update(context.Background(), "acme", func(tx store.Tx) error {
				m, err := store.GetMeter(tx, "calls")
				if err != nil {
					return err
				}
				m.Name = "another"
				return storetest.PutMeter(tx, m.Meter)
			})
			if err != nil {
				t.Fatal(err)
			}
		}, "accepted rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			e := withFacts(t, vfs.NewMem(), 1, 1, 4)
			b, err := e.book("acme")
			if err != nil {
				t.Fatal(err)
			}
			w, err := e.prepare(b, "", []usage.Event{lower("waited", "-6"), lower("too", "-6")})
			if err != nil || len(w.targets) != 1 {
				t.Fatalf("brought %d targets along: %v", len(w.targets), err)
			}
			c.meanwhile(t, e)
			if err := e.submit(context.Background(), &b.queued, w); err != nil {
				t.Fatal(err)
			}
			got := []string{w.verdicts[0].Status.String(), w.verdicts[1].Status.String()}
			if !slices.Equal(got, strings.Fields(c.want)) {
				t.Errorf("said %v, want %s", got, c.want)
			}
			e.recycle(w)
			if n := e.waiting.Load(); n != 0 {
				t.Errorf("room for %d counters is still taken", n)
			}
			storetest.CheckLedger(t, e, "acme")
			mustEnd(t, e)
		})
	}
}

// Without room to bring targets along, deciding finds them itself.
func TestNoRoomForTargets(t *testing.T) {
	e := withFacts(t, vfs.NewMem(), 0, 2, 10)
	e.waiting.Add(maxFetched)
	mustKeep(t, e, fixes(2, 10))
	if n := figure(t, e, "sections_fetched_total"); n != 0 {
		t.Errorf("%v sections were fetched", n)
	}
	if n := e.waiting.Load(); n != maxFetched {
		t.Errorf("room for %d counters is taken, want %d", n, maxFetched)
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}
