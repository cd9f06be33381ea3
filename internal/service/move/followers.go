package move

import (
	"bytes"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/store"
)

const (
	followersPage = 1000
	// mover is who claims a follower at the target, for so long.
	mover     = "move"
	moveClaim = time.Minute
)

// carryFollowers brings the places of those who follow the ledgers to the target. It is done before the source is
// marked, so that none is missing when a run breaks off between the two, and again after it, when they have stopped.
func (r *run) carryFollowers() error {
	for at := (store.Followed{}); ; {
		page, err := r.from.Followings(r.ctx, at.Tenant, at.Follower, followersPage)
		if err != nil {
			return fmt.Errorf("list followers: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		for i := range page {
			if err := r.carryFollower(&page[i]); err != nil {
				return fmt.Errorf("move follower %s of tenant %s: %w", page[i].Follower, page[i].Tenant, err)
			}
		}
		at = page[len(page)-1]
	}
}

func (r *run) carryFollower(of *store.Followed) error {
	f, err := r.from.Following(r.ctx, of.Tenant, of.Follower)
	if err != nil {
		return err
	}
	if err := r.to.Follow(r.ctx, f); err != nil {
		return err
	}
	there, err := r.to.Following(r.ctx, of.Tenant, of.Follower)
	if err != nil || there.Position > f.Position || there.Position == f.Position && bytes.Equal(there.Note, f.Note) {
		return err
	}
	c, err := r.to.Claim(r.ctx, of.Tenant, of.Follower, mover, moveClaim)
	if err != nil {
		return err
	}
	if err := r.to.Advance(r.ctx, c, f.Standing, moveClaim); err != nil {
		return err
	}
	return r.to.Release(r.ctx, c)
}
