package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store"
)

// auditPrefix and the row's number are the id of an audit event.
const auditPrefix = "aud_"

// listAuditEvents serves GET /v1/audit-events, the newest first.
func listAuditEvents(x *exchange) error {
	q, err := x.query("entity_type", "entity_id", "event_type", "source", "start", "end", "offset", "limit", "cursor")
	if err != nil {
		return err
	}
	f, err := readAuditFilter(q)
	if err != nil {
		return err
	}
	limit := f.Limit
	f.Limit++ // one more tells whether there is a next page
	var rows []ledger.Row
	err = x.s.options.Store.View(x.r.Context(), x.caller.Tenant, func(v store.View) (err error) {
		rows, err = v.AuditEvents(f)
		return err
	})
	if err != nil {
		return err
	}
	var next []byte
	if len(rows) > limit {
		rows = rows[:limit]
		next = seqPlace(rows[limit-1].Seq)
	}
	return list(x, q, rows, next, appendAuditEvent)
}

func readAuditFilter(q query) (f store.AuditQuery, err error) {
	f = store.AuditQuery{EntityType: q.get("entity_type"), EntityID: q.get("entity_id"), Type: q.get("event_type"), Source: q.get("source")}
	start, err := q.moment("start")
	if err != nil {
		return f, err
	}
	end, err := q.moment("end")
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
		return f, badParameter("start", "must not lie after end")
	}
	if f.Limit, err = q.limit(); err != nil {
		return f, err
	}
	if f.Before, err = q.afterSeq(); err != nil || f.Before != 0 {
		return f, err // the offset was passed over on the way to the cursor
	}
	if text := q.get("offset"); text != "" {
		var ok bool
		if f.Offset, ok = wholeNumber(text, store.MaxAuditOffset); !ok {
			return f, badParameter("offset", "must be a number up to "+strconv.Itoa(store.MaxAuditOffset)+"; further on, follow next_cursor")
		}
	}
	return f, nil
}

// getAuditEvent serves GET /v1/audit-events/{id}.
func getAuditEvent(x *exchange) error {
	if err := x.noQuery(); err != nil {
		return err
	}
	missing := problem.New(problem.NotFound, "no such audit event")
	text, ok := strings.CutPrefix(x.param, auditPrefix)
	seq, err := strconv.ParseUint(text, 10, 63)
	if !ok || err != nil || seq == 0 || strconv.FormatUint(seq, 10) != text {
		return missing
	}
	var rows []ledger.Row
	err = x.s.options.Store.View(x.r.Context(), x.caller.Tenant, func(v store.View) (err error) {
		rows, err = v.AuditEvents(store.AuditQuery{Before: seq + 1, Limit: 1})
		return err
	})
	if err != nil {
		return err
	}
	if len(rows) == 0 || rows[0].Seq != seq {
		return missing
	}
	return x.answer(http.StatusOK, append(appendAuditEvent(nil, &rows[0]), '\n'))
}

func appendAuditEvent(b []byte, r *ledger.Row) []byte {
	e := &r.Change.Event
	b = appendString(append(b, '{'), "id", auditPrefix+strconv.FormatUint(r.Seq, 10))
	b = appendUint(b, "seq", r.Seq)
	b = appendString(b, "event_type", e.Type)
	b = appendString(b, "source", e.Source)
	b = appendString(b, "actor", e.Actor)
	b = appendString(b, "entity_type", e.EntityType)
	b = appendString(b, "entity_id", e.EntityID)
	b = appendName(b, "payload")
	if e.Payload == "" {
		b = append(b, "{}"...)
	} else {
		b = append(b, e.Payload...)
	}
	b = appendMoment(b, "created_at", r.At)
	return append(b, '}')
}
