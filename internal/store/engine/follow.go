package engine

import (
	"context"
	"time"

	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/followlog"
	"github.com/tallystick/tallystick/internal/store/following"
)

// followers is where those stand who follow the ledgers.
type followers struct {
	*following.Book
	log  *followlog.Log
	bell following.Bell
}

// openFollowers reads where followers stand. It is no part of what the journal says, so that a rebuild leaves it alone.
func (e *Engine) openFollowers() error {
	log, kept, err := followlog.Open(e.options.FS, e.options.FS.PathJoin(e.options.Dir, followersDir), func(err error) {
		e.fail(err)
	})
	if err != nil {
		return err
	}
	e.followers.log, e.followers.Book = log, following.New(e.now, log, kept)
	return nil
}

// Heads implements store.Followers.
func (e *Engine) Heads(_ context.Context, after string, limit int) ([]store.Grown, error) {
	if e.closed.Load() {
		return nil, errClosed()
	}
	if err := store.CheckPlace(after); err != nil {
		return nil, err
	}
	all := e.tenants()
	var out []store.Grown
	for _, id := range page(all, after, limit) {
		out = append(out, store.Grown{Tenant: id, Seq: all[id].published.Load().head.Seq})
	}
	return out, nil
}

// tenants are the books of all but the operator.
func (e *Engine) tenants() map[string]*book {
	all := map[string]*book{}
	e.books.Range(func(id, b any) bool {
		if id != tenant.Operator {
			all[id.(string)] = b.(*book)
		}
		return true
	})
	return all
}

// Woken implements store.Followers.
func (e *Engine) Woken() <-chan struct{} { return e.followers.bell.Woken() }

// following begins a call that may write where a follower stands; leave of reads must follow.
func (e *Engine) following(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.failure.Load() != nil {
		return e.errFailed()
	}
	return e.reads.enter()
}

// Follow implements store.Followers.
func (e *Engine) Follow(ctx context.Context, f store.Following) error {
	if err := e.following(ctx); err != nil {
		return err
	}
	defer e.reads.leave()
	if _, err := e.book(f.Tenant); err != nil {
		return err
	}
	return e.followers.Follow(f)
}

// Following implements store.Followers.
func (e *Engine) Following(ctx context.Context, tenantID, follower string) (store.Following, error) {
	if err := e.following(ctx); err != nil {
		return store.Following{}, err
	}
	defer e.reads.leave()
	return e.followers.Following(tenantID, follower)
}

// Followings implements store.Followers.
func (e *Engine) Followings(ctx context.Context, tenantID, follower string, limit int) ([]store.Followed, error) {
	if err := e.following(ctx); err != nil {
		return nil, err
	}
	defer e.reads.leave()
	return e.followers.Followings(tenantID, follower, limit)
}

// Unfollow implements store.Followers.
func (e *Engine) Unfollow(ctx context.Context, tenantID, follower string) error {
	if err := e.following(ctx); err != nil {
		return err
	}
	defer e.reads.leave()
	return e.followers.Unfollow(tenantID, follower)
}

// Claim implements store.Followers.
func (e *Engine) Claim(ctx context.Context, tenantID, follower, owner string, ttl time.Duration) (store.Claim, error) {
	if err := e.following(ctx); err != nil {
		return store.Claim{}, err
	}
	defer e.reads.leave()
	return e.followers.Claim(tenantID, follower, owner, ttl)
}

// Advance implements store.Followers.
func (e *Engine) Advance(ctx context.Context, c store.Claim, to store.Standing, ttl time.Duration) error {
	if err := e.following(ctx); err != nil {
		return err
	}
	defer e.reads.leave()
	return e.followers.Advance(c, to, ttl)
}

// Release implements store.Followers.
func (e *Engine) Release(ctx context.Context, c store.Claim) error {
	if err := e.following(ctx); err != nil {
		return err
	}
	defer e.reads.leave()
	e.followers.Release(c)
	return nil
}
