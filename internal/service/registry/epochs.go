package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

// Begun says what beginning an epoch everywhere did.
type Begun struct {
	Tenants  int  // whose ledgers are in a new epoch
	Operator bool // so is the operator's own
	Moved    int  // ledgers that were left alone, because they are kept elsewhere
	// Last is when the last commit was made that the store still has, in any ledger: what was acknowledged later is
	// lost.
	Last calendar.Micros
}

// BeginEpochs begins the next epoch in every ledger of the store, closed ones too. Each ledger does so in a commit of
// its own. A run that broke off is repeated: the ledgers that it reached then have an epoch without other rows, which
// does no harm. Progress may be nil. Errors: Invalid.
func (s *Service) BeginEpochs(ctx context.Context, actor, reason string,
	progress func(done, total uint64)) (Begun, error) {
	if bad := (&tenant.Epoch{Reason: reason}).Check(); bad != nil {
		return Begun{}, bad
	}
	var out Begun
	ids := []string{tenant.Operator}
	err := store.EachTenant(ctx, s.store, func(t *store.Listed) error {
		ids = append(ids, t.ID)
		return nil
	})
	if err != nil {
		return out, err
	}
	// All clocks are read before the first is moved by a row of this run.
	for _, id := range ids {
		at, err := s.clock(ctx, id)
		if err != nil {
			return out, fmt.Errorf("read the head of %s: %w", id, err)
		}
		out.Last = max(out.Last, at)
	}
	for i, id := range ids {
		err := s.beginEpoch(ctx, actor, id, reason)
		switch {
		case problem.Is(err, problem.Moved):
			out.Moved++
		// An operator whose key is configured may have none.
		case problem.Is(err, problem.NotFound) && id == tenant.Operator:
		case err != nil:
			return out, fmt.Errorf("begin an epoch of %s: %w", id, err)
		case id == tenant.Operator:
			out.Operator = true
		default:
			out.Tenants++
		}
		if progress != nil {
			progress(uint64(i+1), uint64(len(ids)))
		}
	}
	return out, nil
}

// errEnough ends a walk over sections.
var errEnough = errors.New("seen enough")

// clock is when the last row of a ledger was committed that begins no epoch: an earlier run of this says nothing of
// what was lost. It is zero if there is no such ledger.
func (s *Service) clock(ctx context.Context, id string) (at calendar.Micros, err error) {
	err = s.store.View(ctx, id, func(v store.View) error {
		t, err := store.Tenant(v)
		if err != nil {
			return err
		}
		last := v.Head().Seq
		for i := len(t.Epochs) - 1; i >= 0 && t.Epochs[i].FromSeq == last; i-- {
			last--
		}
		err = v.PrunedSections(last, func(s *ledger.Section) error {
			at = s.At
			return errEnough
		})
		if errors.Is(err, errEnough) {
			err = nil
		}
		return err
	})
	if problem.Is(err, problem.NotFound) {
		err = nil
	}
	return at, err
}

// epochPayload is what an audit event says of an epoch.
type epochPayload struct {
	Epoch  int    `json:"epoch"`
	Reason string `json:"reason"`
}

// Errors: NotFound, Moved, Invalid.
func (s *Service) beginEpoch(ctx context.Context, actor, id, reason string) error {
	var secret [32]byte
	if err := s.draw(secret[:]); err != nil {
		return err
	}
	return s.store.Update(ctx, id, func(tx store.Tx) error {
		t, err := store.Tenant(tx)
		if err != nil {
			return err
		}
		e := tenant.Epoch{FromSeq: tx.Head().Seq + 1, At: tx.Now(), Reason: reason}
		if err := t.BeginEpoch(e, secret); err != nil {
			return err
		}
		number := t.Epoch(e.FromSeq)
		_, err = ledgers.Append(tx, actor, audit.Of("epoch", "begun", fmt.Sprint(number)), epochPayload{number, reason},
			tenant.Kind.State(&t))
		return err
	})
}
