package asof_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/asof"
	"github.com/tallystick/tallystick/internal/service/billing"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

const acme = "acme"

// world is a store with a tenant, and the services that change it.
type world struct {
	t *testing.T
	store.Store
	registry *registry.Service
	billing  *billing.Service
	month    calendar.Month
}

func newWorld(t *testing.T) *world {
	t.Helper()
	clock := storetest.NewClock()
	s := naive.New(naive.Options{Now: clock.Now})
	w := &world{t: t, Store: s, registry: registry.New(s, rand.Reader), billing: billing.New(s)}
	w.month = calendar.MonthOf(calendar.FromTime(clock.Now())) - 1
	_, _, err := w.registry.CreateTenant(context.Background(), "test", tenant.Tenant{ID: acme})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(slug string) {
	w.t.Helper()
	_, err := w.registry.CreateMeter(context.Background(), "test", acme,
		meter.Meter{Slug: slug, Name: "first", Aggregation: meter.Sum})
	w.must(err)
}

func (w *world) rename(slug, name string) {
	w.t.Helper()
	_, err := w.registry.UpdateMeter(context.Background(), "test", acme, slug, func(m *meter.Meter) *problem.Error {
		m.Name = name
		return nil
	})
	w.must(err)
}

func (w *world) adjust(slug, customer string, by int64) usage.Adjustment {
	w.t.Helper()
	a, err := w.billing.Adjust(context.Background(), "test", acme, slug, customer, w.month,
		amount.FromInt(by), "why not")
	w.must(err)
	return a
}

func (w *world) append(changes ...ledger.Change) {
	w.t.Helper()
	w.must(w.Update(context.Background(), acme, func(tx store.Tx) error {
		for _, c := range changes {
			if _, err := tx.Append(c); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (w *world) close() {
	w.t.Helper()
	s := usage.PeriodKind.State(&usage.Period{Month: w.month})
	w.append(ledger.Change{Event: audit.Of("period", "closed", w.month.String()), State: s})
}

// answers keeps so many answered requests: changes that no question about the past is about.
func (w *world) answers(n int) {
	w.t.Helper()
	changes := make([]ledger.Change, n)
	for i := range changes {
		changes[i] = ledger.Keep(&request.Stored{Key: fmt.Sprint("key-", i), Answer: request.Answer{Status: 200}},
			"test")
	}
	w.append(changes...)
}

// then is what a plain fold of every row up to one says.
type then struct {
	meters  map[string]meter.Meter
	periods map[calendar.Month]usage.Period
	manual  map[usage.CounterID]asof.Manual
	months  map[calendar.Month]bool
}

func fold(t *testing.T, v store.View, seq uint64) then {
	t.Helper()
	out := then{map[string]meter.Meter{}, map[calendar.Month]usage.Period{}, map[usage.CounterID]asof.Manual{},
		map[calendar.Month]bool{}}
	err := v.PrunedSections(1, func(s *ledger.Section) error {
		for i := range s.Rows {
			r := &s.Rows[i]
			if r.Seq > seq || r.Change == nil {
				continue
			}
			e := r.Entity()
			m, err := meter.Kind.ReadIf(&e)
			p, err2 := usage.PeriodKind.ReadIf(&e)
			a, err3 := usage.AdjustmentKind.ReadIf(&e)
			if err := errors.Join(err, err2, err3); err != nil {
				return err
			}
			switch {
			case m != nil:
				out.meters[m.Slug] = *m
			case p != nil:
				out.periods[p.Month] = *p
			case a != nil:
				out.adjust(a)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (o *then) adjust(a *usage.Adjustment) {
	id := usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
	m := o.manual[id]
	m.All, _ = m.All.Add(a.Amount)
	m.Some = true
	o.manual[id], o.months[a.Month] = m, true
}

// A ledger as of any of its rows shows the meters, the closed month and the adjustments that a plain fold of the rows
// shows.
func TestTheLedgerAsOfEveryRow(t *testing.T) {
	w := newWorld(t)
	w.create("calls")
	w.answers(3)
	w.adjust("calls", "a", 5)
	w.rename("calls", "second")
	w.create("bytes")
	undone := w.adjust("bytes", "a", 7)
	w.adjust("calls", "b", 1)
	_, err := w.billing.Revert(context.Background(), "test", acme, undone.ID)
	w.must(err)
	w.close()
	w.rename("bytes", "other")
	w.adjust("calls", "a", -2)
	w.rename("calls", "third")
	w.must(w.View(context.Background(), acme, func(v store.View) error {
		for seq := range v.Head().Seq + 1 {
			w.compare(v, seq)
		}
		return nil
	}))
}

func (w *world) compare(v store.View, seq uint64) {
	w.t.Helper()
	want := fold(w.t, v, seq)
	l, err := asof.Open(v, asof.AtSeq(seq))
	w.must(err)
	names := map[usage.CounterID]bool{}
	for _, slug := range []string{"calls", "bytes", "none"} {
		m, err := l.Meter(slug)
		if was, ok := want.meters[slug]; !reflect.DeepEqual(m, was) || ok != (err == nil) || !ok &&
			!problem.Is(err, problem.NotFound) {
			w.t.Errorf("meter %s as of row %d: %+v, %v, want %+v", slug, seq, m, err, was)
		}
		for _, customer := range []string{"a", "b"} {
			names[usage.CounterID{Meter: m.Number, Customer: customer, Month: w.month}] = true
		}
	}
	p, err := l.Period(w.month)
	if was := want.periods[w.month]; err != nil || p.Closed != was.Closed || p.Seq != was.Seq {
		w.t.Errorf("the month as of row %d: %+v, %v, want %+v", seq, p, err, was)
	}
	manual, err := l.Manual(names)
	if err != nil {
		w.t.Errorf("the adjustments as of row %d: %v", seq, err)
	}
	for id, m := range manual {
		m.AtClose = amount.Zero
		manual[id] = m
	}
	if !reflect.DeepEqual(manual, want.manual) {
		w.t.Errorf("adjusted as of row %d: %+v, want %+v", seq, manual, want.manual)
	}
	if months, err := l.AdjustedMonths(); err != nil || !reflect.DeepEqual(months, want.months) {
		w.t.Errorf("adjusted months as of row %d: %v, %v, want %v", seq, months, err, want.months)
	}
}

// counting counts the rows that a view hands out.
type counting struct {
	store.View
	rows int
}

func (c *counting) Rows(after uint64, hint store.RowHint, fn func(*ledger.Row) bool) (uint64, bool, error) {
	return c.View.Rows(after, hint, func(r *ledger.Row) bool {
		c.rows++
		return fn(r)
	})
}

func (c *counting) AuditEvents(q store.AuditQuery) ([]ledger.Row, error) {
	out, err := c.View.AuditEvents(q)
	c.rows += len(out)
	return out, err
}

func (c *counting) Entity(kind, id string) (entity.Entity, error) {
	c.rows++
	return c.View.Entity(kind, id)
}

func (c *counting) EntityAt(kind, id string, seq uint64) (entity.Entity, error) {
	c.rows++
	return c.View.EntityAt(kind, id, seq)
}

func (c *counting) EntitiesBy(kind string, t entity.Term, p store.Page) ([]entity.Entity, error) {
	out, err := c.View.EntitiesBy(kind, t, p)
	c.rows += len(out)
	return out, err
}

// Given thousands of kept answers before, between and after, when a meter, a period and the adjustments of one counter
// are asked for as of a row, then the rows that are read are theirs alone.
func TestThePastReadsOnlyItsOwnRows(t *testing.T) {
	w := newWorld(t)
	w.answers(2000)
	w.create("calls")
	w.answers(2000)
	w.adjust("calls", "a", 5)
	w.close()
	w.answers(2000)
	w.rename("calls", "second")
	w.must(w.View(context.Background(), acme, func(v store.View) error {
		counted := &counting{View: v}
		l, err := asof.Open(counted, asof.AtSeq(v.Head().Seq-1))
		w.must(err)
		m, err := l.Meter("calls")
		w.must(err)
		if m.Name != "first" {
			t.Errorf("the meter was called %q", m.Name)
		}
		if p, err := l.Period(w.month); err != nil || !p.Closed {
			t.Errorf("the month was %+v: %v", p, err)
		}
		id := usage.CounterID{Meter: m.Number, Customer: "a", Month: w.month}
		if manual, err := l.Manual(map[usage.CounterID]bool{id: true}); err != nil ||
			manual[id].All != amount.FromInt(5) || manual[id].AtClose != amount.FromInt(5) {
			t.Errorf("adjusted by %+v: %v", manual, err)
		}
		// The meter; the period, twice; the adjustment's audit event and the adjustment.
		if counted.rows > 5 {
			t.Errorf("%d rows were read, want 5", counted.rows)
		}
		return nil
	}))
}
