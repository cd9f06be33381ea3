package fairness

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
)

func TestWhoSendsLittleIsKnown(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	for name, k := range map[string]struct {
		calls []call
		now   time.Duration
		want  [3]bool // beside a, b, c
	}{
		"nobody":        {nil, 0, [3]bool{false, false, false}},
		"one":           {[]call{{"a", at(0)}}, calmFor, [3]bool{false, true, true}},
		"one, long ago": {[]call{{"a", at(0)}}, calmFor + 1, [3]bool{false, false, false}},
		"one that goes on": {[]call{{"a", at(0)}, {"a", at(calmStep + 1)}}, calmFor + calmStep,
			[3]bool{false, true, true}},
		"two": {[]call{{"a", at(0)}, {"b", at(1)}}, 2, [3]bool{true, true, true}},
		"the second goes on": {[]call{{"a", at(0)}, {"b", at(1)}, {"b", at(calmFor)}}, calmFor + 1,
			[3]bool{true, false, true}},
		"a third is one of many": {[]call{{"a", at(0)}, {"b", at(1)}, {"c", at(2)}}, 3,
			[3]bool{true, true, true}},
		"a third where one went": {[]call{{"a", at(0)}, {"b", at(calmFor)}, {"c", at(calmFor + 1)}}, calmFor + 2,
			[3]bool{true, true, true}},
		"noted less than a step after": {[]call{{"a", at(0)}, {"a", at(calmStep)}}, calmFor + 1,
			[3]bool{false, false, false}},
	} {
		var seen Turns
		for _, c := range k.calls {
			seen.note(c.tenant, c.at)
		}
		if got := [3]bool{seen.beside("a", at(k.now)), seen.beside("b", at(k.now)),
			seen.beside("c", at(k.now))}; got != k.want {
			t.Errorf("%s: %v instead of %v", name, got, k.want)
		}
	}
}

const large = SmallBatch + 1

// bubble runs a story in a time of its own.
func bubble(t *testing.T, story func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t}
		story(s)
		synctest.Wait()
		<-time.After(longestRest)
		synctest.Wait()
		if len(s.much) != 0 {
			t.Errorf("lines are left: %+v", s.much)
		}
	})
}

type scene struct {
	*testing.T
	Turns
}

func (s *scene) little() { s.enter("little", 1)() }

func (s *scene) enter(tenant string, facts int) (leave func()) {
	s.Helper()
	leave, err := s.Enter(s.Context(), tenant, facts)
	if err != nil {
		s.Fatal(err)
	}
	return leave
}

// start enters beside the story; what it sends on the channel ends the turn.
func (s *scene) start(tenant string) <-chan func() {
	in := make(chan func(), 1)
	go func() { in <- s.enter(tenant, large) }()
	synctest.Wait()
	return in
}

// Given a tenant that sends little, when another's large batch has its turn, then its next waits, a third tenant's does
// not, and small calls pass by.
func TestLargeBatchesGoOneAtATimeBesideSmallOnes(t *testing.T) {
	bubble(t, func(s *scene) {
		s.little()
		leave := s.enter("much", large)
		second, other := s.start("much"), s.start("other")
		if len(second) != 0 || len(other) != 1 {
			s.Errorf("%d of the same tenant and %d of another have their turn", len(second), len(other))
		}
		s.little()
		s.enter("much", SmallBatch)()
		leave()
		(<-second)()
		(<-other)()
	})
}

// Given nobody who sends little, or only the tenant itself, then there are no turns.
func TestWithoutSmallCallsOfOthersThereAreNoTurns(t *testing.T) {
	bubble(t, func(s *scene) {
		for range 3 {
			s.enter("much", large)
		}
		s.enter("much", 1)()
		for range 3 {
			s.enter("much", large)
		}
		s.little()
		<-time.After(calmFor + 1)
		for range 3 {
			s.enter("much", large)
		}
	})
}

// Given a batch that waits for its turn, when its caller gives up, then it is gone without a trace and the next has the
// turn.
func TestATurnCanBeGivenUp(t *testing.T) {
	bubble(t, func(s *scene) {
		s.little()
		leave := s.enter("much", large)
		ctx, giveUp := context.WithCancel(s.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := s.Enter(ctx, "much", large)
			gone <- err
		}()
		synctest.Wait()
		third := s.start("much")
		giveUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			s.Errorf("given up: %v", err)
		}
		leave()
		(<-third)()
	})
}

// Given as many facts as may wait, when one more batch comes, then it is refused, and only until they wait no longer.
func TestWhatWaitsIsBounded(t *testing.T) {
	bubble(t, func(s *scene) {
		s.little()
		leave := s.enter("much", large)
		var waiting []<-chan func()
		for range maxWaiting / large {
			waiting = append(waiting, s.start("much"))
		}
		if _, err := s.Enter(s.Context(), "much", large); !problem.Is(err, problem.Busy) {
			s.Errorf("one more than may wait: %v", err)
		}
		s.enter("other", large)()        // has a line of its own
		s.enter("whole", maxWaiting+1)() // more than may wait, but nobody waits before it
		leave()
		for _, w := range waiting {
			(<-w)()
		}
		s.little()
		s.enter("much", large)()
	})
}

// Given a tenant that sends little, when another's large batch took some time, then the next has its turn after twice
// as long, or a little while after if it took very long.
func TestALargeBatchIsFollowedByARest(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: 0, time.Millisecond: 2 * time.Millisecond,
		longestRest / 2: longestRest, time.Minute: longestRest} {
		bubble(t, func(s *scene) {
			var waited []time.Duration
			s.Waited = func(d time.Duration) { waited = append(waited, d) }
			s.little()
			leave := s.enter("much", large)
			<-time.After(took)
			leave()
			s.little()
			s.enter("much", large)()
			if !slices.Equal(waited, []time.Duration{0, want}) {
				s.Errorf("the first took %v; they had their turns after %v, want %v", took, waited, want)
			}
		})
	}
}
