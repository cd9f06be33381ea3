package ledger

import (
	"encoding/binary"
	"errors"

	"github.com/tallystick/tallystick/internal/core/account"
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// The version of the canonical encoding, which every row repeats: rows of two versions may stand in one tree. What
// follows it says what the row is.
const (
	canonicalVersion = 1
	canonicalEvent   = 'e'
	canonicalEntry   = 'a'
	canonicalChange  = 'c'
)

// AppendCanonical encodes a row the one way that the tree is defined over. It is never a store's own bytes: the tree is
// the same wherever the ledger is kept. Every field stands behind its length or is self-delimiting, so no two rows
// encode alike. A change is encoded with the blinded hash of its state in place of the state; other rows ignore it.
func AppendCanonical(b []byte, r *Row, state tree.Hash) []byte {
	b = append(b, canonicalVersion)
	switch r.Kind() {
	case EventRow:
		return appendEvent(appendHead(b, canonicalEvent, r), r.Event)
	case EntryRow:
		return appendEntry(appendHead(b, canonicalEntry, r), r.Entry)
	default:
		return appendChange(appendHead(b, canonicalChange, r), r.Change, state)
	}
}

func appendHead(b []byte, kind byte, r *Row) []byte {
	b = append(b, kind)
	b = binary.AppendUvarint(b, r.Seq)
	b = binary.AppendVarint(b, int64(r.At))
	return appendString(b, r.By)
}

func appendChange(b []byte, c *Change, state tree.Hash) []byte {
	for _, s := range [...]string{c.Type, c.Source, c.Actor, c.EntityType, c.EntityID, c.Payload, c.State.Kind} {
		b = appendString(b, s)
	}
	if c.State.IsZero() {
		return b
	}
	b = appendString(b, c.State.ID)
	b = append(b, c.State.Version, bit(c.State.Critical))
	return append(b, state[:]...)
}

func appendEntry(b []byte, r *account.Row) []byte {
	flags := bit(r.System) | bit(r.Late)<<1 | bit(r.Gap)<<2
	b = append(b, byte(r.Type), byte(r.Given), flags)
	for _, s := range [...]string{r.ID, r.Account, r.Counter, r.Transfer, r.Hold, r.Corrects, r.Reason, r.Metadata} {
		b = appendString(b, s)
	}
	b = amount.AppendBinary(b, r.Amount)
	b = binary.AppendVarint(b, int64(r.Time))
	b = binary.AppendUvarint(b, r.Sequence)
	b = binary.AppendVarint(b, int64(r.Expires))
	b = binary.AppendUvarint(b, r.Version)
	b = amount.AppendBinary(b, r.Balance)
	return amount.AppendBinary(b, r.Held)
}

func bit(on bool) byte {
	if on {
		return 1
	}
	return 0
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

var errCanonical = errors.New("not the canonical encoding of a usage row")

// DecodeCanonical reads the usage row that AppendCanonical wrote, and nothing else: the same bytes come out of
// AppendCanonical again. The row has memory of its own.
func DecodeCanonical(b []byte) (Row, error) {
	d := canonicalReader{rest: b}
	if d.byte() != canonicalVersion || d.byte() != byte(canonicalEvent) {
		return Row{}, errCanonical
	}
	e := &usage.Row{}
	r := Row{Seq: d.uvarint(), At: calendar.Micros(d.varint()), By: d.string(), Event: e}
	e.Key.Space, e.Given = usage.Space(d.byte()), usage.Given(d.byte())
	e.Key.Name = d.string()
	e.ID = e.Key.Name
	if e.Key.Space == usage.DerivedSpace {
		e.ID = d.string()
	}
	e.Meter, e.Type, e.Customer, e.Resource = d.string(), d.string(), d.string(), d.string()
	e.Time, e.Quantity = calendar.Micros(d.varint()), d.amount()
	e.Properties, e.Corrects = d.string(), d.string()
	if e.Corrects != "" {
		e.Reason = d.string()
	}
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		return Row{}, errCanonical
	}
	e.Outcomes = make([]usage.Outcome, n)
	for i := range e.Outcomes {
		d.outcome(&e.Outcomes[i], e.Corrects != "")
	}
	if d.bad || len(d.rest) != 0 {
		return Row{}, errCanonical
	}
	return r, nil
}

// canonicalReader takes an encoding apart. The first failure is kept.
type canonicalReader struct {
	rest []byte
	bad  bool
}

func (d *canonicalReader) outcome(o *usage.Outcome, correction bool) {
	flags := d.byte()
	o.Overage, o.Why = flags&(1<<7) != 0, usage.Why(flags&^(1<<7))
	if o.Why > usage.TargetWas {
		d.bad = true
		return
	}
	o.Meter, o.Value = uint32(d.uvarint()), d.amount()
	if correction {
		o.Base = d.amount()
	}
	o.Member = d.string()
	if o.Why != usage.OnTime {
		o.Amount = d.amount()
	}
}

func (d *canonicalReader) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.rest)) {
		d.bad = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *canonicalReader) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *canonicalReader) string() string { return string(d.take(d.uvarint())) }

func (d *canonicalReader) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.bad = d.bad || n <= 0; d.bad {
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *canonicalReader) varint() int64 {
	v, n := binary.Varint(d.rest)
	if d.bad = d.bad || n <= 0; d.bad {
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *canonicalReader) amount() amount.Amount {
	if d.bad {
		return amount.Zero
	}
	v, n, err := amount.ReadBinary(d.rest)
	if d.bad = err != nil; d.bad {
		return amount.Zero
	}
	d.rest = d.rest[n:]
	return v
}
