// Package ledgers is what services share that read and change a tenant's entities: which tenants can be reached, that a
// closed one takes no changes, and that every change is a ledger row with its audit event. It knows no kind of entity.
package ledgers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

// Ledgers are the tenants' ledgers of a store, without the operator's own.
type Ledgers struct{ store store.Store }

// New works on a store.
func New(s store.Store) Ledgers { return Ledgers{s} }

// Reachable refuses ids that no tenant of a caller can have, the operator's own among them, before a store sees them.
// Errors: NotFound.
func Reachable(tenantID string) *problem.Error {
	if tenant.CheckID("id", tenantID, tenant.MaxID) != nil {
		return problem.New(problem.NotFound, "no such tenant")
	}
	return nil
}

// View runs fn on a tenant's ledger. Errors: NotFound, and those of fn.
func (l Ledgers) View(ctx context.Context, tenantID string, fn func(v store.View) error) error {
	if p := Reachable(tenantID); p != nil {
		return p
	}
	return l.store.View(ctx, tenantID, fn)
}

// Update runs fn on a tenant that takes changes. Errors: NotFound, TenantClosed, and those of fn.
func (l Ledgers) Update(ctx context.Context, tenantID string, fn func(tx store.Tx, t tenant.Tenant) error) error {
	if p := Reachable(tenantID); p != nil {
		return p
	}
	return l.store.Update(ctx, tenantID, func(tx store.Tx) error {
		t, err := store.Tenant(tx)
		if err != nil {
			return err
		}
		if err := TakesChanges(&t); err != nil {
			return err
		}
		return fn(tx, t)
	})
}

// TakesChanges refuses a tenant that is closed. Errors: TenantClosed.
func TakesChanges(t *tenant.Tenant) error {
	if t.Closed {
		return problem.New(problem.TenantClosed, "tenant %s is closed: it stays readable and takes no changes", t.ID)
	}
	return nil
}

// Append adds a change that an actor made and returns its number. The payload is for people to read; the state is the
// entity from then on.
func Append(tx store.Tx, actor string, e audit.Event, payload any, s entity.State) (uint64, error) {
	readable, err := json.Marshal(payload)
	if err != nil {
		return 0, fmt.Errorf("write payload of %s: %w", e.Type, err)
	}
	e.Source, e.Actor, e.Payload = audit.SourceAPI, actor, string(readable)
	if actor == audit.ActorSystem {
		e.Source = audit.SourceSystem
	}
	seq, err := tx.Append(ledger.Change{Event: e, State: s})
	if err != nil {
		return 0, fmt.Errorf("append %s: %w", e.Type, err)
	}
	return seq, nil
}
