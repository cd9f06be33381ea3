package billing

import (
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
)

func TestAPeriodIsClosedOnce(t *testing.T) {
	w := newWorld(t)
	month := period(t, "2026-10")
	open, err := w.Period(t.Context(), "acme", month)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, open, Period{Period: usage.Period{Month: month}})

	w.record("calls", "ann", "2026-10-05", "1")
	closed := w.mustClose("2026-10")
	seq := w.head()
	wantSame(t, closed.Period, usage.Period{Month: month, Closed: true, ClosedAt: calendar.FromTime(start),
		Seq: seq, Actor: "k1"})
	wantSame(t, w.change(seq).Event, audit.Event{Type: "period.closed", Source: "api", Actor: "k1",
		EntityType: "period", EntityID: "2026-10", Payload: `{"period":"2026-10"}`})

	w.now = w.now.Add(time.Hour)
	again, err := w.ClosePeriod(t.Context(), "k2", "acme", month, false)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, again, closed)
	read, err := w.Period(t.Context(), "acme", month)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, read.Period, closed.Period)
	if read.Seal == nil || closed.Seal != nil {
		t.Errorf("the seal is %v when it is read, %v when it is closed", read.Seal, closed.Seal)
	}
	if w.head() != seq {
		t.Error("closing again left a row")
	}
}

func TestPeriodsThatCannotBeClosed(t *testing.T) {
	w := newWorld(t)
	w.now = time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC)
	head := w.head()
	for _, confirmed := range []bool{false, true} {
		_, err := w.ClosePeriod(t.Context(), "k", "acme", period(t, "2026-12"), confirmed)
		wantCode(t, err, problem.Invalid)
	}
	_, err := w.ClosePeriod(t.Context(), "k", "acme", period(t, "2026-11"), false)
	wantCode(t, err, problem.PeriodNotOver)
	for _, id := range []string{"nobody", "", tenant.Operator} {
		_, err = w.ClosePeriod(t.Context(), "k", id, period(t, "2026-11"), true)
		wantCode(t, err, problem.NotFound)
		_, err = w.Period(t.Context(), id, period(t, "2026-11"))
		wantCode(t, err, problem.NotFound)
		_, err = w.Periods(t.Context(), id, 0, 10)
		wantCode(t, err, problem.NotFound)
	}
	if w.head() != head {
		t.Error("a refusal left a row")
	}
	if p := w.mustClose("2026-11"); !p.Closed {
		t.Error("the current month may be closed when that is confirmed")
	}
	if _, err := w.ClosePeriod(t.Context(), "k", "acme", period(t, "2026-11"), false); err != nil {
		t.Errorf("a closed month needs no confirmation: %v", err)
	}
	w.now = w.now.Add(time.Second)
	if p := w.mustClose("2026-12"); !p.Closed {
		t.Error("a month may be closed once it has begun")
	}
	w.closeTenant()
	_, err = w.ClosePeriod(t.Context(), "k", "acme", period(t, "2026-09"), false)
	wantCode(t, err, problem.TenantClosed)
	if p, err := w.Period(t.Context(), "acme", period(t, "2026-11")); err != nil || p.Seal == nil {
		t.Errorf("a closed tenant stays readable: %+v, %v", p, err)
	}
}

func TestPeriodsAreListedWithoutSeals(t *testing.T) {
	w := newWorld(t)
	w.record("calls", "ann", "2026-11-05", "1")
	w.record("calls", "ann", "2026-09-05", "1")
	w.mustClose("2026-07")
	list := func(from string, limit int) []string {
		items, err := w.Periods(t.Context(), "acme", period(t, from), limit)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, p := range items {
			if p.Seal != nil {
				t.Errorf("%s is listed with its seal", p.Month)
			}
			state := " open"
			if p.Closed {
				state = " closed"
			}
			out = append(out, p.Month.String()+state)
		}
		return out
	}
	wantSame(t, list("1970-01", 10), []string{"2026-07 closed", "2026-09 open", "2026-11 open"})
	wantSame(t, list("2026-08", 1), []string{"2026-09 open"})
}

// The seal is defined over the totals at the close, in order of meter and customer; empty counters are left out.
func TestTheSealIsThatOfTheTotalsAtTheClose(t *testing.T) {
	w := newWorld(t)
	w.record("peak", "ann", "2026-10-05", "3")
	w.record("calls", "bob", "2026-10-05", "2")
	w.record("calls", "ann", "2026-10-05", "1")
	w.record("calls", "nil", "2026-10-05", "0")
	w.record("calls", "ann", "2026-09-05", "100")
	w.record("calls", "ann", "2026-11-05", "100")
	w.mustAdjust("calls", "ann", "2026-10", "0.5")
	closed := w.sealed("2026-10")
	seal := ledger.NewSeal(period(t, "2026-10"), closed.Seq)
	seal.Add("calls", "ann", number(t, "1.5"))
	seal.Add("calls", "bob", number(t, "2"))
	seal.Add("peak", "ann", number(t, "3"))
	wantSame(t, *closed.Seal, seal.Sum())

	other := w.sealed("2026-09")
	if *other.Seal == *closed.Seal {
		t.Error("two periods have one seal")
	}
}

func TestTheSealNeverChangesWhateverComesAfterTheClose(t *testing.T) {
	w := newWorld(t)
	w.record("calls", "ann", "2026-10-05", "5")
	kept := w.mustAdjust("calls", "bob", "2026-10", "7")
	closed := w.sealed("2026-10")
	same := func(after string) {
		t.Helper()
		p, err := w.Period(t.Context(), "acme", period(t, "2026-10"))
		if err != nil {
			t.Fatal(err)
		}
		if *p.Seal != *closed.Seal {
			t.Errorf("the seal changed after %s", after)
		}
	}
	w.record("calls", "ann", "2026-10-06", "1")
	same("a late row")
	w.record("calls", "new", "2026-10-06", "1")
	same("a late row of a new counter")
	w.send(usage.Event{ID: "c1", Corrects: "e1", Reason: "typo", Quantity: number(t, "-2"), Given: usage.GivenQuantity})
	same("a correction")
	w.mustAdjust("calls", "ann", "2026-10", "3")
	same("an adjustment")
	w.mustAdjust("peak", "zoe", "2026-10", "3")
	same("an adjustment of a new counter")
	if _, err := w.Revert(t.Context(), "k", "acme", kept.ID); err != nil {
		t.Fatal(err)
	}
	same("a revert")
	if got := w.total(t, "calls", "ann", "2026-10"); got != "7" {
		t.Errorf("total %s", got)
	}
	if got := w.total(t, "calls", "bob", "2026-10"); got != "0" {
		t.Errorf("total %s", got)
	}
}
