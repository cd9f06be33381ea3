package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/store"
)

// auditPrefix and the row's number are the id of an audit event.
const auditPrefix = "aud_"

// listAuditEvents serves GET /v1/audit-events, the newest first.
func (s *Server) listAuditEvents(x *httpkit.Exchange) error {
	q, err := x.Query("entity_type", "entity_id", "event_type", "source", "start", "end", "offset", "limit", "cursor")
	if err != nil {
		return err
	}
	f, err := readAuditFilter(q)
	if err != nil {
		return err
	}
	limit := f.Limit
	f.Limit++ // one more shows whether there is a next page
	var rows []ledger.Row
	err = s.options.Store.View(x.Context(), x.Caller.Tenant, func(v store.View) (err error) {
		rows, err = v.AuditEvents(f)
		return err
	})
	if err != nil {
		return err
	}
	var next []byte
	if len(rows) > limit {
		rows = rows[:limit]
		next = httpkit.SeqPlace(rows[limit-1].Seq)
	}
	return httpkit.List(x, q, rows, next, appendAuditEvent)
}

func readAuditFilter(q httpkit.Query) (f store.AuditQuery, err error) {
	f = store.AuditQuery{EntityType: q.Get("entity_type"), EntityID: q.Get("entity_id"), Type: q.Get("event_type"),
		Source: q.Get("source")}
	start, err := q.Moment("start")
	if err != nil {
		return f, err
	}
	end, err := q.Moment("end")
	if err != nil {
		return f, err
	}
	if start != nil {
		f.From = *start
	}
	if end != nil {
		f.To = *end
	}
	if start != nil && end != nil && *start > *end {
		return f, httpkit.BadParameter("start", "must not lie after end")
	}
	if f.Limit, err = q.Limit(); err != nil {
		return f, err
	}
	if f.Before, err = q.AfterSeq(); err != nil || f.Before != 0 {
		return f, err // the offset was passed over on the way to the cursor
	}
	f.Offset, err = q.Number("offset", 0, store.MaxAuditOffset,
		"must be a number up to "+strconv.Itoa(store.MaxAuditOffset)+"; further on, follow next_cursor")
	return f, err
}

// getAuditEvent serves GET /v1/audit-events/{id}.
func (s *Server) getAuditEvent(x *httpkit.Exchange) error {
	if err := x.NoQuery(); err != nil {
		return err
	}
	missing := problem.New(problem.NotFound, "no such audit event")
	text, ok := strings.CutPrefix(x.Path("id"), auditPrefix)
	seq, err := strconv.ParseUint(text, 10, 63)
	if !ok || err != nil || seq == 0 || strconv.FormatUint(seq, 10) != text {
		return missing
	}
	var rows []ledger.Row
	err = s.options.Store.View(x.Context(), x.Caller.Tenant, func(v store.View) (err error) {
		rows, err = v.AuditEvents(store.AuditQuery{Before: seq + 1, Limit: 1})
		return err
	})
	if err != nil {
		return err
	}
	if len(rows) == 0 || rows[0].Seq != seq {
		return missing
	}
	return x.Answer(http.StatusOK, append(appendAuditEvent(nil, &rows[0]), '\n'))
}

func appendAuditEvent(b []byte, r *ledger.Row) []byte {
	b = render.Uint(appendAuditID(append(b, '{'), r), "seq", r.Seq)
	return append(appendAuditMembers(b, r), '}')
}

func appendAuditID(b []byte, r *ledger.Row) []byte {
	return render.String(b, "id", auditPrefix+strconv.FormatUint(r.Seq, 10))
}

// appendAuditMembers writes what there is beside id and number.
func appendAuditMembers(b []byte, r *ledger.Row) []byte {
	e := &r.Change.Event
	b = render.String(b, "event_type", e.Type)
	b = render.String(b, "source", e.Source)
	b = render.String(b, "actor", e.Actor)
	b = render.String(b, "entity_type", e.EntityType)
	b = render.String(b, "entity_id", e.EntityID)
	b = render.Object(b, "payload", e.Payload)
	return render.Moment(b, "created_at", r.At)
}
