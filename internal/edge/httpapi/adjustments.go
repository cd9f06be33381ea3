package httpapi

import (
	"net/http"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/billing"
)

// postAdjustment serves POST /v1/adjustments.
func postAdjustment(x *exchange) error {
	f, err := x.form()
	if err != nil {
		return err
	}
	slug, customer, reason := f.required("meter"), f.required("customer"), f.required("reason")
	var month calendar.Month
	if text := f.required("period"); text != "" {
		if month, err = calendar.ParseMonth(text); err != nil {
			f.fault("period", err.Error())
		}
	}
	var change amount.Amount
	if text := f.decimal("amount"); text != "" {
		if change, err = amount.Parse(text); err != nil {
			f.fault("amount", err.Error())
		}
	}
	if err := f.done(); err != nil {
		return err
	}
	a, err := x.s.options.Billing.Adjust(x.r.Context(), x.caller.Actor(), x.caller.Tenant, slug, customer, month, change, reason)
	if err != nil {
		return err
	}
	return x.adjusted(a)
}

// revertAdjustment serves POST /v1/adjustments/{id}/revert.
func revertAdjustment(x *exchange) error {
	if err := x.noForm(); err != nil {
		return err
	}
	a, err := x.s.options.Billing.Revert(x.r.Context(), x.caller.Actor(), x.caller.Tenant, x.param)
	if err != nil {
		return err
	}
	return x.adjusted(a)
}

func (x *exchange) adjusted(a usage.Adjustment) error {
	names, err := x.slugs()
	if err != nil {
		return err
	}
	return x.created("/v1/adjustments/"+a.ID, names.appendAdjustment(nil, &a), "")
}

func (x *exchange) slugs() (slugs, error) {
	names, err := x.s.options.Billing.Slugs(x.r.Context(), x.caller.Tenant)
	return names, err
}

// listAdjustments serves GET /v1/adjustments.
func listAdjustments(x *exchange) error {
	q, err := x.query("meter", "customer", "period", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, err := q.limit()
	if err != nil {
		return err
	}
	month, err := q.month("period")
	if err != nil {
		return err
	}
	after, err := q.afterSeq()
	if err != nil {
		return err
	}
	f := billing.AdjustmentFilter{Meter: q.get("meter"), Customer: q.get("customer"), Month: month}
	items, next, err := x.s.options.Billing.Adjustments(x.r.Context(), x.caller.Tenant, f, after, limit)
	if err != nil {
		return err
	}
	names, err := x.slugs()
	if err != nil {
		return err
	}
	var place []byte
	if next != 0 {
		place = seqPlace(next)
	}
	return list(x, q, items, place, names.appendAdjustment)
}

// getAdjustment serves GET /v1/adjustments/{id}.
func getAdjustment(x *exchange) error {
	if err := x.noQuery(); err != nil {
		return err
	}
	a, err := x.s.options.Billing.Adjustment(x.r.Context(), x.caller.Tenant, x.param)
	if err != nil {
		return err
	}
	names, err := x.slugs()
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, append(names.appendAdjustment(nil, &a), '\n'))
}

// appendAdjustment writes what a person did, with an actor, or what a late row did, with its event.
func (names slugs) appendAdjustment(b []byte, a *usage.Adjustment) []byte {
	b = appendString(append(b, '{'), "id", a.ID)
	b = appendUint(b, "seq", a.Seq)
	b = appendString(b, "meter", names[a.Meter])
	b = appendString(b, "customer", a.Customer)
	b = appendString(b, "period", a.Month.String())
	b = appendAmount(b, "amount", a.Amount)
	b = appendString(b, "reason", a.Reason)
	b = appendOptional(b, "actor", a.Actor)
	b = appendOptional(b, "event_id", a.Event)
	b = appendOptional(b, "reverts", a.Reverts)
	b = appendOptional(b, "reverted_by", a.Reverted)
	b = appendMoment(b, "created_at", a.At)
	return append(b, '}')
}
