package httpapi

import (
	"net/http"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/store"
)

// eventFilter says which rows of events are wanted; zero fields take any.
type eventFilter struct {
	meter              string
	number             uint32 // of the meter
	customer, resource string
	from, to           *calendar.Micros
	status             usage.Status
}

func readEventFilter(q httpkit.Query) (f eventFilter, err error) {
	f = eventFilter{meter: q.Get("meter"), customer: q.Get("customer"), resource: q.Get("resource")}
	if f.from, err = q.Moment("from"); err != nil {
		return f, err
	}
	if f.to, err = q.Moment("to"); err != nil {
		return f, err
	}
	if f.from != nil && f.to != nil && *f.from > *f.to {
		return f, httpkit.BadParameter("from", "must not lie after to")
	}
	if text := q.Get("status"); text != "" {
		var ok bool
		if f.status, ok = usage.ParseStatus(text); !ok {
			return f, httpkit.BadParameter("status",
				"must be accepted, adjusted or overage: what was refused leaves no row")
		}
	}
	return f, nil
}

func (f *eventFilter) hint() store.RowHint {
	h := store.RowHint{Events: true, Adjusted: f.status == usage.Adjusted}
	if f.from != nil {
		h.From = *f.from
	}
	if f.to != nil {
		h.To = *f.to
	}
	return h
}

func (f *eventFilter) wants(r *usage.Row) bool {
	switch {
	case f.customer != "" && r.Customer != f.customer,
		f.resource != "" && r.Resource != f.resource,
		f.from != nil && r.Time < *f.from,
		f.to != nil && r.Time >= *f.to,
		f.status != 0 && r.Status() != f.status:
		return false
	}
	return f.number == 0 || feeds(r, f.number)
}

func feeds(r *usage.Row, number uint32) bool {
	for i := range r.Outcomes {
		if r.Outcomes[i].Meter == number {
			return true
		}
	}
	return false
}

// slugs names the meters by number. Rows name only meters that existed when they were written, so the view knows all.
type slugs map[uint32]string

// listEvents serves GET /v1/events. A page may be short, or empty, and still have a next one: a store ends a scan that
// has passed over too many rows.
func (s *Server) listEvents(x *httpkit.Exchange) error {
	q, err := x.Query("meter", "customer", "resource", "from", "to", "status", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, err := q.Limit()
	if err != nil {
		return err
	}
	after, err := q.AfterSeq()
	if err != nil {
		return err
	}
	f, err := readEventFilter(q)
	if err != nil {
		return err
	}
	var b, next []byte
	err = s.options.Store.View(x.Context(), x.Caller.Tenant, func(v store.View) error {
		names, err := store.Slugs(v)
		if err != nil {
			return err
		}
		if f.meter != "" {
			m, err := store.GetMeter(v, f.meter)
			if err != nil {
				return err
			}
			f.number = m.Number
		}
		begin, take := eventItems(names)
		if x.Media() == httpkit.MediaCSV {
			begin, take = eventLines(names)
		}
		b, next, err = scanEvents(v, &f, after, limit, begin, take)
		return err
	})
	if err != nil {
		return err
	}
	if x.Media() == httpkit.MediaCSV {
		return x.AnswerTable(q, b, next)
	}
	return x.Answer(http.StatusOK, httpkit.EndList(b, q, next))
}

// eventItems writes rows as items of a list.
func eventItems(names slugs) (begin []byte, take func([]byte, *ledger.Row) []byte) {
	begin = append(make([]byte, 0, 4<<10), `{"items":[`...)
	return begin, func(b []byte, r *ledger.Row) []byte {
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		return append(appendEvent(b, r, names), '}')
	}
}

// scanEvents writes the matching rows as they pass. It looks for one more than fits the page, so that a full last page
// is known to be the last.
func scanEvents(v store.View, f *eventFilter, after uint64, limit int, begin []byte,
	take func([]byte, *ledger.Row) []byte) (b, next []byte, err error) {
	taken, lastTaken, more := 0, uint64(0), false
	b = begin
	last, end, err := v.Rows(after, f.hint(), func(r *ledger.Row) bool {
		if r.Event == nil || !f.wants(r.Event) {
			return true
		}
		if taken == limit {
			more = true
			return false
		}
		b = take(b, r)
		taken, lastTaken = taken+1, r.Seq
		return true
	})
	switch {
	case err != nil:
		return nil, nil, err
	case more:
		next = httpkit.SeqPlace(lastTaken)
	case !end:
		next = httpkit.SeqPlace(last)
	}
	return b, next, nil
}

// getEvent serves GET /v1/events/{id}.
func (s *Server) getEvent(x *httpkit.Exchange) error {
	if err := x.NoQuery(); err != nil {
		return err
	}
	var b []byte
	err := s.options.Store.View(x.Context(), x.Caller.Tenant, func(v store.View) error {
		names, err := store.Slugs(v)
		if err != nil {
			return err
		}
		row, corrections, err := v.Event(usage.KeyOfID(x.Path("id")))
		if err != nil {
			return err
		}
		b = append(appendEvent(nil, &row, names), `,"corrections":[`...)
		for i := range corrections {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendEvent(b, &corrections[i], names), '}')
		}
		b = append(b, "]}\n"...)
		return nil
	})
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, b)
}

// appendEvent writes a row of the ledger, all but the closing brace.
func appendEvent(b []byte, row *ledger.Row, names slugs) []byte {
	b = render.Uint(appendEventID(append(b, '{'), row), "seq", row.Seq)
	return appendEventMembers(b, row, "type", names)
}

func appendEventID(b []byte, row *ledger.Row) []byte {
	return render.String(b, "id", row.Event.Key.ID())
}

// appendEventMembers writes what there is beside id and number. typeName is what the event's own type is called.
func appendEventMembers(b []byte, row *ledger.Row, typeName string, names slugs) []byte {
	r := row.Event
	status := r.Status()
	b = render.String(b, "status", status.String())
	if status == usage.Adjusted && r.Over() {
		b = render.Bool(b, "overage", true)
	}
	b = render.Present(b, "meter", r.Meter)
	b = render.Present(b, typeName, r.Type)
	b = render.String(b, "customer", r.Customer)
	b = render.Present(b, "resource", r.Resource)
	b = render.Moment(b, "time", r.Time)
	b = render.Amount(b, "quantity", r.Quantity)
	b = render.Object(b, "properties", r.Properties)
	if r.Key.Space == usage.DerivedSpace {
		b = render.Present(b, "client_id", r.ID)
	}
	b = render.Present(b, "corrects", r.Corrects)
	b = render.Present(b, "reason", r.Reason)
	b = render.Moment(b, "received_at", row.At)
	return appendOutcomes(render.Name(b, "outcomes"), row, names)
}

func appendOutcomes(b []byte, row *ledger.Row, names slugs) []byte {
	b = append(b, '[')
	for i := range row.Event.Outcomes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendOutcome(b, row, &row.Event.Outcomes[i], names)
	}
	return append(b, ']')
}

// appendOutcome writes what the row did to one meter.
func appendOutcome(b []byte, row *ledger.Row, o *usage.Outcome, names slugs) []byte {
	b = render.String(append(b, '{'), "meter", names[o.Meter])
	b = render.Amount(b, "value", o.Value)
	a, adjusted := usage.LateAdjustment(row.Event, o, row.Seq, row.At)
	switch {
	case adjusted:
		b = render.String(b, "status", usage.Adjusted.String())
		if o.Overage {
			b = render.Bool(b, "overage", true)
		}
		b = append(render.Name(b, "adjustment"), '{')
		b = render.String(b, "id", a.ID)
		b = render.Amount(b, "amount", a.Amount)
		b = render.String(b, "reason", a.Reason)
		b = append(b, '}')
	case o.Overage:
		b = render.String(b, "status", usage.Overage.String())
	default:
		b = render.String(b, "status", usage.Accepted.String())
	}
	return append(b, '}')
}
