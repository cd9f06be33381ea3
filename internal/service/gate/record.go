package gate

import (
	"context"
	"strconv"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/limit"
	"github.com/tallystick/tallystick/internal/store"
)

// Record counts a request's facts and passes them to the store, in the caller's tenant. With a request key, a fact
// without an id takes "<key>#<index>", so that a retry of the request finds each of its facts recorded. A correction by
// a caller who may not correct is refused before anything is asked about it, and counts for no rate. Who may not read
// learns from a refusal nothing about totals or plans. A large batch may wait for its turn. Errors: RateLimited,
// TooLarge, and those of any store.
func (v *Visit) Record(ctx context.Context, events []usage.Event, requestKey string) ([]usage.Verdict, error) {
	if requestKey != "" {
		for i := range events {
			if events[i].ID == "" {
				events[i].ID = requestKey + "#" + strconv.Itoa(i)
			}
		}
	}
	verdicts, err := v.judged(ctx, events)
	if err != nil {
		return nil, err
	}
	if !v.may(tenant.Read) && !v.may(tenant.Billing) {
		for i := range verdicts {
			if p := verdicts[i].Problem; p != nil {
				verdicts[i].Problem = p.Discreet()
			}
		}
	}
	if v.gate.observe != nil {
		v.gate.observe(verdicts)
	}
	return verdicts, nil
}

func (v *Visit) may(do tenant.Scope) bool { return v.Operator || v.Scopes.Allows(do) }

// judged has the store judge the events, or all but the corrections when the caller may not correct.
func (v *Visit) judged(ctx context.Context, events []usage.Event) ([]usage.Verdict, error) {
	corrections := 0
	if !v.may(tenant.Billing) {
		for i := range events {
			if events[i].Corrects != "" {
				corrections++
			}
		}
	}
	if corrections == 0 {
		return v.pass(ctx, events)
	}
	others := make([]usage.Event, 0, len(events)-corrections)
	for i := range events {
		if events[i].Corrects == "" {
			others = append(others, events[i])
		}
	}
	var rest []usage.Verdict
	if len(others) > 0 {
		var err error
		if rest, err = v.pass(ctx, others); err != nil {
			return nil, err
		}
	}
	verdicts := make([]usage.Verdict, len(events))
	for i := range events {
		if events[i].Corrects != "" {
			verdicts[i] = usage.Verdict{Status: usage.Rejected, Problem: errMayNotCorrect}
			continue
		}
		verdicts[i], rest = rest[0], rest[1:]
	}
	return verdicts, nil
}

// errMayNotCorrect says the same whether the corrected event exists or not.
var errMayNotCorrect = problem.New(problem.Forbidden, "a correction needs an API key with the scope billing")

// pass counts the events and gives them to the store.
func (v *Visit) pass(ctx context.Context, events []usage.Event) ([]usage.Verdict, error) {
	if err := v.take(ctx, limit.Cost{Events: int64(len(events))}); err != nil {
		return nil, err
	}
	leave, err := v.gate.turns.Enter(ctx, v.Tenant, len(events))
	if err != nil {
		return nil, err
	}
	defer leave()
	return v.gate.store.Record(ctx, store.Batch{Tenant: v.Tenant, By: v.KeyID, Events: events})
}
