package plans

import (
	"context"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

// Assigned is a customer's plans, or the tenant's, as they are now.
type Assigned struct {
	quota.Assignment
	InForce quota.Dated // now; zero: none, and none before
}

// Assign puts a plan in force for a customer, or for the tenant itself when customer is empty, from a moment on; nil is
// now. An empty plan is none from then on. One of the same time is replaced, and later ones stay. What stays as it is
// leaves no row. Errors: NotFound, Invalid (also a plan that does not exist), TenantClosed, PeriodClosed (a closed
// period would have another plan), Conflict (too many).
func (s *Service) Assign(ctx context.Context, actor, tenantID, customer, plan string,
	from *calendar.Micros) (out Assigned, err error) {
	if bad := checkAssigned(customer, from); bad != nil {
		return out, bad
	}
	err = s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		if err := exists(tx, plan); err != nil {
			return err
		}
		before, err := store.Assignment(tx, customer)
		if err != nil {
			return err
		}
		after, d := before, quota.Dated{From: tx.Now(), Plan: plan}
		if from != nil {
			d.From = *from
		}
		// A plan that is in force already is put in force again only if the caller says from when on: that holds
		// also if what is in force before it changes.
		if from != nil || before.Plans.At(d.From).Plan != plan {
			after.Plans = before.Plans.With(d)
		}
		if len(after.Plans) > quota.MaxAssignments {
			after.Plans = after.Plans.Settled(tx.Now())
		}
		out = Assigned{after, after.Plans.At(tx.Now())}
		if after.Plans.Equal(before.Plans) {
			return nil
		}
		if bad := after.Plans.Check(); bad != nil {
			return bad
		}
		if err := checkOpen(tx, d.From, after.Plans.Until(d.From)); err != nil {
			return err
		}
		e := audit.Of("tenant", "plan_assigned", tenantID)
		if customer != "" {
			e = audit.Of("customer", "plan_assigned", customer)
		}
		payload := assignmentPayload{optional(plan), d.From.String(), optional(before.Plans.At(d.From).Plan)}
		_, err = ledgers.Append(tx, actor, e, payload, quota.AssignmentKind.State(&after))
		return err
	})
	if err != nil {
		return Assigned{}, err
	}
	return out, nil
}

func checkAssigned(customer string, from *calendar.Micros) *problem.Error {
	if from != nil && !from.Valid() {
		return problem.At("from", "must lie between 1970 and 9999")
	}
	if customer == "" {
		return nil
	}
	return usage.CheckCustomer(customer)
}

func exists(tx store.Tx, plan string) error {
	if plan == "" {
		return nil
	}
	_, err := store.Get(tx, &quota.PlanKind, plan)
	if problem.Is(err, problem.NotFound) {
		return problem.At("plan", "there is no plan %q", plan)
	}
	return err
}

// checkOpen refuses a change of plans in a span of time that a closed period has a part of: what it is billed by is
// fixed. Errors: PeriodClosed.
func checkOpen(tx store.Tx, from, until calendar.Micros) error {
	err := store.Each(tx, &usage.PeriodKind, func(p *usage.Period) error {
		if p.Month.Start() < until && p.Month.End() > from {
			return problem.New(problem.PeriodClosed,
				"from %s on the plan would be another one in %s, which is closed: "+
					"choose a from after the closed periods", from, p.Month)
		}
		return nil
	})
	if err != nil && !problem.Is(err, problem.PeriodClosed) {
		err = fmt.Errorf("list the closed periods: %w", err)
	}
	return err
}

// Assignment returns the plans of a customer, or of the tenant itself when customer is empty. Errors: NotFound,
// Invalid.
func (s *Service) Assignment(ctx context.Context, tenantID, customer string) (out Assigned, err error) {
	if bad := checkAssigned(customer, nil); bad != nil {
		return out, bad
	}
	err = s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		out.Assignment, err = store.Assignment(v, customer)
		out.InForce = out.Plans.At(v.Now())
		return err
	})
	return out, err
}
