package redis

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/internal/redistest"
	"github.com/tallystick/tallystick/internal/service/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, s *redistest.Server) *Limits {
	t.Helper()
	l, err := Open(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func key(name string, r limit.Rate) limit.Bucket {
	return limit.Bucket{By: limit.APIKey, Name: name, Rate: r}
}

func mustTake(t *testing.T, l *Limits, c limit.Cost, from ...limit.Bucket) limit.Outcome {
	t.Helper()
	o, err := l.Take(t.Context(), c, from)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// huge is far more than a second brings.
const huge = 10_000

func TestSharedBuckets(t *testing.T) {
	l := open(t, redistest.Start(t))
	k := key("k", limit.Rate{Requests: 1000, Events: 10, Bytes: 1 << 20})
	o := mustTake(t, l, limit.Cost{Requests: 1, Events: 4}, k)
	if !o.OK() || o.Standing != (limit.Standing{Limit: 10, Remaining: 6, Reset: 400 * time.Millisecond}) {
		t.Fatalf("%+v", o)
	}
	if o := mustTake(t, l, limit.Cost{Events: 10}, key("other", k.Rate)); !o.OK() {
		t.Errorf("another name: %+v", o)
	}
	for o.Wait = 1; !o.OK(); { // the bucket fills up: then even what is larger passes, and leaves a debt
		o = mustTake(t, l, limit.Cost{Requests: 1, Events: huge}, k)
	}
	if o = mustTake(t, l, limit.Cost{Events: 1}, k); o.Wait < time.Minute || o.By != limit.APIKey ||
		o.Of != limit.Events || o.Standing.Remaining != 0 {
		t.Errorf("in debt: %+v", o)
	}
	if o = mustTake(t, l, limit.Cost{Requests: 1}, k); !o.OK() {
		t.Errorf("another dimension: %+v", o)
	}
}

// What the tenant's bucket refuses is not taken from the key's, and nothing is owed in a dimension that was not
// limited.
func TestAllOrNone(t *testing.T) {
	l := open(t, redistest.Start(t))
	first, second := key("a.1", limit.Rate{Bytes: 1}), key("a.2", limit.Rate{Bytes: 1})
	ours := limit.Bucket{By: limit.Tenant, Name: "a", Rate: limit.Rate{Events: 1}}
	if o := mustTake(t, l, limit.Cost{Events: huge, Bytes: 1}, first, ours); !o.OK() {
		t.Fatalf("%+v", o)
	}
	o := mustTake(t, l, limit.Cost{Events: 1, Bytes: huge}, second, ours)
	if o.OK() || o.By != limit.Tenant || o.Of != limit.Events || o.Standing.Limit != 1 || o.Standing.Remaining != 0 {
		t.Errorf("%+v", o)
	}
	if o := mustTake(t, l, limit.Cost{}, second); o.Standing.Remaining != 1 {
		t.Errorf("what was refused was taken: %+v", o)
	}
	if o := mustTake(t, l, limit.Cost{Events: 1}, key("a.1", limit.Rate{Events: 1})); o.Wait > time.Second {
		t.Errorf("events of before they were limited are owed: %+v", o)
	}
}

func TestNodesTogetherTakeNoMoreThanThereIs(t *testing.T) {
	s := redistest.Start(t)
	k := key("k", limit.Rate{Events: 10, Bytes: 1 << 40})
	var passed atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range 4 {
		l := open(t, s)
		for range 8 {
			wg.Go(func() {
				for range 50 {
					if o, err := l.Take(t.Context(), limit.Cost{Events: 1, Bytes: 1}, []limit.Bucket{k}); err == nil &&
						o.OK() {
						passed.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	if most := 10 + 10*time.Since(began).Seconds(); passed.Load() < 10 || float64(passed.Load()) > most {
		t.Errorf("%d passed, at most %f could", passed.Load(), most)
	}
}

func TestAServerThatIsGoneIsLeftAloneAndFoundAgain(t *testing.T) {
	s := redistest.Start(t)
	l := open(t, s)
	one := func() error {
		_, err := l.Take(t.Context(), limit.Cost{Requests: 1}, []limit.Bucket{key("k", limit.Rate{Requests: 1000})})
		return err
	}
	if err := one(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := one(); err == nil || errors.Is(err, ErrAway) {
		t.Fatalf("the first after its end: %v", err)
	}
	if err := one(); !errors.Is(err, ErrAway) {
		t.Fatalf("the second: %v", err)
	}
	s.Begin()
	for one() != nil {
	}
}

func TestAnswersThatMakeNoSense(t *testing.T) {
	from := []limit.Bucket{key("k", limit.Rate{Requests: 1})}
	for _, bad := range [][]string{nil, {"1"}, {"x", "1", "1", "1", "1", "1"}, {"1", "2", "1", "0", "0", "0"},
		{"1", "0", "1", "0", "0", "0"}, {"1", "1", "4", "0", "0", "0"}} {
		if o, err := outcome(bad, from); err == nil {
			t.Errorf("%q was read as %+v", bad, o)
		}
	}
}

func TestBadURLsAreNotRepeated(t *testing.T) {
	for _, url := range []string{"", "http://x", "redis://user:secret@host:port:1/x"} {
		if _, err := Open(url); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
}
