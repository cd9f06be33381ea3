// Package registry keeps who may use the deployment and what is counted for them: tenants, their API keys and their meters.
//
// Every change is a ledger row with its audit event in the same commit. A secret is returned once, to the caller that made the
// key, and kept only as its hash; neither hashes nor salts leave the package. It judges no usage and checks no caller's
// rights: that is done before it is called.
package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

// Service changes and reads the registry. It is safe for concurrent use if its source of randomness is.
type Service struct {
	store  store.Store
	random io.Reader
}

// New works on a store; random is where salts, key ids and secrets come from: crypto/rand.Reader in production.
func New(s store.Store, random io.Reader) *Service { return &Service{store: s, random: random} }

// author is who a change is told of.
type author struct{ source, actor string }

func caller(actor string) author { return author{audit.SourceAPI, actor} }

// append adds one change. The payload is for people; the state is the entity from then on.
func (a author) append(tx store.Tx, told audit.Event, payload any, state ledger.State) error {
	readable, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("write payload of %s: %w", told.Type, err)
	}
	told.Source, told.Actor, told.Payload = a.source, a.actor, string(readable)
	if _, err := tx.Append(ledger.Change{Event: told, State: state.Encode()}); err != nil {
		return fmt.Errorf("append %s: %w", told.Type, err)
	}
	return nil
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
func (s *Service) update(ctx context.Context, tenantID string, fn func(tx store.Tx, t tenant.Tenant) error) error {
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
		return fn(tx, t)
	})
}

func (s *Service) draw(into []byte) error {
	if _, err := io.ReadFull(s.random, into); err != nil {
		return fmt.Errorf("draw randomness: %w", err)
	}
	return nil
}
