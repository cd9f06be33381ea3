package httpapi

import (
	"encoding/binary"

	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/service/plans"
)

// listQuotas serves GET /v1/quotas.
func listQuotas(x *exchange) error {
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
	after, err := q.afterQuota()
	if err != nil {
		return err
	}
	f := plans.Filter{Meter: q.get("meter"), Customer: q.get("customer"), Month: month}
	quotas, next, err := x.s.options.Plans.Quotas(x.r.Context(), x.caller.Tenant, f, after, limit)
	if err != nil {
		return err
	}
	return list(x, q, quotas, quotaPlace(next), appendQuota)
}

// quotaPlace is a quota's place in a cursor: the length of the meter's slug, the slug, the customer.
func quotaPlace(p *plans.Place) []byte {
	if p == nil {
		return nil
	}
	b := binary.AppendUvarint(nil, uint64(len(p.Meter)))
	return append(append(b, p.Meter...), p.Customer...)
}

func (q query) afterQuota() (*plans.Place, error) {
	b, err := q.place()
	if err != nil || b == nil {
		return nil, err
	}
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, errCursor
	}
	b = b[n:]
	p := plans.Place{Meter: string(b[:length]), Customer: string(b[length:])}
	if !isText(p.Meter) || !isText(p.Customer) {
		return nil, errCursor
	}
	return &p, nil
}

func appendQuota(b []byte, q *plans.Quota) []byte {
	l := &q.Limit
	b = appendString(append(b, '{'), "id", quota.ID(q.Meter, q.Month, q.Customer))
	b = appendString(b, "meter", q.Meter)
	b = appendOptional(b, "customer", q.Customer)
	b = appendString(b, "period", q.Month.String())
	b = appendString(b, "plan", l.Plan)
	b = appendAmount(b, "limit", l.Limit)
	b = appendBool(b, "soft", l.Soft)
	b = appendAmountIf(b, "hard_cap", l.Refuses(), !l.Soft || l.Capped)
	b = appendAmount(b, "used", q.Used)
	b = appendAmount(b, "remaining", l.Remaining(q.Used))
	b = appendMoment(b, "resets_at", q.Month.End())
	b = appendString(b, "state", l.Standing(q.Used).String())
	return append(b, '}')
}
