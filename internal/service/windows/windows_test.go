package windows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// filled has three customers with a fact in each of the last hours.
func filled(t *testing.T, hours int) (*Service, Query) {
	t.Helper()
	s := naive.New(naive.Options{Now: storetest.NewClock().Now})
	if err := storetest.Create(s, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	var events []usage.Event
	for i := range hours {
		for _, customer := range []string{"a", "b", "c"} {
			events = append(events, storetest.Fact(fmt.Sprint(customer, i), "calls", customer,
				storetest.Ago(time.Duration(i)*time.Hour), "1"))
		}
	}
	if _, err := s.Record(context.Background(), store.Batch{Tenant: "acme", Events: events}); err != nil {
		t.Fatal(err)
	}
	from, to := storetest.Ago(time.Duration(hours)*time.Hour), storetest.Ago(-time.Minute)
	return New(s), Query{Meter: "calls", From: &from, To: &to, Step: calendar.StepHour, Zone: time.UTC,
		GroupBy: []usage.Dimension{{Of: usage.ByCustomer}}}
}

func names(r Report) (out []string) {
	for w := range r.Windows {
		out = append(out, fmt.Sprintf("%s %s %s", w.From, w.Group[0].Text, w.Value))
	}
	return out
}

// Given any size of pages, when all are read, then they are the whole, also when no two windows fit the bound at once.
func TestPagesAreTheWhole(t *testing.T) {
	s, q := filled(t, 10)
	whole, err := s.Usage(t.Context(), "acme", q)
	if err != nil {
		t.Fatal(err)
	}
	want := names(whole)
	if len(want) != 30 {
		t.Fatalf("%d windows of groups", len(want))
	}
	q.Step = calendar.StepHour
	for _, bound := range []int{MaxCells, 12} {
		s.maxCells = bound
		for limit := 1; limit <= 31; limit++ {
			var got []string
			for place := (*Place)(nil); ; {
				r, err := s.Page(t.Context(), "acme", q, place, limit)
				if err != nil {
					t.Fatalf("limit %d: %v", limit, err)
				}
				page := names(r)
				if len(page) > limit || r.Next != nil && len(page) < limit {
					t.Fatalf("limit %d: a page of %d", limit, len(page))
				}
				got = append(got, page...)
				if place = r.Next; place == nil {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("bound %d, limit %d: %v, want %v", bound, limit, got, want)
			}
		}
	}
}

func TestTooMuchForOneAnswerIsRefused(t *testing.T) {
	s, q := filled(t, 10)
	for bound, want := range map[int]string{30: "", 29: "more than 29 windows of groups", 10: "more than 10 windows"} {
		s.maxCells = bound
		_, err := s.Usage(t.Context(), "acme", q)
		if want == "" && err != nil || want != "" &&
			(!problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("a bound of %d: %v, want %q", bound, err, want)
		}
	}
	s.maxCells = 2 // not even one window fits a page
	whole := q
	whole.Step = calendar.StepNone
	if _, err := s.Page(t.Context(), "acme", whole, nil, 5); !problem.Is(err, problem.Invalid) {
		t.Errorf("a window that does not fit: %v", err)
	}
}

func TestPlacesThatAreNone(t *testing.T) {
	s, q := filled(t, 3)
	for _, p := range []Place{{Seq: 0, From: *q.From}, {Seq: 1 << 40, From: *q.From}, {Seq: 2, From: *q.From + 1},
		{Seq: 2, From: *q.To}, {Seq: 2, From: -5}} {
		if _, err := s.Page(t.Context(), "acme", q, &p, 5); !problem.Is(err, problem.Invalid) {
			t.Errorf("%+v: %v, want invalid", p, err)
		}
	}
	if r, err := s.Page(t.Context(), "acme", q, &Place{Seq: 5, From: *q.From, Given: 1 << 50}, 5); err != nil ||
		len(names(r)) > 5 {
		t.Errorf("a place beyond its window: %v", err)
	}
}

// A fold waits its turn, and a caller that is gone waits no longer.
func TestFoldsTakeTurns(t *testing.T) {
	s, q := filled(t, 3)
	for range folds {
		s.turns <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Usage(ctx, "acme", q); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a turn: %v", err)
	}
	done := make(chan error)
	go func() {
		_, err := s.Usage(t.Context(), "acme", q)
		done <- err
	}()
	<-s.turns
	if err := <-done; err != nil {
		t.Error(err)
	}
	for range folds - 1 {
		<-s.turns
	}
	select {
	case <-s.turns:
		t.Error("a fold kept its turn")
	default:
	}
}

func TestWhoseUsage(t *testing.T) {
	s, q := filled(t, 3)
	for _, id := range []string{"nobody", "", "operator.", "_operator"} {
		if _, err := s.Usage(t.Context(), id, q); !problem.Is(err, problem.NotFound) {
			t.Errorf("usage of %q: %v, want not_found", id, err)
		}
	}
}
