package naive

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

// nowhere keeps nothing: all of this store ends with the process.
type nowhere struct{}

func (nowhere) Put(store.Following) error   { return nil }
func (nowhere) Delete(string, string) error { return nil }

// Heads implements store.Followers.
func (s *Store) Heads(ctx context.Context, after string, limit int) ([]store.Grown, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckPlace(after); err != nil {
		return nil, err
	}
	var out []store.Grown
	for _, id := range slices.Sorted(maps.Keys(s.tenants)) {
		if id > after && id != tenant.Operator {
			out = append(out, store.Grown{Tenant: id, Seq: s.tenants[id].head.Seq})
		}
	}
	return out[:min(limit, len(out))], nil
}

// Woken implements store.Followers.
func (s *Store) Woken() <-chan struct{} { return s.bell.Woken() }

// Follow implements store.Followers.
func (s *Store) Follow(ctx context.Context, f store.Following) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.ready(ctx); err != nil {
		return err
	}
	if s.tenants[f.Tenant] == nil {
		return notFound(f.Tenant)
	}
	return s.followers.Follow(f)
}

// Following implements store.Followers.
func (s *Store) Following(ctx context.Context, tenantID, follower string) (store.Following, error) {
	if err := s.ready(ctx); err != nil {
		return store.Following{}, err
	}
	return s.followers.Following(tenantID, follower)
}

// Followings implements store.Followers.
func (s *Store) Followings(ctx context.Context, tenantID, follower string, limit int) ([]store.Followed, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.followers.Followings(tenantID, follower, limit)
}

// Unfollow implements store.Followers.
func (s *Store) Unfollow(ctx context.Context, tenantID, follower string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.followers.Unfollow(tenantID, follower)
}

// Claim implements store.Followers.
func (s *Store) Claim(
	ctx context.Context, tenantID, follower, owner string, ttl time.Duration,
) (store.Claim, error) {
	if err := s.ready(ctx); err != nil {
		return store.Claim{}, err
	}
	return s.followers.Claim(tenantID, follower, owner, ttl)
}

// Advance implements store.Followers.
func (s *Store) Advance(ctx context.Context, c store.Claim, to store.Standing, ttl time.Duration) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.followers.Advance(c, to, ttl)
}

// Release implements store.Followers.
func (s *Store) Release(ctx context.Context, c store.Claim) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.followers.Release(c)
	return nil
}
