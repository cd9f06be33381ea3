package httpapi

import (
	"encoding/binary"
	"net/http"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/service/billing"
)

// listPeriods serves GET /v1/periods.
func (s *Server) listPeriods(x *httpkit.Exchange) error {
	q, err := x.Query("as_of", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, err := q.Limit()
	if err != nil {
		return err
	}
	from, err := fromMonth(q)
	if err != nil {
		return err
	}
	asOf, err := asOf(q)
	if err != nil {
		return err
	}
	periods, err := s.options.Billing.PeriodsThen(x.Context(), x.Caller.Tenant, from, limit+1, asOf)
	if err != nil {
		return err
	}
	var next []byte
	if len(periods) > limit {
		next = binary.AppendUvarint(nil, uint64(periods[limit].Month))
		periods = periods[:limit]
	}
	return httpkit.List(x, q, periods, next, appendPeriodItem)
}

// lastMonth is the last that anything can happen in.
var lastMonth = calendar.MonthOf(calendar.MaxMicros)

// fromMonth reads the month that a cursor goes on from.
func fromMonth(q httpkit.Query) (calendar.Month, error) {
	place, err := q.Place()
	if err != nil || place == nil {
		return 0, err
	}
	month, n := binary.Uvarint(place)
	if n <= 0 || n != len(place) || month > uint64(lastMonth) {
		return 0, httpkit.ErrCursor
	}
	return calendar.Month(month), nil
}

// period reads the path's month: one that cannot be is not there.
func period(x *httpkit.Exchange) (calendar.Month, error) {
	m, err := calendar.ParseMonth(x.Path("period"))
	if err != nil {
		return 0, problem.New(problem.NotFound, "no such period: %v", err)
	}
	return m, nil
}

// getPeriod serves GET /v1/periods/{period}.
func (s *Server) getPeriod(x *httpkit.Exchange) error {
	q, err := x.Query("as_of")
	if err != nil {
		return err
	}
	asOf, err := asOf(q)
	if err != nil {
		return err
	}
	m, err := period(x)
	if err != nil {
		return err
	}
	p, err := s.options.Billing.PeriodThen(x.Context(), x.Caller.Tenant, m, asOf)
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, appendPeriod(&p))
}

// closePeriod serves POST /v1/periods/{period}/close.
func (s *Server) closePeriod(x *httpkit.Exchange) error {
	m, err := period(x)
	if err != nil {
		return err
	}
	f, err := x.OptionalForm()
	if err != nil {
		return err
	}
	confirmed := false
	f.Bool("confirm", &confirmed)
	if err := f.Done(); err != nil {
		return err
	}
	p, err := s.options.Billing.ClosePeriod(x.Context(), x.Caller.Actor(), x.Caller.Tenant, m, confirmed)
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendPeriodItem(nil, &p), '\n'))
}

// appendPeriod adds the seal, which a list and the answer to a close do not have: it takes a read of every counter of
// the month.
func appendPeriod(p *billing.Period) []byte {
	b := appendPeriodItem(nil, p)
	b = render.Hash(b[:len(b)-1], "seal", p.Seal)
	return append(b, '}', '\n')
}

func appendPeriodItem(b []byte, p *billing.Period) []byte {
	b = render.String(append(b, '{'), "id", p.Month.String())
	b = render.String(b, "period", p.Month.String())
	b = render.String(b, "state", openOrClosed(p.Closed))
	b = render.MomentIf(b, "closed_at", p.ClosedAt, p.Closed)
	if p.Closed {
		b = render.Uint(b, "closed_seq", p.Seq)
	} else {
		b = render.Null(b, "closed_seq")
	}
	b = render.Optional(b, "closed_by", p.Actor)
	return append(b, '}')
}
