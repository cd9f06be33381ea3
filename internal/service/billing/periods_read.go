package billing

import (
	"context"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/asof"
	"github.com/tallystick/tallystick/internal/store"
)

// Period returns one month, with its seal when it is closed. A month that nothing happened in is open. Errors: NotFound
// (tenant).
func (s *Service) Period(ctx context.Context, tenantID string, m calendar.Month) (Period, error) {
	return s.PeriodThen(ctx, tenantID, m, asof.Point{})
}

// PeriodThen is Period as it was. The seal never changes, so that the one of today is the one of then. Errors also:
// Invalid (the ledger has not got there).
func (s *Service) PeriodThen(ctx context.Context, tenantID string, m calendar.Month, asOf asof.Point) (Period, error) {
	var out Period
	err := s.ledgers.View(ctx, tenantID, func(v store.View) error {
		seq, err := asOf.Seq(v)
		if err != nil {
			return err
		}
		p, err := store.Period(v, m)
		if err != nil {
			return fmt.Errorf("read period %s: %w", m, err)
		}
		if p.Closed && p.Seq > seq {
			p = usage.Period{Month: m}
		}
		out = Period{Period: p}
		if !p.Closed {
			return nil
		}
		out.Seal, err = seal(v, &p)
		return err
	})
	if err != nil {
		return Period{}, err
	}
	return out, nil
}

// Periods lists the months that have counters or were closed, from the given one on, without their seals. Errors:
// NotFound.
func (s *Service) Periods(ctx context.Context, tenantID string, from calendar.Month, limit int) ([]Period, error) {
	return s.PeriodsThen(ctx, tenantID, from, limit, asof.Point{})
}

// PeriodsThen is Periods as they were. Errors also: Invalid (the ledger has not got there).
func (s *Service) PeriodsThen(ctx context.Context, tenantID string, from calendar.Month, limit int,
	asOf asof.Point) ([]Period, error) {
	var list []usage.Period
	err := s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		if asOf.IsPresent() {
			list, err = store.Periods(v, from, limit)
		} else {
			list, err = periodsThen(v, from, limit, asOf)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]Period, 0, len(list))
	for _, p := range list {
		out = append(out, Period{Period: p})
	}
	return out, nil
}

// periodsThen turns months back. Those of today name all that there were.
func periodsThen(v store.View, from calendar.Month, limit int, asOf asof.Point) ([]usage.Period, error) {
	then, err := asof.Open(v, asOf)
	if err != nil {
		return nil, err
	}
	adjusted, err := then.AdjustedMonths()
	if err != nil {
		return nil, err
	}
	var out []usage.Period
	for {
		list, err := store.Periods(v, from, limit)
		if err != nil {
			return nil, fmt.Errorf("list periods from %s: %w", from, err)
		}
		for _, p := range list {
			from = p.Month + 1
			was, err := then.Stirred(p.Month, adjusted)
			if err != nil {
				return nil, err
			}
			if !was {
				continue
			}
			if p, err = then.Period(p.Month); err != nil {
				return nil, err
			}
			if out = append(out, p); len(out) == limit {
				return out, nil
			}
		}
		if len(list) < limit {
			return out, nil
		}
	}
}
