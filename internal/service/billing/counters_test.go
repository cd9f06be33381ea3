package billing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// line is one counter for a table: place, state, total.
func line(c Counter) string {
	state := "open"
	if c.Closed {
		state = "closed"
	}
	return fmt.Sprintf("%s %s %s %s %s", c.Month, c.Meter.Slug, c.Customer, state, c.Total(c.Meter.Aggregation))
}

func lines(items []Counter) []string {
	var out []string
	for _, c := range items {
		out = append(out, line(c))
	}
	return out
}

// sample has counters of every kind, some of which are empty.
func sample(t handle) *world {
	w := newWorld(t)
	w.record("calls", "ann", "2026-10-05", "1")
	w.record("calls", "bob", "2026-10-05", "2")
	w.record("peak", "ann", "2026-10-05", "3")
	w.record("llm", "ann", "2026-10-06", "4")
	w.record("calls", "ann", "2026-11-05", "5")
	w.record("peak", "cat", "2026-11-05", "6")
	w.mustAdjust("calls", "dan", "2026-09", "7")
	undone := w.mustAdjust("calls", "eve", "2026-11", "8")
	if _, err := w.Revert(t.Context(), "k", "acme", undone.ID); err != nil {
		t.Fatal(err)
	}
	w.mustClose("2026-10")
	w.record("calls", "fay", "2026-10-20", "9")
	return w
}

var sampleLines = []string{
	"2026-09 calls dan open 7",
	"2026-10 calls ann closed 1",
	"2026-10 calls bob closed 2",
	"2026-10 calls fay closed 9",
	"2026-10 in ann closed 4",
	"2026-10 out ann closed 1",
	"2026-10 peak ann closed 3",
	"2026-11 calls ann open 5",
	"2026-11 peak cat open 6",
}

func TestCountersAreListedInOrderWithoutEmptyOnes(t *testing.T) {
	w := sample(t)
	items, next, err := w.Counters(t.Context(), "acme", CounterFilter{}, nil, 100)
	if err != nil || next != nil {
		t.Fatalf("next %v, %v", next, err)
	}
	wantSame(t, lines(items), sampleLines)
	peak := items[6]
	if peak.Meter.Number != 2 || peak.Watermark != moment(t, "2026-10-05") || peak.OnTime.Count != 1 {
		t.Errorf("%+v", peak)
	}
}

// The oracle: filter all counters one by one.
func TestFilteredPagesTogetherAreTheFilteredList(t *testing.T) {
	w := sample(t)
	rapid.Check(t, func(rt *rapid.T) {
		f := CounterFilter{
			Meter:    rapid.SampledFrom([]string{"", "", "calls", "in", "out", "peak"}).Draw(rt, "meter"),
			Customer: rapid.SampledFrom([]string{"", "", "ann", "bob", "cat", "eve", "a", "zoe"}).Draw(rt, "customer"),
		}
		month := rapid.SampledFrom([]string{"", "", "2026-08", "2026-09", "2026-10", "2026-11",
			"2026-12"}).Draw(rt, "month")
		if month != "" {
			m := period(t, month)
			f.Month = &m
		}
		w.looks = rapid.IntRange(1, 12).Draw(rt, "looks")
		limit := rapid.IntRange(1, 5).Draw(rt, "limit")
		var want []string
		for _, l := range sampleLines {
			p := strings.Fields(l)
			if (month == "" || p[0] == month) && (f.Meter == "" || p[1] == f.Meter) &&
				(f.Customer == "" || p[2] == f.Customer) {
				want = append(want, l)
			}
		}
		var got []string
		var after *store.CounterPlace
		for pages := 0; ; pages++ {
			items, next, err := w.Counters(t.Context(), "acme", f, after, limit)
			if err != nil || len(items) > limit || pages > 30 {
				rt.Fatalf("page %d has %d items, %v", pages, len(items), err)
			}
			got = append(got, lines(items)...)
			if next == nil {
				break
			}
			after = next
		}
		if !slices.Equal(got, want) {
			rt.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestAnExactFilterIsAPointRead(t *testing.T) {
	w := sample(t)
	m := period(t, "2026-10")
	w.store.walks = 0
	items, next, err := w.Counters(t.Context(), "acme", CounterFilter{Meter: "calls", Customer: "fay", Month: &m}, nil,
		100)
	if err != nil || next != nil || w.store.walks != 0 {
		t.Fatalf("next %v, %v, %d walks", next, err, w.store.walks)
	}
	wantSame(t, lines(items), []string{"2026-10 calls fay closed 9"})
	for after, want := range map[string]int{"fax": 1, "fay": 0, "faz": 0} {
		place := store.CounterPlace{Month: m, Meter: "calls", Customer: after}
		if rest, _, err := w.Counters(t.Context(), "acme", CounterFilter{Meter: "calls", Customer: "fay", Month: &m},
			&place, 100); err != nil || len(rest) != want {
			t.Errorf("after %s: %d items, %v", after, len(rest), err)
		}
	}
	if sealed := items[0].SealedTotal(items[0].Meter.Aggregation); !sealed.IsZero() {
		t.Errorf("sealed at %s, before its first row", sealed)
	}
}

func TestAFilterLeapsOverWhatItRulesOut(t *testing.T) {
	w := newWorld(t)
	for i := range 200 {
		w.record("calls", fmt.Sprintf("c%03d", i), "2026-10-05", "1")
	}
	w.record("peak", "c150", "2026-10-05", "1")
	w.record("calls", "c150", "2026-11-05", "1")
	m := period(t, "2026-10")
	for _, c := range []struct {
		filter CounterFilter
		items  int
	}{
		{CounterFilter{Customer: "c150"}, 3},
		{CounterFilter{Meter: "peak"}, 1},
		{CounterFilter{Meter: "peak", Month: &m}, 1},
		{CounterFilter{Meter: "calls", Customer: "c150"}, 2},
		{CounterFilter{Customer: "c150", Month: &m}, 2},
	} {
		w.store.looked = 0
		items, next, err := w.Counters(t.Context(), "acme", c.filter, nil, 100)
		if err != nil || next != nil || len(items) != c.items {
			t.Errorf("%+v: %d items, next %v, %v", c.filter, len(items), next, err)
		}
		if w.store.looked > 20 {
			t.Errorf("%+v looked at %d counters for %d items", c.filter, w.store.looked, len(items))
		}
	}
}

func TestAScanEndsAfterSoManyCountersWithThePlaceToGoOn(t *testing.T) {
	w := newWorld(t)
	for i := range 30 {
		a := w.mustAdjust("calls", fmt.Sprintf("c%02d", i), "2026-10", "1")
		if _, err := w.Revert(t.Context(), "k", "acme", a.ID); err != nil {
			t.Fatal(err)
		}
	}
	w.record("calls", "z", "2026-10-05", "1")
	w.looks = 10
	w.store.looked = 0
	items, next, err := w.Counters(t.Context(), "acme", CounterFilter{}, nil, 100)
	if err != nil || len(items) != 0 || next == nil || w.store.looked != 10 {
		t.Fatalf("%d items, next %v, %v, looked at %d", len(items), next, err, w.store.looked)
	}
	wantSame(t, *next, store.CounterPlace{Month: period(t, "2026-10"), Meter: "calls", Customer: "c09"})
	if New(w.store).looks != maxLooked {
		t.Error("a service must look at a bounded number of counters")
	}
}

// An adjustment that was in force at the close is part of the bill that was sent, even if nothing is left of it.
func TestACounterThatIsEmptyNowButWasNotAtTheCloseIsShown(t *testing.T) {
	w := newWorld(t)
	a := w.mustAdjust("calls", "ann", "2026-10", "5")
	w.mustClose("2026-10")
	if _, err := w.Revert(t.Context(), "k", "acme", a.ID); err != nil {
		t.Fatal(err)
	}
	m := period(t, "2026-10")
	for _, f := range []CounterFilter{{}, {Meter: "calls", Customer: "ann", Month: &m}} {
		items, _, err := w.Counters(t.Context(), "acme", f, nil, 10)
		if err != nil || len(items) != 1 {
			t.Fatalf("%+v, %v", items, err)
		}
		agg := items[0].Meter.Aggregation
		if total, sealed := items[0].Total(agg), items[0].SealedTotal(agg); !total.IsZero() || sealed.String() != "5" {
			t.Errorf("total %s, sealed %s", total, sealed)
		}
	}
}

func TestCountersThatCannotBeRead(t *testing.T) {
	w := sample(t)
	for _, id := range []string{"nobody", "", tenant.Operator, "a/b"} {
		_, _, err := w.Counters(t.Context(), id, CounterFilter{}, nil, 10)
		wantCode(t, err, problem.NotFound)
	}
	m := period(t, "2026-10")
	for _, f := range []CounterFilter{{Meter: "none"}, {Meter: "none", Customer: "ann", Month: &m}} {
		_, _, err := w.Counters(t.Context(), "acme", f, nil, 10)
		wantCode(t, err, problem.NotFound)
	}
}

func TestSlugsNameMeterNumbers(t *testing.T) {
	w := newWorld(t)
	got, err := w.Slugs(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, got, map[uint32]string{1: "calls", 2: "peak", 3: "in", 4: "out"})
	_, err = w.Slugs(t.Context(), "nobody")
	wantCode(t, err, problem.NotFound)
}

// What was listed belongs to the caller: later facts do not show in it.
func TestCountersAreCopies(t *testing.T) {
	w := newWorld(t)
	w.record("calls", "ann", "2026-11-10", "1")
	w.record("calls", "ann", "2026-11-01", "2")
	items, _, err := w.Counters(t.Context(), "acme", CounterFilter{}, nil, 10)
	if err != nil || len(items) != 1 {
		t.Fatalf("%+v, %v", items, err)
	}
	before := usage.Counter{OnTime: items[0].OnTime, Late: &usage.Fold{}}
	*before.Late = *items[0].Late
	w.now = w.now.Add(time.Hour)
	w.record("calls", "ann", "2026-11-12", "3")
	if !items[0].OnTime.Equal(&before.OnTime) || !items[0].Late.Equal(before.Late) ||
		items[0].Watermark != moment(t, "2026-11-10") {
		t.Errorf("the listed counter changed: %+v", items[0])
	}
	if items[0].Month != calendar.MonthOf(moment(t, "2026-11-10")) {
		t.Errorf("month %s", items[0].Month)
	}
}
