package postgres

import (
	"fmt"
	"math"
	"slices"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/store"
)

// auditFilters are the columns that a query of the audit log may name, in the order of their bits in a statement's
// number.
var auditFilters = [...]string{"entity_type", "entity_id", "type", "source"}

// auditEvents has a statement for every set of filters: with one that says "or not asked for", the planner could use no
// index.
var auditEvents = func() (all [1 << len(auditFilters)]*statement) {
	for set := range all {
		where, next := "tenant_id = $1 AND seq >= $2 AND seq < $3 AND entity_type <> '"+audit.EntityRequest+"'", 6
		for i, column := range auditFilters {
			if set&(1<<i) != 0 {
				where += fmt.Sprintf(" AND %s = $%d", column, next)
				next++
			}
		}
		all[set] = &statement{name: fmt.Sprintf("audit_events_%d", set), choosy: true,
			sql: "SELECT seq, at, type, source, actor, entity_type, entity_id, payload FROM changes WHERE " + where +
				" ORDER BY seq DESC OFFSET $4 LIMIT $5"}
	}
	return all
}()

var firstChangeAt = &statement{name: "first_change_at", choosy: true,
	sql: "SELECT seq FROM changes WHERE tenant_id = $1 AND at >= $2 ORDER BY at, seq LIMIT 1"}

// AuditEvents implements store.View. What a transaction appended itself is newer than all that is committed.
func (v *view) AuditEvents(q store.AuditQuery) ([]ledger.Row, error) {
	var out []ledger.Row
	if v.tx != nil {
		for _, r := range slices.Backward(v.tx.rows) {
			switch {
			case !q.Wants(&r) || len(out) == q.Limit:
			case q.Offset > 0:
				q.Offset--
			default:
				out = append(out, ledger.Row{Seq: r.Seq, At: r.At, Change: &ledger.Change{Event: r.Change.Event}})
			}
		}
	}
	if len(out) == q.Limit {
		return out, nil
	}
	first, below, err := v.auditRange(&q)
	if err != nil {
		return nil, err
	}
	params := [][]byte{int8Param(first), int8Param(below), int8Param(int64(q.Offset)),
		int8Param(int64(q.Limit - len(out)))}
	set := 0
	for i, value := range [...]string{q.EntityType, q.EntityID, q.Type, q.Source} {
		if !clean(value) {
			return nil, nil // nothing is called so
		}
		if value != "" {
			set |= 1 << i
			params = append(params, []byte(value))
		}
	}
	err = v.ask(auditEvents[set], func(in *reader) error {
		r := ledger.Row{Seq: uint64(in.int8()), At: in.time()}
		r.Change = &ledger.Change{Event: audit.Event{Type: in.text(), Source: in.text(), Actor: in.text(),
			EntityType: in.text(), EntityID: in.text(), Payload: in.text()}}
		out = append(out, r)
		return in.err
	}, params...)
	return out, err
}

// auditRange turns the times of a query into row numbers, which rise with them.
func (v *view) auditRange(q *store.AuditQuery) (first, below int64, err error) {
	below = int64(v.base) + 1
	if q.Before != 0 {
		below = int64(min(uint64(below), q.Before))
	}
	if q.From != 0 {
		if first, err = v.firstChange(q.From); err != nil {
			return 0, 0, err
		}
	}
	if q.To != 0 {
		end, err := v.firstChange(q.To)
		if err != nil {
			return 0, 0, err
		}
		below = min(below, end)
	}
	return first, below, nil
}

// firstChange is the first change at or after a time; a number above all when there is none.
func (v *view) firstChange(at calendar.Micros) (int64, error) {
	seq := int64(math.MaxInt64)
	err := v.ask(firstChangeAt, func(in *reader) error {
		seq = in.int8()
		return in.err
	}, timeParam(at))
	return seq, err
}
