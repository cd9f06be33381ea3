// Package ledger defines what a tenant's ledger is made of, apart from any store: rows numbered without gaps, committed in
// sections, and a chain of hashes over their canonical encoding. A row is a usage event or a change of anything else.
package ledger

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Head is where a tenant's ledger stands. The clock never moves backward.
type Head struct {
	Seq   uint64
	Chain [sha256.Size]byte
	Clock calendar.Micros
}

// Change is any row that is not a usage event: the audit event of it, and the entity as it is from then on. The state
// is zero when only the audit event matters.
type Change struct {
	audit.Event
	State entity.State
}

// Row is one numbered row. Exactly one of Event and Change is set.
type Row struct {
	Seq    uint64
	At     calendar.Micros // when it was committed
	Event  *usage.Row
	Change *Change
}

// Entity is the entity that a change leaves behind.
func (r *Row) Entity() entity.Entity {
	return entity.Entity{State: r.Change.State, Seq: r.Seq, At: r.At}
}

// Section is what one commit added to one tenant: rows with consecutive numbers and one time. When usage rows of it were archived
// and have left, Gone says how many, and Chain is the chain after the section, which can then no longer be had from its rows alone.
type Section struct {
	First uint64
	At    calendar.Micros
	Rows  []Row
	Gone  int
	Chain [sha256.Size]byte
}

// Count is how many rows the commit added.
func (s *Section) Count() int { return len(s.Rows) + s.Gone }

// Hasher advances a chain by one section at a time. It keeps its buffer between sections.
type Hasher struct{ buf []byte }

// flushAt bounds the hasher's buffer; the encoding of a section is hashed piece by piece.
const flushAt = 64 << 10

// Next is SHA-256(chain ‖ canonical encoding of the rows in order).
func (h *Hasher) Next(chain [sha256.Size]byte, rows []Row) [sha256.Size]byte {
	sum := sha256.New()
	sum.Write(chain[:])
	b := h.buf[:0]
	for i := range rows {
		b = AppendCanonical(b, &rows[i])
		if len(b) >= flushAt {
			sum.Write(b)
			b = b[:0]
		}
	}
	sum.Write(b)
	h.buf = b[:0]
	var out [sha256.Size]byte
	sum.Sum(out[:0])
	return out
}

// The kinds of rows in the canonical encoding, and its version, which every row repeats: rows of two versions may stand
// in one chain.
const (
	canonicalVersion = 1
	kindEvent        = 'e'
	kindChange       = 'c'
)

// AppendCanonical encodes a row the one way that the chain is defined over. It is never a store's own bytes: the chain is
// the same wherever the ledger is kept. Every field stands behind its length or is self-delimiting, so no two rows encode alike.
func AppendCanonical(b []byte, r *Row) []byte {
	kind := byte(kindEvent)
	if r.Change != nil {
		kind = kindChange
	}
	b = append(b, canonicalVersion, kind)
	b = binary.AppendUvarint(b, r.Seq)
	b = binary.AppendVarint(b, int64(r.At))
	if r.Change != nil {
		return appendChange(b, r.Change)
	}
	return appendEvent(b, r.Event)
}

func appendChange(b []byte, c *Change) []byte {
	for _, s := range [...]string{c.Type, c.Source, c.Actor, c.EntityType, c.EntityID, c.Payload} {
		b = appendString(b, s)
	}
	s := &c.State
	b = appendString(b, s.Kind)
	if s.IsZero() {
		return b
	}
	b = appendString(b, s.ID)
	critical := byte(0)
	if s.Critical {
		critical = 1
	}
	b = append(b, s.Version, critical)
	b = binary.AppendUvarint(b, uint64(len(s.Data)))
	return append(b, s.Data...)
}

func appendEvent(b []byte, r *usage.Row) []byte {
	b = append(b, byte(r.Key.Space), byte(r.Given))
	b = appendString(b, r.Key.Name)
	if r.Key.Space == usage.DerivedSpace {
		b = appendString(b, r.ID)
	}
	b = appendString(b, r.Meter)
	b = appendString(b, r.Type)
	b = appendString(b, r.Customer)
	b = appendString(b, r.Resource)
	b = binary.AppendVarint(b, int64(r.Time))
	b = amount.AppendBinary(b, r.Quantity)
	b = appendString(b, r.Properties)
	b = appendString(b, r.Corrects)
	if r.Corrects != "" {
		b = appendString(b, r.Reason)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Outcomes)))
	for i := range r.Outcomes {
		b = appendOutcome(b, &r.Outcomes[i], r.Corrects != "")
	}
	return b
}

func appendOutcome(b []byte, o *usage.Outcome, correction bool) []byte {
	flags := byte(o.Why)
	if o.Overage {
		flags |= 1 << 7
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(o.Meter))
	b = amount.AppendBinary(b, o.Value)
	if correction {
		b = amount.AppendBinary(b, o.Base)
	}
	b = appendString(b, o.Member)
	if o.Why != usage.OnTime {
		b = amount.AppendBinary(b, o.Amount)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
