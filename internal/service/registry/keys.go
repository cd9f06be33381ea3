package registry

import (
	"context"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

const keyEntity = "api_key"

// CreateKey makes a key and returns its token, which cannot be had again. Of k, the name, scopes, expiry and rate limit
// count. Errors: NotFound, Invalid, TenantClosed, Conflict (too many keys).
func (s *Service) CreateKey(ctx context.Context, actor, tenantID string,
	k tenant.APIKey) (tenant.APIKey, string, error) {
	if p := ledgers.Reachable(tenantID); p != nil {
		return tenant.APIKey{}, "", p
	}
	if _, p := tenant.ParseScopes(k.Scopes.Names()); p != nil {
		return tenant.APIKey{}, "", p
	}
	key, token, err := s.newKey(tenantID, tenant.APIKey{Name: k.Name, Scopes: k.Scopes, RateLimit: k.RateLimit,
		ExpiresAt: k.ExpiresAt})
	if err != nil {
		return tenant.APIKey{}, "", err
	}
	err = s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		key.CreatedAt = tx.Now()
		if p := key.Check(tx.Now()); p != nil {
			return p
		}
		if err := roomForKey(tx, key.ID); err != nil {
			return err
		}
		return appendKey(tx, actor, "created", &key)
	})
	if err != nil {
		return tenant.APIKey{}, "", err
	}
	return withoutHash(key), token, nil
}

// newKey completes k with an id and a hash, and returns the token that it is the hash of.
func (s *Service) newKey(tenantID string, k tenant.APIKey) (tenant.APIKey, string, error) {
	var name [10]byte
	var secret [32]byte
	if err := s.draw(name[:]); err != nil {
		return tenant.APIKey{}, "", err
	}
	if err := s.draw(secret[:]); err != nil {
		return tenant.APIKey{}, "", err
	}
	k.ID = tenant.NewKeyID(tenantID, name)
	token := tenant.Token(k.ID, secret)
	k.Hash = tenant.HashToken(token)
	return k, token, nil
}

// keysPage is how many keys are read at a time when they are counted: revoked ones are listed too, without bound.
const keysPage = 1000

// roomForKey counts the keys in force. It also makes sure that the new id is free: with a broken source of randomness a
// new key would otherwise silently replace an old one.
func roomForKey(tx store.Tx, id string) error {
	inForce, after := 0, ""
	for {
		page, err := store.List(tx, &tenant.KeyKind, store.Page{After: after, Limit: keysPage})
		if err != nil {
			return fmt.Errorf("count API keys: %w", err)
		}
		for i := range page {
			if page[i].ID == id {
				return fmt.Errorf("the new API key's id %s is taken: the source of randomness repeats itself", id)
			}
			if page[i].RevokedAt == 0 {
				inForce++
			}
		}
		if inForce >= tenant.MaxKeys {
			return problem.New(problem.Conflict, "the tenant has %d API keys, the most there can be: revoke one first",
				tenant.MaxKeys)
		}
		if len(page) < keysPage {
			return nil
		}
		after = page[len(page)-1].ID
	}
}

// Key returns one key, revoked ones too. Errors: NotFound.
func (s *Service) Key(ctx context.Context, tenantID, id string) (tenant.APIKey, error) {
	var k tenant.APIKey
	err := s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		k, err = store.Get(v, &tenant.KeyKind, id)
		return err
	})
	if err != nil {
		return tenant.APIKey{}, err
	}
	return withoutHash(k), nil
}

// Keys lists keys by id, after the given one, revoked ones too. Errors: NotFound.
func (s *Service) Keys(ctx context.Context, tenantID, after string, limit int) ([]tenant.APIKey, error) {
	var list []tenant.APIKey
	err := s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		list, err = store.List(v, &tenant.KeyKind, store.Page{After: after, Limit: limit})
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]tenant.APIKey, len(list))
	for i := range list {
		out[i] = withoutHash(list[i])
	}
	return out, nil
}

// RevokeKey ends a key, in force as soon as Access of the store shows it, also a closed tenant's, whose ledger a leaked
// key could still read. Revoking it again changes nothing. Errors: NotFound.
func (s *Service) RevokeKey(ctx context.Context, actor, tenantID, id string) error {
	if p := ledgers.Reachable(tenantID); p != nil {
		return p
	}
	return s.store.Update(ctx, tenantID, func(tx store.Tx) error {
		k, err := store.Get(tx, &tenant.KeyKind, id)
		if err != nil || k.RevokedAt != 0 {
			return err
		}
		k.RevokedAt = tx.Now()
		return appendKey(tx, actor, "revoked", &k)
	})
}

// keyPayload is what an audit event says of a key: nothing that helps to guess it.
type keyPayload struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Scopes    []string          `json:"scopes"`
	RateLimit *rateLimitPayload `json:"rate_limit,omitempty"`
	ExpiresAt string            `json:"expires_at,omitempty"`
	RevokedAt string            `json:"revoked_at,omitempty"`
}

type rateLimitPayload struct {
	RequestsPerSecond int64 `json:"requests_per_second,omitempty"`
	EventsPerSecond   int64 `json:"events_per_second,omitempty"`
	BytesPerSecond    int64 `json:"bytes_per_second,omitempty"`
}

func appendKey(tx store.Tx, actor string, action string, k *tenant.APIKey) error {
	payload := keyPayload{ID: k.ID, Name: k.Name, Scopes: k.Scopes.Names(), ExpiresAt: moment(k.ExpiresAt),
		RevokedAt: moment(k.RevokedAt)}
	if k.RateLimit != (tenant.RateLimit{}) {
		limit := rateLimitPayload(k.RateLimit)
		payload.RateLimit = &limit
	}
	_, err := ledgers.Append(tx, actor, audit.Of(keyEntity, action, k.ID), payload, tenant.KeyKind.State(k))
	return err
}

func withoutHash(k tenant.APIKey) tenant.APIKey {
	k.Hash = [len(k.Hash)]byte{}
	return k
}
