package billing

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// scratchRow is an event row whose strings are overwritten after the scan's function has seen them.
type scratchRow struct {
	ledger.Row
	memory []byte
}

func scribbled(r *ledger.Row) *scratchRow {
	s := &scratchRow{Row: *r}
	if r.Event == nil {
		return s
	}
	e := *r.Event
	s.memory = append([]byte(e.Customer), e.Key.Name...)
	text := unsafe.String(&s.memory[0], len(s.memory))
	e.Customer, e.Key.Name = text[:len(e.Customer)], text[len(e.Customer):]
	s.Row.Event = &e
	return s
}

func (s *scratchRow) scribble() { copy(s.memory, bytes.Repeat([]byte("!"), len(s.memory))) }

// total is the one counter's.
func (w *world) total(t handle, slug, customer, month string) string {
	t.Helper()
	m := period(t, month)
	items, _, err := w.Counters(t.Context(), "acme", CounterFilter{Meter: slug, Customer: customer, Month: &m}, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(items) == 0 {
		return "nothing"
	}
	return items[0].Total(items[0].Meter.Aggregation).String()
}

func TestAPersonAdjustsATotalAndTakesItBack(t *testing.T) {
	w := newWorld(t)
	made := w.mustAdjust("calls", "ann", "2026-10", "-2.5")
	seq := w.head()
	id := fmt.Sprintf("adj_%d", seq)
	want := usage.Adjustment{ID: id, Seq: seq, At: calendar.FromTime(start), Meter: 1, Customer: "ann",
		Month:  period(t, "2026-10"),
		Amount: number(t, "-2.5"), Reason: "goodwill", Actor: "k1"}
	wantSame(t, made, want)
	if got := w.total(t, "calls", "ann", "2026-10"); got != "-2.5" {
		t.Errorf("total %s", got)
	}
	wantSame(t, w.change(seq).Event, audit.Event{Type: "adjustment.created", Source: "api", Actor: "k1",
		EntityType: "adjustment", EntityID: id,
		Payload: `{"id":"` + id + `","meter":"calls","customer":"ann","period":"2026-10","amount":"-2.5",` +
			`"reason":"goodwill"}`})

	w.now = w.now.Add(time.Hour)
	back, err := w.Revert(t.Context(), "k2", "acme", id)
	if err != nil {
		t.Fatal(err)
	}
	backID := fmt.Sprintf("adj_%d", seq+1)
	wantSame(t, back, usage.Adjustment{ID: backID, Seq: seq + 1, At: calendar.FromTime(w.now), Meter: 1,
		Customer: "ann", Month: want.Month,
		Amount: number(t, "2.5"), Reason: "reverts " + id, Actor: "k2", Reverts: id})
	wantSame(t, w.change(seq+1).Event, audit.Event{Type: "adjustment.reverted", Source: "api", Actor: "k2",
		EntityType: "adjustment", EntityID: backID,
		Payload: `{"id":"` + backID + `","meter":"calls","customer":"ann","period":"2026-10","amount":"2.5",` +
			`"reason":"reverts ` + id + `","reverts":"` + id + `"}`})
	if got := w.total(t, "calls", "ann", "2026-10"); got != "nothing" {
		t.Errorf("total %s", got)
	}
	want.Reverted = backID
	got, err := w.Adjustment(t.Context(), "acme", id)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, got, want)

	for _, again := range []string{id, backID} {
		_, err = w.Revert(t.Context(), "k2", "acme", again)
		wantCode(t, err, problem.Conflict)
	}
	if w.head() != seq+1 {
		t.Error("a refused revert left a row")
	}
}

func TestAdjustmentsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	w.record("calls", "ann", "2026-11-10", "1")
	late := w.record("calls", "ann", "2026-11-01", "1")
	month, head := period(t, "2026-11"), w.head()
	for name, c := range map[string]struct {
		tenant, meter, customer, amount, reason string
		want                                    problem.Code
	}{
		"no tenant":      {"nobody", "calls", "ann", "1", "r", problem.NotFound},
		"the operator's": {tenant.Operator, "calls", "ann", "1", "r", problem.NotFound},
		"no meter":       {"acme", "none", "ann", "1", "r", problem.UnknownMeter},
		"no customer":    {"acme", "calls", "", "1", "r", problem.Invalid},
		"no reason":      {"acme", "calls", "ann", "1", "", problem.Invalid},
		"zero":           {"acme", "calls", "ann", "0", "r", problem.Invalid},
		"huge":           {"acme", "calls", "ann", "1000000000000000000", "r", problem.Invalid},
		"long reason":    {"acme", "calls", "ann", "1", strings.Repeat("r", usage.MaxReason+1), problem.Invalid},
	} {
		_, err := w.Adjust(t.Context(), "k", c.tenant, c.meter, c.customer, month, number(t, c.amount), c.reason)
		if problem.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	for _, id := range []string{"", "adj_", "adj_0", "adj_1", "adj_999", "nonsense", fmt.Sprintf("adj_0%d_1", late.Seq),
		fmt.Sprintf("adj_%d_2", late.Seq), fmt.Sprintf("adj_%d", late.Seq)} {
		_, err := w.Adjustment(t.Context(), "acme", id)
		wantCode(t, err, problem.NotFound)
		_, err = w.Revert(t.Context(), "k", "acme", id)
		wantCode(t, err, problem.NotFound)
	}
	_, err := w.Revert(t.Context(), "k", "acme", fmt.Sprintf("adj_%d_1", late.Seq))
	wantCode(t, err, problem.Conflict)
	if err == nil || !strings.Contains(err.Error(), late.Key.ID()) {
		t.Errorf("the refusal does not say which event to correct: %v", err)
	}

	made := w.mustAdjust("calls", "ann", "2026-11", "1")
	_, err = w.Revert(t.Context(), "k", "acme", strings.Replace(made.ID, "_", "_0", 1))
	wantCode(t, err, problem.NotFound)
	w.closeTenant()
	_, err = w.Adjust(t.Context(), "k", "acme", "calls", "ann", month, number(t, "1"), "r")
	wantCode(t, err, problem.TenantClosed)
	_, err = w.Revert(t.Context(), "k", "acme", made.ID)
	wantCode(t, err, problem.TenantClosed)
	if w.head() != head+2 {
		t.Errorf("%d rows more, want the adjustment and the close", w.head()-head)
	}
}

// It takes 10^8 of the largest adjustments to fill a counter: a store that claims a full one stands in for them.
func TestAnAdjustmentThatDoesNotFitIsRefused(t *testing.T) {
	w := newWorld(t)
	full := usage.Counter{Manual: number(t, "99999999999999999999999999")}
	if full.CanAdjust(number(t, "1")) {
		t.Fatal("the counter is not full")
	}
	w.Service = New(&fullStore{w.store, full})
	head := w.head()
	_, err := w.Adjust(t.Context(), "k", "acme", "calls", "ann", period(t, "2026-11"), number(t, "1"), "r")
	wantCode(t, err, problem.Overflow)
	if w.head() != head {
		t.Error("a refusal left a row")
	}
	if _, err := w.Adjust(t.Context(), "k", "acme", "calls", "ann", period(t, "2026-11"), number(t, "-1"),
		"r"); err != nil {
		t.Error(err)
	}
}

func TestAnAdjustmentIsRevertedOnceHoweverManyTry(t *testing.T) {
	w := newWorld(t)
	made := w.mustAdjust("calls", "ann", "2026-11", "5")
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = w.Revert(context.WithoutCancel(t.Context()), "k", "acme", made.ID) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		wantCode(t, err, problem.Conflict)
	}
	if won != 1 || w.head() != made.Seq+1 {
		t.Errorf("%d reverts, %d rows", won, w.head()-made.Seq)
	}
}

// history leaves adjustments of every kind.
func history(t *testing.T) *world {
	w := newWorld(t)
	first := w.mustAdjust("calls", "ann", "2026-11", "10")
	w.record("calls", "ann", "2026-11-10", "1")
	w.record("llm", "ann", "2026-11-10", "2")
	w.record("calls", "ann", "2026-11-01", "3") // late
	w.record("llm", "ann", "2026-11-01", "4")   // late in both its meters
	w.mustClose("2026-10")
	w.record("peak", "bob", "2026-10-10", "5") // after the close
	if _, err := w.Revert(t.Context(), "k2", "acme", first.ID); err != nil {
		t.Fatal(err)
	}
	w.record("calls", "ann", "2026-11-11", "1")
	return w
}

func adjustmentLine(a usage.Adjustment) string {
	return strings.TrimSpace(fmt.Sprintf("%s %d %s %s %s (%s) %s%s %s", a.ID, a.Meter, a.Customer, a.Month, a.Amount,
		a.Reason, a.Actor, a.Event, a.Reverted))
}

func TestAdjustmentsOfPeopleAndLateRowsAreListedInRowOrder(t *testing.T) {
	w := history(t)
	october, november := period(t, "2026-10"), period(t, "2026-11")
	goodwill := "adj_7 1 ann 2026-11 10 (goodwill) k1 adj_14"
	late := "adj_10_1 1 ann 2026-11 3 (late) e3"
	in, out := "adj_11_3 3 ann 2026-11 4 (late) e4", "adj_11_4 4 ann 2026-11 1 (late) e4"
	afterClose := "adj_13_2 2 bob 2026-10 5 (period_closed) e5"
	back := "adj_14 1 ann 2026-11 -10 (reverts adj_7) k2"
	for name, c := range map[string]struct {
		filter AdjustmentFilter
		want   []string
	}{
		"all":      {AdjustmentFilter{}, []string{goodwill, late, in, out, afterClose, back}},
		"meter":    {AdjustmentFilter{Meter: "calls"}, []string{goodwill, late, back}},
		"customer": {AdjustmentFilter{Customer: "bob"}, []string{afterClose}},
		"october":  {AdjustmentFilter{Month: &october}, []string{afterClose}},
		"november": {AdjustmentFilter{Month: &november, Meter: "out"}, []string{out}},
		"none":     {AdjustmentFilter{Meter: "peak", Customer: "ann"}, nil},
	} {
		for _, limit := range []int{1, 2, 3, 100} {
			for _, perScan := range []int{0, 1, 2, 5} {
				w.store.rowsPerScan = perScan
				got := w.pages(t, c.filter, limit)
				if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
					t.Errorf("%s, limit %d, scans of %d rows:\ngot  %q\nwant %q", name, limit, perScan, got, c.want)
				}
			}
		}
	}
}

// pages reads all pages; a page may be longer than the limit only by the rest of its last row.
func (w *world) pages(t *testing.T, f AdjustmentFilter, limit int) []string {
	t.Helper()
	var out []string
	after := uint64(0)
	for {
		items, next, err := w.Adjustments(t.Context(), "acme", f, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(items) > limit && items[limit-1].Seq != items[len(items)-1].Seq {
			t.Errorf("a page of %d for limit %d goes beyond the row that filled it", len(items), limit)
		}
		for _, a := range items {
			out = append(out, adjustmentLine(a))
		}
		if next == 0 {
			return out
		}
		if next <= after {
			t.Fatalf("the page after %d goes on at %d", after, next)
		}
		after = next
	}
}

func TestAListedAdjustmentIsTheOneThatIsRead(t *testing.T) {
	w := history(t)
	items, next, err := w.Adjustments(t.Context(), "acme", AdjustmentFilter{}, 0, 100)
	if err != nil || next != 0 || len(items) != 6 {
		t.Fatalf("%d items, next %d, %v", len(items), next, err)
	}
	for _, a := range items {
		got, err := w.Adjustment(t.Context(), "acme", a.ID)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, got, a)
	}
	_, _, err = w.Adjustments(t.Context(), "acme", AdjustmentFilter{Meter: "none"}, 0, 10)
	wantCode(t, err, problem.NotFound)
	_, _, err = w.Adjustments(t.Context(), "nobody", AdjustmentFilter{}, 0, 10)
	wantCode(t, err, problem.NotFound)
}
