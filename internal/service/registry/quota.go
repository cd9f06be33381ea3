package registry

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// plansAllow refuses to take from a meter what a plan's limit on it needs: the limit would silently stop to hold.
func plansAllow(tx store.Tx, m *meter.Meter) error {
	if usage.AddsUp(m.Aggregation) {
		return nil
	}
	plans, err := store.List(tx, &quota.PlanKind, store.Page{Limit: quota.MaxPlans})
	if err != nil {
		return fmt.Errorf("list plans: %w", err)
	}
	for i := range plans {
		for j := range plans[i].Quotas {
			if plans[i].Quotas[j].Meter == m.Slug {
				return problem.New(problem.Conflict,
					"plan %s limits meter %s, and only sum and count meters can be limited", plans[i].Name, m.Slug)
			}
		}
	}
	return nil
}
