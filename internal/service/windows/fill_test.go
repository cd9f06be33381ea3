package windows_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/windows"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// agreeFilled wants a filled answer, whole and in pages, to be every window of every group of the plain one, and
// nothing else.
func agreeFilled(t storetest.TB, s store.Store, id string, q windows.Query, plain []usage.Window) {
	t.Helper()
	if q.Step == calendar.StepHour {
		return // thousands of windows, cut as minutes are
	}
	q.Fill = true
	cuts, _ := calendar.Cut(*q.From, *q.To, q.Step, q.Zone, windows.MaxCells)
	want := filledByHand(cuts, plain, len(q.GroupBy) == 0)
	whole, err := windows.New(s).Usage(context.Background(), id, q)
	if err != nil {
		t.Fatalf("filled usage of %s: %v", q.Meter, err)
	}
	if got := slices.Collect(whole.Windows); !slices.EqualFunc(got, want, sameWindow) {
		t.Fatalf("%s of %s by %q, filled:\n got %v\nwant %v", q.Meter, id, q.Step, got, want)
	}
	var got []usage.Window
	for place := (*windows.Place)(nil); ; {
		r, err := windows.New(s).Page(context.Background(), id, q, place, 97)
		if err != nil {
			t.Fatalf("a page of filled usage of %s: %v", q.Meter, err)
		}
		got = slices.AppendSeq(got, r.Windows)
		if place = r.Next; place == nil {
			break
		}
	}
	if !slices.EqualFunc(got, want, sameWindow) {
		t.Fatalf("%s of %s by %q, filled, in pages:\n got %v\nwant %v", q.Meter, id, q.Step, got, want)
	}
}

func sameWindow(a, b usage.Window) bool {
	return a.From == b.From && a.To == b.To && a.Value == b.Value && a.Empty == b.Empty &&
		slices.Equal(a.Group, b.Group)
}

// filledByHand writes down every window of the range for every group that the plain answer has.
func filledByHand(cuts []calendar.Micros, plain []usage.Window, total bool) (out []usage.Window) {
	groups := map[string][]usage.Label{}
	here := map[string]usage.Window{} // by window and group
	place := func(from calendar.Micros, group string) string { return strconv.FormatInt(int64(from), 10) + group }
	for _, w := range plain {
		groups[groupName(w.Group)] = w.Group
		here[place(w.From, groupName(w.Group))] = w
	}
	if total {
		groups[""] = nil
	}
	names := slices.Sorted(maps.Keys(groups))
	for i, from := range cuts[:len(cuts)-1] {
		for _, name := range names {
			w, ok := here[place(from, name)]
			if !ok {
				w = usage.Window{From: from, To: cuts[i+1], Group: groups[name], Empty: true}
			}
			out = append(out, w)
		}
	}
	return out
}

// groupName orders as groups are ordered, for labels without bytes below the separator.
func groupName(group []usage.Label) (out string) {
	for _, l := range group {
		out += fmt.Sprintf("%d%s\x00", l.Kind, l.Text)
	}
	return out
}

// A grid of every window and every group has a bound, also in pages, and the refusal says what to do.
func TestFillingIsBounded(t *testing.T) {
	s := naive.New(naive.Options{Now: storetest.NewClock().Now})
	if err := storetest.Create(s, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	var events []usage.Event
	for i := range 10 {
		events = append(events, storetest.Fact(fmt.Sprint("f", i), "calls", fmt.Sprint("c", i),
			storetest.Month.Start(), "1"))
	}
	if _, err := s.Record(t.Context(), store.Batch{Tenant: "acme", Events: events}); err != nil {
		t.Fatal(err)
	}
	from := storetest.Month.Start()
	for hours, fits := range map[int]bool{100: true, 101: false} {
		to := from.Add(time.Duration(hours) * time.Hour)
		q := windows.Query{Meter: "calls", From: &from, To: &to, Step: calendar.StepHour, Zone: time.UTC,
			GroupBy: byCustomer, Fill: true}
		bounded := windows.NewBounded(s, 1000)
		_, err := bounded.Usage(t.Context(), "acme", q)
		_, paged := bounded.Page(t.Context(), "acme", q, nil, 5)
		if fits && (err != nil || paged != nil) || !fits &&
			(!problem.Is(err, problem.Invalid) || !problem.Is(paged, problem.Invalid)) {
			t.Errorf("%d hours: %v, in pages %v", hours, err, paged)
		}
	}
}
