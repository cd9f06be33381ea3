package httpapi

import (
	"encoding/binary"
	"net/url"
	"strconv"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/csvtext"
	"github.com/tallystick/tallystick/internal/service/billing"
	"github.com/tallystick/tallystick/internal/store"
)

// listCounters serves GET /v1/counters.
func listCounters(x *exchange) error {
	q, err := x.query("meter", "customer", "period", "as_of", "limit", "cursor")
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
	after, err := q.afterCounter()
	if err != nil {
		return err
	}
	asOf, err := q.asOf()
	if err != nil {
		return err
	}
	f := billing.CounterFilter{Meter: q.get("meter"), Customer: q.get("customer"), Month: month, AsOf: asOf}
	counters, next, err := x.s.options.Billing.Counters(x.r.Context(), x.caller.Tenant, f, after, limit)
	if err != nil {
		return err
	}
	if x.media == mediaCSV {
		b := beginTable(counterColumns)
		for i := range counters {
			b = appendCounterLine(b, &counters[i])
		}
		return x.answerTable(q, b, counterPlace(next))
	}
	return list(x, q, counters, counterPlace(next), appendCounter)
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

func (q query) afterCounter() (*store.CounterPlace, error) {
	b, err := q.place()
	if err != nil || b == nil {
		return nil, err
	}
	month, n := binary.Varint(b)
	if n <= 0 || month < 0 || month > int64(lastMonth) {
		return nil, errCursor
	}
	b = b[n:]
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, errCursor
	}
	b = b[n:]
	p := store.CounterPlace{Month: calendar.Month(month), Meter: string(b[:length]), Customer: string(b[length:])}
	if !isText(p.Meter) || !isText(p.Customer) {
		return nil, errCursor
	}
	return &p, nil
}

func counterID(c *billing.Counter) string {
	return c.Month.String() + ":" + c.Meter.Slug + ":" + url.PathEscape(c.Customer)
}

var counterColumns = []string{"id", "meter", "customer", "period", "state", "count", "sum", "min", "max", "last", "watermark", "adjustments", "total", "sealed_total"}

// appendCounterLine leaves empty what appendCounter writes null for.
func appendCounterLine(b []byte, c *billing.Counter) []byte {
	a, some := c.Meter.Aggregation, c.OnTime.Count > 0
	return csvtext.AppendLine(b, csvEnd,
		csvtext.Text(counterID(c)), csvtext.Text(c.Meter.Slug), csvtext.Text(c.Customer), c.Month.String(), openOrClosed(c.Closed),
		strconv.FormatInt(c.OnTime.Count, 10), c.OnTime.Sum.String(), amountCell(c.OnTime.Min, some), amountCell(c.OnTime.Max, some),
		amountCell(c.OnTime.Last, some), momentCell(c.Watermark, c.Started), c.Adjustments(a).String(), c.Total(a).String(),
		amountCell(c.SealedTotal(a), c.Closed))
}

// appendCounter writes null for what an empty on-time fold does not have, and for the sealed total of an open period.
func appendCounter(b []byte, c *billing.Counter) []byte {
	a := c.Meter.Aggregation
	some := c.OnTime.Count > 0
	b = appendString(append(b, '{'), "id", counterID(c))
	b = appendString(b, "meter", c.Meter.Slug)
	b = appendString(b, "customer", c.Customer)
	b = appendString(b, "period", c.Month.String())
	b = appendString(b, "state", openOrClosed(c.Closed))
	b = appendInt(b, "count", c.OnTime.Count)
	b = appendAmount(b, "sum", c.OnTime.Sum)
	b = appendAmountIf(b, "min", c.OnTime.Min, some)
	b = appendAmountIf(b, "max", c.OnTime.Max, some)
	b = appendAmountIf(b, "last", c.OnTime.Last, some)
	b = appendMomentIf(b, "watermark", c.Watermark, c.Started)
	b = appendAmount(b, "adjustments", c.Adjustments(a))
	b = appendAmount(b, "total", c.Total(a))
	b = appendAmountIf(b, "sealed_total", c.SealedTotal(a), c.Closed)
	return append(b, '}')
}
