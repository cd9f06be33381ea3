package retention_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/retention"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

func openNaive(_ *testing.T, now func() time.Time) store.Store {
	return naive.New(naive.Options{Now: now})
}

// aged is a life of four months, of which the first three are closed and can leave two horizons later.
func aged(t *testing.T) *life {
	t.Helper()
	l := newLife(t, openNaive)
	for round := range 4 {
		for day := range 3 {
			l.clock.Advance(100 * time.Hour)
			l.deliver(l.facts(fmt.Sprintf("%d-%d", round, day))...)
		}
		closing := l.month()
		l.clock.Set(closing.End().Time().Add(26 * time.Hour))
		if round < 3 {
			l.both(func(tx store.Tx) error { return storetest.ClosePeriod(tx, closing) })
		}
	}
	l.clock.Advance(2 * retention.MinHorizon)
	return l
}

// storage is one that can be made to fail.
type storage struct {
	retention.Storage
	put  func(name string, file *os.File) error
	open func(name string) error
}

func (s *storage) Put(ctx context.Context, name string, file *os.File) error {
	if s.put != nil {
		if err := s.put(name, file); err != nil {
			return err
		}
	}
	return s.Storage.Put(ctx, name, file)
}

func (s *storage) Open(ctx context.Context, name string) (retention.Blob, error) {
	if s.open != nil {
		if err := s.open(name); err != nil {
			return nil, err
		}
	}
	return s.Storage.Open(ctx, name)
}

var errBroken = errors.New("broken on purpose")

// allThere checks that no row has left and that the ledger does not claim any archive.
func (l *life) allThere() {
	l.Helper()
	if want, got := len(events(l.T, l.oracle)), len(events(l.T, l.s)); want != got {
		l.Errorf("%d rows are left of %d", got, want)
	}
	if err := l.s.View(ctx, acme, func(v store.View) error {
		if n := len(v.Horizon().Archives); n > 0 {
			l.Errorf("the ledger claims %d archives", n)
		}
		return nil
	}); err != nil {
		l.Fatal(err)
	}
}

// Given an upload that breaks, a file that is damaged on the storage, or one that is lost there, when a run archives,
// then it fails and no row leaves; and the next run, on a storage that works, does all of it.
func TestNothingLeavesThatIsNotArchived(t *testing.T) {
	flip := func(dir, suffix string, change func(b []byte) []byte) {
		err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() || !strings.HasSuffix(path, suffix) {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, change(b), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, bend := range map[string]func(l *life, s *storage){
		"the first upload fails": func(_ *life, s *storage) {
			s.put = func(string, *os.File) error {
				return errBroken
			}
		},
		"the manifest's upload fails": func(_ *life, s *storage) {
			s.put = func(name string, _ *os.File) error {
				if strings.HasSuffix(name, ".json") {
					return errBroken
				}
				return nil
			}
		},
		"a byte is flipped": func(l *life, s *storage) {
			s.open = func(string) error {
				flip(l.dir, ".parquet", func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
				s.open = nil
				return nil
			}
		},
		"a file is cut": func(l *life, s *storage) {
			s.open = func(string) error {
				flip(l.dir, ".parquet",
					func(b []byte) []byte { return b[:len(b)-1] })
				return nil
			}
		},
		"the manifest is another": func(l *life, s *storage) {
			s.open = func(string) error {
				flip(l.dir, ".json",
					func(b []byte) []byte { return append(b, ' ') })
				return nil
			}
		},
		"a file is lost": func(_ *life, s *storage) {
			s.open = func(name string) error {
				if strings.HasSuffix(name, ".parquet") {
					return os.ErrNotExist
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := aged(t)
			s := &storage{Storage: l.storage}
			bend(l, s)
			_, err := retention.New(l.s, s).Run(ctx,
				retention.Options{Horizon: retention.MinHorizon, Temp: t.TempDir()})
			if err == nil {
				t.Fatal("a run on a broken storage succeeded")
			}
			l.allThere()
			r := l.retain()
			if len(r.Months) != 3 || r.Pruned == 0 {
				t.Fatalf("the next run archived %+v", r)
			}
			l.compare()
			l.redeliver()
			l.restore()
		})
	}
}

// Given months that can leave, when a dry run looks, then it says what a run then does, and nothing has changed.
func TestADryRunChangesNothing(t *testing.T) {
	l := aged(t)
	before := map[string]ledger.Head{acme: l.head(acme), "_operator": l.head("_operator")}
	o := retention.Options{Horizon: retention.MinHorizon, DryRun: true}
	dry, err := retention.New(l.s, l.storage).Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range before {
		if got := l.head(id); got != want {
			t.Errorf("the ledger of %s has changed", id)
		}
	}
	if files, err := os.ReadDir(l.dir); err != nil || len(files) > 0 {
		t.Errorf("the archive has changed: %v %v", files, err)
	}
	l.allThere()
	wet := l.retain()
	if len(dry.Months) != len(wet.Months) || dry.Floor != wet.Floor {
		t.Fatalf("a dry run said %+v, a run did %+v", dry, wet)
	}
	for i := range wet.Months {
		d, w := dry.Months[i], wet.Months[i]
		if d.Month != w.Month || d.Rows != w.Rows || d.Stay != w.Stay || d.Waits != w.Waits {
			t.Errorf("a dry run said %+v, a run did %+v", d, w)
		}
	}
}

// Given a tenant with an open month, when the floor moves, then it stops there for that tenant: nothing of it leaves,
// and facts of that month are still taken.
func TestAnOpenPeriodHoldsTheFloorBack(t *testing.T) {
	l := aged(t)
	l.retain()
	var floor calendar.Micros
	if err := l.s.View(ctx, acme, func(v store.View) error { floor = v.Horizon().Floor; return nil }); err != nil {
		t.Fatal(err)
	}
	if open := calendar.MonthOf(calendar.FromTime(time.Date(2025, 4, 1, 0, 0, 0, 0, time.UTC))); floor != open.Start() {
		t.Errorf("the floor is %s, want the start of %s, which is open", floor, open)
	}
	l.deliver(storetest.Fact("very-late", "bytes", "one", floor.Add(time.Hour), "1"))
}

// Given a meter that once took facts of the next 60 days, when its bound is shorter now, then the keys of a month are
// kept for as long after its last arrival as the longer bound says.
func TestAMonthWaitsForTheLongestFutureThatThereWas(t *testing.T) {
	l := newLife(t, openNaive)
	bound := func(d time.Duration) {
		l.both(func(tx store.Tx) error {
			m, err := store.GetMeter(tx, "bytes")
			if err != nil {
				return err
			}
			m.Future, m.Lateness = d, meter.MaxLateness
			return storetest.PutMeter(tx, m.Meter)
		})
	}
	first := l.month()
	bound(60 * 24 * time.Hour)
	l.deliver(l.facts("early")...)
	l.deliver(storetest.Fact("ahead", "bytes", "one", first.Start().Add(55*24*time.Hour), "1"))
	bound(time.Hour)
	l.clock.Set(first.End().Time().Add(-time.Hour))
	l.deliver(storetest.Fact("last", "bytes", "one", first.End().Add(-2*time.Hour), "1"))
	l.clock.Set(first.End().Time())
	l.both(func(tx store.Tx) error { return storetest.ClosePeriod(tx, first) })
	l.both(func(tx store.Tx) error { return storetest.ClosePeriod(tx, first+1) })
	// the floor has passed the month, not the bound
	l.clock.Set(first.End().Time().Add(retention.MinHorizon + 40*24*time.Hour))
	r := l.retain()
	if len(r.Months) == 0 || r.Months[0].Waits == "" || r.Pruned != 0 {
		t.Fatalf("%+v", r)
	}
	l.clock.Advance(80 * 24 * time.Hour)
	if r = l.retain(); len(r.Months) == 0 || r.Months[0].Waits != "" || r.Pruned == 0 {
		t.Fatalf("%+v", r)
	}
	l.compare()
	l.redeliver()
}

// Given a month of which a row arrived late, when the floor has passed the month but not that arrival, then the month
// waits.
func TestAMonthWaitsForItsLastArrival(t *testing.T) {
	l := newLife(t, openNaive)
	l.deliver(l.facts("early")...)
	first := l.month()
	l.clock.Advance(80 * 24 * time.Hour)
	l.deliver(storetest.Fact("late", "bytes", "one", first.Start().Add(time.Hour), "1"))
	l.both(func(tx store.Tx) error { return storetest.ClosePeriod(tx, first) })
	l.clock.Advance(60 * 24 * time.Hour)
	r := l.retain()
	if len(r.Months) != 1 || r.Months[0].Waits == "" || r.Pruned != 0 {
		t.Fatalf("%+v", r)
	}
	l.clock.Advance(60 * 24 * time.Hour)
	if r = l.retain(); len(r.Months) != 1 || r.Months[0].Waits != "" || r.Pruned == 0 {
		t.Fatalf("%+v", r)
	}
	l.compare()
	l.redeliver()
}

// With a horizon a fact has to say its time: without one it would be new each time it is sent.
func TestTimeIsRequiredWithAHorizon(t *testing.T) {
	l := aged(t)
	l.retain()
	vs, err := l.s.Record(ctx, store.Batch{Tenant: acme,
		Events: []usage.Event{storetest.Untimed(storetest.Fact("x", "bytes", "one", 0, "1"))}})
	if err != nil || vs[0].Status != usage.Rejected || vs[0].Problem.Code != problem.Invalid ||
		vs[0].Problem.Fields[0].Path != "time" {
		t.Errorf("%v %v", vs, err)
	}
}

// Given an archive that cannot be reached, when rows that have left are read, then the answer is archived, with the
// month.
func TestAnArchiveOutOfReach(t *testing.T) {
	l := aged(t)
	l.retain()
	s := &storage{Storage: l.storage, open: func(string) error { return errBroken }}
	err := retention.NewReading(l.s, s).View(ctx, acme, func(v store.View) error {
		return second(v.Rows(0, store.RowHint{Events: true}, func(*ledger.Row) bool { return true }))
	})
	if !problem.Is(err, problem.Archived) || !strings.Contains(err.Error(), "2025-01") || !errors.Is(err, errBroken) {
		t.Error(err)
	}
}

func TestAShortHorizonIsRefused(t *testing.T) {
	l := newLife(t, openNaive)
	_, err := retention.New(l.s, l.storage).Run(ctx, retention.Options{Horizon: retention.MinHorizon - 1})
	if err == nil {
		t.Error("94 days were accepted")
	}
	l.allThere()
}

// What can leave does for every tenant, however few the store lists at a time.
func TestEveryTenantIsArchived(t *testing.T) {
	l := aged(t)
	for _, id := range []string{"aaa", "aab"} {
		if err := storetest.Create(l.s, id); err != nil {
			t.Fatal(err)
		}
	}
	l.s = storetest.ShortPages(l.s, 1)
	if r := l.retain(); r.Pruned == 0 {
		t.Errorf("nothing of a tenant on the third page has left: %+v", r)
	}
}

// repeated is a store whose first transaction that records a base comes to nothing and runs again, after something else
// happened.
type repeated struct {
	store.Store
	meanwhile func()
}

// watched remembers whether a base was recorded.
type watched struct {
	store.Tx
	base bool
}

func (w *watched) Append(c ledger.Change) (uint64, error) {
	w.base = w.base || c.Type == "period.base_recorded"
	return w.Tx.Append(c)
}

func (s *repeated) Update(ctx context.Context, id string, fn func(tx store.Tx) error) error {
	w := &watched{}
	err := s.Store.Update(ctx, id, func(tx store.Tx) error {
		w.Tx = tx
		if err := fn(w); err != nil || !w.base || s.meanwhile == nil {
			return err
		}
		return errBroken
	})
	if !w.base || s.meanwhile == nil {
		return err
	}
	meanwhile := s.meanwhile
	s.meanwhile = nil
	meanwhile()
	return s.Store.Update(ctx, id, fn)
}

// Given a month whose counters need several rows, when another node archives it while the first of these is recorded,
// and that transaction runs again, then the run knows nothing of its first attempt and ends well.
func TestABaseThatIsRecordedAgain(t *testing.T) {
	l := newLife(t, openNaive)
	for i := range 200 {
		now := calendar.FromTime(l.clock.Now())
		l.deliver(storetest.Fact(fmt.Sprint("many-", i), "bytes", fmt.Sprint("customer-", i), now, "1"))
	}
	closing := l.month()
	l.clock.Set(closing.End().Time().Add(26 * time.Hour))
	l.both(func(tx store.Tx) error { return storetest.ClosePeriod(tx, closing) })
	l.clock.Advance(2 * retention.MinHorizon)
	var other retention.Report
	under, again := l.s, &repeated{Store: l.s}
	again.meanwhile = func() {
		l.s = under
		other = l.retain()
	}
	l.s = again
	mine := l.retain()
	if again.meanwhile != nil || other.Pruned != 200 || mine.Pruned != 0 {
		t.Errorf("the other run removed %d rows, this one %d", other.Pruned, mine.Pruned)
	}
}
