package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

func TestWhoSendsLittleIsKnown(t *testing.T) {
	a, b, c := newBook(1, "a"), newBook(2, "b"), newBook(3, "c")
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	for name, k := range map[string]struct {
		calls []calmCall
		now   time.Duration
		want  [3]bool // beside a, b, c
	}{
		"nobody":                       {nil, 0, [3]bool{false, false, false}},
		"one":                          {[]calmCall{{a, at(0)}}, calmFor, [3]bool{false, true, true}},
		"one, long ago":                {[]calmCall{{a, at(0)}}, calmFor + 1, [3]bool{false, false, false}},
		"one that goes on":             {[]calmCall{{a, at(0)}, {a, at(calmStep + 1)}}, calmFor + calmStep, [3]bool{false, true, true}},
		"two":                          {[]calmCall{{a, at(0)}, {b, at(1)}}, 2, [3]bool{true, true, true}},
		"the second goes on":           {[]calmCall{{a, at(0)}, {b, at(1)}, {b, at(calmFor)}}, calmFor + 1, [3]bool{true, false, true}},
		"a third is one of many":       {[]calmCall{{a, at(0)}, {b, at(1)}, {c, at(2)}}, 3, [3]bool{true, true, true}},
		"a third where one went":       {[]calmCall{{a, at(0)}, {b, at(calmFor)}, {c, at(calmFor + 1)}}, calmFor + 2, [3]bool{true, true, true}},
		"noted less than a step after": {[]calmCall{{a, at(0)}, {a, at(calmStep)}}, calmFor + 1, [3]bool{false, false, false}},
	} {
		var seen calm
		for _, call := range k.calls {
			seen.note(call.book, call.at)
		}
		if got := [3]bool{seen.beside(a, at(k.now)), seen.beside(b, at(k.now)), seen.beside(c, at(k.now))}; got != k.want {
			t.Errorf("%s: %v instead of %v", name, got, k.want)
		}
	}
}

// Given a large batch on its way to the disk and another tenant that sends little, when the same tenant sends a second large batch, then
// it waits for the first and can be given up without a trace, and small ones pass by.
func TestLargeBatchesGoOneAtATimeBesideSmallOnes(t *testing.T) {
	unhung(t, "large batches", func() error {
		d := newSlowDisk()
		e := mustOpen(t, tiny(d.files(vfs.NewMem()), storetest.NewClock().Now))
		for _, id := range []string{"much", "little"} {
			if err := storetest.Create(e, id, storetest.NewMeter("calls", meter.Sum)); err != nil {
				return err
			}
		}
		if got := record(e, "little", storetest.Fact("x", "calls", "c", storetest.Ago(0), "1")); got.err != nil {
			return got.err
		}
		little := e.calm[0].Load()
		if little == nil || little.book.id != "little" {
			t.Fatalf("a single fact was noted as %+v", little)
		}
		e.calm[0].Store(&calmCall{little.book, time.Now().Add(time.Hour)}) // however slow the test
		much, err := e.book("much")
		if err != nil {
			return err
		}
		d.set(true)
		first := make(chan answered, 1)
		go func() { first <- record(e, "much", many("first")...) }()
		d.busy()
		if len(much.largeTurn) != 1 {
			t.Error("a large batch has no turn")
		}
		much.largeWaiting.Store(maxQueuedTenantFacts - smallBatch)
		if got := record(e, "much", many("third")...); !problem.Is(got.err, problem.Busy) {
			t.Errorf("one more than may wait: %v", got.err)
		}
		much.largeWaiting.Store(0)
		ctx, giveUp := context.WithCancel(context.Background())
		second := make(chan error, 1)
		go func() {
			_, err := e.Record(ctx, store.Batch{Tenant: "much", Events: many("second")})
			second <- err
		}()
		giveUp()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("a batch that was given up: %v", err)
		}
		small := make(chan answered, 1)
		go func() { small <- record(e, "much", storetest.Fact("y", "calls", "c", storetest.Ago(0), "1")) }()
		d.set(false)
		for _, got := range []answered{<-first, <-small, record(e, "much", many("second")...)} {
			if got.err != nil || strings.Contains(got.said, "duplicate") {
				t.Errorf("%.100s, %v", got.said, got.err)
			}
		}
		much.largeTurn <- struct{}{} // the turn is given back
		if n := much.largeWaiting.Load(); n != 0 {
			t.Errorf("%d facts still wait for a turn", n)
		}
		return e.Close()
	})
}

// Given a tenant that sends little, when another's large batch took some time, then the next has its turn as long after, or a little
// while after if it took very long.
func TestALargeBatchIsFollowedByARest(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: 0, time.Millisecond: time.Millisecond, longestRest: longestRest, time.Minute: longestRest} {
		synctest.Test(t, func(t *testing.T) {
			var seen calm
			much := newBook(1, "much")
			enter := func() (leave func()) {
				seen.note(newBook(2, "little"), time.Now())
				leave, err := seen.enter(t.Context(), much, smallBatch+1)
				if err != nil {
					t.Error(err)
				}
				return leave
			}
			leave := enter()
			<-time.After(took)
			leave()
			began := time.Now()
			enter()()
			if rest := time.Since(began); rest != want {
				t.Errorf("after %v the next had its turn after %v, not %v", took, rest, want)
			}
			much.largeTurn <- struct{}{} // the turn of what took no time was given back at once
		})
	}
}

func many(name string) []usage.Event {
	out := make([]usage.Event, smallBatch+1)
	for i := range out {
		out[i] = storetest.Fact(fmt.Sprint(name, i), "calls", "c", storetest.Ago(0), "1")
	}
	return out
}
