package billing

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

const periodEntity = "period"

// Period is a month of a tenant's. The seal, a hash over all totals at the close, is there when one closed period is
// asked for; it is taken anew each time, because it must never differ.
type Period struct {
	usage.Period
	Seal *[sha256.Size]byte
}

// ClosePeriod fixes a month's totals: what comes later is an adjustment. The current month may be closed if that is
// confirmed, a later one not; closing a closed one changes nothing. The period is returned without its seal, which
// reads every counter of the month: this may run inside the transaction of a request, which holds up every commit.
// Errors: NotFound, Invalid (it has not begun), PeriodNotOver (and not confirmed), TenantClosed.
func (s *Service) ClosePeriod(ctx context.Context, actor, tenantID string, m calendar.Month,
	confirmed bool) (closed Period, err error) {
	err = s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		p, err := store.Period(tx, m)
		switch {
		case err != nil:
			return fmt.Errorf("read period %s: %w", m, err)
		case p.Closed:
		case m.Start() > tx.Now():
			return problem.At("period", "%s has not begun: a period can be closed once it has", m)
		case m.End() > tx.Now() && !confirmed:
			return problem.New(problem.PeriodNotOver,
				"%s is not over until %s: what comes after a close is an adjustment. "+
					`To close it all the same send {"confirm":true}`, m, m.End())
		default:
			if err := closeOnce(tx, actor, m); err != nil {
				return err
			}
			if p, err = store.Period(tx, m); err != nil {
				return fmt.Errorf("read period %s: %w", m, err)
			}
		}
		closed = Period{Period: p}
		return nil
	})
	if err != nil {
		return Period{}, err
	}
	return closed, nil
}

// closeOnce closes a month unless it is closed.
func closeOnce(tx store.Tx, actor string, m calendar.Month) error {
	p, err := store.Period(tx, m)
	if err != nil {
		return fmt.Errorf("read period %s: %w", m, err)
	}
	if p.Closed {
		return nil
	}
	payload := struct {
		Period string `json:"period"`
	}{m.String()}
	_, err = ledgers.Append(tx, actor, audit.Of(periodEntity, "closed", m.String()), payload,
		usage.PeriodKind.State(&usage.Period{Month: m, Actor: actor}))
	return err
}

// seal hashes the totals at the close. Counters whose total was zero then are left out: one that only came into being
// afterwards cannot be distinguished from them, and the seal must not change when it does.
func seal(v store.View, p *usage.Period) (*[sha256.Size]byte, error) {
	meters, err := allMeters(v)
	if err != nil {
		return nil, err
	}
	aggregations := make(map[string]meter.Aggregation, len(meters))
	for i := range meters {
		aggregations[meters[i].Slug] = meters[i].Aggregation
	}
	h := ledger.NewSeal(p.Month, p.Seq)
	var bad error
	err = v.Counters(store.CounterPlace{Month: p.Month}, func(at store.CounterPlace, c *usage.Counter) bool {
		if at.Month != p.Month {
			return false
		}
		a, known := aggregations[at.Meter]
		if !known {
			bad = fmt.Errorf("a counter names meter %s, which the ledger does not have", at.Meter)
			return false
		}
		if sealed := c.SealedTotal(a); !sealed.IsZero() {
			h.Add(at.Meter, at.Customer, sealed)
		}
		return true
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, fmt.Errorf("seal period %s: %w", p.Month, err)
	}
	sum := h.Sum()
	return &sum, nil
}
