package httpapi

import (
	"net/http"
	"net/url"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/store"
)

// meterPatch is the given fields of a meter; the rest is left as it is.
type meterPatch struct {
	name, eventType, valueProperty, uniqueProperty *string

	aggregation                 *meter.Aggregation
	late                        *meter.Late
	keyPolicy                   *meter.KeyPolicy
	rounding                    *meter.Rounding
	missingValue                *meter.MissingValue
	filter                      *meter.Filter
	keyFields                   *[]string
	lateness, keyBucket, future *time.Duration
}

func readMeter(f *httpkit.Form) (p meterPatch) {
	p.name, p.eventType = f.Given("name"), f.Given("event_type")
	p.valueProperty, p.uniqueProperty = f.Given("value_property"), f.Given("unique_property")
	p.aggregation = httpkit.Named(f, "aggregation", meter.ParseAggregation)
	p.late = httpkit.Named(f, "late", meter.ParseLate)
	p.keyPolicy = httpkit.Named(f, "key_policy", meter.ParseKeyPolicy)
	p.rounding = httpkit.Named(f, "rounding", meter.ParseRounding)
	p.missingValue = httpkit.Named(f, "missing_value", meter.ParseMissingValue)
	if v, given := f.Any("filter"); given {
		filter, bad := meter.NewFilter(v)
		f.Check(bad)
		p.filter = &filter
	}
	var fields []string
	if f.Texts("key_fields", &fields) {
		p.keyFields = &fields
	}
	p.lateness = f.GivenDuration("lateness", meter.DefaultLateness)
	p.keyBucket = f.GivenDuration("key_bucket", 0)
	p.future = f.GivenDuration("future", meter.DefaultFuture)
	return p
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
	set(&m.MissingValue, p.missingValue)
	set(&m.Filter, p.filter)
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
func (s *Server) postMeter(x *httpkit.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	m := meter.Meter{Slug: f.Required("slug"), Lateness: meter.DefaultLateness, Future: meter.DefaultFuture}
	if !f.Has("aggregation") {
		f.Fault("aggregation", "required: one of sum, count, min, max, last, unique, avg")
	}
	patch := readMeter(f)
	if err := f.Done(); err != nil {
		return err
	}
	if p := patch.apply(&m); p != nil {
		return p
	}
	kept, err := s.options.Registry.CreateMeter(x.Context(), x.Caller.Actor(), x.Caller.Tenant, m)
	if err != nil {
		return err
	}
	return x.Created("/v1/meters/"+url.PathEscape(kept.Slug), appendMeter(nil, &kept))
}

// listMeters serves GET /v1/meters.
func (s *Server) listMeters(x *httpkit.Exchange) error {
	q, limit, after, err := x.Page()
	if err != nil {
		return err
	}
	meters, err := s.options.Registry.Meters(x.Context(), x.Caller.Tenant, after, limit+1)
	if err != nil {
		return err
	}
	return httpkit.ListByName(x, q, limit, meters, func(m *store.Meter) string { return m.Slug }, appendMeter)
}

// getMeter serves GET /v1/meters/{slug}.
func (s *Server) getMeter(x *httpkit.Exchange) error {
	if err := x.NoQuery(); err != nil {
		return err
	}
	m, err := s.options.Registry.Meter(x.Context(), x.Caller.Tenant, x.Path("slug"))
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendMeter(nil, &m), '\n'))
}

// patchMeter serves PATCH /v1/meters/{slug}.
func (s *Server) patchMeter(x *httpkit.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	patch := readMeter(f)
	if err := f.Done(); err != nil {
		return err
	}
	m, err := s.options.Registry.UpdateMeter(x.Context(), x.Caller.Actor(), x.Caller.Tenant,
		x.Path("slug"), patch.apply)
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendMeter(nil, &m), '\n'))
}

func appendMeter(b []byte, m *store.Meter) []byte {
	b = render.String(append(b, '{'), "id", m.Slug)
	b = render.String(b, "slug", m.Slug)
	b = render.String(b, "name", m.Name)
	b = render.String(b, "aggregation", m.Aggregation.String())
	b = render.Optional(b, "event_type", m.EventType)
	b = render.Optional(b, "value_property", m.ValueProperty)
	b = render.Optional(b, "unique_property", m.UniqueProperty)
	b = render.String(b, "lateness", httpkit.FormatDuration(m.Lateness))
	b = render.String(b, "late", m.Late.String())
	b = render.String(b, "key_policy", m.KeyPolicy.String())
	if len(m.KeyFields) > 0 {
		b = render.Strings(b, "key_fields", m.KeyFields)
	} else {
		b = render.Null(b, "key_fields")
	}
	if m.KeyBucket > 0 {
		b = render.String(b, "key_bucket", httpkit.FormatDuration(m.KeyBucket))
	} else {
		b = render.Null(b, "key_bucket")
	}
	b = render.String(b, "future", httpkit.FormatDuration(m.Future))
	b = render.Optional(b, "rounding", m.Rounding.String())
	b = render.String(b, "missing_value", m.MissingValue.String())
	if len(m.Filter) > 0 {
		b = m.Filter.Append(render.Name(b, "filter"))
	} else {
		b = render.Null(b, "filter")
	}
	b = render.Bool(b, "used", m.Used)
	b = render.Moment(b, "created_at", m.CreatedAt)
	return append(b, '}')
}
