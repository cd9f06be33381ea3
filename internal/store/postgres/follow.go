package postgres

import (
	"context"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/following"
)

// rightNow is the clock that claims are measured by: the database's, unless Options.Now is its place.
const rightNow = "coalesce($1::timestamptz, clock_timestamp())"

var (
	listHeads = &statement{name: "list_heads", sql: `SELECT tenant_id, seq FROM heads
		WHERE tenant_id > $1 AND tenant_id <> $2 ORDER BY tenant_id LIMIT $3`}
	listFollowings = &statement{name: "list_followings", sql: `SELECT tenant_id, follower, position,
			due, failing, expires_at > ` + rightNow + ` FROM followings
		WHERE (tenant_id, follower) > ($2, $3) ORDER BY tenant_id, follower LIMIT $4`}
	addFollowing = &statement{name: "add_following", sql: `INSERT INTO followings
			(tenant_id, follower, position, due, failing, note, owner, fence, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, '', 0, '-infinity') ON CONFLICT (tenant_id, follower) DO NOTHING`}
	readFollowing = &statement{name: "read_following", sql: `SELECT position, due, failing, note FROM followings
		WHERE tenant_id = $1 AND follower = $2`}
	dropFollowing = &statement{name: "drop_following", sql: `DELETE FROM followings
		WHERE tenant_id = $1 AND follower = $2`}
	claimFollowing = &statement{name: "claim_following", sql: `UPDATE followings
		SET owner = $4, fence = fence + 1, expires_at = ` + rightNow + ` + make_interval(secs => $5::bigint / 1000000.0)
		WHERE tenant_id = $2 AND follower = $3 AND (owner = $4 OR expires_at <= ` + rightNow + `)
		RETURNING position, due, failing, note, fence`}
	moveFollowing = &statement{name: "move_following", sql: `UPDATE followings
		SET position = $5, due = $6, failing = $7, note = $8,
			expires_at = ` + rightNow + ` + make_interval(secs => $9::bigint / 1000000.0)
		WHERE tenant_id = $2 AND follower = $3 AND fence = $4 AND position <= $5 AND expires_at > ` + rightNow + `
		RETURNING fence`}
	releaseFollowing = &statement{name: "release_following", sql: `UPDATE followings
		SET owner = '', expires_at = '-infinity' WHERE tenant_id = $1 AND follower = $2 AND fence = $3`}
	firstNeeded = &statement{name: "first_needed", sql: `SELECT position + 1 FROM followings
		WHERE tenant_id = $1 ORDER BY position LIMIT 1`}
)

// clock is the parameter that replaces the database's clock, null when nothing does.
func (s *Store) clock() []byte {
	if s.options.Now == nil {
		return nil
	}
	return timeParam(calendar.FromTime(s.options.Now()))
}

func microsParam(d time.Duration) []byte { return int8Param(d.Microseconds()) }

// Heads implements store.Followers.
func (s *Store) Heads(ctx context.Context, after string, limit int) (out []store.Grown, err error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckPlace(after); err != nil {
		return nil, err
	}
	err = s.reading(ctx, roleDirectory, "", func(ctx context.Context, c *session) error {
		return c.ask(ctx, listHeads, func(in *reader) error {
			out = append(out, store.Grown{Tenant: in.text(), Seq: uint64(in.int8())})
			return nil
		}, []byte(after), []byte(tenant.Operator), int8Param(int64(limit)))
	})
	return out, err
}

// Woken implements store.Followers.
func (s *Store) Woken() <-chan struct{} { return s.bell.Woken() }

// Followings implements store.Followers.
func (s *Store) Followings(
	ctx context.Context, tenantID, follower string, limit int,
) (out []store.Followed, err error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckPlace(tenantID, follower); err != nil {
		return nil, err
	}
	err = s.reading(ctx, roleDirectory, "", func(ctx context.Context, c *session) error {
		return c.ask(ctx, listFollowings, func(in *reader) error {
			f := store.Followed{Following: store.Following{Tenant: in.text(), Follower: in.text()}}
			f.Position, f.Due, f.Failing = uint64(in.int8()), calendar.Micros(in.int8()), in.bool()
			f.Claimed = in.bool()
			out = append(out, f)
			return nil
		}, s.clock(), []byte(tenantID), []byte(follower), int8Param(int64(limit)))
	})
	return out, err
}

// moving runs statements on the followings of a tenant and commits them. All of them may be repeated, so that a
// connection that breaks is no matter.
func (s *Store) moving(ctx context.Context, tenantID string, fn func(r *roundTrip)) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	return s.again(ctx, func() error {
		c, err := s.lend(ctx)
		if err != nil {
			return err
		}
		defer c.giveBack(context.WithoutCancel(ctx))
		r := c.roundTrip(ctx)
		r.beginWriting(tenantID)
		fn(r)
		r.send(commit, nil)
		return r.do()
	})
}

// Follow implements store.Followers.
func (s *Store) Follow(ctx context.Context, f store.Following) error {
	if !clean(f.Tenant) {
		return errNoTenant(f.Tenant)
	}
	if err := f.Check(); err != nil {
		return err
	}
	if _, err := s.someSet(ctx, f.Tenant); err != nil {
		return err
	}
	return s.moving(ctx, f.Tenant, func(r *roundTrip) {
		r.send(addFollowing, nil, append([][]byte{[]byte(f.Tenant), []byte(f.Follower)},
			(*standing)(&f.Standing).params()...)...)
	})
}

// standing are the columns of a store.Standing, note included.
type standing store.Standing

func (t *standing) read(in *reader) {
	t.Position, t.Due, t.Failing, t.Note = uint64(in.int8()), calendar.Micros(in.int8()), in.bool(), in.bytes()
}

func (t *standing) params() [][]byte {
	return [][]byte{int8Param(int64(t.Position)), int8Param(int64(t.Due)), {boolByte(t.Failing)},
		append([]byte{}, t.Note...)}
}

func errNotFollowing(tenantID, follower string) error {
	return problem.New(problem.NotFound, "%q does not follow the ledger of %q", follower, tenantID)
}

// Following implements store.Followers.
func (s *Store) Following(ctx context.Context, tenantID, follower string) (store.Following, error) {
	if err := s.open(ctx); err != nil {
		return store.Following{}, err
	}
	f, found := store.Following{Tenant: tenantID, Follower: follower}, false
	if !clean(tenantID) || !clean(follower) {
		return f, errNotFollowing(tenantID, follower)
	}
	err := s.reading(ctx, roleServe, tenantID, func(ctx context.Context, c *session) error {
		return c.ask(ctx, readFollowing, func(in *reader) error {
			(*standing)(&f.Standing).read(in)
			found = true
			return nil
		}, []byte(tenantID), []byte(follower))
	})
	if err == nil && !found {
		err = errNotFollowing(tenantID, follower)
	}
	return f, err
}

// Unfollow implements store.Followers.
func (s *Store) Unfollow(ctx context.Context, tenantID, follower string) error {
	if !clean(tenantID) || !clean(follower) {
		return nil
	}
	return s.moving(ctx, tenantID, func(r *roundTrip) {
		r.send(dropFollowing, nil, []byte(tenantID), []byte(follower))
	})
}

// Claim implements store.Followers. A commit whose answer was lost is repeated: the owner has its own claim then, and
// is given the next.
func (s *Store) Claim(
	ctx context.Context, tenantID, follower, owner string, ttl time.Duration,
) (store.Claim, error) {
	c := store.Claim{Following: store.Following{Tenant: tenantID, Follower: follower}}
	if !clean(tenantID) || !clean(follower) || !clean(owner) {
		return c, errNotFollowing(tenantID, follower)
	}
	err := s.moving(ctx, tenantID, func(r *roundTrip) {
		c.Fence = 0
		r.send(claimFollowing, func(in *reader) error {
			(*standing)(&c.Standing).read(in)
			c.Fence = uint64(in.int8())
			return nil
		}, s.clock(), []byte(tenantID), []byte(follower), []byte(owner), microsParam(ttl))
	})
	if err != nil || c.Fence > 0 {
		return c, err
	}
	if _, err := s.Following(ctx, tenantID, follower); err != nil {
		return c, err
	}
	return c, problem.New(problem.Busy, "%q is at work on the ledger of %q elsewhere", follower, tenantID).Retry(ttl)
}

// Advance implements store.Followers.
func (s *Store) Advance(ctx context.Context, c store.Claim, to store.Standing, ttl time.Duration) error {
	next := store.Following{Tenant: c.Tenant, Follower: c.Follower, Standing: to}
	if err := next.Check(); err != nil {
		return err
	}
	if !clean(c.Tenant) {
		return errNotFollowing(c.Tenant, c.Follower)
	}
	moved := false
	err := s.moving(ctx, c.Tenant, func(r *roundTrip) {
		moved = false
		params := [][]byte{s.clock(), []byte(c.Tenant), []byte(c.Follower), int8Param(int64(c.Fence))}
		params = append(append(params, (*standing)(&to).params()...), microsParam(ttl))
		r.send(moveFollowing, func(*reader) error {
			moved = true
			return nil
		}, params...)
	})
	if err != nil || moved {
		return err
	}
	f, err := s.Following(ctx, c.Tenant, c.Follower)
	switch {
	case err != nil:
		return err
	case f.Position > to.Position:
		return following.Backward(c, f.Position, to.Position)
	}
	return following.Lost(c)
}

// Release implements store.Followers.
func (s *Store) Release(ctx context.Context, c store.Claim) error {
	if !clean(c.Tenant) || !clean(c.Follower) {
		return nil
	}
	return s.moving(ctx, c.Tenant, func(r *roundTrip) {
		r.send(releaseFollowing, nil, []byte(c.Tenant), []byte(c.Follower), int8Param(int64(c.Fence)))
	})
}

// firstNeeded is the first row that a follower of the view's ledger still needs; ok is false when there is none.
func (v *view) firstNeeded() (first uint64, ok bool, err error) {
	err = v.ask(firstNeeded, func(in *reader) error {
		first, ok = uint64(in.int8()), true
		return nil
	})
	return first, ok, err
}
