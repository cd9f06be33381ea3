package storetest

import (
	"context"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Bounds of one life. They keep it to some tens of milliseconds on a store that folds everything anew.
const (
	minSteps    = 6
	maxSteps    = 30
	maxBatch    = 30
	maxAtomic   = 5 // of larger ones hardly any would be recorded
	maxTenants  = 3
	idsInALife  = 90
	maxCrossing = 4 // reopenings: each is followed by a comparison of everything
)

// Life runs one random history on two stores side by side, under one clock. Every answer must be the same, and so must
// everything they show at the end and after each reopening of the subject. Reopen may be nil.
func Life(t *rapid.T, open func() (oracle, subject store.Store), reopen func(subject store.Store) store.Store,
	clock *Clock) {
	l := &life{T: t, clock: clock, reopen: reopen, kept: map[string][]kept{}, fixes: map[string][]usage.Event{},
		adjustments: map[string][]adjustment{}, closed: map[string]bool{}}
	l.oracle, l.subject = open()
	defer func() {
		for _, s := range []store.Store{l.oracle, l.subject} {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	}()
	l.content = rapid.Uint64().Draw(t, "content")
	for n := range rapid.IntRange(2, maxTenants).Draw(t, "tenants") {
		id := fmt.Sprint("t", n)
		l.tenants = append(l.tenants, id)
		if err := l.both("create "+id, func(s store.Store) error {
			return Create(s, id,
				lifeMeters()...)
		}); err != nil {
			t.Fatalf("create %s: %v", id, err)
		}
	}
	for range rapid.IntRange(minSteps, maxSteps).Draw(t, "steps") {
		l.step()
	}
	Compare(t, l.oracle, l.subject, l.tenants...)
	for _, id := range l.tenants {
		CheckLedger(t, l.subject, id)
	}
}

// life is a history under way.
type life struct {
	*rapid.T
	oracle, subject store.Store
	reopen          func(store.Store) store.Store
	clock           *Clock
	content         uint64 // what the facts of this life say is a function of it
	tenants         []string
	kept            map[string][]kept        // by tenant
	fixes           map[string][]usage.Event // corrections that were sent, by tenant
	adjustments     map[string][]adjustment
	closed          map[string]bool // tenant and month
	crossings       int
}

// kept is an event that both stores kept, and the id it has there.
type kept struct {
	id    string
	event usage.Event
}

// adjustment is one that a person made and nobody has undone.
type adjustment struct{ id, slug, customer, amount string }

// step does one thing. Most are batches: they are what a ledger lives on.
func (l *life) step() {
	id := rapid.SampledFrom(l.tenants).Draw(l.T, "tenant")
	switch rapid.IntRange(0, 25).Draw(l.T, "step") {
	case 10, 11:
		l.clock.Advance(rapid.SampledFrom([]time.Duration{time.Microsecond, time.Minute, time.Hour, 30 * time.Hour,
			20 * 24 * time.Hour}).Draw(l.T, "forward"))
	case 12:
		l.clock.Advance(-rapid.SampledFrom([]time.Duration{time.Second, time.Hour, 50 * time.Hour}).Draw(l.T,
			"backward"))
	case 13:
		l.changeMeter(id)
	case 14:
		l.adjust(id)
	case 15:
		l.revert(id)
	case 16:
		l.closePeriod(id)
	case 17:
		l.changeTenant(id)
	case 18:
		l.changeKey(id)
	case 19:
		l.cross()
	case 20:
		l.changePlan(id)
	case 21, 22:
		l.assign(id)
	case 23, 24:
		l.changeGadget(id)
	default:
		l.batch(id)
	}
}

// both does the same to the two stores and wants the same answer.
func (l *life) both(what string, do func(s store.Store) error) error {
	l.Helper()
	want, got := do(l.oracle), do(l.subject)
	if problem.CodeOf(want) != problem.CodeOf(got) || (want == nil) != (got == nil) {
		l.Fatalf("%s: %v, want %v", what, got, want)
	}
	return got
}

func (l *life) update(what, id string, fn func(tx store.Tx) error) {
	l.Helper()
	_ = l.both(what+" of "+id, func(s store.Store) error { return s.Update(context.Background(), id, fn) })
}

func (l *life) batch(id string) {
	l.Helper()
	events := make([]usage.Event, rapid.IntRange(1, maxBatch).Draw(l.T, "events"))
	for i := range events {
		events[i] = l.event(id)
	}
	by := rapid.SampledFrom([]string{"", id + ".k1", "kafka"}).Draw(l.T, "by")
	atomic := rapid.IntRange(0, 3).Draw(l.T, "atomic") == 0
	if atomic {
		events = events[:min(len(events), maxAtomic)]
	}
	var answers [2][]usage.Verdict
	n := 0
	err := l.both("record for "+id, func(s store.Store) (err error) {
		mine := append([]usage.Event(nil), events...)
		answers[n], err = s.Record(context.Background(), store.Batch{Tenant: id, By: by, Events: mine, Atomic: atomic})
		n++
		return err
	})
	if err != nil {
		return
	}
	if len(answers[1]) != len(events) {
		l.Fatalf("record for %s: %d verdicts on %d events", id, len(answers[1]), len(events))
	}
	for i, want := range answers[0] {
		got := answers[1][i]
		if written(got) != written(want) {
			l.Fatalf("event %d of a batch for %s (%+v):\n got %s\nwant %s", i, id, events[i], written(got),
				written(want))
		}
		if got.Kept() {
			l.kept[id] = append(l.kept[id], kept{got.Key.ID(), events[i]})
		}
	}
}

// written writes all of a verdict down, the reason in the words of the rules.
func written(v usage.Verdict) string {
	s := fmt.Sprintf("%s %c%s seq %d overage %t", v.Status, v.Key.Space, v.Key.Name, v.Seq, v.Overage)
	if v.Problem != nil {
		s += fmt.Sprintf(": %s: %s %v resets %s", v.Problem.Code, v.Problem.Detail, v.Problem.Fields,
			v.Problem.ResetsAt)
	}
	return s
}

func (l *life) changeMeter(id string) {
	slug := rapid.SampledFrom(lifeMeters()).Draw(l.T, "meter").Slug
	lateness := rapid.SampledFrom([]time.Duration{0, time.Hour, 48 * time.Hour, 400 * time.Hour}).Draw(l.T, "lateness")
	missing := rapid.SampledFrom([]meter.MissingValue{meter.SkipMissing, meter.RefuseMissing}).Draw(l.T, "missing")
	future := rapid.SampledFrom([]time.Duration{0, time.Hour, 61 * time.Minute, 30 * 24 * time.Hour}).Draw(l.T,
		"future")
	late := rapid.SampledFrom([]meter.Late{meter.Adjust, meter.Adjust, meter.Reject}).Draw(l.T, "late")
	l.update("change meter", id, func(tx store.Tx) error {
		m, err := store.GetMeter(tx, slug)
		if err != nil {
			return err
		}
		m.Lateness, m.Late, m.Future, m.Name = lateness, late, future, m.Name+"'"
		if m.EventType != "" {
			m.MissingValue = missing
		}
		return PutMeter(tx, m.Meter)
	})
}

func (l *life) adjust(id string) {
	a := adjustment{
		slug:     rapid.SampledFrom(lifeMeters()).Draw(l.T, "meter").Slug,
		customer: rapid.SampledFrom(lifeCustomers).Draw(l.T, "customer"),
		amount: rapid.SampledFrom([]string{"1", "-1", "0.000000000001", "-250.75", "999999999999999999"}).Draw(l.T,
			"amount"),
	}
	fails := rapid.IntRange(0, 3).Draw(l.T, "fails") == 0
	l.update("adjust", id, func(tx store.Tx) (err error) {
		if a.id, err = Adjust(tx, a.slug, a.customer, Month, a.amount, ""); err == nil && fails {
			err = problem.New(problem.Fixed, "changed my mind")
		}
		return err
	})
	if !fails {
		l.adjustments[id] = append(l.adjustments[id], a)
	}
}

func (l *life) revert(id string) {
	open := l.adjustments[id]
	if len(open) == 0 {
		return
	}
	a := open[len(open)-1]
	l.adjustments[id] = open[:len(open)-1]
	l.update("revert", id, func(tx store.Tx) error {
		_, err := Adjust(tx, a.slug, a.customer, Month, Amount(a.amount).Neg().String(), a.id)
		return err
	})
}

// closePeriod closes a month once: a service would refuse the second time.
func (l *life) closePeriod(id string) {
	m := rapid.SampledFrom([]calendar.Month{Month - 1, Month}).Draw(l.T, "month")
	name := id + m.String()
	if l.closed[name] {
		return
	}
	l.closed[name] = true
	l.update("close", id, func(tx store.Tx) error { return ClosePeriod(tx, m) })
}

// changeTenant renames, begins an epoch, or closes for good, which most lives should not live to see early.
func (l *life) changeTenant(id string) {
	last := rapid.IntRange(0, 5).Draw(l.T, "last") == 0
	restored := rapid.IntRange(0, 2).Draw(l.T, "restored") == 0
	l.update("change tenant", id, func(tx store.Tx) error {
		t, err := store.Tenant(tx)
		if err != nil {
			return err
		}
		if restored {
			if err := BeginEpoch(tx, &t); err != nil {
				return err
			}
		}
		t.Name += "'"
		if last && !t.Closed {
			t.Closed, t.ClosedAt = true, tx.Now()
		}
		return PutTenant(tx, t)
	})
}

func (l *life) changeKey(id string) {
	name := id + "." + rapid.SampledFrom([]string{"k1", "k2", "K1"}).Draw(l.T, "key")
	l.update("change key", id, func(tx store.Tx) error {
		k, err := store.Get(tx, &tenant.KeyKind, name)
		switch {
		case problem.Is(err, problem.NotFound):
			k = tenant.APIKey{ID: name, Scopes: tenant.Ingest, Hash: tenant.HashToken(name), CreatedAt: tx.Now()}
		case err != nil:
			return err
		default:
			k.RevokedAt = tx.Now()
		}
		return PutKey(tx, k)
	})
}

// cross closes and opens the subject, where it can.
func (l *life) cross() {
	if l.reopen == nil || l.crossings == maxCrossing {
		return
	}
	l.crossings++
	l.subject = l.reopen(l.subject)
	Compare(l.T, l.oracle, l.subject, l.tenants...)
}
