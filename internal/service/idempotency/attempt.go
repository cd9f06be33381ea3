package idempotency

import (
	"context"
	"errors"
	"slices"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/store"
)

// The ways in which a transaction is given up.
var (
	errFound   = errors.New("another was first")
	errGivenUp = errors.New("the request was refused")
)

// attempt is one handling of a request.
type attempt struct {
	made   Made
	kept   *request.Stored // another was first
	joined joined
}

// first handles the request and keeps its answer.
func (r *Requests) first(ctx context.Context, c *Call, handle Handler) (request.Answer, bool, error) {
	var t attempt
	err := r.store.commit(ctx, c.Effect, func(tx store.Tx) error {
		t = attempt{joined: joined{tenant: c.Effect, tx: tx}}
		var err error
		if t.kept, err = find(tx, c); err != nil {
			return err
		}
		if t.kept != nil {
			return errFound
		}
		return r.try(ctx, c, handle, &t)
	})
	switch {
	case errors.Is(err, errFound):
		return r.again(t.kept, nil)
	case errors.Is(err, errGivenUp) && t.decided():
		var first *request.Stored
		if first, err = r.keep(ctx, c, t.fill); first != nil {
			return r.again(first, nil)
		}
	case errors.Is(err, errGivenUp):
		return t.made.Answer, false, nil // not kept, and so not the first of anything
	}
	if err != nil {
		return r.again(nil, err)
	}
	r.observe(First)
	return t.made.Answer, false, nil
}

// try runs inside the transaction. A panic of the handling is for the store to turn into an error, like that of any
// update.
func (r *Requests) try(ctx context.Context, c *Call, handle Handler, t *attempt) error {
	if t.made = handle(context.WithValue(ctx, joinedKey{}, &t.joined)); t.made.Refusal != nil {
		return errGivenUp
	}
	return r.append(t.joined.tx, c, t.fill)
}

func (t *attempt) fill(s *request.Stored) {
	s.Answer = t.made.Answer
	if t.made.Public != nil {
		s.Body = t.made.Public
	}
}

// undecided are refusals that say nothing of the effect, or that the ledger cannot take a row for.
var undecided = []problem.Code{
	problem.Unauthorized, problem.Forbidden, problem.TooLarge, problem.Busy, problem.Unavailable, problem.Timeout,
	problem.Internal,
	problem.RateLimited, problem.QuotaExceeded, problem.TenantClosed, problem.Moved,
}

// decided reports whether it was the effect that refused: what a service said inside its own part of the transaction.
func (t *attempt) decided() bool {
	code := problem.CodeOf(t.joined.failed)
	return t.joined.failed != nil && code != "" && !slices.Contains(undecided, code) && t.made.Status < 500
}
