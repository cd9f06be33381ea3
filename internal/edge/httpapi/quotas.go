package httpapi

import (
	"encoding/binary"

	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/service/plans"
)

// listQuotas serves GET /v1/quotas.
func (s *Server) listQuotas(x *httpkit.Exchange) error {
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
	after, err := afterQuota(q)
	if err != nil {
		return err
	}
	f := plans.Filter{Meter: q.Get("meter"), Customer: q.Get("customer"), Month: month}
	quotas, next, err := s.options.Plans.Quotas(x.Context(), x.Caller.Tenant, f, after, limit)
	if err != nil {
		return err
	}
	return httpkit.List(x, q, quotas, quotaPlace(next), appendQuota)
}

// quotaPlace is a quota's place in a cursor: the length of the meter's slug, the slug, the customer.
func quotaPlace(p *plans.Place) []byte {
	if p == nil {
		return nil
	}
	b := binary.AppendUvarint(nil, uint64(len(p.Meter)))
	return append(append(b, p.Meter...), p.Customer...)
}

func afterQuota(q httpkit.Query) (*plans.Place, error) {
	b, err := q.Place()
	if err != nil || b == nil {
		return nil, err
	}
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, httpkit.ErrCursor
	}
	b = b[n:]
	p := plans.Place{Meter: string(b[:length]), Customer: string(b[length:])}
	if !httpkit.IsText(p.Meter) || !httpkit.IsText(p.Customer) {
		return nil, httpkit.ErrCursor
	}
	return &p, nil
}

func appendQuota(b []byte, q *plans.Quota) []byte {
	l := &q.Limit
	b = render.String(append(b, '{'), "id", quota.ID(q.Meter, q.Month, q.Customer))
	b = render.String(b, "meter", q.Meter)
	b = render.Optional(b, "customer", q.Customer)
	b = render.String(b, "period", q.Month.String())
	b = render.String(b, "plan", l.Plan)
	b = render.Amount(b, "limit", l.Limit)
	b = render.Bool(b, "soft", l.Soft)
	b = render.AmountIf(b, "hard_cap", l.Refuses(), !l.Soft || l.Capped)
	b = render.Amount(b, "used", q.Used)
	b = render.Amount(b, "remaining", l.Remaining(q.Used))
	b = render.Moment(b, "resets_at", q.Month.End())
	b = render.String(b, "state", l.Standing(q.Used).String())
	return append(b, '}')
}
