package naive_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

func open(now func() time.Time) store.Store {
	return naive.New(naive.Options{Now: now, Kinds: storetest.Kinds()})
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Maker{Open: func(_ *testing.T, now func() time.Time) store.Store { return open(now) }})
}

// Two of the same must agree on every life: the generator and the comparison are sound.
func TestLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := storetest.NewClock()
		storetest.Life(t, func() (oracle, subject store.Store) { return open(clock.Now), open(clock.Now) }, nil, clock)
	})
}

// A suite that cannot fail guards nothing: stores that are broken on purpose must fail the cases that name what they
// break.
func TestSuiteObjects(t *testing.T) {
	for _, broken := range []struct {
		name  string
		spoil func(s store.Store) store.Store
		fails []string
	}{
		{"drops a row", func(s store.Store) store.Store {
			return &seenThrough{s, func(v store.View, _ string) store.View { return dropsRow{v} }}
		}, []string{
			"the tree covers every row once, also over many commits and tiles",
			"what was recorded is there when Record returns",
		}},
		{"counts twice", func(s store.Store) store.Store {
			return &seenThrough{s, func(v store.View, _ string) store.View { return countsTwice{v} }}
		}, []string{
			"a fact that stands twice in a batch is counted once",
			"sums are exact from the smallest to the largest quantity",
			"everybody reads what they wrote, whoever else writes",
		}},
		{"answers the wrong number", func(s store.Store) store.Store { return recording{s, wrongNumber} }, []string{
			"a batch is judged in order and numbered without gaps",
			"everybody reads what they wrote, whoever else writes",
		}},
		{"leaks another tenant", func(s store.Store) store.Store {
			return &seenThrough{s, func(v store.View, id string) store.View { return leaks{v, s, id} }}
		}, []string{
			"nothing of one tenant is found in another",
		}},
		{"acknowledges what it did not keep", func(s store.Store) store.Store { return recording{s, losesLast} },
			[]string{
				"a batch is judged in order and numbered without gaps",
				"of many deliveries of a fact at once exactly one is accepted",
				"a fact sent again later is a duplicate of the first row",
			}},
		{"calls a conflict a duplicate", func(s store.Store) store.Store { return recording{s, hidesConflicts} },
			[]string{
				"the same key with other content is a conflict and changes nothing",
			}},
		{"commits a batch in parts", func(s store.Store) store.Store { return recording{s, splits} }, []string{
			"the rows of a batch are one section with one time",
			"a batch over the bound is refused whole, one at the bound is judged",
		}},
		{"remembers revoked keys", func(s store.Store) store.Store {
			return &stale{Store: s,
				seen: map[string]tenant.APIKey{}}
		}, []string{
			"a revoked key is revoked when the update returns",
		}},
	} {
		for _, name := range broken.fails {
			t.Run(broken.name+"/"+name, func(t *testing.T) {
				clock := storetest.NewClock()
				b := storetest.Bench{Store: broken.spoil(open(clock.Now)), Clock: clock}
				if got := attempt(func(r *recorder) { caseNamed(t, name).Try(r, b) }); len(got) == 0 {
					t.Errorf("the case passed a store that %s", broken.name)
				}
			})
		}
	}
}

// Every story that reopens its store must notice one that comes back empty.
func TestSuiteObjectsToAmnesia(t *testing.T) {
	const name = "a fact sent again later is a duplicate of the first row"
	clock := storetest.NewClock()
	b := storetest.Bench{Store: open(clock.Now), Clock: clock, Reopen: func(store.Store) store.Store {
		return open(clock.Now)
	}}
	if got := attempt(func(r *recorder) { caseNamed(t, name).Try(r, b) }); len(got) == 0 {
		t.Error("the case passed a store that came back empty")
	}
}

// Compare must object to two histories that differ in one thing, whichever it is, and to none that are the same.
func TestCompareObjects(t *testing.T) {
	const id = "acme"
	history := func(clock *storetest.Clock, differently string) store.Store {
		s := open(clock.Now)
		if err := storetest.Create(s, id, storetest.NewMeter("calls", meter.Sum)); err != nil {
			t.Fatal(err)
		}
		quantity := "5"
		if differently == "quantity" {
			quantity = "5.000000000001"
		}
		events := []usage.Event{storetest.Fact("a", "calls", "c", storetest.Ago(0), quantity),
			storetest.Correction("b", "a", "-1")}
		if differently == "row" {
			events = events[:1]
		}
		batches := [][]usage.Event{events}
		if differently == "sections" {
			batches = [][]usage.Event{events[:1], events[1:]}
		}
		if differently == "time" {
			clock.Advance(time.Microsecond)
		}
		for _, b := range batches {
			if _, err := s.Record(context.Background(), store.Batch{Tenant: id, Events: b}); err != nil {
				t.Fatal(err)
			}
		}
		if differently == "tenant" {
			if err := storetest.Create(s, "more"); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	for _, differently := range []string{"", "quantity", "row", "sections", "time", "tenant"} {
		oracle, s := history(storetest.NewClock(), ""), history(storetest.NewClock(), differently)
		got := attempt(func(r *recorder) { storetest.Compare(r, oracle, s, id) })
		if (len(got) == 0) != (differently == "") {
			t.Errorf("histories that differ in %q: %q", differently, got)
		}
	}
}

func caseNamed(t *testing.T, name string) storetest.Case {
	t.Helper()
	for _, c := range storetest.Cases() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("the suite has no case %q", name)
	return storetest.Case{}
}

// recorder is a test handle that takes failures down.
type recorder struct {
	mu       sync.Mutex // guards failures
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// attempt runs fn in a goroutine of its own, which Fatalf may end, and returns the failures.
func attempt(fn func(r *recorder)) []string {
	var r recorder
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(&r)
	}()
	<-done
	return r.failures
}

// seenThrough shows a store through a view that lies.
type seenThrough struct {
	store.Store
	through func(v store.View, id string) store.View
}

func (s *seenThrough) View(ctx context.Context, id string, fn func(store.View) error) error {
	return s.Store.View(ctx, id, func(v store.View) error { return fn(s.through(v, id)) })
}

// dropsRow hides the third row of every ledger.
type dropsRow struct{ store.View }

func (d dropsRow) Rows(after uint64, hint store.RowHint, fn func(*ledger.Row) bool) (uint64, bool, error) {
	return d.View.Rows(after, hint, func(r *ledger.Row) bool { return r.Seq == 3 || fn(r) })
}

// countsTwice adds every sum to itself.
type countsTwice struct{ store.View }

func (d countsTwice) Counter(id usage.CounterID) (usage.Counter, error) {
	c, err := d.View.Counter(id)
	return *twice(&c), err
}

func (d countsTwice) Counters(from store.CounterPlace, fn func(store.CounterPlace, *usage.Counter) bool) error {
	return d.View.Counters(from, func(p store.CounterPlace, c *usage.Counter) bool { return fn(p, twice(c)) })
}

func twice(c *usage.Counter) *usage.Counter {
	out := *c
	all := *c.All()
	for _, f := range []*usage.Fold{&all, &out.OnTime} {
		f.Count *= 2
		f.Sum, _ = f.Sum.Add(f.Sum)
	}
	out.Late = &all
	return &out
}

// leaks looks events up in other tenants too.
type leaks struct {
	store.View
	s  store.Store
	id string
}

func (l leaks) Event(k usage.Key) (ledger.Row, []ledger.Row, error) {
	r, by, err := l.View.Event(k)
	others, _ := l.s.Tenants(context.Background(), "", 100)
	for i := 0; err != nil && i < len(others); i++ {
		if others[i].ID == l.id {
			continue
		}
		_ = l.s.View(context.Background(), others[i].ID, func(v store.View) error {
			r, by, err = v.Event(k)
			return nil
		})
	}
	return r, by, err
}

// recording records in a way of its own.
type recording struct {
	store.Store
	record func(ctx context.Context, s store.Store, b store.Batch) ([]usage.Verdict, error)
}

func (r recording) Record(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	return r.record(ctx, r.Store, b)
}

func wrongNumber(ctx context.Context, s store.Store, b store.Batch) ([]usage.Verdict, error) {
	vs, err := s.Record(ctx, b)
	for i := range vs {
		vs[i].Seq++
	}
	return vs, err
}

func losesLast(ctx context.Context, s store.Store, b store.Batch) ([]usage.Verdict, error) {
	if len(b.Events) == 0 {
		return s.Record(ctx, b)
	}
	last := b.Events[len(b.Events)-1]
	b.Events = b.Events[:len(b.Events)-1]
	vs, err := s.Record(ctx, b)
	return append(vs, usage.Verdict{Key: usage.KeyOfID(last.ID), Seq: 3, Status: usage.Accepted}), err
}

func hidesConflicts(ctx context.Context, s store.Store, b store.Batch) ([]usage.Verdict, error) {
	vs, err := s.Record(ctx, b)
	for i := range vs {
		if vs[i].Status == usage.Conflict {
			vs[i].Status, vs[i].Problem = usage.Duplicate, nil
		}
	}
	return vs, err
}

func splits(ctx context.Context, s store.Store, b store.Batch) ([]usage.Verdict, error) {
	var all []usage.Verdict
	for i := range b.Events {
		vs, err := s.Record(ctx, store.Batch{Tenant: b.Tenant, Events: b.Events[i : i+1]})
		if err != nil {
			return nil, err
		}
		all = append(all, vs...)
	}
	return all, nil
}

// stale answers for a key as it was first seen.
type stale struct {
	store.Store
	seen map[string]tenant.APIKey
}

func (s *stale) Access(ctx context.Context, id, key string) (store.Access, error) {
	a, err := s.Store.Access(ctx, id, key)
	if old, ok := s.seen[key]; ok {
		a.Key = old
		return a, err
	}
	if err == nil {
		s.seen[key] = a.Key
	}
	return a, err
}
