package billing

import (
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

func (w *world) mustCloseDue(grace time.Duration) int {
	w.Helper()
	n, err := w.CloseDue(w.Context(), grace)
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) isClosed(name string) bool {
	w.Helper()
	month, err := calendar.ParseMonth(name)
	if err != nil {
		w.Fatal(err)
	}
	p, err := w.Period(w.Context(), "acme", month)
	if err != nil {
		w.Fatal(err)
	}
	return p.Closed
}

func TestAMonthIsDueOnceLatenessAndGraceHavePassed(t *testing.T) {
	const grace = 12 * time.Hour
	w := newWorld(t)
	slow := meter.Meter{Slug: "slow", Aggregation: meter.Sum, Lateness: 72 * time.Hour, Future: meter.DefaultFuture}
	if _, err := w.registry.CreateMeter(t.Context(), "k", "acme", slow); err != nil {
		t.Fatal(err)
	}
	w.record("calls", "ann", "2026-11-05", "1")
	due := period(t, "2026-11").End().Time().Add(slow.Lateness +
		grace) // of the slowest meter, whether it was used or not
	w.now = due.Add(-time.Microsecond)
	if n := w.mustCloseDue(grace); n != 0 || w.isClosed("2026-11") {
		t.Fatalf("%d periods closed a moment too early", n)
	}
	w.now = due
	if n := w.mustCloseDue(grace); n != 1 || !w.isClosed("2026-11") {
		t.Fatalf("%d periods closed when one was due", n)
	}
	wantSame(t, w.change(w.head()).Event, audit.Event{Type: "period.closed", Source: audit.SourceSystem,
		Actor: audit.ActorSystem, EntityType: "period",
		EntityID: "2026-11", Payload: `{"period":"2026-11"}`})
	head := w.head()
	if n := w.mustCloseDue(grace); n != 0 || w.head() != head {
		t.Errorf("closing again closed %d periods", n)
	}
}

func TestEveryDueMonthOfEveryTenantIsClosedAndNoOther(t *testing.T) {
	w := newWorld(t)
	months := []string{"2024-02", "2026-08", "2026-09", "2026-10", "2026-11"}
	for _, m := range months {
		w.record("calls", "ann", m+"-05", "1")
	}
	w.mustClose("2026-09")
	for _, id := range []string{"bolt", "shut"} {
		if _, _, err := w.registry.CreateTenant(t.Context(), "operator", tenant.Tenant{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.registry.CloseTenant(t.Context(), "operator", "shut"); err != nil {
		t.Fatal(err)
	}
	if n := w.mustCloseDue(0); n != 3 {
		t.Errorf("%d periods were closed, want 2024-02, 2026-08 and 2026-10", n)
	}
	for _, m := range months {
		if got, want := w.isClosed(m), m != "2026-11"; got != want {
			t.Errorf("%s closed: %v", m, got)
		}
	}
}

func TestMoreDueMonthsThanOneRoundTakes(t *testing.T) {
	w := newWorld(t)
	for year := 2020; year < 2024; year++ {
		for month := time.January; month <= time.December; month++ {
			w.record("calls", "ann", time.Date(year, month, 5, 0, 0, 0, 0, time.UTC).Format(time.DateOnly), "1")
		}
	}
	total := 0
	for n := 1; n > 0; {
		n = w.mustCloseDue(0)
		total += n
	}
	if total != 48 {
		t.Errorf("%d periods were closed, want 48", total)
	}
}

// Due months are closed for every tenant, and found beyond months that are not due, however few the store lists at a
// time.
func TestDueMonthsBeyondTheFirstPage(t *testing.T) {
	w := newWorld(t)
	months := []string{"2024-02", "2025-03", "2026-08", "2026-09", "2026-10", "2026-11"}
	for _, m := range months {
		w.record("calls", "ann", m+"-05", "1")
	}
	w.mustClose("2024-02")
	for _, id := range []string{"aaa", "aab", "aac"} { // before acme
		if _, _, err := w.registry.CreateTenant(t.Context(), "operator", tenant.Tenant{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	n, err := New(storetest.ShortPages(w.store, 1)).CloseDue(t.Context(), 0)
	if err != nil || n != 4 || !w.isClosed("2026-10") || w.isClosed("2026-11") {
		t.Errorf("%d periods were closed, %v", n, err)
	}
}
