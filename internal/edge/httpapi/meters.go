package httpapi

import (
	"net/http"
	"net/url"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store"
)

// meterPatch is the given fields of a meter; the rest is left as it is.
type meterPatch struct {
	name, eventType, valueProperty, uniqueProperty *string

	aggregation                 *meter.Aggregation
	late                        *meter.Late
	keyPolicy                   *meter.KeyPolicy
	rounding                    *meter.Rounding
	keyFields                   *[]string
	lateness, keyBucket, future *time.Duration
}

func readMeter(f *form) (p meterPatch) {
	p.name, p.eventType = f.given("name"), f.given("event_type")
	p.valueProperty, p.uniqueProperty = f.given("value_property"), f.given("unique_property")
	p.aggregation = named(f, "aggregation", meter.ParseAggregation)
	p.late = named(f, "late", meter.ParseLate)
	p.keyPolicy = named(f, "key_policy", meter.ParseKeyPolicy)
	p.rounding = named(f, "rounding", meter.ParseRounding)
	var fields []string
	if f.texts("key_fields", &fields) {
		p.keyFields = &fields
	}
	p.lateness = f.givenDuration("lateness", meter.DefaultLateness)
	p.keyBucket = f.givenDuration("key_bucket", 0)
	p.future = f.givenDuration("future", meter.DefaultFuture)
	return p
}

// given reads a string that may be absent.
func (f *form) given(name string) *string {
	var s string
	if !f.text(name, &s) {
		return nil
	}
	return &s
}

func (f *form) givenDuration(name string, otherwise time.Duration) *time.Duration {
	if _, there := f.fields[name]; !there {
		return nil
	}
	var d time.Duration
	f.duration(name, &d, otherwise)
	return &d
}

// named reads one of a few names.
func named[T any](f *form, name string, parse func(string) (T, *problem.Error)) *T {
	s := f.given(name)
	if s == nil {
		return nil
	}
	v, p := parse(*s)
	f.check(p)
	return &v
}

func (p *meterPatch) apply(m *meter.Meter) *problem.Error {
	set(&m.Name, p.name)
	set(&m.EventType, p.eventType)
	set(&m.ValueProperty, p.valueProperty)
	set(&m.UniqueProperty, p.uniqueProperty)
	set(&m.Aggregation, p.aggregation)
	set(&m.Late, p.late)
	set(&m.KeyPolicy, p.keyPolicy)
	set(&m.Rounding, p.rounding)
	set(&m.KeyFields, p.keyFields)
	set(&m.Lateness, p.lateness)
	set(&m.KeyBucket, p.keyBucket)
	set(&m.Future, p.future)
	return nil
}

func set[T any](field, given *T) {
	if given != nil {
		*field = *given
	}
}

// postMeter serves POST /v1/meters.
func postMeter(x *exchange) error {
	f, err := x.form()
	if err != nil {
		return err
	}
	m := meter.Meter{Slug: f.required("slug"), Lateness: meter.DefaultLateness, Future: meter.DefaultFuture}
	if _, there := f.fields["aggregation"]; !there {
		f.fault("aggregation", "required: one of sum, count, min, max, last, unique, avg")
	}
	patch := readMeter(f)
	if err := f.done(); err != nil {
		return err
	}
	if p := patch.apply(&m); p != nil {
		return p
	}
	kept, err := x.s.options.Registry.CreateMeter(x.r.Context(), x.caller.Actor(), x.caller.Tenant, m)
	if err != nil {
		return err
	}
	return x.created("/v1/meters/"+url.PathEscape(kept.Slug), appendMeter(nil, &kept), "")
}

// listMeters serves GET /v1/meters.
func listMeters(x *exchange) error {
	q, limit, after, err := x.page()
	if err != nil {
		return err
	}
	meters, err := x.s.options.Registry.Meters(x.r.Context(), x.caller.Tenant, after, limit+1)
	if err != nil {
		return err
	}
	return listByName(x, q, limit, meters, func(m *store.Meter) string { return m.Slug }, appendMeter)
}

// getMeter serves GET /v1/meters/{slug}.
func getMeter(x *exchange) error {
	if err := x.noQuery(); err != nil {
		return err
	}
	m, err := x.s.options.Registry.Meter(x.r.Context(), x.caller.Tenant, x.param)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, append(appendMeter(nil, &m), '\n'))
}

// patchMeter serves PATCH /v1/meters/{slug}.
func patchMeter(x *exchange) error {
	f, err := x.form()
	if err != nil {
		return err
	}
	patch := readMeter(f)
	if err := f.done(); err != nil {
		return err
	}
	m, err := x.s.options.Registry.UpdateMeter(x.r.Context(), x.caller.Actor(), x.caller.Tenant, x.param, patch.apply)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, append(appendMeter(nil, &m), '\n'))
}

func appendMeter(b []byte, m *store.Meter) []byte {
	b = appendString(append(b, '{'), "id", m.Slug)
	b = appendString(b, "slug", m.Slug)
	b = appendString(b, "name", m.Name)
	b = appendString(b, "aggregation", m.Aggregation.String())
	b = appendOptional(b, "event_type", m.EventType)
	b = appendOptional(b, "value_property", m.ValueProperty)
	b = appendOptional(b, "unique_property", m.UniqueProperty)
	b = appendString(b, "lateness", formatDuration(m.Lateness))
	b = appendString(b, "late", m.Late.String())
	b = appendString(b, "key_policy", m.KeyPolicy.String())
	if len(m.KeyFields) > 0 {
		b = appendStrings(b, "key_fields", m.KeyFields)
	} else {
		b = appendNull(b, "key_fields")
	}
	if m.KeyBucket > 0 {
		b = appendString(b, "key_bucket", formatDuration(m.KeyBucket))
	} else {
		b = appendNull(b, "key_bucket")
	}
	b = appendString(b, "future", formatDuration(m.Future))
	b = appendOptional(b, "rounding", m.Rounding.String())
	b = appendBool(b, "used", m.Used)
	b = appendMoment(b, "created_at", m.CreatedAt)
	return append(b, '}')
}
