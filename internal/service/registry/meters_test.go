package registry_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

func sumMeter(slug string) meter.Meter {
	return meter.Meter{Slug: slug, Aggregation: meter.Sum, Lateness: meter.DefaultLateness, Future: meter.DefaultFuture}
}

func rename(name string) func(*meter.Meter) *problem.Error {
	return func(m *meter.Meter) *problem.Error {
		m.Name = name
		return nil
	}
}

// use gives a meter its first event.
func (w *world) use(tenantID, slug string) {
	w.Helper()
	verdicts, err := w.store.Record(w.Context(), store.Batch{Tenant: tenantID, Events: []usage.Event{{
		ID: "first", Meter: slug, Customer: "c", Quantity: amount.One, Given: usage.GivenMeter | usage.GivenCustomer,
	}}})
	if err != nil || verdicts[0].Status != usage.Accepted {
		w.Fatalf("%+v, %v", verdicts, err)
	}
}

func TestMetersAreNumberedInOrderOfCreation(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	for i, slug := range []string{"z", "a", "m"} {
		m := sumMeter(slug)
		m.Number, m.CreatedAt = 77, 77 // not the caller's to choose
		made, err := w.CreateMeter(t.Context(), "k", "acme", m)
		if err != nil {
			t.Fatal(err)
		}
		m.Number, m.CreatedAt = uint32(i+1), calendar.FromTime(start)
		wantSame(t, made, store.Meter{Meter: m})
		got, err := w.Meter(t.Context(), "acme", slug)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, got, made)
	}
	list, err := w.Meters(t.Context(), "acme", "a", 1)
	if err != nil || len(list) != 1 || list[0].Slug != "m" {
		t.Errorf("%+v, %v", list, err)
	}
	wantSame(t, w.recorded("acme", 3), []string{
		"meter.created meter z by api/k", "meter.created meter a by api/k", "meter.created meter m by api/k",
	})
}

func TestMetersThatCannotBeCreated(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	if _, err := w.CreateMeter(t.Context(), "k", "acme", sumMeter("calls")); err != nil {
		t.Fatal(err)
	}
	unique := sumMeter("u")
	unique.Aggregation = meter.Unique
	nothing := sumMeter("n")
	nothing.Aggregation = 0
	for _, c := range []struct {
		tenant string
		meter  meter.Meter
		want   problem.Code
	}{
		{"acme", sumMeter("calls"), problem.Exists},
		{"acme", sumMeter("_calls"), problem.Invalid},
		{"acme", unique, problem.Invalid},
		{"acme", nothing, problem.Invalid},
		{"nobody", sumMeter("calls"), problem.NotFound},
	} {
		_, err := w.CreateMeter(t.Context(), "k", c.tenant, c.meter)
		wantCode(t, err, c.want)
	}
	if w.head("acme") != 3 {
		t.Error("a refusal left a row")
	}
	_, err := w.Meter(t.Context(), "acme", "none")
	wantCode(t, err, problem.NotFound)
}

func TestMetersAreBounded(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	var others []entity.State
	for i := 1; i < tenant.MaxMeters; i++ {
		m := sumMeter(fmt.Sprintf("m%d", i))
		m.Number = uint32(i)
		others = append(others, meter.Kind.State(&m))
	}
	w.fill(others...)
	last, err := w.CreateMeter(t.Context(), "k", "acme", sumMeter("last"))
	if err != nil || last.Number != tenant.MaxMeters {
		t.Fatalf("the last meter: %+v, %v", last, err)
	}
	_, err = w.CreateMeter(t.Context(), "k", "acme", sumMeter("more"))
	wantCode(t, err, problem.Conflict)
	_, err = w.CreateMeter(t.Context(), "k", "acme", sumMeter("m7"))
	wantCode(t, err, problem.Exists)
}

func TestOneOfManyCreationsOfAMeterWinsAndNumbersNeverClash(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	ctx := context.WithoutCancel(t.Context())
	won := race(func(int) error {
		_, err := w.CreateMeter(ctx, "k", "acme", sumMeter("calls"))
		return err
	}, t)
	if won != 1 {
		t.Errorf("%d won", won)
	}
	race(func(i int) error {
		_, err := w.CreateMeter(ctx, "k", "acme", sumMeter(fmt.Sprintf("m%d", i)))
		return err
	}, t)
	list, err := w.Meters(ctx, "acme", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]string{}
	for _, m := range list {
		if other, taken := seen[m.Number]; taken || m.Number < 1 || int(m.Number) > len(list) {
			t.Errorf("meter %s has number %d, as %q", m.Slug, m.Number, other)
		}
		seen[m.Number] = m.Slug
	}
	if len(list) != 9 {
		t.Errorf("%d meters", len(list))
	}
}

func TestUpdatingAMeter(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	m := sumMeter("calls")
	m.KeyFields = []string{"meter", "customer", "time"}
	if _, err := w.CreateMeter(t.Context(), "k", "acme", m); err != nil {
		t.Fatal(err)
	}
	update := func(fn func(*meter.Meter)) (store.Meter, error) {
		return w.UpdateMeter(t.Context(), "k", "acme", "calls", func(m *meter.Meter) *problem.Error {
			fn(m)
			return nil
		})
	}
	got, err := update(func(m *meter.Meter) {
		m.Aggregation, m.Number, m.CreatedAt = meter.Max, 9, 9
	})
	if err != nil || got.Aggregation != meter.Max || got.Number != 1 || got.CreatedAt != calendar.FromTime(start) {
		t.Errorf("before the first event: %+v, %v", got, err)
	}
	before := w.head("acme")
	if got, err = update(func(m *meter.Meter) { m.KeyFields[1] = "resource" }); err != nil ||
		got.KeyFields[1] != "resource" || w.head("acme") != before+1 {
		t.Errorf("a list changed in place: %+v, %v, %d rows", got, err, w.head("acme")-before)
	}
	if got, err = update(func(m *meter.Meter) { m.Aggregation, m.KeyFields = meter.Sum, nil }); err != nil || got.Used {
		t.Errorf("%+v, %v", got, err)
	}
	head := w.head("acme")
	if _, err = update(func(m *meter.Meter) { m.Number, m.KeyFields = 5, []string{} }); err != nil {
		t.Error(err)
	}
	_, err = update(func(m *meter.Meter) { m.Slug = "other" })
	wantCode(t, err, problem.Invalid)
	_, err = update(func(m *meter.Meter) { m.Aggregation = 0 })
	wantCode(t, err, problem.Invalid)
	_, err = update(func(m *meter.Meter) { m.Lateness = -1 })
	wantCode(t, err, problem.Invalid)
	_, err = w.UpdateMeter(t.Context(), "k", "acme", "calls", func(m *meter.Meter) *problem.Error {
		m.Name = "half done"
		return problem.At("late", "no")
	})
	wantCode(t, err, problem.Invalid)
	_, err = w.UpdateMeter(t.Context(), "k", "acme", "none", rename("x"))
	wantCode(t, err, problem.NotFound)
	if w.head("acme") != head {
		t.Error("a refusal, or a change of nothing, left a row")
	}

	w.use("acme", "calls")
	_, err = update(func(m *meter.Meter) { m.Aggregation = meter.Count })
	wantCode(t, err, problem.Fixed)
	got, err = update(func(m *meter.Meter) {
		m.Name, m.Lateness, m.Late, m.Future = "API calls", time.Hour, meter.Reject, time.Minute
	})
	if err != nil || !got.Used || got.Name != "API calls" || got.Late != meter.Reject {
		t.Errorf("after the first event: %+v, %v", got, err)
	}
	wantSame(t, w.recorded("acme", head+1), []string{"meter.updated meter calls by api/k"})
}

func TestAMetersPayloadIsWrittenInTheWordsOfTheContract(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	_, err := w.CreateMeter(t.Context(), "k", "acme", meter.Meter{
		Slug: "tokens", Name: "Tokens", Aggregation: meter.Sum, ValueProperty: "tokens", Lateness: 48 * time.Hour,
		Future:    time.Hour,
		KeyPolicy: meter.DerivedKey, KeyFields: []string{"customer", "time"}, KeyBucket: 5 * time.Second,
		Rounding: meter.HalfEven,
	})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, w.payload("acme"), `{"slug":"tokens","name":"Tokens","aggregation":"sum","value_property":"tokens",`+
		`"lateness":"48h0m0s","late":"adjust",`+
		`"key_policy":"derived","key_fields":["customer","time"],"key_bucket":"5s","future":"1h0m0s",`+
		`"rounding":"half_even"}`)
	_, err = w.CreateMeter(t.Context(), "k", "acme", meter.Meter{
		Slug: "big", Aggregation: meter.Sum, EventType: "llm", ValueProperty: "tokens", MissingValue: meter.SkipMissing,
		Filter: meter.Filter{"properties.model": {{Kind: properties.String, Text: "gpt-9"},
			{Kind: properties.Number, Text: "9"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, w.payload("acme"), `{"slug":"big","aggregation":"sum","event_type":"llm","value_property":"tokens",`+
		`"lateness":"0s","late":"adjust",`+
		`"key_policy":"client","future":"0s","missing_value":"skip","filter":{"properties.model":["gpt-9",9]}}`)
}

// The widest bound that a meter ever had is remembered, and nobody can set it.
func TestAMeterRemembersItsWidestFuture(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	m := sumMeter("calls")
	m.Future, m.WidestFuture = 2*time.Hour, 100*time.Hour
	got, err := w.CreateMeter(t.Context(), "k", "acme", m)
	if err != nil || got.Ahead() != 2*time.Hour {
		t.Fatalf("created with %s: %v", got.Ahead(), err)
	}
	head := w.head("acme")
	for i, c := range []struct{ future, ahead time.Duration }{
		{2 * time.Hour, 2 * time.Hour}, {time.Hour, 2 * time.Hour}, {0, 2 * time.Hour},
		{meter.MaxFuture, meter.MaxFuture}, {time.Minute, meter.MaxFuture},
	} {
		got, err = w.UpdateMeter(t.Context(), "k", "acme", "calls", func(m *meter.Meter) *problem.Error {
			m.Future, m.WidestFuture = c.future, 0
			return nil
		})
		if err != nil || got.Future != c.future || got.Ahead() != c.ahead {
			t.Errorf("%s: %+v, %v", c.future, got, err)
		}
		if i == 0 && w.head("acme") != head {
			t.Error("a change of nothing left a row")
		}
	}
}
