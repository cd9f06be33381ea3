package engine

import (
	"math"
	"strings"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/store"
)

// noteAudit takes a change into the audit log. Engine.mu is held. The row's strings may be a buffer's.
func (e *Engine) noteAudit(b *book, r *ledger.Row) {
	if r.Change.EntityType == audit.EntityRequest {
		return
	}
	n := e.notes[0]
	n.changes[b] = append(n.changes[b],
		ledger.Row{Seq: r.Seq, At: r.At, Change: &ledger.Change{Event: cloneAudit(&r.Change.Event)}})
	n.changed++
}

func cloneAudit(e *audit.Event) audit.Event {
	c := *e
	for _, s := range [...]*string{&c.Type, &c.Source, &c.Actor, &c.EntityType, &c.EntityID, &c.Payload} {
		*s = strings.Clone(*s)
	}
	return c
}

// AuditEvents implements store.View. What is not in the state yet is newer than all that is.
func (v *view) AuditEvents(q store.AuditQuery) ([]ledger.Row, error) {
	below := v.head.Seq + 1
	if q.Before != 0 {
		below = min(below, q.Before)
	}
	q.Before = below
	l := auditList{query: q}
	if v.tx != nil {
		l.take(v.tx.rows)
	}
	below = min(below, v.noted(&l))
	q.Offset, q.Limit = l.query.Offset, l.query.Limit
	if q.Limit == 0 {
		return l.rows, nil
	}
	older, err := v.e.state.Audit(v.b.number, q, below)
	return append(l.rows, older...), err
}

// noted adds what is not in the state yet, and returns the number of the first row of it.
func (v *view) noted(l *auditList) uint64 {
	if v.tx == nil {
		v.e.mu.RLock()
		defer v.e.mu.RUnlock()
	}
	first := uint64(math.MaxUint64)
	for _, n := range v.e.notes {
		rows := n.changes[v.b]
		l.take(rows)
		if len(rows) > 0 {
			first = min(first, rows[0].Seq)
		}
	}
	return first
}

// auditList gathers what a query names of rows in memory.
type auditList struct {
	query store.AuditQuery // offset and limit are what is left of them
	rows  []ledger.Row
}

// take looks at rows in order, from the last to the first.
func (l *auditList) take(rows []ledger.Row) {
	for i := len(rows) - 1; i >= 0 && l.query.Limit > 0; i-- {
		r := &rows[i]
		if !l.query.Wants(r) {
			continue
		}
		if l.query.Offset > 0 {
			l.query.Offset--
			continue
		}
		l.query.Limit--
		l.rows = append(l.rows, ledger.Row{Seq: r.Seq, At: r.At, Change: &ledger.Change{Event: r.Change.Event}})
	}
}
