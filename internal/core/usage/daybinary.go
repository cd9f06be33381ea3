package usage

import (
	"encoding/binary"
	"errors"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
)

// The first byte of an hour: which one it is, and what follows.
const (
	hourBits = 0x1f
	hourLost = 0x20 // nothing follows
	hourAt   = 0x40
	hourLast = 0x80
)

var errDay = errors.New("these are not the hours of a day")

// AppendDay encodes the hours of a day that have anything, in order. Each of them is
//
//	byte       the hour, 0x20 if it is lost: then nothing follows
//	uvarint    count
//	amount     value
//	uvarint    at, if 0x40 is set: there is one
//	varint, byte, uvarint, bytes   time and key, if 0x80 is set: there is a last fact
func AppendDay(b []byte, d *Day) []byte {
	for i := range calendar.HoursPerDay {
		if h := d.Hour(i); h != nil && (h.Lost || h.Count > 0) {
			b = h.append(b, byte(i))
		}
	}
	return b
}

func (h *Hour) append(b []byte, first byte) []byte {
	if h.Lost {
		return append(b, first|hourLost)
	}
	if h.At > 0 {
		first |= hourAt
	}
	if h.last != nil {
		first |= hourLast
	}
	b = binary.AppendUvarint(append(b, first), uint64(h.Count))
	b = amount.AppendBinary(b, h.Value)
	if h.At > 0 {
		b = binary.AppendUvarint(b, uint64(h.At))
	}
	if h.last != nil {
		b = binary.AppendVarint(b, int64(h.last.time))
		b = binary.AppendUvarint(append(b, byte(h.last.key.Space)), uint64(len(h.last.key.Name)))
		b = append(b, h.last.key.Name...)
	}
	return b
}

// ReadDay decodes what AppendDay encoded, and keeps none of its memory. It refuses everything else.
func ReadDay(b []byte) (*Day, error) {
	d := &Day{}
	for next := byte(0); len(b) > 0; {
		i := b[0] & hourBits
		if i >= calendar.HoursPerDay || i < next {
			return nil, errDay
		}
		r := hourReader{rest: b[1:]}
		r.read(d.ensure(int(i)), b[0])
		if r.bad {
			return nil, errDay
		}
		next, b = i+1, r.rest
	}
	return d, nil
}

// hourReader takes an encoded hour apart.
type hourReader struct {
	rest []byte
	bad  bool
}

func (r *hourReader) read(h *Hour, first byte) {
	if h.Lost = first&hourLost != 0; h.Lost {
		r.bad = first&(hourAt|hourLast) != 0
		return
	}
	h.Count, h.Value = r.positive(), r.amount()
	if first&hourAt != 0 {
		h.At = r.positive()
	}
	if first&hourLast == 0 {
		return
	}
	at, space := calendar.Micros(r.varint()), r.take(1)
	name := r.take(r.positive())
	if !r.bad {
		h.last = &latest{at, Key{Space: Space(space[0]), Name: string(name)}}
	}
}

// advance moves on by what a number took.
func (r *hourReader) advance(n int) bool {
	if r.bad = r.bad || n <= 0; r.bad {
		return false
	}
	r.rest = r.rest[n:]
	return true
}

func (r *hourReader) positive() int64 {
	v, n := binary.Uvarint(r.rest)
	if !r.advance(n) || int64(v) <= 0 {
		r.bad = true
		return 0
	}
	return int64(v)
}

func (r *hourReader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if !r.advance(n) {
		return 0
	}
	return v
}

func (r *hourReader) amount() amount.Amount {
	v, n, err := amount.ReadBinary(r.rest)
	if err != nil || !r.advance(n) {
		r.bad = true
		return amount.Zero
	}
	return v
}

func (r *hourReader) take(n int64) []byte {
	if r.bad || n > int64(len(r.rest)) {
		r.bad = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}
