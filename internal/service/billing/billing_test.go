package billing

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
)

var start = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// handle is what a world needs of a test, also of a property's.
type handle interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// world is billing for the tenant acme, which has the meters "calls" (sum), "peak" (max), and "in" and "out", fed by
// the type "llm".
type world struct {
	handle
	*Service
	store    *watched
	registry *registry.Service
	now      time.Time
	events   int
}

func newWorld(t handle) *world {
	t.Helper()
	return newWorldOn(t, func(now func() time.Time) store.Store { return naive.New(naive.Options{Now: now}) })
}

func newWorldOn(t handle, open func(now func() time.Time) store.Store) *world {
	t.Helper()
	w := &world{handle: t, now: start}
	w.store = &watched{Store: open(func() time.Time { return w.now })}
	w.Service = New(w.store)
	w.registry = registry.New(w.store.Store, rand.Reader)
	if _, _, err := w.registry.CreateTenant(t.Context(), "operator", tenant.Tenant{ID: "acme"}); err != nil {
		t.Fatal(err)
	}
	for _, m := range []meter.Meter{
		{Slug: "calls", Aggregation: meter.Sum}, {Slug: "peak", Aggregation: meter.Max},
		{Slug: "in", Aggregation: meter.Sum, EventType: "llm", ValueProperty: "in"},
		{Slug: "out", Aggregation: meter.Sum, EventType: "llm", ValueProperty: "out"},
	} {
		m.Lateness, m.Future = meter.DefaultLateness, meter.DefaultFuture
		if _, err := w.registry.CreateMeter(t.Context(), "k", "acme", m); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// record sends one event and returns its verdict. Meter "llm" stands for the type.
func (w *world) record(to, customer, at, quantity string) usage.Verdict {
	w.Helper()
	w.events++
	e := usage.Event{ID: fmt.Sprintf("e%d", w.events), Customer: customer, Time: moment(w, at),
		Quantity: number(w, quantity),
		Given:    usage.GivenCustomer | usage.GivenTime | usage.GivenQuantity}
	if to == "llm" {
		e.Type, e.Given = to, e.Given|usage.GivenType|usage.GivenProperties
		e.Quantity, e.Given = amount.One, e.Given&^usage.GivenQuantity
		e.Properties = fmt.Sprintf(`{"in":%s,"out":1}`, quantity)
	} else {
		e.Meter, e.Given = to, e.Given|usage.GivenMeter
	}
	return w.send(e)
}

func (w *world) send(e usage.Event) usage.Verdict {
	w.Helper()
	verdicts, err := w.store.Record(w.Context(), store.Batch{Tenant: "acme", Events: []usage.Event{e}})
	if err != nil {
		w.Fatal(err)
	}
	if verdicts[0].Seq == 0 {
		w.Fatalf("event %+v was refused: %v", e, verdicts[0].Problem)
	}
	return verdicts[0]
}

func (w *world) head() (seq uint64) {
	w.Helper()
	err := w.store.Store.View(w.Context(), "acme", func(v store.View) error {
		seq = v.Head().Seq
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return seq
}

// change returns the change of a row.
func (w *world) change(seq uint64) (c ledger.Change) {
	w.Helper()
	err := w.store.Store.View(w.Context(), "acme", func(v store.View) error {
		_, _, err := v.Rows(seq-1, store.RowHint{Changes: true}, func(r *ledger.Row) bool {
			c = *r.Change
			return false
		})
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *world) mustAdjust(slug, customer, month, a string) usage.Adjustment {
	w.Helper()
	out, err := w.Adjust(w.Context(), "k1", "acme", slug, customer, period(w, month), number(w, a), "goodwill")
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) mustClose(month string) Period {
	w.Helper()
	p, err := w.ClosePeriod(w.Context(), "k1", "acme", period(w, month), true)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// sealed closes a month and reads its seal.
func (w *world) sealed(month string) Period {
	w.Helper()
	w.mustClose(month)
	p, err := w.Period(w.Context(), "acme", period(w, month))
	if err != nil {
		w.Fatal(err)
	}
	return p
}

func (w *world) closeTenant() {
	w.Helper()
	if _, err := w.registry.CloseTenant(w.Context(), "operator", "acme"); err != nil {
		w.Fatal(err)
	}
}

func moment(t handle, s string) calendar.Micros {
	t.Helper()
	at, err := time.Parse("2006-01-02", s)
	if err != nil {
		t.Fatal(err)
	}
	return calendar.FromTime(at)
}

func period(t handle, s string) calendar.Month {
	t.Helper()
	m, err := calendar.ParseMonth(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func number(t handle, s string) amount.Amount {
	t.Helper()
	a, err := amount.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wantCode(t *testing.T, err error, want problem.Code) {
	t.Helper()
	if problem.CodeOf(err) != want {
		t.Errorf("got error %v, want code %q", err, want)
	}
}

func wantSame[T any](t *testing.T, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(amount.Amount{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// watched runs every update twice, discarding the first run, as a store that retries may; counts the counters that
// views are walked over; ends row scans after a few rows when asked to; and fails a view that is asked other questions
// in mid-walk.
type watched struct {
	store.Store
	walks, looked int
	rowsPerScan   int // zero: all
}

func (w *watched) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	discarded := errors.New("run again")
	err := w.Store.Update(ctx, id, func(tx store.Tx) error {
		_ = fn(tx)
		return discarded
	})
	if !errors.Is(err, discarded) {
		return err
	}
	return w.Store.Update(ctx, id, fn)
}

func (w *watched) View(ctx context.Context, id string, fn func(store.View) error) error {
	return w.Store.View(ctx, id, func(v store.View) error { return fn(&watchedView{View: v, of: w}) })
}

type watchedView struct {
	store.View
	of      *watched
	walking bool
}

var errMidWalk = errors.New("the view was asked another question in the middle of a walk")

func (v *watchedView) Counters(from store.CounterPlace, fn func(store.CounterPlace, *usage.Counter) bool) error {
	v.of.walks++
	v.walking = true
	defer func() { v.walking = false }()
	return v.View.Counters(from, func(p store.CounterPlace, c *usage.Counter) bool {
		v.of.looked++
		return fn(p, c)
	})
}

func (v *watchedView) Rows(after uint64, hint store.RowHint, fn func(*ledger.Row) bool) (uint64, bool, error) {
	v.walking = true
	defer func() { v.walking = false }()
	seen, cut := 0, false
	last, end, err := v.View.Rows(after, hint, func(r *ledger.Row) bool {
		seen++
		// A row's memory is the scan's: what is kept of it must have been copied.
		row := scribbled(r)
		defer row.scribble()
		cut = seen == v.of.rowsPerScan
		return fn(&row.Row) && !cut
	})
	return last, end && !cut, err
}

func (v *watchedView) Entity(kind, id string) (entity.Entity, error) {
	if v.walking {
		return entity.Entity{}, errMidWalk
	}
	return v.View.Entity(kind, id)
}

func (v *watchedView) EntitiesBy(kind string, t entity.Term, p store.Page) ([]entity.Entity, error) {
	if v.walking {
		return nil, errMidWalk
	}
	return v.View.EntitiesBy(kind, t, p)
}

// fullStore claims that every counter is as full as the given one.
type fullStore struct {
	store.Store
	counter usage.Counter
}

func (s *fullStore) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	return s.Store.Update(ctx, id, func(tx store.Tx) error { return fn(&fullTx{tx, s.counter}) })
}

type fullTx struct {
	store.Tx
	counter usage.Counter
}

func (x *fullTx) Counter(usage.CounterID) (usage.Counter, error) { return x.counter, nil }
