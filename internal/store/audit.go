package store

import (
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
)

// AuditQuery names rows that are not usage events by what they say; empty fields take any.
type AuditQuery struct {
	EntityType, EntityID string
	Type                 string
	Source               string
	From, To             calendar.Micros // of the commit, half open; zero: unbounded
	Before               uint64          // only rows below this number; zero: no bound
	Offset               int             // rows to pass over, the newest first
	Limit                int
}

// MaxAuditOffset bounds what a query passes over: whoever wants more goes on from the last row seen.
const MaxAuditOffset = 100_000

// Wants reports whether the query names a row, apart from offset and limit.
func (q *AuditQuery) Wants(r *ledger.Row) bool {
	c := r.Change
	switch {
	case c == nil || c.EntityType == audit.EntityRequest,
		q.Before != 0 && r.Seq >= q.Before,
		q.From != 0 && r.At < q.From,
		q.To != 0 && r.At >= q.To,
		q.EntityType != "" && c.EntityType != q.EntityType,
		q.EntityID != "" && c.EntityID != q.EntityID,
		q.Type != "" && c.Type != q.Type,
		q.Source != "" && c.Source != q.Source:
		return false
	}
	return true
}
