package registry

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

// CreateMeter makes a meter as it is given; its number and time of creation are the registry's. Errors: NotFound,
// Invalid, TenantClosed, Exists, Conflict (too many meters).
func (s *Service) CreateMeter(ctx context.Context, actor, tenantID string, m meter.Meter) (store.Meter, error) {
	m.WidestFuture = 0
	if p := check(&m); p != nil {
		return store.Meter{}, p
	}
	err := s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		known, err := store.Meters(tx, store.Page{Limit: tenant.MaxMeters})
		if err != nil {
			return fmt.Errorf("list meters: %w", err)
		}
		m.Number, m.CreatedAt = 1, tx.Now()
		for i := range known {
			if known[i].Slug == m.Slug {
				return problem.New(problem.Exists, "meter %s exists: change it, or choose another slug", m.Slug)
			}
			m.Number = max(m.Number, known[i].Number+1)
		}
		if len(known) >= tenant.MaxMeters {
			return problem.New(problem.Conflict, "the tenant has %d meters, the most there can be", tenant.MaxMeters)
		}
		return appendMeter(tx, actor, "created", &m)
	})
	if err != nil {
		return store.Meter{}, err
	}
	return store.Meter{Meter: m}, nil
}

// check judges a meter with an aggregation; Meter.Check leaves that to whoever parsed its name.
func check(m *meter.Meter) *problem.Error {
	if m.Aggregation == 0 {
		return problem.At("aggregation", "required: one of sum, count, min, max, last, unique, avg")
	}
	return m.Check()
}

// Meter returns one meter. Errors: NotFound.
func (s *Service) Meter(ctx context.Context, tenantID, slug string) (store.Meter, error) {
	var m store.Meter
	err := s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		m, err = store.GetMeter(v, slug)
		return err
	})
	if err != nil {
		return store.Meter{}, err
	}
	return m, nil
}

// Meters lists meters by slug, after the given one. Errors: NotFound.
func (s *Service) Meters(ctx context.Context, tenantID, after string, limit int) ([]store.Meter, error) {
	var list []store.Meter
	err := s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		list, err = store.Meters(v, store.Page{After: after, Limit: limit})
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// UpdateMeter changes a meter with a function that may run more than once. A change without a difference leaves no row.
// Errors: what change returns, NotFound, Invalid, TenantClosed, Fixed (after the first event), Conflict (a plan limits
// it).
func (s *Service) UpdateMeter(ctx context.Context, actor, tenantID, slug string,
	change func(*meter.Meter) *problem.Error) (store.Meter, error) {
	var out store.Meter
	err := s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		before, err := store.GetMeter(tx, slug)
		if err != nil {
			return err
		}
		out = before
		out.KeyFields = slices.Clone(before.KeyFields)
		if p := change(&out.Meter); p != nil {
			return p
		}
		if out.Slug != before.Slug {
			return problem.At("slug", "a meter's slug never changes: create another meter")
		}
		out.Number, out.CreatedAt = before.Number, before.CreatedAt
		out.Follow(&before.Meter)
		if p := check(&out.Meter); p != nil {
			return p
		}
		if p := before.CheckChange(&out.Meter, before.Used); p != nil {
			return p
		}
		if err := plansAllow(tx, &out.Meter); err != nil {
			return err
		}
		if same(meter.Kind.State(&before.Meter), meter.Kind.State(&out.Meter)) {
			return nil
		}
		return appendMeter(tx, actor, "updated", &out.Meter)
	})
	if err != nil {
		return store.Meter{}, err
	}
	return out, nil
}

// meterPayload is what an audit event says of a meter, in the words of the contract.
type meterPayload struct {
	Slug           string   `json:"slug"`
	Name           string   `json:"name,omitempty"`
	Aggregation    string   `json:"aggregation"`
	EventType      string   `json:"event_type,omitempty"`
	ValueProperty  string   `json:"value_property,omitempty"`
	UniqueProperty string   `json:"unique_property,omitempty"`
	Lateness       string   `json:"lateness"`
	Late           string   `json:"late"`
	KeyPolicy      string   `json:"key_policy"`
	KeyFields      []string `json:"key_fields,omitempty"`
	KeyBucket      string   `json:"key_bucket,omitempty"`
	Future         string   `json:"future"`
	Rounding       string   `json:"rounding,omitempty"`
	MissingValue   string   `json:"missing_value,omitempty"`

	Filter meter.Filter `json:"filter,omitempty"`
}

func appendMeter(tx store.Tx, actor string, action string, m *meter.Meter) error {
	payload := meterPayload{
		Slug: m.Slug, Name: m.Name, Aggregation: m.Aggregation.String(), EventType: m.EventType,
		ValueProperty: m.ValueProperty, UniqueProperty: m.UniqueProperty,
		Lateness: m.Lateness.String(), Late: m.Late.String(), KeyPolicy: m.KeyPolicy.String(), KeyFields: m.KeyFields,
		KeyBucket: span(m.KeyBucket), Future: m.Future.String(), Rounding: m.Rounding.String(), Filter: m.Filter,
	}
	if m.MissingValue != meter.RefuseMissing {
		payload.MissingValue = m.MissingValue.String()
	}
	_, err := ledgers.Append(tx, actor, audit.Of(meter.Kind.Name, action, m.Slug), payload, meter.Kind.State(m))
	return err
}

// span is a duration for a person; zero is absent.
func span(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
