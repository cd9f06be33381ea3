package registry

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

const tenantEntity = "tenant"

// TenantPatch holds what shall change; nil fields stay as they are.
type TenantPatch struct {
	Name           *string
	AllowedOrigins *[]string
}

// CreateTenant makes a tenant and its first key, which has the admin scope, and returns the key's token: it cannot be
// had again. Of t, the id and the details count. Errors: Invalid, Exists.
func (s *Service) CreateTenant(ctx context.Context, actor string, t tenant.Tenant) (tenant.Tenant, string, error) {
	if p := t.Check(); p != nil {
		return tenant.Tenant{}, "", p
	}
	made, token, err := s.found(ctx, actor, tenant.Tenant{ID: t.ID, Name: t.Name, AllowedOrigins: t.AllowedOrigins})
	if err != nil {
		return tenant.Tenant{}, "", err
	}
	return shown(made), token, nil
}

// found brings a tenant into being together with its first key: a tenant that nobody can speak for never exists.
func (s *Service) found(ctx context.Context, actor string, t tenant.Tenant) (tenant.Tenant, string, error) {
	if err := s.drawSecrets(&t); err != nil {
		return tenant.Tenant{}, "", err
	}
	key, token, err := s.newKey(t.ID, tenant.APIKey{Name: "first key", Scopes: tenant.Admin})
	if err != nil {
		return tenant.Tenant{}, "", err
	}
	floor, err := s.floor(ctx)
	if err != nil {
		return tenant.Tenant{}, "", err
	}
	err = s.store.Update(ctx, t.ID, func(tx store.Tx) error {
		_, err := store.Tenant(tx)
		if err == nil {
			return problem.New(problem.Exists, "tenant %s exists: choose another id", t.ID)
		}
		if !problem.Is(err, problem.NotFound) {
			return err
		}
		t.CreatedAt, key.CreatedAt = tx.Now(), tx.Now()
		if err := appendTenant(tx, actor, "created", &t); err != nil {
			return err
		}
		if err := appendFloor(tx, floor); err != nil {
			return err
		}
		return appendKey(tx, actor, "created", &key)
	})
	return t, token, err
}

// OperatorKey makes the operator's key on the first start that needs one and returns its token. Later it returns
// created as false and no token.
func (s *Service) OperatorKey(ctx context.Context) (token string, created bool, err error) {
	key, token, err := s.newKey(tenant.Operator, tenant.APIKey{Name: "first key", Scopes: tenant.Admin})
	if err != nil {
		return "", false, err
	}
	err = s.foundOperator(ctx, func(tx store.Tx) error {
		created = false // the transaction may be the second, after one that came to nothing
		keys, err := store.List(tx, &tenant.KeyKind, store.Page{Limit: 1})
		if err != nil || len(keys) > 0 {
			return err
		}
		created, key.CreatedAt = true, tx.Now()
		return appendKey(tx, audit.ActorSystem, "created", &key)
	})
	if err != nil || !created {
		return "", false, err
	}
	return token, true, nil
}

// FoundOperator makes the operator's own ledger, for an operator whose key is configured.
func (s *Service) FoundOperator(ctx context.Context) error {
	return s.foundOperator(ctx, func(store.Tx) error { return nil })
}

// foundOperator makes the operator's ledger unless it is there, and goes on with it.
func (s *Service) foundOperator(ctx context.Context, then func(tx store.Tx) error) error {
	t := tenant.Tenant{ID: tenant.Operator, Name: "Operator"}
	if err := s.drawSecrets(&t); err != nil {
		return err
	}
	return s.store.Update(ctx, tenant.Operator, func(tx store.Tx) error {
		_, err := store.Tenant(tx)
		if problem.Is(err, problem.NotFound) {
			t.CreatedAt = tx.Now()
			err = appendTenant(tx, audit.ActorSystem, "created", &t)
		}
		if err != nil {
			return err
		}
		return then(tx)
	})
}

// KeptHere returns nil while the deployment's ledgers are kept in this store. Tenants are marked in the order of their
// ids and the operator's ledger last, so these two distinguish a move that has ended from one that broke off. Errors:
// Moved.
func (s *Service) KeptHere(ctx context.Context) error {
	err := s.store.View(ctx, tenant.Operator, func(v store.View) error {
		t, err := store.Tenant(v)
		if err != nil {
			return err
		}
		return t.CheckKeptHere()
	})
	if err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	first, err := s.store.Tenants(ctx, "", 1)
	if err != nil || len(first) == 0 {
		return err
	}
	t, err := first[0].Tenant()
	if err != nil {
		return err
	}
	if err := t.CheckKeptHere(); err != nil {
		return problem.Wrap(problem.Moved, err, "a move to %s has begun and has not ended: run tallystick move again",
			t.MovedTo)
	}
	return nil
}

// Tenant returns one tenant. Errors: NotFound.
func (s *Service) Tenant(ctx context.Context, id string) (tenant.Tenant, error) {
	var t tenant.Tenant
	err := s.ledgers.View(ctx, id, func(v store.View) (err error) {
		t, err = store.Tenant(v)
		return err
	})
	if err != nil {
		return tenant.Tenant{}, err
	}
	return shown(t), nil
}

// Tenants lists tenants by id, after the given one; the operator's own is not among them.
func (s *Service) Tenants(ctx context.Context, after string, limit int) ([]tenant.Tenant, error) {
	list, err := s.store.Tenants(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	out := make([]tenant.Tenant, len(list))
	for i := range list {
		t, err := list[i].Tenant()
		if list[i].Entity.IsZero() { // a newer build wrote it: what it answers itself says so
			t, err = s.Tenant(ctx, list[i].ID)
		}
		if err != nil {
			return nil, fmt.Errorf("list tenant %s: %w", list[i].ID, err)
		}
		out[i] = shown(t)
	}
	return out, nil
}

// UpdateTenant changes a tenant's details. A patch that changes nothing leaves no row. Errors: NotFound, Invalid,
// TenantClosed.
func (s *Service) UpdateTenant(ctx context.Context, actor, id string, p TenantPatch) (tenant.Tenant, error) {
	var after tenant.Tenant
	err := s.ledgers.Update(ctx, id, func(tx store.Tx, before tenant.Tenant) error {
		after = before
		if p.Name != nil {
			after.Name = *p.Name
		}
		if p.AllowedOrigins != nil {
			after.AllowedOrigins = slices.Clone(*p.AllowedOrigins)
		}
		if p := after.CheckDetails(); p != nil {
			return p
		}
		if same(tenant.Kind.State(&before), tenant.Kind.State(&after)) {
			return nil
		}
		return appendTenant(tx, actor, "updated", &after)
	})
	if err != nil {
		return tenant.Tenant{}, err
	}
	return shown(after), nil
}

// CloseTenant makes a tenant refuse writes from now on; its ledger stays readable. Closing it again changes nothing.
// Errors: NotFound.
func (s *Service) CloseTenant(ctx context.Context, actor, id string) (tenant.Tenant, error) {
	if p := ledgers.Reachable(id); p != nil {
		return tenant.Tenant{}, p
	}
	var t tenant.Tenant
	err := s.store.Update(ctx, id, func(tx store.Tx) (err error) {
		if t, err = store.Tenant(tx); err != nil || t.Closed {
			return err
		}
		t.Closed, t.ClosedAt = true, tx.Now()
		return appendTenant(tx, actor, "closed", &t)
	})
	if err != nil {
		return tenant.Tenant{}, err
	}
	return shown(t), nil
}

// tenantPayload is what an audit event says of a tenant.
type tenantPayload struct {
	ID             string   `json:"id"`
	Name           string   `json:"name"`
	AllowedOrigins []string `json:"allowed_origins,omitempty"`
	ClosedAt       string   `json:"closed_at,omitempty"`
}

func appendTenant(tx store.Tx, actor string, action string, t *tenant.Tenant) error {
	payload := tenantPayload{t.ID, t.Name, t.AllowedOrigins, moment(t.ClosedAt)}
	_, err := ledgers.Append(tx, actor, audit.Of(tenantEntity, action, t.ID), payload, tenant.Kind.State(t))
	return err
}

// drawSecrets gives a new tenant its salt and the first key of its tree.
func (s *Service) drawSecrets(t *tenant.Tenant) error {
	t.TreeKeys = []tree.Key{{FromSeq: 1}}
	if err := s.draw(t.Salt[:]); err != nil {
		return err
	}
	return s.draw(t.TreeKeys[0].Secret[:])
}

// shown is a tenant without its secrets.
func shown(t tenant.Tenant) tenant.Tenant {
	t.Salt, t.TreeKeys = [32]byte{}, nil
	return t
}

// same reports whether two states would be kept alike, so that a change without a difference leaves no row.
func same(a, b entity.State) bool { return bytes.Equal(a.Data, b.Data) }

// moment is a time for a person; the zero moment is absent.
func moment(m calendar.Micros) string {
	if m == 0 {
		return ""
	}
	return m.String()
}
