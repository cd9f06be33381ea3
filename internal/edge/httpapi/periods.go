package httpapi

import (
	"encoding/binary"
	"net/http"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/service/billing"
)

// listPeriods serves GET /v1/periods.
func listPeriods(x *exchange) error {
	q, err := x.query("as_of", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, err := q.limit()
	if err != nil {
		return err
	}
	from, err := q.fromMonth()
	if err != nil {
		return err
	}
	asOf, err := q.asOf()
	if err != nil {
		return err
	}
	periods, err := x.s.options.Billing.PeriodsThen(x.r.Context(), x.caller.Tenant, from, limit+1, asOf)
	if err != nil {
		return err
	}
	var next []byte
	if len(periods) > limit {
		next = binary.AppendUvarint(nil, uint64(periods[limit].Month))
		periods = periods[:limit]
	}
	return list(x, q, periods, next, appendPeriodItem)
}

// lastMonth is the last that anything can happen in.
var lastMonth = calendar.MonthOf(calendar.MaxMicros)

// fromMonth reads the month that a cursor goes on from.
func (q query) fromMonth() (calendar.Month, error) {
	place, err := q.place()
	if err != nil || place == nil {
		return 0, err
	}
	month, n := binary.Uvarint(place)
	if n <= 0 || n != len(place) || month > uint64(lastMonth) {
		return 0, errCursor
	}
	return calendar.Month(month), nil
}

// period reads the path's month: one that cannot be is not there.
func (x *exchange) period() (calendar.Month, error) {
	m, err := calendar.ParseMonth(x.param)
	if err != nil {
		return 0, problem.New(problem.NotFound, "no such period: %v", err)
	}
	return m, nil
}

// getPeriod serves GET /v1/periods/{period}.
func getPeriod(x *exchange) error {
	q, err := x.query("as_of")
	if err != nil {
		return err
	}
	asOf, err := q.asOf()
	if err != nil {
		return err
	}
	m, err := x.period()
	if err != nil {
		return err
	}
	p, err := x.s.options.Billing.PeriodThen(x.r.Context(), x.caller.Tenant, m, asOf)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, appendPeriod(&p))
}

// closePeriod serves POST /v1/periods/{period}/close.
func closePeriod(x *exchange) error {
	m, err := x.period()
	if err != nil {
		return err
	}
	f, err := x.optionalForm()
	if err != nil {
		return err
	}
	confirmed := false
	f.bool("confirm", &confirmed)
	if err := f.done(); err != nil {
		return err
	}
	p, err := x.s.options.Billing.ClosePeriod(x.r.Context(), x.caller.Actor(), x.caller.Tenant, m, confirmed)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, append(appendPeriodItem(nil, &p), '\n'))
}

// appendPeriod adds the seal, which a list and the answer to a close do not have: it takes a read of every counter of
// the month.
func appendPeriod(p *billing.Period) []byte {
	b := appendPeriodItem(nil, p)
	b = appendHash(b[:len(b)-1], "seal", p.Seal)
	return append(b, '}', '\n')
}

func appendPeriodItem(b []byte, p *billing.Period) []byte {
	b = appendString(append(b, '{'), "id", p.Month.String())
	b = appendString(b, "period", p.Month.String())
	b = appendString(b, "state", openOrClosed(p.Closed))
	b = appendMomentIf(b, "closed_at", p.ClosedAt, p.Closed)
	if p.Closed {
		b = appendUint(b, "closed_seq", p.Seq)
	} else {
		b = appendNull(b, "closed_seq")
	}
	b = appendOptional(b, "closed_by", p.Actor)
	return append(b, '}')
}
