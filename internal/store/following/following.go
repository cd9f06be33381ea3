// Package following keeps where followers stand, for stores that one process has to itself: in memory, with claims that
// need no disk because they end with the process. Making a following durable is the store's business.
package following

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store"
)

// Keeper makes followings durable. It is called by several goroutines, for one following by one at a time.
type Keeper interface {
	// Put keeps a following in place of the one with its names.
	Put(f store.Following) error
	// Delete keeps that there is none.
	Delete(tenantID, follower string) error
}

// Book is all followings of a store. It is safe for concurrent use.
type Book struct {
	now  func() time.Time
	keep Keeper

	mu   sync.Mutex // guards all and fence, and of each following all but its work
	all  map[name]*following
	last uint64 // fence
}

type name struct{ tenant, follower string }

type following struct {
	work sync.Mutex // held while it is changed durably
	store.Following
	gone    bool
	owner   string
	fence   uint64 // of the claim; 0: none
	expires time.Time
}

// New makes a book of what is kept already.
func New(now func() time.Time, keep Keeper, kept []store.Following) *Book {
	b := &Book{now: now, keep: keep, all: map[name]*following{}}
	for _, f := range kept {
		b.all[name{f.Tenant, f.Follower}] = &following{Following: f}
	}
	return b
}

func notFound(n name) error {
	return problem.New(problem.NotFound, "%q does not follow the ledger of %q", n.follower, n.tenant)
}

// find returns a following, its work locked, for a change.
func (b *Book) find(n name) (*following, error) {
	b.mu.Lock()
	f := b.all[n]
	b.mu.Unlock()
	if f == nil {
		return nil, notFound(n)
	}
	f.work.Lock()
	if b.mu.Lock(); f.gone {
		b.mu.Unlock()
		f.work.Unlock()
		return nil, notFound(n)
	}
	b.mu.Unlock()
	return f, nil
}

// Follow is that of store.Followers, for a tenant that exists.
func (b *Book) Follow(f store.Following) error {
	if err := f.Check(); err != nil {
		return err
	}
	f.Note = slices.Clone(f.Note)
	n, made := name{f.Tenant, f.Follower}, &following{Following: f}
	made.work.Lock()
	defer made.work.Unlock()
	b.mu.Lock()
	if b.all[n] != nil {
		b.mu.Unlock()
		return nil
	}
	b.all[n] = made
	b.mu.Unlock()
	if err := b.keep.Put(f); err != nil {
		b.remove(n, made)
		return err
	}
	return nil
}

func (b *Book) remove(n name, f *following) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.gone = true
	delete(b.all, n)
}

// Following is that of store.Followers.
func (b *Book) Following(tenantID, follower string) (store.Following, error) {
	n := name{tenantID, follower}
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.all[n]
	if f == nil {
		return store.Following{}, notFound(n)
	}
	return f.copy(), nil
}

func (f *following) copy() store.Following {
	out := f.Following
	out.Note = slices.Clone(f.Note)
	return out
}

// Followings is that of store.Followers.
func (b *Book) Followings(tenantID, follower string, limit int) ([]store.Followed, error) {
	if err := store.CheckPlace(tenantID, follower); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []store.Followed
	now := b.now()
	for n, f := range b.all {
		if cmp.Or(strings.Compare(n.tenant, tenantID), strings.Compare(n.follower, follower)) > 0 {
			one := store.Followed{Following: f.Following, Claimed: f.claimed(now)}
			one.Note = nil
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b store.Followed) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Follower, b.Follower))
	})
	return out[:min(max(limit, 0), len(out))], nil
}

func (f *following) claimed(now time.Time) bool { return f.fence != 0 && now.Before(f.expires) }

// Unfollow is that of store.Followers.
func (b *Book) Unfollow(tenantID, follower string) error {
	n := name{tenantID, follower}
	f, err := b.find(n)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	defer f.work.Unlock()
	if err := b.keep.Delete(tenantID, follower); err != nil {
		return err
	}
	b.remove(n, f)
	return nil
}

// Claim is that of store.Followers.
func (b *Book) Claim(tenantID, follower, owner string, ttl time.Duration) (store.Claim, error) {
	n := name{tenantID, follower}
	b.mu.Lock()
	defer b.mu.Unlock()
	f, now := b.all[n], b.now()
	if f == nil {
		return store.Claim{}, notFound(n)
	}
	if f.claimed(now) && f.owner != owner {
		return store.Claim{}, problem.New(problem.Busy, "%q is at work on the ledger of %q elsewhere", follower,
			tenantID).Retry(f.expires.Sub(now))
	}
	b.last++
	f.owner, f.fence, f.expires = owner, b.last, now.Add(ttl)
	return store.Claim{Following: f.copy(), Fence: f.fence}, nil
}

// Advance is that of store.Followers.
func (b *Book) Advance(c store.Claim, to store.Standing, ttl time.Duration) error {
	to.Note = slices.Clone(to.Note)
	next := store.Following{Tenant: c.Tenant, Follower: c.Follower, Standing: to}
	if err := next.Check(); err != nil {
		return err
	}
	f, err := b.find(name{c.Tenant, c.Follower})
	if err != nil {
		return err
	}
	defer f.work.Unlock()
	if err := b.mayAdvance(f, c, to.Position); err != nil {
		return err
	}
	if err := b.keep.Put(next); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f.Following = next
	if f.fence == c.Fence {
		f.expires = b.now().Add(ttl)
	}
	return nil
}

func (b *Book) mayAdvance(f *following, c store.Claim, position uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.fence != c.Fence || !f.claimed(b.now()) {
		return Lost(c)
	}
	if position < f.Position {
		return Backward(c, f.Position, position)
	}
	return nil
}

// Lost is what a claim that is no longer good is answered.
func Lost(c store.Claim) error {
	return problem.New(problem.Conflict, "the claim on %q in the ledger of %q is no longer good", c.Follower, c.Tenant)
}

// Backward is what a position that would move back is answered.
func Backward(c store.Claim, from, to uint64) error {
	return problem.New(problem.Malformed, "%q stands at row %d of the ledger of %q and does not move back to %d",
		c.Follower, from, c.Tenant, to)
}

// Release is that of store.Followers.
func (b *Book) Release(c store.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.all[name{c.Tenant, c.Follower}]; f != nil && f.fence == c.Fence {
		f.owner, f.fence, f.expires = "", 0, time.Time{}
	}
}

// Hold is the first row of a tenant that a follower still needs; ok is false when there is none.
func (b *Book) Hold(tenantID string) (first uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, f := range b.all {
		if n.tenant == tenantID && (!ok || f.Position+1 < first) {
			first, ok = f.Position+1, true
		}
	}
	return first, ok
}

// Bell wakes those who wait for commits. The zero value is ready.
type Bell struct {
	mu      sync.Mutex // guards waiting
	waiting chan struct{}
}

// Woken returns a channel that is closed by the next Ring.
func (b *Bell) Woken() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}

// Ring wakes all who wait.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}
