package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// clock is a Limiter's time, moved by the test.
type clock struct{ now time.Time }

func newLimiter(o Options) (*Limiter, *clock) {
	c := &clock{time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)}
	o.Now = func() time.Time { return c.now }
	return New(o), c
}

func key(r Rate) Bucket { return Bucket{By: APIKey, Name: "k", Rate: r} }

func TestBuckets(t *testing.T) {
	type step struct {
		after time.Duration
		cost  Cost
		wait  time.Duration // within a microsecond; zero: it passes
		left  int64
	}
	for name, c := range map[string]struct {
		rate  Rate
		steps []step
	}{
		"a second's worth at once, then at the rate": {Rate{Requests: 2}, []step{
			{0, Cost{Requests: 1}, 0, 1}, {0, Cost{Requests: 1}, 0, 0},
			{0, Cost{Requests: 1}, 500 * time.Millisecond, 0},
			{500 * time.Millisecond, Cost{Requests: 1}, 0, 0}, {time.Hour, Cost{Requests: 1}, 0, 1},
		}},
		"a batch larger than the bucket passes when it is full, and leaves a debt": {Rate{Events: 100}, []step{
			{0, Cost{Events: 250}, 0, 0}, {time.Second, Cost{Events: 1}, 510 * time.Millisecond, 0},
			{1500 * time.Millisecond, Cost{Events: 250}, 0, 0}, // the debt is paid and the bucket full
		}},
		"what is refused takes nothing": {Rate{Requests: 10, Bytes: 100}, []step{
			{0, Cost{Requests: 1, Bytes: 60}, 0, 40}, {0, Cost{Requests: 1, Bytes: 60}, 200 * time.Millisecond, 40},
			{0, Cost{Requests: 1, Bytes: 40}, 0, 0},
		}},
		"no limit in a dimension": {Rate{Requests: 1}, []step{{0, Cost{Requests: 1, Events: 1 << 40, Bytes: 1 << 40}, 0,
			0}, {time.Second, Cost{Requests: 1}, 0, 0}}},
		"a cost of nothing passes in debt": {Rate{Events: 10}, []step{
			{0, Cost{Events: 50}, 0, 0}, {0, Cost{Requests: 1}, 0, 0}, {0, Cost{}, 0, 0},
		}},
		"a clock that goes backward gives nothing": {Rate{Requests: 1}, []step{
			{0, Cost{Requests: 1}, 0, 0}, {-time.Hour, Cost{Requests: 1}, time.Second, 0},
			{time.Second, Cost{Requests: 1}, 0, 0},
		}},
	} {
		l, at := newLimiter(Options{})
		for i, s := range c.steps {
			at.now = at.now.Add(s.after)
			o := l.Take(t.Context(), s.cost, key(c.rate))
			if o.OK() != (s.wait == 0) || (o.Wait-s.wait).Abs() > time.Microsecond || o.Standing.Remaining != s.left {
				t.Errorf("%s: step %d: %+v; want %s, %d left", name, i, o, s.wait, s.left)
			}
		}
	}
}

// Two buckets are asked together: what one refuses is not taken from the other, whichever comes first.
func TestAllOrNone(t *testing.T) {
	mine, ours := Bucket{By: APIKey, Name: "a.1", Rate: Rate{Requests: 10}},
		Bucket{By: Tenant, Name: "a", Rate: Rate{Requests: 3, Events: 5}}
	for _, from := range [][]Bucket{{mine, ours}, {ours, mine}} {
		var reported []string
		l, at := newLimiter(Options{Refused: func(by By, of Dimension) {
			reported = append(reported, fmt.Sprint(by, " ", of))
		}})
		left := func(b Bucket) int64 {
			o := l.Take(t.Context(), Cost{}, b)
			return o.Standing.Remaining
		}
		for range 3 {
			if o := l.Take(t.Context(), Cost{Requests: 1}, from...); !o.OK() {
				t.Fatalf("%+v", o)
			}
		}
		o := l.Take(t.Context(), Cost{Requests: 1}, from...)
		if o.OK() || o.By != Tenant || o.Of != Requests || left(mine) != 7 || left(ours) != 0 {
			t.Errorf("%+v with %d and %d left", o, left(mine), left(ours))
		}
		if o.Standing.Limit != 3 || o.Standing.Remaining != 0 {
			t.Errorf("the standing is not that of the nearest end: %+v", o.Standing)
		}
		at.now = at.now.Add(time.Second)
		if o := l.Take(t.Context(), Cost{Events: 6}, from...); !o.OK() || o.Standing.Limit != 5 {
			t.Errorf("%+v", o)
		}
		if o := l.Take(t.Context(), Cost{Events: 1}, from...); o.OK() || o.Of != Events {
			t.Errorf("%+v", o)
		}
		if fmt.Sprint(reported) != "[tenant requests tenant events]" {
			t.Errorf("reported %v", reported)
		}
	}
}

// The id of a tenant may look like that of another's key.
func TestOwnersAreKeptApart(t *testing.T) {
	l, _ := newLimiter(Options{})
	for _, by := range []By{APIKey, Tenant, IdempotencyKey} {
		if o := l.Take(t.Context(), Cost{Requests: 1},
			Bucket{By: by, Name: "acme.1", Rate: Rate{Requests: 1}}); !o.OK() {
			t.Errorf("%s found another's bucket: %+v", by, o)
		}
	}
}

func TestAChangedRateBeginsAnew(t *testing.T) {
	l, _ := newLimiter(Options{})
	l.Take(t.Context(), Cost{Requests: 1, Events: 1000}, key(Rate{Requests: 1}))
	if o := l.Take(t.Context(), Cost{Requests: 1, Events: 1}, key(Rate{Requests: 5, Events: 5})); !o.OK() ||
		o.Standing.Remaining != 4 {
		t.Errorf("%+v", o)
	}
}

func TestWhoWaitsAsLongAsToldPasses(t *testing.T) {
	l, at := newLimiter(Options{})
	r := key(Rate{Requests: 7, Events: 1000, Bytes: 333})
	for i := range 1000 {
		c := Cost{Requests: 1, Events: int64(i % 3000), Bytes: int64(i % 700)}
		o := l.Take(t.Context(), c, r)
		if o.OK() {
			continue
		}
		at.now = at.now.Add(o.Wait)
		if again := l.Take(t.Context(), c, r); !again.OK() {
			t.Fatalf("request %d waited %s and was refused", i, o.Wait)
		}
	}
}

func TestNamesAreBounded(t *testing.T) {
	l, _ := newLimiter(Options{MaxNames: 100})
	r := Rate{Requests: 1}
	for i := range 10_000 {
		l.Take(t.Context(), Cost{Requests: 1}, Bucket{By: APIKey, Name: fmt.Sprint(i), Rate: r})
		l.Take(t.Context(), Cost{Requests: 1}, Bucket{By: APIKey, Name: "regular", Rate: r})
	}
	if len(l.named) != 100 || l.used.Len() != 100 {
		t.Errorf("%d names, %d in the list", len(l.named), l.used.Len())
	}
	if o := l.Take(t.Context(), Cost{Requests: 1}, Bucket{By: APIKey, Name: "regular", Rate: r}); o.OK() {
		t.Error("one in use was forgotten for names that were sprayed")
	}
}

func TestManyAtOnceTakeNoMoreThanThereIs(t *testing.T) {
	l, _ := newLimiter(Options{})
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 100 {
				if o := l.Take(t.Context(), Cost{Requests: 1}, key(Rate{Requests: 500}),
					Bucket{By: Tenant, Name: "t", Rate: Rate{Requests: 600}}); o.OK() {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if passed.Load() != 500 {
		t.Errorf("%d passed, want 500", passed.Load())
	}
}

type sharedFunc func() (time.Duration, error)

func (f sharedFunc) Take(context.Context, Cost, []Bucket) (Outcome, error) {
	wait, err := f()
	return Outcome{Wait: wait, By: APIKey}, err
}

func TestWithoutWhatIsSharedEachNodeGoesOnAlone(t *testing.T) {
	answer, reported, refused := error(nil), 0, 0
	l, _ := newLimiter(Options{
		Shared:  sharedFunc(func() (time.Duration, error) { return time.Second, answer }),
		Alone:   func(error) { reported++ },
		Refused: func(By, Dimension) { refused++ },
	})
	one := key(Rate{Requests: 1})
	if o := l.Take(t.Context(), Cost{Requests: 1}, one); o.OK() || reported != 0 || refused != 1 {
		t.Errorf("what is shared said no: %+v, reported %d, refused %d", o, reported, refused)
	}
	answer = errors.New("gone")
	for i, want := range []bool{true, false} {
		if o := l.Take(t.Context(), Cost{Requests: 1}, one); o.OK() != want || reported != i+1 {
			t.Errorf("request %d alone: %+v, reported %d", i, o, reported)
		}
	}
	if refused != 2 {
		t.Errorf("%d refusals were reported", refused)
	}
}
