package idempotency

import (
	"context"
	"errors"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/store"
)

// Store is a store whose Update and View join the transaction of the request that they are called for, if it has one.
// Services work on it without knowing: what they change under a request key commits together with the answer.
type Store struct {
	store.Store
	// committed gets every change that a service committed, or is nil.
	committed func(tenantID string, e audit.Event)
}

// joined is the transaction that a request runs in.
type joined struct {
	tenant string
	tx     store.Tx
	failed error // what the effect ended with
}

type joinedKey struct{}

// errOther guards against waiting for oneself: inside its transaction a request holds up every other commit.
var errOther = errors.New("a request under a key reaches one tenant's ledger, not two")

// joinedIn is the transaction to join; nil when there is none.
func joinedIn(ctx context.Context, tenantID string) (*joined, error) {
	j, _ := ctx.Value(joinedKey{}).(*joined)
	if j != nil && j.tenant != tenantID {
		return nil, errOther
	}
	return j, nil
}

// Update implements store.Store. An effect that failed leaves the transaction unfit to commit: rows that it appended
// before it failed are still in it.
func (s *Store) Update(ctx context.Context, tenantID string, fn func(tx store.Tx) error) error {
	j, err := joinedIn(ctx, tenantID)
	if err != nil {
		return err
	}
	if j == nil {
		return s.commit(ctx, tenantID, fn)
	}
	j.failed = fn(j.tx)
	return j.failed
}

// commit runs fn in a transaction of its own and reports its changes when it is committed.
func (s *Store) commit(ctx context.Context, tenantID string, fn func(tx store.Tx) error) error {
	var t *collecting
	err := s.Store.Update(ctx, tenantID, func(tx store.Tx) error {
		t = &collecting{Tx: tx}
		return fn(t)
	})
	if err != nil || s.committed == nil {
		return err
	}
	for _, e := range t.events {
		s.committed(tenantID, e)
	}
	return nil
}

// collecting remembers what was appended.
type collecting struct {
	store.Tx
	events []audit.Event
}

// Append implements store.Tx.
func (t *collecting) Append(c ledger.Change) (uint64, error) {
	seq, err := t.Tx.Append(c)
	if err == nil && c.EntityType != audit.EntityRequest {
		t.events = append(t.events, c.Event)
	}
	return seq, err
}

// View implements store.Store.
func (s *Store) View(ctx context.Context, tenantID string, fn func(v store.View) error) error {
	j, err := joinedIn(ctx, tenantID)
	if err != nil {
		return err
	}
	if j == nil {
		return s.Store.View(ctx, tenantID, fn)
	}
	return fn(view{j.tx})
}

// view shows a transaction without its Append.
type view struct{ store.View }

var _ store.Store = (*Store)(nil)
