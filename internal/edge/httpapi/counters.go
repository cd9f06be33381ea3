package httpapi

import (
	"encoding/binary"
	"net/url"
	"strconv"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/csvtext"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/service/billing"
	"github.com/tallystick/tallystick/internal/store"
)

// listCounters serves GET /v1/counters.
func (s *Server) listCounters(x *httpkit.Exchange) error {
	q, err := x.Query("meter", "customer", "period", "as_of", "limit", "cursor")
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
	after, err := afterCounter(q)
	if err != nil {
		return err
	}
	asOf, err := asOf(q)
	if err != nil {
		return err
	}
	f := billing.CounterFilter{Meter: q.Get("meter"), Customer: q.Get("customer"), Month: month, AsOf: asOf}
	counters, next, err := s.options.Billing.Counters(x.Context(), x.Caller.Tenant, f, after, limit)
	if err != nil {
		return err
	}
	if x.Media() == httpkit.MediaCSV {
		b := render.Line(make([]byte, 0, 4<<10), counterColumns...)
		for i := range counters {
			b = appendCounterLine(b, &counters[i])
		}
		return x.AnswerTable(q, b, counterPlace(next))
	}
	return httpkit.List(x, q, counters, counterPlace(next), appendCounter)
}

// counterPlace is a counter's place in a cursor: the month, the length of the slug, the slug, the customer.
func counterPlace(p *store.CounterPlace) []byte {
	if p == nil {
		return nil
	}
	b := binary.AppendVarint(nil, int64(p.Month))
	b = binary.AppendUvarint(b, uint64(len(p.Meter)))
	b = append(b, p.Meter...)
	return append(b, p.Customer...)
}

func afterCounter(q httpkit.Query) (*store.CounterPlace, error) {
	b, err := q.Place()
	if err != nil || b == nil {
		return nil, err
	}
	month, n := binary.Varint(b)
	if n <= 0 || month < 0 || month > int64(lastMonth) {
		return nil, httpkit.ErrCursor
	}
	b = b[n:]
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, httpkit.ErrCursor
	}
	b = b[n:]
	p := store.CounterPlace{Month: calendar.Month(month), Meter: string(b[:length]), Customer: string(b[length:])}
	if !httpkit.IsText(p.Meter) || !httpkit.IsText(p.Customer) {
		return nil, httpkit.ErrCursor
	}
	return &p, nil
}

func counterID(c *billing.Counter) string {
	return c.Month.String() + ":" + c.Meter.Slug + ":" + url.PathEscape(c.Customer)
}

var counterColumns = []string{"id", "meter", "customer", "period", "state", "count", "sum", "min", "max", "last",
	"watermark", "adjustments", "total", "sealed_total"}

// appendCounterLine leaves empty what appendCounter writes null for.
func appendCounterLine(b []byte, c *billing.Counter) []byte {
	a, some := c.Meter.Aggregation, c.OnTime.Count > 0
	return render.Line(b,
		csvtext.Text(counterID(c)), csvtext.Text(c.Meter.Slug), csvtext.Text(c.Customer),
		c.Month.String(), openOrClosed(c.Closed),
		strconv.FormatInt(c.OnTime.Count, 10), c.OnTime.Sum.String(),
		render.AmountCell(c.OnTime.Min, some), render.AmountCell(c.OnTime.Max, some),
		render.AmountCell(c.OnTime.Last, some), render.MomentCell(c.Watermark, c.Started),
		c.Adjustments(a).String(), c.Total(a).String(), render.AmountCell(c.SealedTotal(a), c.Closed))
}

// appendCounter writes null for what an empty on-time fold does not have, and for the sealed total of an open period.
func appendCounter(b []byte, c *billing.Counter) []byte {
	a := c.Meter.Aggregation
	some := c.OnTime.Count > 0
	b = render.String(append(b, '{'), "id", counterID(c))
	b = render.String(b, "meter", c.Meter.Slug)
	b = render.String(b, "customer", c.Customer)
	b = render.String(b, "period", c.Month.String())
	b = render.String(b, "state", openOrClosed(c.Closed))
	b = render.Int(b, "count", c.OnTime.Count)
	b = render.Amount(b, "sum", c.OnTime.Sum)
	b = render.AmountIf(b, "min", c.OnTime.Min, some)
	b = render.AmountIf(b, "max", c.OnTime.Max, some)
	b = render.AmountIf(b, "last", c.OnTime.Last, some)
	b = render.MomentIf(b, "watermark", c.Watermark, c.Started)
	b = render.Amount(b, "adjustments", c.Adjustments(a))
	b = render.Amount(b, "total", c.Total(a))
	b = render.AmountIf(b, "sealed_total", c.SealedTotal(a), c.Closed)
	return append(b, '}')
}
