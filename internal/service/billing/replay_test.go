package billing

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

func (w *world) replay(q ReplayRequest) (out []Difference) {
	w.Helper()
	q.Tenant = "acme"
	err := w.Replay(w.Context(), q, func(d Difference) error {
		out = append(out, d)
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func set[T any](v T) *T { return &v }

func TestReplayWithOwnSettingsFindsNothing(t *testing.T) {
	w := newWorld(t)
	w.record("calls", "ann", "2026-11-10", "5")
	w.record("calls", "ann", "2026-11-01", "7") // late
	w.record("peak", "bob", "2026-11-02", "3")
	if got := w.replay(ReplayRequest{Month: period(t, "2026-11")}); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestReplayWithAnotherAggregation(t *testing.T) {
	w := newWorld(t)
	for _, q := range []string{"5", "7", "4"} {
		w.record("calls", "ann", "2026-11-10", q)
	}
	w.record("calls", "bob", "2026-11-10", "1")
	w.record("peak", "ann", "2026-11-10", "1")
	head := w.head()
	q := ReplayRequest{Month: period(t, "2026-11"), Meter: "calls", Aggregation: set(meter.Max)}
	n := amount.FromInt
	want := []Difference{{Meter: "calls", Customer: "ann", OnTimeBefore: n(16), OnTimeAfter: n(7), TotalBefore: n(16),
		TotalAfter: n(7)}}
	wantSame(t, w.replay(q), want)
	if w.head() != head {
		t.Error("a replay that was only asked for left a row")
	}
}

func TestReplayAppliesOnce(t *testing.T) {
	w := newWorld(t)
	for _, q := range []string{"5", "7", "4"} {
		w.record("calls", "ann", "2026-11-10", q)
	}
	if _, err := w.Adjust(t.Context(), "k", "acme", "calls", "ann", period(t, "2026-11"), amount.FromInt(2),
		"goodwill"); err != nil {
		t.Fatal(err)
	}
	q := ReplayRequest{Month: period(t, "2026-11"), Aggregation: set(meter.Max), Apply: true,
		Reason: "contract says peak", Actor: "operator"}
	first := w.replay(q)
	if len(first) != 1 || first[0].Adjustment == "" || w.total(t, "calls", "ann", "2026-11") != "9" {
		t.Fatalf("got %+v, total %s", first, w.total(t, "calls", "ann", "2026-11"))
	}
	a, err := w.Adjustment(t.Context(), "acme", first[0].Adjustment)
	if err != nil || a.Amount.String() != "-9" || a.Reason != q.Reason || a.Replay != "aggregation=max" {
		t.Errorf("%+v, %v", a, err)
	}
	for range 3 {
		if again := w.replay(q); len(again) != 0 || w.total(t, "calls", "ann", "2026-11") != "9" {
			t.Fatalf("applied again: %+v", again)
		}
	}
	w.record("calls", "ann", "2026-11-11", "8")
	w.replay(q)
	if got := w.total(t, "calls", "ann", "2026-11"); got != "10" {
		t.Errorf("the peak is 8 now, and 2 were added by hand: total %s", got)
	}
	q.Aggregation = set(meter.Sum)
	w.replay(q)
	if got := w.total(t, "calls", "ann", "2026-11"); got != "26" {
		t.Errorf("a replay by the meter's own aggregation takes back what replays added: total %s", got)
	}
}

// Given a replay that was applied to one meter, when all meters are replayed by settings that say nothing of it, then
// it stays in force.
func TestReplayLeavesAnAppliedOneInForce(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			replayInForce(t, newWorldOn(t, func(now func() time.Time) store.Store { return open(t, now) }))
		})
	}
}

func replayInForce(t *testing.T, w *world) {
	for _, q := range []string{"5", "7", "4"} {
		w.record("calls", "ann", "2026-11-10", q)
		w.record("peak", "ann", "2026-11-10", q)
	}
	w.record("calls", "ann", "2026-11-02", "9") // late
	month, n := period(t, "2026-11"), amount.FromInt
	peak := ReplayRequest{Month: month, Meter: "calls", Aggregation: set(meter.Max), Apply: true, Reason: "peak",
		Actor: "operator"}
	first := w.replay(peak)
	wantSame(t, first, []Difference{{Meter: "calls", Customer: "ann", OnTimeBefore: n(16), OnTimeAfter: n(7),
		TotalBefore: n(25), TotalAfter: n(9), Adjustment: first[0].Adjustment}})
	if got := w.replay(ReplayRequest{Month: month}); len(got) != 0 {
		t.Errorf("the settings in force propose %+v", got)
	}
	if got := w.replay(peak); len(got) != 0 {
		t.Errorf("the same again proposes %+v", got)
	}
	strict := ReplayRequest{Month: month, Late: set(meter.Reject), Apply: true, Reason: "late ones are refused",
		Actor: "operator"}
	second := w.replay(strict)
	wantSame(t, second, []Difference{{Meter: "calls", Customer: "ann", OnTimeBefore: n(7), OnTimeAfter: n(7),
		TotalBefore: n(9), TotalAfter: n(7), Refused: 1, Adjustment: second[0].Adjustment}})
	if a, err := w.Adjustment(t.Context(), "acme", second[0].Adjustment); err != nil ||
		a.Replay != "aggregation=max late=reject" || a.Amount.String() != "-2" {
		t.Errorf("%+v, %v", a, err)
	}
	if got := w.replay(ReplayRequest{Month: month}); len(got) != 0 {
		t.Errorf("the settings in force propose %+v", got)
	}
	third := w.replay(ReplayRequest{Month: month, Meter: "calls", Aggregation: set(meter.Min)})
	wantSame(t, third, []Difference{{Meter: "calls", Customer: "ann", OnTimeBefore: n(7), OnTimeAfter: n(4),
		TotalBefore: n(7), TotalAfter: n(4), Refused: 1}})
	if _, err := w.Revert(t.Context(), "k", "acme", second[0].Adjustment); err != nil {
		t.Fatal(err)
	}
	if got := w.replay(ReplayRequest{Month: month}); len(got) != 0 || w.total(t, "calls", "ann", "2026-11") != "9" {
		t.Errorf("after the revert the first is in force again: %+v", got)
	}
	w.record("calls", "ann", "2026-11-11", "8")
	got := w.replay(ReplayRequest{Month: month})
	wantSame(t, got, []Difference{{Meter: "calls", Customer: "ann", OnTimeBefore: n(8), OnTimeAfter: n(8),
		TotalBefore: n(17), TotalAfter: n(9)}})
}

func TestSettingsReadBack(t *testing.T) {
	for _, s := range []settings{{}, {Aggregation: set(meter.Avg)}, {Late: set(meter.Adjust)},
		{set(36 * time.Hour), set(meter.Reject), set(meter.Unique)}} {
		got, err := parseSettings(s.String())
		if err != nil || got.String() != s.String() {
			t.Errorf("%s is read as %s, %v", s, got, err)
		}
	}
	for _, bad := range []string{"", "aggregation=median", "late=never", "lateness=long", "color=red",
		"aggregation=max,late=reject"} {
		if got, err := parseSettings(bad); err == nil {
			t.Errorf("%q is read as %s", bad, got)
		}
	}
}

func TestRevertingAReplayLetsItBeAppliedAgain(t *testing.T) {
	w := newWorld(t)
	w.record("calls", "ann", "2026-11-10", "5")
	w.record("calls", "ann", "2026-11-10", "7")
	q := ReplayRequest{Month: period(t, "2026-11"), Aggregation: set(meter.Max), Apply: true, Reason: "peak",
		Actor: "operator"}
	made := w.replay(q)
	if _, err := w.Revert(t.Context(), "k", "acme", made[0].Adjustment); err != nil {
		t.Fatal(err)
	}
	if got := w.total(t, "calls", "ann", "2026-11"); got != "12" {
		t.Fatalf("total %s", got)
	}
	w.replay(q)
	if got := w.total(t, "calls", "ann", "2026-11"); got != "7" {
		t.Errorf("total %s", got)
	}
}

func TestReplayWithAnotherLateness(t *testing.T) {
	w := newWorld(t)
	w.record("calls", "ann", "2026-11-10", "5")
	w.record("calls", "ann", "2026-11-07", "7") // late by 48 h, not by 96
	n := amount.FromInt
	got := w.replay(ReplayRequest{Month: period(t, "2026-11"), Lateness: set(96 * time.Hour)})
	wantSame(t, got, []Difference{{Meter: "calls", Customer: "ann", OnTimeBefore: n(5), OnTimeAfter: n(12),
		TotalBefore: n(12), TotalAfter: n(12)}})
	got = w.replay(ReplayRequest{Month: period(t, "2026-11"), Late: set(meter.Reject)})
	wantSame(t, got, []Difference{{Meter: "calls", Customer: "ann", OnTimeBefore: n(5), OnTimeAfter: n(5),
		TotalBefore: n(12), TotalAfter: n(5), Refused: 1}})
}

func TestReplayOfAClosedPeriodGoesIntoTheNextBill(t *testing.T) {
	w := newWorld(t)
	w.record("calls", "ann", "2026-10-10", "5")
	w.record("calls", "ann", "2026-10-11", "7")
	closed := w.sealed("2026-10")
	w.record("calls", "ann", "2026-10-12", "1")
	w.replay(ReplayRequest{Month: period(t, "2026-10"), Aggregation: set(meter.Max), Apply: true, Reason: "peak",
		Actor: "operator"})
	after, err := w.Period(t.Context(), "acme", period(t, "2026-10"))
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, after, closed)
	if got := w.total(t, "calls", "ann", "2026-10"); got != "7" {
		t.Errorf("total %s", got)
	}
}

// interrupted is a store on which something happens before the first transaction of the one who holds it.
type interrupted struct {
	store.Store
	by func()
}

func (s *interrupted) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	if by := s.by; by != nil {
		s.by = nil
		by()
	}
	return s.Store.Update(ctx, id, fn)
}

// Given a replay that has computed a difference, when another replay applies the same and a person takes it back before
// the first one applies, then the counter looks as before, and the first one finds that there is nothing left to apply.
func TestReplayFindsWhatOthersAdjustedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.record("calls", "ann", "2026-11-10", "5")
	w.record("calls", "ann", "2026-11-11", "7")
	q := ReplayRequest{Tenant: "acme", Month: period(t, "2026-11"), Meter: "calls", Aggregation: set(meter.Max),
		Apply: true, Reason: "peak", Actor: "operator"}
	s := New(&interrupted{w.store.Store, func() {
		w.replay(q)
		w.mustAdjust("calls", "ann", "2026-11", "5")
	}})
	if err := s.Replay(t.Context(), q, func(Difference) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := w.total(t, "calls", "ann", "2026-11"); got != "12" {
		t.Errorf("total %s, want the peak of 7 and the 5 that a person added", got)
	}
}

func TestReplaysThatCannotBe(t *testing.T) {
	w := newWorld(t)
	w.record("calls", "ann", "2026-11-10", "5")
	for name, c := range map[string]struct {
		q    ReplayRequest
		code problem.Code
	}{
		"tenant":   {ReplayRequest{Tenant: "nobody"}, problem.NotFound},
		"meter":    {ReplayRequest{Tenant: "acme", Meter: "nothing"}, problem.NotFound},
		"unique":   {ReplayRequest{Tenant: "acme", Meter: "calls", Aggregation: set(meter.Unique)}, problem.Invalid},
		"lateness": {ReplayRequest{Tenant: "acme", Lateness: set(-time.Second)}, problem.Invalid},
		"reason":   {ReplayRequest{Tenant: "acme", Apply: true, Actor: "k"}, problem.Invalid},
	} {
		c.q.Month = period(t, "2026-11")
		err := w.Replay(t.Context(), c.q, func(Difference) error { return nil })
		if !problem.Is(err, c.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A meter with the other settings from the beginning, given the same events in the same order, is what a replay must
// arrive at.
func TestReplayEqualsAMeterThatAlwaysHadTheSettings(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		aggregations := []meter.Aggregation{meter.Sum, meter.Count, meter.Min, meter.Max, meter.Last, meter.Avg}
		other := meter.Meter{Slug: "other", Aggregation: rapid.SampledFrom(aggregations).Draw(rt, "aggregation"),
			Lateness: time.Duration(rapid.IntRange(0, 200).Draw(rt, "lateness")) * time.Hour,
			Late:     rapid.SampledFrom([]meter.Late{meter.Adjust, meter.Reject}).Draw(rt, "late"),
			Future:   meter.DefaultFuture}
		w := newWorld(rt)
		if _, err := w.registry.CreateMeter(rt.Context(), "k", "acme", other); err != nil {
			rt.Fatal(err)
		}
		sendTwice(rt, w, other.Aggregation == meter.Count)
		got := w.replay(ReplayRequest{Month: period(rt, "2026-11"), Meter: "calls", Lateness: &other.Lateness,
			Late: &other.Late, Aggregation: &other.Aggregation,
			Apply: true, Reason: "as other", Actor: "operator"})
		if have, want := w.total(rt, "calls", "ann", "2026-11"), w.total(rt, "other", "ann", "2026-11"); have != want {
			rt.Fatalf("replayed to %s, the other meter has %s (%+v)", have, want, got)
		}
	})
}

// sendTwice sends the same random facts and corrections to both meters, facts of one when one of them counts.
func sendTwice(rt *rapid.T, w *world, ones bool) {
	facts := 0
	for i := range rapid.IntRange(1, 25).Draw(rt, "facts") {
		e := usage.Event{ID: fmt.Sprint("-", i),
			Quantity: amount.FromInt(int64(rapid.IntRange(0, 9).Draw(rt, "quantity"))), Given: usage.GivenQuantity}
		if facts > 0 && rapid.IntRange(0, 4).Draw(rt, "correct") == 0 {
			e.ID, e.Corrects, e.Reason = fmt.Sprint("-c", i),
				fmt.Sprint("-", rapid.IntRange(0, facts-1).Draw(rt, "target")), "mistake"
			e.Quantity, _ = e.Quantity.Sub(amount.FromInt(5))
			if first := w.try("calls", e); first.Seq != 0 {
				w.try("other", e)
			}
			continue
		}
		at := start.Add(-time.Duration(rapid.IntRange(0, 300).Draw(rt, "hours")) * time.Hour)
		e.ID, e.Customer, e.Time, e.Given = fmt.Sprint("-", facts), "ann", calendar.FromTime(at),
			e.Given|usage.GivenCustomer|usage.GivenTime|usage.GivenMeter
		facts++
		if ones {
			e.Quantity = amount.One
		}
		if first := w.try("calls", e); first.Seq == 0 {
			rt.Fatal(first.Problem)
		}
		w.try("other", e)
	}
}

// try sends an event to a meter; its ids are the meter's own.
func (w *world) try(slug string, e usage.Event) usage.Verdict {
	w.Helper()
	e.ID = slug + e.ID
	if e.Corrects != "" {
		e.Corrects = slug + e.Corrects
	} else {
		e.Meter = slug
	}
	verdicts, err := w.store.Record(w.Context(), store.Batch{Tenant: "acme", Events: []usage.Event{e}})
	if err != nil {
		w.Fatal(err)
	}
	return verdicts[0]
}
