package postgres

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

const (
	// configAge is how long access trusts what it remembers: a key that was revoked through another node stops here
	// within that, and one second is promised. What this node committed itself it knows at once.
	configAge = 500 * time.Millisecond
	// maxConfigs bounds the tenants whose configuration is remembered.
	maxConfigs = 4096
)

// configs remembers the configuration of tenants. An entry is a hint for Record, which compares versions under the lock, and for a
// moment an answer for Access.
type configs struct {
	mu      sync.Mutex // guards entries and what is in them
	entries map[string]*configEntry
	clock   func() time.Time // for tests; nil: the machine's
}

type configEntry struct {
	config *config
	at     time.Time  // when it was known to be the latest; zero: not known
	asking sync.Mutex // held by the one who reads it anew
}

func (c *configs) now() time.Time {
	if c.clock != nil {
		return c.clock()
	}
	return time.Now()
}

// entry returns the tenant's entry, making an empty one.
func (c *configs) entry(id string) *configEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	if e == nil {
		for other := range c.entries {
			if len(c.entries) < maxConfigs {
				break
			}
			delete(c.entries, other)
		}
		e = &configEntry{}
		c.entries[id] = e
	}
	return e
}

// get returns what is remembered, and whether it is recent enough for access.
func (c *configs) get(id string) (*config, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	if e == nil || e.config == nil {
		return nil, false
	}
	return e.config, c.now().Sub(e.at) < configAge
}

// put remembers a configuration that was read or committed, unless a later one is known. It says nothing of how recent it is.
func (c *configs) put(id string, config *config) { c.fresh(id, config, time.Time{}) }

// fresh remembers a configuration that was the latest at some moment.
func (c *configs) fresh(id string, config *config, at time.Time) {
	e := c.entry(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.config == nil || e.config.version < config.version:
		e.config, e.at = config, at
	case e.config.version == config.version && at.After(e.at):
		e.at = at
	}
}

// forget drops what is remembered of a tenant, so that it is read anew.
func (c *configs) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[id]; e != nil {
		e.config, e.at = nil, time.Time{}
	}
}

// config returns some configuration of the tenant, however old, or says that the tenant does not exist.
func (s *Store) config(ctx context.Context, id string) (*config, error) {
	if c, _ := s.configs.get(id); c != nil {
		return c, nil
	}
	return s.latest(ctx, id)
}

// latest reads the tenant's configuration. It is loaded only if its version is not the one that is remembered.
func (s *Store) latest(ctx context.Context, id string) (*config, error) {
	if !clean(id) {
		return nil, errNoTenant(id)
	}
	began := s.configs.now()
	var config *config
	err := s.reading(ctx, roleServe, id, func(ctx context.Context, c *session) error {
		var h head
		if err := c.ask(ctx, readHead, s.headFrom(&h), []byte(id)); err != nil {
			return err
		}
		if !h.exists {
			return errNoTenant(id)
		}
		if config, _ = s.configs.get(id); config != nil && config.version == h.version {
			return nil
		}
		var err error
		config, err = c.loadConfig(ctx, id, h.version)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.configs.fresh(id, config, began)
	return config, nil
}

// Access implements store.Store.
func (s *Store) Access(ctx context.Context, tenantID, keyID string) (tenant.Tenant, tenant.APIKey, error) {
	if err := s.open(ctx); err != nil {
		return tenant.Tenant{}, tenant.APIKey{}, err
	}
	c, recent := s.configs.get(tenantID)
	if !recent || c.keys[keyID] == nil {
		var err error
		if c, err = s.renewed(ctx, tenantID, keyID); err != nil {
			return tenant.Tenant{}, tenant.APIKey{}, err
		}
	}
	k := c.keys[keyID]
	if k == nil {
		return tenant.Tenant{}, tenant.APIKey{}, problem.New(problem.NotFound, "no API key %q", keyID)
	}
	return ownTenant(c.tenant), *k, nil
}

// renewed reads the configuration anew, once for all who ask at the same time.
func (s *Store) renewed(ctx context.Context, tenantID, keyID string) (*config, error) {
	if !clean(tenantID) {
		return nil, errNoTenant(tenantID)
	}
	e := s.configs.entry(tenantID)
	e.asking.Lock()
	defer e.asking.Unlock()
	if c, recent := s.configs.get(tenantID); recent && c.keys[keyID] != nil {
		return c, nil
	}
	return s.latest(ctx, tenantID)
}

// ownTenant is a tenant that the caller may do with as it likes.
func ownTenant(t *tenant.Tenant) tenant.Tenant {
	out := *t
	out.AllowedOrigins = slices.Clone(t.AllowedOrigins)
	return out
}

// Tenants implements store.Store. The directory's role reads this one table and nothing else.
func (s *Store) Tenants(ctx context.Context, after string, limit int) ([]tenant.Tenant, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckPlace(after); err != nil {
		return nil, err
	}
	var out []tenant.Tenant
	err := s.reading(ctx, roleDirectory, "", func(ctx context.Context, c *session) error {
		return c.ask(ctx, listTenants, func(in *reader) error {
			id := in.text()
			state, err := readState(in, kindTenant)
			switch {
			case problem.Is(err, problem.Unavailable):
				// Of a newer build: questions to it are answered with that, those to all others go on.
				out = append(out, tenant.Tenant{ID: id})
			case err == nil && state.Tenant != nil:
				out = append(out, *state.Tenant)
			case err != nil:
				return err
			}
			return nil
		}, []byte(after), []byte(tenant.Operator), int8Param(int64(limit)))
	})
	return out, err
}
