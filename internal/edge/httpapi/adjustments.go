package httpapi

import (
	"net/http"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/service/billing"
)

// postAdjustment serves POST /v1/adjustments.
func (s *Server) postAdjustment(x *httpkit.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	slug, customer, reason := f.Required("meter"), f.Required("customer"), f.Required("reason")
	var month calendar.Month
	if text := f.Required("period"); text != "" {
		if month, err = calendar.ParseMonth(text); err != nil {
			f.Fault("period", err.Error())
		}
	}
	var change amount.Amount
	if text := f.Decimal("amount"); text != "" {
		if change, err = amount.Parse(text); err != nil {
			f.Fault("amount", err.Error())
		}
	}
	if err := f.Done(); err != nil {
		return err
	}
	a, err := s.options.Billing.Adjust(x.Context(), x.Caller.Actor(), x.Caller.Tenant, slug, customer, month,
		change, reason)
	if err != nil {
		return err
	}
	return s.adjusted(x, a)
}

// revertAdjustment serves POST /v1/adjustments/{id}/revert.
func (s *Server) revertAdjustment(x *httpkit.Exchange) error {
	if err := x.NoForm(); err != nil {
		return err
	}
	a, err := s.options.Billing.Revert(x.Context(), x.Caller.Actor(), x.Caller.Tenant, x.Path("id"))
	if err != nil {
		return err
	}
	return s.adjusted(x, a)
}

func (s *Server) adjusted(x *httpkit.Exchange, a usage.Adjustment) error {
	names, err := s.slugs(x)
	if err != nil {
		return err
	}
	return x.Created("/v1/adjustments/"+a.ID, names.appendAdjustment(nil, &a))
}

func (s *Server) slugs(x *httpkit.Exchange) (slugs, error) {
	names, err := s.options.Billing.Slugs(x.Context(), x.Caller.Tenant)
	return names, err
}

// listAdjustments serves GET /v1/adjustments.
func (s *Server) listAdjustments(x *httpkit.Exchange) error {
	q, err := x.Query("meter", "customer", "period", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, err := q.Limit()
	if err != nil {
		return err
	}
	month, err := q.Month("period")
	if err != nil {
		return err
	}
	after, err := q.AfterSeq()
	if err != nil {
		return err
	}
	f := billing.AdjustmentFilter{Meter: q.Get("meter"), Customer: q.Get("customer"), Month: month}
	items, next, err := s.options.Billing.Adjustments(x.Context(), x.Caller.Tenant, f, after, limit)
	if err != nil {
		return err
	}
	names, err := s.slugs(x)
	if err != nil {
		return err
	}
	var place []byte
	if next != 0 {
		place = httpkit.SeqPlace(next)
	}
	return httpkit.List(x, q, items, place, names.appendAdjustment)
}

// getAdjustment serves GET /v1/adjustments/{id}.
func (s *Server) getAdjustment(x *httpkit.Exchange) error {
	if err := x.NoQuery(); err != nil {
		return err
	}
	a, err := s.options.Billing.Adjustment(x.Context(), x.Caller.Tenant, x.Path("id"))
	if err != nil {
		return err
	}
	names, err := s.slugs(x)
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(names.appendAdjustment(nil, &a), '\n'))
}

// appendAdjustment writes what a person did, with an actor, or what a late row did, with its event.
func (names slugs) appendAdjustment(b []byte, a *usage.Adjustment) []byte {
	b = render.String(append(b, '{'), "id", a.ID)
	b = render.Uint(b, "seq", a.Seq)
	b = render.String(b, "meter", names[a.Meter])
	b = render.String(b, "customer", a.Customer)
	b = render.String(b, "period", a.Month.String())
	b = render.Amount(b, "amount", a.Amount)
	b = render.String(b, "reason", a.Reason)
	b = render.Optional(b, "actor", a.Actor)
	b = render.Optional(b, "event_id", a.Event)
	b = render.Optional(b, "reverts", a.Reverts)
	b = render.Optional(b, "reverted_by", a.Reverted)
	b = render.Moment(b, "created_at", a.At)
	return append(b, '}')
}
