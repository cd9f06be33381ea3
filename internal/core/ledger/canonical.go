package ledger

import (
	"encoding/binary"
	"errors"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
)

var errCanonical = errors.New("not the canonical encoding of a usage row")

// DecodeCanonical reads the usage row that AppendCanonical wrote, and nothing else: the same bytes come out of AppendCanonical
// again. The row has memory of its own.
func DecodeCanonical(b []byte) (Row, error) {
	d := canonicalReader{rest: b}
	if d.byte() != canonicalVersion || d.byte() != kindEvent {
		return Row{}, errCanonical
	}
	e := &usage.Row{}
	r := Row{Seq: d.uvarint(), At: calendar.Micros(d.varint()), Event: e}
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
