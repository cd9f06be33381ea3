// Package plans keeps what a tenant's plans allow, for whom they are in force, and shows what is left of them.
//
// It refuses no event: the store judges every fact by the plans under the same lock that counts it. Every change is a
// ledger row with its audit event in the same commit, and is in force for the next fact that is judged.
package plans

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

// maxLooked bounds the customers that one listing looks at, so that a filter that matches little cannot hold a view for
// long.
const maxLooked = 10_000

// Service changes and reads plans. It is safe for concurrent use.
type Service struct {
	ledgers ledgers.Ledgers
	looks   int // customers that one call may look at: maxLooked but in tests
}

// New works on a store.
func New(s store.Store) *Service { return &Service{ledgers: ledgers.New(s), looks: maxLooked} }

// Put makes a plan, or replaces it whole; its times are the service's. A plan that stays as it is leaves no row.
// Errors: NotFound, Invalid (also a meter that does not exist or does not add up), TenantClosed, Conflict (too many
// plans).
func (s *Service) Put(ctx context.Context, actor, tenantID string, p quota.Plan) (quota.Plan, error) {
	if bad := p.Check(); bad != nil {
		return quota.Plan{}, bad
	}
	out := quota.Plan{}
	err := s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		if err := metersOf(tx, &p); err != nil {
			return err
		}
		before, err := store.Get(tx, &quota.PlanKind, p.Name)
		action := "updated"
		switch {
		case problem.Is(err, problem.NotFound):
			action = "created"
			if err := room(tx); err != nil {
				return err
			}
			before = quota.Plan{CreatedAt: tx.Now()}
		case err != nil:
			return err
		}
		out = p.Clone()
		out.CreatedAt, out.UpdatedAt = before.CreatedAt, before.UpdatedAt
		if bytes.Equal(quota.PlanKind.Encode(&before), quota.PlanKind.Encode(&out)) {
			return nil
		}
		out.UpdatedAt = tx.Now()
		_, err = ledgers.Append(tx, actor, audit.Of("plan", action, p.Name), payloadOf(&out),
			quota.PlanKind.State(&out))
		return err
	})
	if err != nil {
		return quota.Plan{}, err
	}
	return out, nil
}

// metersOf checks that a plan limits only what can be limited.
func metersOf(tx store.Tx, p *quota.Plan) error {
	for i := range p.Quotas {
		path, slug := fmt.Sprintf("quotas[%d].meter", i), p.Quotas[i].Meter
		m, err := store.GetMeter(tx, slug)
		if problem.Is(err, problem.NotFound) {
			return problem.At(path, "there is no meter %s", slug)
		}
		if err != nil {
			return err
		}
		if !usage.AddsUp(m.Aggregation) {
			return problem.At(path, "only sum and count meters have quotas; %s is a %s meter", slug, m.Aggregation)
		}
	}
	return nil
}

func room(tx store.Tx) error {
	known, err := store.List(tx, &quota.PlanKind, store.Page{Limit: quota.MaxPlans})
	if err != nil {
		return fmt.Errorf("list plans: %w", err)
	}
	if len(known) >= quota.MaxPlans {
		return problem.New(problem.Conflict, "the tenant has %d plans, the most there can be", quota.MaxPlans)
	}
	return nil
}

// Plan returns one plan. Errors: NotFound.
func (s *Service) Plan(ctx context.Context, tenantID, name string) (p quota.Plan, err error) {
	err = s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		p, err = store.Get(v, &quota.PlanKind, name)
		return err
	})
	return p, err
}

// Plans lists plans by name, after the given one. Errors: NotFound.
func (s *Service) Plans(ctx context.Context, tenantID, after string, limit int) (list []quota.Plan, err error) {
	err = s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		list, err = store.List(v, &quota.PlanKind, store.Page{After: after, Limit: limit})
		return err
	})
	return list, err
}

// The payloads, in the words of the contract.
type (
	planPayload struct {
		Name   string          `json:"name"`
		Quotas []quotaPayload  `json:"quotas"`
		Prices json.RawMessage `json:"prices,omitempty"`
	}
	quotaPayload struct {
		Meter      string   `json:"meter"`
		Limit      string   `json:"limit"`
		Soft       bool     `json:"soft"`
		Multiplier string   `json:"hard_cap_multiplier,omitempty"`
		Thresholds []uint16 `json:"thresholds"`
	}
	assignmentPayload struct {
		Plan   *string `json:"plan"`
		From   string  `json:"from"`
		Before *string `json:"before"` // that was in force at that time
	}
)

func payloadOf(p *quota.Plan) planPayload {
	out := planPayload{Name: p.Name, Quotas: []quotaPayload{}, Prices: p.Prices}
	for _, q := range p.Quotas {
		one := quotaPayload{Meter: q.Meter, Limit: q.Limit.String(), Soft: q.Soft,
			Thresholds: append([]uint16{}, q.Thresholds...)}
		if !q.Multiplier.IsZero() {
			one.Multiplier = q.Multiplier.String()
		}
		out.Quotas = append(out.Quotas, one)
	}
	return out
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
