package retention_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/edge/archive"
	"github.com/tallystick/tallystick/internal/service/move"
	"github.com/tallystick/tallystick/internal/service/retention"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

const acme = "acme"

var aggregations = map[string]meter.Aggregation{"bytes": meter.Sum, "peak": meter.Max, "level": meter.Last,
	"users":   meter.Unique,
	"derived": meter.Sum, "tokens": meter.Sum, "calls": meter.Count}

var ctx = context.Background()

// life is a deployment that delivers facts, closes months and lets them leave, beside an oracle that never forgets
// anything.
type life struct {
	*testing.T
	clock   *storetest.Clock
	s       store.Store
	oracle  store.Store
	storage *archive.Folder
	dir     string
	sent    []usage.Event // everything that was ever accepted
}

func newLife(t *testing.T, open func(t *testing.T, now func() time.Time) store.Store) *life {
	t.Helper()
	clock := storetest.NewClock()
	clock.Set(time.Date(2025, 1, 1, 0, 0, 1, 0, time.UTC))
	l := &life{T: t, clock: clock, s: open(t, clock.Now), oracle: naive.New(naive.Options{Now: clock.Now}),
		dir: t.TempDir()}
	var err error
	if l.storage, err = archive.NewFolder(l.dir); err != nil {
		t.Fatal(err)
	}
	typed := func(slug string, a meter.Aggregation, value string) meter.Meter {
		m := storetest.NewMeter(slug, a)
		m.EventType, m.ValueProperty = "call", value
		return m
	}
	users := storetest.NewMeter("users", meter.Unique)
	users.UniqueProperty = "user"
	derived := storetest.NewMeter("derived", meter.Sum)
	derived.KeyPolicy = meter.DerivedKey
	for _, s := range []store.Store{l.s, l.oracle} {
		for _, id := range []string{tenant.Operator, acme, "idle"} {
			err := storetest.Create(s, id, storetest.NewMeter("bytes", meter.Sum),
				storetest.NewMeter("peak", meter.Max), storetest.NewMeter("level", meter.Last),
				users, derived, typed("tokens", meter.Sum, "tokens"), typed("calls", meter.Count, ""))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// month is the one that the clock stands in.
func (l *life) month() calendar.Month { return calendar.MonthOf(calendar.FromTime(l.clock.Now())) }

// facts are the facts of a moment: of every kind of meter, with corrections and one that comes too late.
func (l *life) facts(name string) []usage.Event {
	now := calendar.FromTime(l.clock.Now())
	old := max(now.Add(-72*time.Hour), l.month().Start())
	return []usage.Event{
		storetest.Fact(name+"-a", "bytes", "one", now, "10"),
		storetest.Fact(name+"-b", "bytes", "two", now, "2.5"),
		storetest.Correction(name+"-c", name+"-a", "-3"),
		storetest.Fact(name+"-d", "peak", "one", now, "7"),
		storetest.Fact(name+"-e", "level", "one", now, "5"),
		storetest.With(storetest.Fact(name+"-f", "users", "one", now, "1"), storetest.Text("user", "u"+name)),
		storetest.Fact("", "derived", "one", now, "4"),
		storetest.Call(name+"-g", "call", "two", now, storetest.Number("tokens", "12")),
		storetest.OfMeter(storetest.Correction(name+"-h", name+"-g", "-2"), "tokens"),
		storetest.Call(name+"-latecall", "call", "two", old, storetest.Number("tokens", "3")),
		storetest.Fact(name+"-late", "bytes", "one", old, "1"),
		storetest.Fact(name+"-zero", "peak", "one", now, "9"),
		storetest.Correction(name+"-gone", name+"-zero", "-9"),
	}
}

// deliver sends facts to both stores, which must take them.
func (l *life) deliver(events ...usage.Event) {
	l.Helper()
	for _, s := range []store.Store{l.s, l.oracle} {
		vs, err := s.Record(ctx, store.Batch{Tenant: acme, Events: append([]usage.Event(nil), events...)})
		if err != nil {
			l.Fatal(err)
		}
		for i, v := range vs {
			if v.Status != usage.Accepted && v.Status != usage.Adjusted {
				l.Fatalf("%s: %s %v", events[i].ID, v.Status, v.Problem)
			}
		}
	}
	l.sent = append(l.sent, events...)
}

func (l *life) both(fn func(tx store.Tx) error) {
	l.Helper()
	for _, s := range []store.Store{l.s, l.oracle} {
		if err := s.Update(ctx, acme, fn); err != nil {
			l.Fatal(err)
		}
	}
}

func (l *life) head(id string) (h ledger.Head) {
	l.Helper()
	if err := l.s.View(ctx, id, func(v store.View) error { h = v.Head(); return nil }); err != nil {
		l.Fatal(err)
	}
	return h
}

func (l *life) retain() retention.Report {
	l.Helper()
	r, err := retention.New(l.s, l.storage).Run(ctx,
		retention.Options{Horizon: retention.MinHorizon, Temp: l.TempDir()})
	if err != nil {
		l.Fatal(err)
	}
	return r
}

// allLeft wants every row of the months that were archived to have left, but for the adjusted ones.
func (l *life) allLeft(r *retention.Report) {
	l.Helper()
	want, archived := uint64(0), map[calendar.Month]bool{}
	for _, m := range r.Months {
		if m.Waits == "" {
			want += m.Rows - m.Stay
			archived[m.Month] = true
		}
	}
	if r.Pruned != want {
		l.Fatalf("%d rows left, want %d: %+v", r.Pruned, want, r.Months)
	}
	stay := map[string]int{}
	err := l.s.View(ctx, acme, func(v store.View) error {
		return v.PrunedSections(1, func(s *ledger.Section) error {
			for i := range s.Rows {
				e := s.Rows[i].Event
				if e == nil || !archived[e.Month()] {
					continue
				}
				if e.Status() != usage.Adjusted {
					return fmt.Errorf("row %d of %s is still there", s.Rows[i].Seq, e.Month())
				}
				stay[fmt.Sprint(len(e.Outcomes), " meters")]++
			}
			return nil
		})
	})
	if err != nil {
		l.Fatal(err)
	}
	if len(archived) > 0 && (stay["1 meters"] == 0 || stay["2 meters"] == 0) {
		l.Fatalf("of the adjusted rows stay %v: some of one meter and some of two should", stay)
	}
}

// redeliver sends everything again. Nothing may be counted again, whatever has left by now. It returns how often each
// answer came.
func (l *life) redeliver() map[string]int {
	l.Helper()
	answers := map[string]int{}
	before := l.head(acme)
	for rest := l.sent; len(rest) > 0; {
		n := min(len(rest), 10)
		vs, err := l.s.Record(ctx, store.Batch{Tenant: acme, Events: append([]usage.Event(nil), rest[:n]...)})
		if err != nil {
			l.Fatal(err)
		}
		for i, v := range vs {
			e, code := &rest[i], problem.Code("")
			if v.Problem != nil {
				code = v.Problem.Code
			}
			switch {
			case v.Status == usage.Duplicate:
				answers["duplicate"]++
			case v.Status == usage.Rejected && code == problem.BeyondHorizon:
				answers["beyond_horizon"]++
			case v.Status == usage.Rejected && code == problem.UnknownCorrectionTarget && e.Corrects != "" &&
				!e.Has(usage.GivenTime):
				answers["no target"]++ // a correction states no time of its own
			default:
				l.Fatalf("%s of %s, sent again: %s %v", e.ID, e.Time, v.Status, v.Problem)
			}
		}
		rest = rest[n:]
	}
	if after := l.head(acme); after.Seq != before.Seq {
		l.Fatalf("sending everything again added rows: %d, then %d", before.Seq, after.Seq)
	}
	return answers
}

// compare holds all counters, periods and adjustments against the oracle's, and the store's books against its own
// ledger.
func (l *life) compare() {
	l.Helper()
	want, got := counters(l.T, l.oracle), counters(l.T, l.s)
	if len(want) != len(got) {
		l.Fatalf("%d counters, want %d", len(got), len(want))
	}
	for p, w := range want {
		g := got[p]
		if !w.Equal(&g, aggregations[p.Meter]) {
			l.Fatalf("counter %v is\n%+v, want\n%+v", p, g, w)
		}
	}
	if want, got := fmt.Sprint(adjustments(l.T, l.oracle)), fmt.Sprint(adjustments(l.T, l.s)); want != got {
		l.Fatalf("adjustments are\n%s, want\n%s", got, want)
	}
	for _, s := range []store.Store{l.s, retention.NewReading(l.s, l.storage)} {
		r, err := verify.Run(ctx, s, verify.Options{})
		if err != nil {
			l.Fatal(err)
		}
		if !r.OK() {
			l.Fatalf("verify: %v", r.Differences)
		}
	}
}

func counters(t *testing.T, s store.Store) map[store.CounterPlace]usage.Counter {
	t.Helper()
	out := map[store.CounterPlace]usage.Counter{}
	err := s.View(ctx, acme, func(v store.View) error {
		return v.Counters(store.CounterPlace{}, func(p store.CounterPlace, c *usage.Counter) bool {
			p.Meter, p.Customer = strings.Clone(p.Meter), strings.Clone(p.Customer)
			out[p] = *c
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// adjustments are what late rows and people changed, without the numbers of rows: the subject has rows that the oracle
// has not.
func adjustments(t *testing.T, s store.Store) (out []string) {
	t.Helper()
	err := s.View(ctx, acme, func(v store.View) error {
		for after, end := uint64(0), false; !end; {
			var failed, err error
			after, end, err = v.Rows(after, store.RowHint{Events: true, Adjusted: true, Changes: true},
				func(r *ledger.Row) bool {
					if r.Change != nil && r.Change.EntityType == "adjustment" {
						a, err := store.Adjustment(v, usage.ManualID(r.Seq))
						failed = err
						out = append(out, fmt.Sprint(a.Amount, a.Customer, a.Month))
					}
					if r.Event == nil || r.Event.Status() != usage.Adjusted {
						return failed == nil
					}
					for i := range r.Event.Outcomes {
						if _, late := usage.LateAdjustment(r.Event, &r.Event.Outcomes[i], r.Seq, r.At); !late {
							continue
						}
						a, err := store.Adjustment(v, usage.LateID(r.Seq, r.Event.Outcomes[i].Meter))
						failed = err
						out = append(out, fmt.Sprint(a.Amount, a.Customer, a.Month, a.Event, a.Reason))
					}
					return failed == nil
				})
			if err != nil || failed != nil {
				return fmt.Errorf("%w %w", err, failed)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// events are all usage rows that a store shows, without their numbers.
func events(t *testing.T, s store.Store) (out []string) {
	t.Helper()
	err := s.View(ctx, acme, func(v store.View) error {
		for after, end := uint64(0), false; !end; {
			var err error
			after, end, err = v.Rows(after, store.RowHint{Events: true}, func(r *ledger.Row) bool {
				if r.Event != nil {
					out = append(out, fmt.Sprintf("%x", ledger.AppendCanonical(nil,
						&ledger.Row{Seq: 1, At: r.At, Event: r.Event}, tree.Hash{})))
				}
				return true
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// replayYear is the story of thirteen months: facts are delivered, months closed and, as the floor moves on, archived
// and pruned; everything that was ever sent is sent again each time.
func replayYear(t *testing.T, open func(t *testing.T, now func() time.Time) store.Store,
	again func(t *testing.T, s store.Store, round int) store.Store) {
	l := newLife(t, open)
	defer func() { mustClose(t, l.s) }()
	pruned := uint64(0)
	for round := range 13 {
		for day := range 6 {
			l.clock.Advance(100 * time.Hour)
			l.deliver(l.facts(fmt.Sprintf("%d-%d", round, day))...)
		}
		closing := l.month()
		l.clock.Set(closing.End().Time().Add(26 * time.Hour))
		l.both(func(tx store.Tx) error { return storetest.ClosePeriod(tx, closing) })
		// After the close: a late fact, a late correction of an early fact, and a person's adjustment of a month long
		// gone.
		l.deliver(storetest.Fact(fmt.Sprintf("after-%d", round), "bytes", "one", closing.Start().Add(time.Hour), "100"),
			storetest.Correction(fmt.Sprintf("fix-%d", round), fmt.Sprintf("%d-0-b", round), "-1"))
		l.both(func(tx store.Tx) error {
			_, err := storetest.Adjust(tx, "bytes", "one",
				calendar.MonthOf(calendar.FromTime(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))), "0.5", "")
			return err
		})
		r := l.retain()
		pruned += r.Pruned
		l.allLeft(&r)
		l.s = again(t, l.s, round)
		l.compare()
		answers := l.redeliver()
		if pruned > 0 && answers["beyond_horizon"] == 0 && answers["duplicate"] < len(l.sent) {
			t.Fatalf("%d rows have left, and nothing is beyond the horizon: %v", pruned, answers)
		}
		l.compare()
	}
	if pruned < 300 {
		t.Fatalf("only %d rows have left in a year", pruned)
	}
	l.readsAfterwards()
	l.restore()
}

// readsAfterwards asks for what has left.
func (l *life) readsAfterwards() {
	l.Helper()
	reading := retention.NewReading(l.s, l.storage)
	if want, got := events(l.T, l.oracle), events(l.T, reading); strings.Join(want, "\n") != strings.Join(got, "\n") {
		l.Errorf("read through the archive: %d rows, want %d", len(got), len(want))
	}
	first := calendar.MonthOf(calendar.FromTime(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)))
	err := l.s.View(ctx, acme, func(v store.View) error {
		all := store.RowHint{Events: true, Changes: true}
		old := store.SliceQuery{Meter: 1, From: first.Start(), To: first.End()}
		none := func(*store.Slice) error { return nil }
		for what, err := range map[string]error{
			"rows":     second(v.Rows(0, all, func(*ledger.Row) bool { return true })),
			"sections": v.Sections(1, func(*ledger.Section) error { return nil }),
			"slice":    v.Slice(old, none),
		} {
			if !problem.Is(err, problem.Archived) || what != "sections" && !strings.Contains(err.Error(), "2025-01") {
				l.Errorf("%s of what has left: %v", what, err)
			}
		}
		floor := v.Horizon().Floor
		for what, err := range map[string]error{
			"rows above the floor": second(v.Rows(0, store.RowHint{From: floor, Events: true},
				func(*ledger.Row) bool { return true })),
			"changes": second(v.Rows(0, store.RowHint{Changes: true},
				func(*ledger.Row) bool { return true })),
			"slice above the floor": v.Slice(store.SliceQuery{Meter: 1, From: floor, To: calendar.MaxMicros}, none),
		} {
			if err != nil {
				l.Errorf("%s: %v", what, err)
			}
		}
		_, _, err := v.Event(usage.KeyOfID("0-0-a"))
		if !problem.Is(err, problem.Archived) && !problem.Is(err, problem.NotFound) {
			l.Errorf("an event that has left: %v", err)
		}
		return nil
	})
	if err != nil {
		l.Error(err)
	}
}

func second(_ uint64, _ bool, err error) error { return err }

// restore carries everything, the archived rows too, into an empty store: it shows the same chain and answers like the
// oracle.
func (l *life) restore() {
	l.Helper()
	restored := naive.New(naive.Options{Now: l.clock.Now})
	if _, err := move.Run(ctx, retention.NewReading(l.s, l.storage), restored, move.Options{}); err != nil {
		l.Fatal(err)
	}
	var h ledger.Head
	if err := restored.View(ctx, acme, func(v store.View) error { h = v.Head(); return nil }); err != nil {
		l.Fatal(err)
	}
	if want := l.head(acme); h != want {
		l.Errorf("restored to %v, want %v", h, want)
	}
	if want, got := events(l.T, l.oracle), events(l.T, restored); !bytes.Equal([]byte(strings.Join(want, "\n")),
		[]byte(strings.Join(got, "\n"))) {
		l.Errorf("restored %d events, want %d", len(got), len(want))
	}
	if r, err := verify.Run(ctx, restored, verify.Options{}); err != nil || !r.OK() {
		l.Errorf("verify what was restored: %v %v", err, r.Differences)
	}
}

func mustClose(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
