// Package billing shows and changes what a tenant's totals are made of: counters, adjustments and periods.
//
// It computes no total itself: the store folds by the rules of the core, and this package finds, filters and closes. Every
// change is a ledger row with its audit event in the same commit. Nothing it does rewrites a row or a sealed total.
package billing

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

// maxLooked bounds the counters that one call looks at, so that a filter that matches little cannot hold a view for long.
const maxLooked = 50_000

// Service reads and changes bills. It is safe for concurrent use.
type Service struct {
	store store.Store
	looks int // counters that one call may look at: maxLooked but in tests
}

// New works on a store.
func New(s store.Store) *Service { return &Service{store: s, looks: maxLooked} }

// Slugs names a tenant's meters by number, for whoever prints what holds numbers. Errors: NotFound.
func (s *Service) Slugs(ctx context.Context, tenantID string) (slugs map[uint32]string, err error) {
	err = s.view(ctx, tenantID, func(v store.View) (err error) {
		slugs, err = store.Slugs(v)
		return err
	})
	return slugs, err
}

func allMeters(v store.View) ([]store.Meter, error) {
	meters, err := store.Meters(v, store.Page{Limit: tenant.MaxMeters})
	if err != nil {
		return nil, fmt.Errorf("list meters: %w", err)
	}
	return meters, nil
}

// reachable refuses ids that no tenant of a caller can have, the operator's own among them, before a store sees them.
func reachable(tenantID string) *problem.Error {
	if tenant.CheckID("id", tenantID, tenant.MaxID) != nil {
		return problem.New(problem.NotFound, "no such tenant")
	}
	return nil
}

func (s *Service) view(ctx context.Context, tenantID string, fn func(v store.View) error) error {
	if p := reachable(tenantID); p != nil {
		return p
	}
	return s.store.View(ctx, tenantID, fn)
}

// update runs fn on a tenant that takes writes.
func (s *Service) update(ctx context.Context, tenantID string, fn func(tx store.Tx) error) error {
	if p := reachable(tenantID); p != nil {
		return p
	}
	return s.store.Update(ctx, tenantID, func(tx store.Tx) error {
		t, err := store.Tenant(tx)
		if err != nil {
			return err
		}
		if t.Closed {
			return problem.New(problem.TenantClosed, "tenant %s is closed: it stays readable and takes no changes", t.ID)
		}
		return fn(tx)
	})
}

// appendTold adds one change of a caller's, or of a schedule's, and returns its number. The payload is for people.
func appendTold(tx store.Tx, actor string, told audit.Event, payload any, state ledger.State) (uint64, error) {
	readable, err := json.Marshal(payload)
	if err != nil {
		return 0, fmt.Errorf("write payload of %s: %w", told.Type, err)
	}
	told.Source, told.Actor, told.Payload = audit.SourceAPI, actor, string(readable)
	if actor == audit.ActorSystem {
		told.Source = audit.SourceSystem
	}
	seq, err := tx.Append(ledger.Change{Event: told, State: state.Encode()})
	if err != nil {
		return 0, fmt.Errorf("append %s: %w", told.Type, err)
	}
	return seq, nil
}
