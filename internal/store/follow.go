package store

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// # Following ledgers
//
// Whoever wants the rows of a ledger follows it: nothing is copied for them when rows are committed. A follower has a
// place in each ledger that it follows, and a note of what it has to remember there, such as a delivery that is under
// way. Places are durable and no rows of the ledger: they would feed themselves. They survive a rebuild and move along
// with the ledger.
//
// On a store with several nodes a follower works on one of them at a time: the one that has the claim. A claim ends by
// itself, so that the share of a node that died is taken over; its fence makes sure that a node that was only paused
// moves nothing when it wakes up.

// Bounds of what a store keeps for a follower.
const (
	MaxFollower = 128     // bytes of a follower's name
	MaxNote     = 1 << 20 // bytes of a note
)

// Standing is how far a follower has come in one ledger.
type Standing struct {
	Position uint64          // the last row that it is done with
	Due      calendar.Micros // it has nothing to do before; zero: no such time
	Failing  bool            // it is behind because what it does fails
	Note     []byte          // what it has to remember there
}

// Following is where a follower stands in one ledger.
type Following struct {
	Tenant   string
	Follower string
	Standing
}

// Check refuses what no store keeps. Errors: Malformed.
func (f *Following) Check() error {
	if f.Follower == "" || len(f.Follower) > MaxFollower || !utf8.ValidString(f.Follower) {
		return problem.New(problem.Malformed, "a follower is named by 1 to %d bytes of UTF-8", MaxFollower)
	}
	if err := CheckPlace(f.Follower); err != nil {
		return err
	}
	if len(f.Note) > MaxNote {
		return problem.New(problem.Malformed, "a follower's note has at most %d bytes, this has %d", MaxNote,
			len(f.Note))
	}
	return nil
}

// Claim is the right to move a follower in one ledger. It is good until it expires or another is given.
type Claim struct {
	Following        // as it was when the claim was given
	Fence     uint64 // greater than that of every claim before
}

// Followed is a following in a list of all, without its note.
type Followed struct {
	Following
	Claimed bool // somebody has a claim that has not expired
}

// Grown is the last durable row of a ledger.
type Grown struct {
	Tenant string
	Seq    uint64
}

// Followers is the part of a store that serves those who follow its ledgers.
type Followers interface {
	// Heads lists the ledgers of all tenants by id, after the given one, with their last row. The operator's own is
	// never among them. Errors: Malformed (see CheckPlace).
	Heads(ctx context.Context, after string, limit int) ([]Grown, error)
	// Woken returns a channel that is closed when this node has committed something after the call. What other nodes
	// commit is found by asking for Heads.
	Woken() <-chan struct{}

	// Follow begins a following at a place. One that is there already stays as it is. Errors: NotFound (no such
	// tenant), Malformed (see Following.Check).
	Follow(ctx context.Context, f Following) error
	// Following returns where a follower stands. Errors: NotFound.
	Following(ctx context.Context, tenantID, follower string) (Following, error)
	// Followings lists the followings of all tenants by tenant and follower, after the given ones. Errors: Malformed
	// (see CheckPlace).
	Followings(ctx context.Context, tenantID, follower string, limit int) ([]Followed, error)
	// Unfollow ends a following, whoever has a claim on it. One that is not there is no error.
	Unfollow(ctx context.Context, tenantID, follower string) error

	// Claim gives the owner the right to move a follower, for so long. It may have had the right before: its claim is
	// then another, and goes on for so long. Errors: NotFound, Busy (somebody else has it).
	Claim(ctx context.Context, tenantID, follower, owner string, ttl time.Duration) (Claim, error)
	// Advance replaces where a follower stands, durably, and lets the claim go on for so long. The position never moves
	// back. Errors: Conflict (the claim is no longer good: nothing was changed), NotFound, Malformed.
	Advance(ctx context.Context, c Claim, to Standing, ttl time.Duration) error
	// Release gives a claim up. One that is no longer good is no error.
	Release(ctx context.Context, c Claim) error
}
