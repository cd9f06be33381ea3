package billing

import (
	"context"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

// monthsAtOnce bounds one round of scheduled closing, for one tenant; the next round finds the rest.
const monthsAtOnce = 24

// CloseDue closes, for every tenant, the months that ended longer ago than any of the tenant's meters takes events on
// time, and the grace besides. It returns how many it closed. A month is closed in a commit of its own, so a round that
// breaks off has done its part, and two nodes at once close each month once.
func (s *Service) CloseDue(ctx context.Context, grace time.Duration) (closed int, err error) {
	err = store.EachTenant(ctx, s.store, func(l *store.Listed) error {
		t, err := l.Tenant()
		if err != nil || t.Closed || t.MovedTo != "" {
			return err
		}
		n, err := s.closeDueOf(ctx, t.ID, grace)
		closed += n
		if err != nil && !problem.Is(err, problem.TenantClosed) && !problem.Is(err, problem.Moved) {
			return fmt.Errorf("close due periods of tenant %s: %w", t.ID, err)
		}
		return nil
	})
	return closed, err
}

func (s *Service) closeDueOf(ctx context.Context, tenantID string, grace time.Duration) (closed int, err error) {
	due, err := s.due(ctx, tenantID, grace)
	if err != nil {
		return 0, err
	}
	for _, m := range due {
		err := s.ledgers.Update(ctx, tenantID,
			func(tx store.Tx, _ tenant.Tenant) error { return closeOnce(tx, audit.ActorSystem, m) })
		if err != nil {
			return closed, err
		}
		closed++
	}
	return closed, nil
}

// due lists open months whose time has come.
func (s *Service) due(ctx context.Context, tenantID string, grace time.Duration) ([]calendar.Month, error) {
	var due []calendar.Month
	err := s.ledgers.View(ctx, tenantID, func(v store.View) error {
		meters, err := allMeters(v)
		if err != nil {
			return err
		}
		var lateness time.Duration
		for i := range meters {
			lateness = max(lateness, meters[i].Lateness)
		}
		ended := calendar.MonthOf(v.Now().Add(-lateness - grace)) // this month is the first that is not due
		for from := calendar.Month(0); len(due) < monthsAtOnce; {
			periods, err := store.Periods(v, from, monthsAtOnce)
			if err != nil {
				return fmt.Errorf("list periods: %w", err)
			}
			if len(periods) == 0 {
				break
			}
			for _, p := range periods {
				from = p.Month + 1
				if !p.Closed && p.Month < ended {
					due = append(due, p.Month)
				}
			}
		}
		return nil
	})
	return due, err
}
