package storetest

import (
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

func (w *world) assignFrom(id, customer, plan string, from calendar.Micros) {
	w.Helper()
	w.update(id, func(tx store.Tx) error { return AssignFrom(tx, customer, plan, from) })
}

// Dated plans: the one that judges a fact is the one in force when it is judged, whatever the fact's own time is.
var datedCases = []Case{
	{"a plan that is dated ahead comes into force by itself", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "none", Hard("calls", "0"))
		w.plan(acme, "some", Hard("calls", "5"))
		at := func(d time.Duration) calendar.Micros { return calendar.FromTime(Start.Add(d)) }
		w.assignFrom(acme, "c", "none", at(time.Hour))
		w.assignFrom(acme, "c", "some", at(3*time.Hour))
		w.assignFrom(acme, "", "none", at(5*time.Hour))
		w.assignFrom(acme, "", "", at(6*time.Hour))
		n := 0
		try := func(want string) {
			w.Helper()
			n++
			// The fact is of the past: its time does not choose the plan.
			w.says(acme, want, Fact(fmt.Sprint("f", n), "calls", "c", Ago(time.Hour), "1"))
		}
		try("accepted")
		for _, step := range []struct {
			at   time.Duration
			want string
		}{
			{time.Hour - time.Microsecond, "accepted"}, {time.Hour, "rejected:quota_exceeded"},
			{3*time.Hour - time.Microsecond, "rejected:quota_exceeded"}, {3 * time.Hour, "accepted"},
			{5*time.Hour - time.Microsecond, "accepted"}, {5 * time.Hour, "rejected:quota_exceeded"},
			{6 * time.Hour, "accepted"},
			{7 * time.Hour, "rejected:quota_exceeded"}, // five are used
		} {
			w.clock.Set(Start.Add(step.at))
			try(step.want)
		}
		w.again()
		try("rejected:quota_exceeded")
		w.clock.Set(Start) // the ledger's clock never goes back
		try("rejected:quota_exceeded")
	}},
	{"a plan that is dated ahead is in force after a restart and a long rest", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "none", Hard("calls", "0"))
		w.assignFrom(acme, "c", "none", calendar.FromTime(Start.Add(240*time.Hour)))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"), Fact("b", "calls", "d", Ago(0), "1"))
		w.again()
		w.clock.Advance(240 * time.Hour)
		w.says(acme, "rejected:quota_exceeded accepted", Fact("c", "calls", "c", Ago(0), "1"),
			Fact("d", "calls", "d", Ago(0), "1"))
		w.atomically(acme, "withheld rejected:quota_exceeded", Fact("e", "calls", "d", Ago(0), "1"),
			Fact("f", "calls", "c", Ago(0), "1"))
	}},
	{"of dated plans one is replaced by another of the same time, and those of other times stay", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "none", Hard("calls", "0"))
		w.plan(acme, "some", Hard("calls", "5"))
		from := calendar.FromTime(Start.Add(time.Hour))
		w.assignFrom(acme, "c", "none", Ago(0))
		w.assignFrom(acme, "c", "some", Ago(0))
		w.assignFrom(acme, "c", "some", from)
		w.assignFrom(acme, "c", "none", from)
		w.assignFrom(acme, "c", "", Ago(-2*time.Hour))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		w.again()
		w.view(acme, func(v store.View) {
			a, err := store.Assignment(v, "c")
			if got := fmt.Sprint(a.Plans); err != nil ||
				got != fmt.Sprint([]any{dated(0, "some"), dated(time.Hour, "none"), dated(2*time.Hour, "")}) {
				w.Errorf("c has %s, %v", got, err)
			}
		})
		w.clock.Advance(time.Hour)
		w.says(acme, "rejected:quota_exceeded", Fact("b", "calls", "c", Ago(0), "1"))
	}},
	{"alerts are those of the plan that is in force", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "small", Soft("calls", "2", "0"))
		w.plan(acme, "large", Soft("calls", "100", "0"))
		w.assignFrom(acme, "c", "large", Ago(0))
		w.assignFrom(acme, "c", "small", Ago(-time.Hour))
		var events []usage.Event
		for i := range 3 {
			events = append(events, Fact(fmt.Sprint("a", i), "calls", "c", Ago(0), "1"))
		}
		w.says(acme, "accepted", events...)
		w.alerts(acme)
		w.clock.Advance(time.Hour)
		w.says(acme, "overage", Fact("b", "calls", "c", Ago(0), "1"))
		w.alerts(acme, "calls:2026-11:c 80", "calls:2026-11:c 100")
	}},
}

// dated prints as a plan from some time after the start on.
func dated(after time.Duration, plan string) string {
	return fmt.Sprintf("{%s %s}", calendar.FromTime(Start.Add(after)), plan)
}
