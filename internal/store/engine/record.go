package engine

import (
	"encoding/base64"
	"encoding/binary"
	"sort"
	"unsafe"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// A journal record is one commit group: a version and a section for each tenant that the group added rows to.
// docs/formats.md gives every byte. A section stands alone: strings that repeat within it are written once and then
// referred to, keys share their beginning with the key before, times are differences. Nothing refers to another
// record, except that each row says which earlier section last touched its counter, so that a counter's rows can be
// found without an index over rows.
//
// Dictionaries that live as long as a segment were considered: they save some ten bytes on groups of one and nothing
// on larger ones, and cost a dictionary to be loaded before any single row can be read.

const recordVersion = 5

// The first byte of a row.
const (
	rowOther        = 1 << iota // not an event: what it is, the other bits say
	rowDerived                  // the key is derived; 32 raw bytes and the client's id follow
	rowType                     // addressed by type
	rowResource                 // has a resource
	rowProperties               // has properties
	rowCorrection               // corrects another
	rowOne                      // quantity is one
	rowPlainOutcome             // one outcome: on time, no overage, no member, its value is the quantity
)

// The first byte of a row that is not an event.
const (
	rowChange = rowOther
	rowEntry  = rowOther | 1<<1
)

// The first byte of an outcome: the reason in the low bits.
const (
	outcomeWhy      = 0x07
	outcomeOverage  = 0x08
	outcomeQuantity = 0x10 // its value is the row's quantity
	outcomeMember   = 0x20
)

// The flags of a change's state.
const stateCritical = 0x01

// link says where the rows of an outcome's counter before this section are.
type link uint64

const (
	linkSame link = 0 // an earlier row of this section touched the counter
	linkNone link = 1 // no earlier section did
	// Above: 1 + the distance from this section's first seq down to that of the section that last did.
)

func linkTo(first, earlier uint64) link {
	if earlier == 0 {
		return linkNone
	}
	return link(first-earlier) + 1
}

// earlier returns the first seq of the linked section, or 0.
func (l link) earlier(first uint64) uint64 {
	if l <= linkNone {
		return 0
	}
	return first - uint64(l-1)
}

// maxRowOverhead bounds what the encoding of a row adds to its strings: flags, given, lengths (12 strings of up to 3
// bytes), time, quantity, and one outcome with three amounts and a link.
const maxRowOverhead = 2 + 12*3 + 10 + 20 + maxOutcome

const maxOutcome = 1 + 5 + 3*20 + 3 + 10

// maxSectionOverhead bounds a section's own fields.
const maxSectionOverhead = 64

// recordWriter encodes groups. Its tables are reused.
type recordWriter struct {
	buf  []byte
	refs refTable
}

// refTable finds strings that were written before in this section. It forgets on collision: a string written twice
// costs bytes, not correctness, and this way looking up is a hash and a comparison.
type refTable struct {
	slots [1024]struct {
		s     string
		ref   uint32
		epoch uint32
	}
	epoch uint32
	next  uint32
}

func (t *refTable) reset() {
	t.epoch++
	t.next = 0
	if t.epoch == 0 {
		*t = refTable{epoch: 1}
	}
}

// forget lets go of the strings, which are in the memory of requests. A reset does not: sections are many.
func (t *refTable) forget() { clear(t.slots[:]) }

func cheapHash(s string) uint32 {
	h := uint32(len(s)) * 0x9E3779B1
	if len(s) >= 8 {
		a := binary.LittleEndian.Uint64(unsafe.Slice(unsafe.StringData(s), 8))
		end := unsafe.Add(unsafe.Pointer(unsafe.StringData(s)), len(s)-8)
		b := binary.LittleEndian.Uint64(unsafe.Slice((*byte)(end), 8))
		x := (a ^ b*0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93
		return h ^ uint32(x>>32)
	}
	for i := 0; i < len(s); i++ {
		h = (h ^ uint32(s[i])) * 0x01000193
	}
	return h ^ h>>15
}

// string writes s as a reference to an earlier one, or as the next one.
func (w *recordWriter) string(b []byte, s string) []byte {
	slot := &w.refs.slots[cheapHash(s)%uint32(len(w.refs.slots))]
	if slot.epoch == w.refs.epoch && slot.s == s {
		return binary.AppendUvarint(b, uint64(slot.ref)+1)
	}
	slot.s, slot.ref, slot.epoch = s, w.refs.next, w.refs.epoch
	w.refs.next++
	b = append(b, 0)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// section is a tenant's part of a group: what is to be written, or what was read.
type section struct {
	tenant uint32
	first  uint64
	at     calendar.Micros
	rows   []ledger.Row
	links  []link // of each event row's outcomes, in order

	customers *byCustomer // once a slice was asked for

	// Of a section whose rows have left: how many it had, which of the rows that remain are of an archived month, so
	// that nothing folds them any more, and what was kept of the tree.
	had      int
	archived []bool
	kept     kept
}

// count is how many rows the section had when it was committed.
func (s *section) count() int { return max(s.had, len(s.rows)) }

// row finds a row by its number; nil when it has left.
func (s *section) row(seq uint64) *ledger.Row {
	i := sort.Search(len(s.rows), func(i int) bool { return s.rows[i].Seq >= seq })
	if i == len(s.rows) || s.rows[i].Seq != seq {
		return nil
	}
	return &s.rows[i]
}

func (w *recordWriter) section(b []byte, s *section) []byte {
	w.refs.reset()
	start := len(b)
	b = append(b, 0, 0, 0, 0) // the section's length, so that a reader for one tenant passes over the others
	b = binary.AppendUvarint(b, uint64(s.tenant))
	b = binary.AppendUvarint(b, s.first)
	b = binary.AppendVarint(b, int64(s.at))
	b = binary.AppendUvarint(b, uint64(len(s.rows)))
	b = w.rows(b, s)
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// rows encodes a section's rows, those of a pruned one each behind its mark.
func (w *recordWriter) rows(b []byte, s *section) []byte {
	b = w.by(b, s.rows)
	last, key, at, next := s.links, "", s.at, s.first
	for i := range s.rows {
		if s.had > 0 {
			b = binary.AppendUvarint(b, s.mark(i, next))
			next = s.rows[i].Seq + 1
		}
		switch s.rows[i].Kind() {
		case ledger.EventRow:
			r := s.rows[i].Event
			b = w.event(b, r, last[:len(r.Outcomes)], key, at)
			last, key, at = last[len(r.Outcomes):], r.Key.Name, r.Time
		case ledger.EntryRow:
			b = w.entry(append(b, rowEntry), s.rows[i].Entry, s.at)
		case ledger.ChangeRow:
			b = w.change(append(b, rowChange), s.rows[i].Change)
		}
	}
	return b
}

func (w *recordWriter) change(b []byte, c *ledger.Change) []byte {
	for _, s := range [...]string{c.Type, c.Source, c.Actor, c.EntityType, c.EntityID, c.Payload, c.State.Kind} {
		b = w.string(b, s)
	}
	s := &c.State
	if s.IsZero() {
		return b
	}
	b = w.string(b, s.ID)
	flags := byte(0)
	if s.Critical {
		flags |= stateCritical
	}
	b = append(b, s.Version, flags)
	return w.string(b, unsafe.String(unsafe.SliceData(s.Data), len(s.Data)))
}

func (w *recordWriter) event(b []byte, r *usage.Row, links []link, lastKey string, lastTime calendar.Micros) []byte {
	flags, at := byte(0), len(b)
	b = append(b, 0, byte(r.Given))
	if r.Key.Space == usage.DerivedSpace {
		flags |= rowDerived
		b, _ = base64.RawURLEncoding.AppendDecode(b, []byte(r.Key.Name))
		b = w.string(b, r.ID)
	} else {
		shared := sharedPrefix(lastKey, r.Key.Name)
		b = append(b, byte(shared), byte(len(r.Key.Name)-shared))
		b = append(b, r.Key.Name[shared:]...)
	}
	if r.Type != "" {
		flags |= rowType
		b = w.string(b, r.Type)
	}
	b = w.string(b, r.Customer)
	if r.Resource != "" {
		flags |= rowResource
		b = w.string(b, r.Resource)
	}
	b = binary.AppendVarint(b, int64(r.Time-lastTime))
	if r.Quantity == amount.One {
		flags |= rowOne
	} else {
		b = amount.AppendBinary(b, r.Quantity)
	}
	if r.Properties != "" {
		flags |= rowProperties
		b = w.string(b, r.Properties)
	}
	if r.Corrects != "" {
		flags |= rowCorrection
		b = w.string(b, r.Corrects)
		b = w.string(b, r.Reason)
	}
	o := r.Outcomes
	if len(o) == 1 && o[0].Why == usage.OnTime && !o[0].Overage && o[0].Member == "" && o[0].Value == r.Quantity &&
		r.Corrects == "" {
		b[at] = flags | rowPlainOutcome
		b = binary.AppendUvarint(b, uint64(o[0].Meter))
		return binary.AppendUvarint(b, uint64(links[0]))
	}
	b[at] = flags
	b = binary.AppendUvarint(b, uint64(len(o)))
	for i := range o {
		b = w.outcome(b, &o[i], r)
		b = binary.AppendUvarint(b, uint64(links[i]))
	}
	return b
}

func (w *recordWriter) outcome(b []byte, o *usage.Outcome, r *usage.Row) []byte {
	flags, at := byte(o.Why), len(b)
	b = append(b, 0)
	b = binary.AppendUvarint(b, uint64(o.Meter))
	if o.Overage {
		flags |= outcomeOverage
	}
	if o.Value == r.Quantity {
		flags |= outcomeQuantity
	} else {
		b = amount.AppendBinary(b, o.Value)
	}
	if r.Corrects != "" {
		b = amount.AppendBinary(b, o.Base)
	}
	if o.Member != "" {
		flags |= outcomeMember
		b = w.string(b, o.Member)
	}
	if o.Why != usage.OnTime {
		b = amount.AppendBinary(b, o.Amount)
	}
	b[at] = flags
	return b
}

func sharedPrefix(a, b string) int {
	n := min(len(a), len(b), 255)
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
