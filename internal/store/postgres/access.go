package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

const (
	// setAge is how long access trusts what it remembers: a key that was revoked through another node stops here within
	// that, and one second is promised. What this node committed itself it knows at once.
	setAge = 500 * time.Millisecond
	// maxSets bounds the tenants whose resident entities are remembered.
	maxSets = 4096
)

// residentSets remembers the resident entities of tenants. An entry is a hint for Record, which compares versions under
// the lock, and for a moment an answer for Access.
type residentSets struct {
	mu      sync.Mutex // guards entries and what is in them
	entries map[string]*residentEntry
	clock   func() time.Time // for tests; nil: the machine's
}

type residentEntry struct {
	set    *residentSet
	at     time.Time  // when it was known to be the latest; zero: not known
	asking sync.Mutex // held by the one who reads it anew
}

func (c *residentSets) now() time.Time {
	if c.clock != nil {
		return c.clock()
	}
	return time.Now()
}

// entry returns the tenant's entry, making an empty one.
func (c *residentSets) entry(id string) *residentEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	if e == nil {
		for other := range c.entries {
			if len(c.entries) < maxSets {
				break
			}
			delete(c.entries, other)
		}
		e = &residentEntry{}
		c.entries[id] = e
	}
	return e
}

// get returns what is remembered, and whether it is recent enough for access.
func (c *residentSets) get(id string) (*residentSet, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	if e == nil || e.set == nil {
		return nil, false
	}
	return e.set, c.now().Sub(e.at) < setAge
}

// put remembers a set that was read or committed, unless a later one is known. It says nothing of how recent it is.
func (c *residentSets) put(id string, set *residentSet) { c.fresh(id, set, time.Time{}) }

// fresh remembers a set that was the latest at some moment.
func (c *residentSets) fresh(id string, set *residentSet, at time.Time) {
	e := c.entry(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.set == nil || e.set.version < set.version:
		e.set, e.at = set, at
	case e.set.version == set.version && at.After(e.at):
		e.at = at
	}
}

// forget drops what is remembered of a tenant, so that it is read anew.
func (c *residentSets) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[id]; e != nil {
		e.set, e.at = nil, time.Time{}
	}
}

// someSet returns some set of the tenant, however old, or says that the tenant does not exist.
func (s *Store) someSet(ctx context.Context, id string) (*residentSet, error) {
	if set, _ := s.sets.get(id); set != nil {
		return set, nil
	}
	return s.latestSet(ctx, id)
}

// latestSet reads the tenant's set. It is loaded only if its version is not the one that is remembered.
func (s *Store) latestSet(ctx context.Context, id string) (*residentSet, error) {
	if !clean(id) {
		return nil, errNoTenant(id)
	}
	began := s.sets.now()
	var set *residentSet
	err := s.reading(ctx, roleServe, id, func(ctx context.Context, c *session) error {
		var h head
		if err := c.ask(ctx, readHead, s.headFrom(&h), []byte(id)); err != nil {
			return err
		}
		if !h.exists {
			return errNoTenant(id)
		}
		if set, _ = s.sets.get(id); set != nil && set.version == h.version {
			return nil
		}
		var err error
		set, err = s.loadSet(ctx, c, id, h.version)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.sets.fresh(id, set, began)
	return set, nil
}

// Access implements store.Store.
func (s *Store) Access(ctx context.Context, tenantID, keyID string) (store.Access, error) {
	if err := s.open(ctx); err != nil {
		return store.Access{}, err
	}
	set, recent := s.sets.get(tenantID)
	if !recent || !set.HasKey(keyID) {
		var err error
		if set, err = s.renewed(ctx, tenantID, keyID); err != nil {
			return store.Access{}, err
		}
	}
	return set.Access(keyID)
}

// renewed reads the set anew, once for all who ask at the same time.
func (s *Store) renewed(ctx context.Context, tenantID, keyID string) (*residentSet, error) {
	if !clean(tenantID) {
		return nil, errNoTenant(tenantID)
	}
	e := s.sets.entry(tenantID)
	e.asking.Lock()
	defer e.asking.Unlock()
	if set, recent := s.sets.get(tenantID); recent && set.HasKey(keyID) {
		return set, nil
	}
	return s.latestSet(ctx, tenantID)
}

// The directory's policy and the index that the list is read from name the kind too.
var listTenants = &statement{name: "list_tenants", choosy: true, sql: `SELECT tenant_id, ` + entityColumns + `
	FROM entities WHERE kind = '` + tenant.Kind.Name + `' AND tenant_id > $1 AND tenant_id <> $2
	ORDER BY tenant_id LIMIT $3`}

// Tenants implements store.Store. The directory's role reads the tenants' own entities and nothing else.
func (s *Store) Tenants(ctx context.Context, after string, limit int) ([]store.Listed, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckPlace(after); err != nil {
		return nil, err
	}
	var out []store.Listed
	err := s.reading(ctx, roleDirectory, "", func(ctx context.Context, c *session) error {
		return c.ask(ctx, listTenants, func(in *reader) error {
			t := store.Listed{ID: in.text(), Entity: readEntity(in)}
			if !s.options.Kinds.Knows(&t.Entity.State) {
				// Of a newer build: questions to it are answered with that, those to all others go on.
				t.Entity = entity.Entity{}
			}
			out = append(out, t)
			return nil
		}, []byte(after), []byte(tenant.Operator), int8Param(int64(limit)))
	})
	return out, err
}
