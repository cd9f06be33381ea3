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
	return v.record(ctx, store.Batch{Events: events}, requestKey)
}

// RecordAtomic is Record for a batch of which nothing is recorded if any of it is refused.
func (v *Visit) RecordAtomic(ctx context.Context, events []usage.Event, requestKey string) ([]usage.Verdict, error) {
	return v.record(ctx, store.Batch{Events: events, Atomic: true}, requestKey)
}

func (v *Visit) record(ctx context.Context, b store.Batch, requestKey string) ([]usage.Verdict, error) {
	if requestKey != "" {
		for i := range b.Events {
			if b.Events[i].ID == "" {
				b.Events[i].ID = requestKey + "#" + strconv.Itoa(i)
			}
		}
	}
	verdicts, err := v.judged(ctx, b)
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

// judged has the store judge the events. Corrections of a caller who may not correct are marked, so that the store
// refuses them in their place among the others; when there are no others it is not asked.
func (v *Visit) judged(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	forbidden := 0
	if !v.may(tenant.Billing) {
		for i := range b.Events {
			if b.Events[i].Corrects != "" {
				b.Events[i].Invalid = errMayNotCorrect
				forbidden++
			}
		}
	}
	if forbidden < len(b.Events) || forbidden == 0 {
		return v.pass(ctx, b, len(b.Events)-forbidden)
	}
	verdicts := make([]usage.Verdict, len(b.Events))
	for i := range verdicts {
		verdicts[i] = usage.Verdict{Status: usage.Rejected, Problem: errMayNotCorrect}
	}
	return verdicts, nil
}

// errMayNotCorrect says the same whether the corrected event exists or not.
var errMayNotCorrect = problem.New(problem.Forbidden, "a correction needs an API key with the scope billing")

// pass counts events and gives the batch to the store.
func (v *Visit) pass(ctx context.Context, b store.Batch, counted int) ([]usage.Verdict, error) {
	if err := v.take(ctx, limit.Cost{Events: int64(counted)}); err != nil {
		return nil, err
	}
	leave, err := v.gate.turns.Enter(ctx, v.Tenant, len(b.Events))
	if err != nil {
		return nil, err
	}
	defer leave()
	b.Tenant, b.By = v.Tenant, v.KeyID
	return v.gate.store.Record(ctx, b)
}
