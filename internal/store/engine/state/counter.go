package state

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/wire"
)

// Counter is a counter and the section that last touched it.
type Counter struct {
	usage.Counter
	Section uint64
}

func placeKey(tenant uint32, p store.CounterPlace) []byte {
	return appendPlace(make([]byte, 0, 64), tenant, p)
}

func appendPlace(b []byte, tenant uint32, p store.CounterPlace) []byte {
	b = binary.BigEndian.AppendUint32(append(b, kindCounter), tenant)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Month))
	b = append(append(b, p.Meter...), 0) // slugs have no zero byte
	return append(b, p.Customer...)
}

const (
	counterLate = 1 << iota
	counterStarted
	counterSealed
	counterAdjusted
	counterAlerted
)

// SetCounter writes a counter that AppendCounter encoded.
func (c *Checkpoint) SetCounter(tenant uint32, p store.CounterPlace, encoded []byte) {
	c.key = appendPlace(c.key[:0], tenant, p)
	c.set(c.key, encoded)
}

// AppendCounter encodes a counter.
func AppendCounter(b []byte, c *Counter) []byte {
	flags := byte(0)
	if c.Late != nil {
		flags |= counterLate
	}
	if c.Started {
		flags |= counterStarted
	}
	if c.Sealed {
		flags |= counterSealed
	}
	if c.Adjusted {
		flags |= counterAdjusted
	}
	if c.Alerted != 0 {
		flags |= counterAlerted
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, c.Section)
	b = binary.AppendVarint(b, int64(c.Watermark))
	b = binary.AppendUvarint(b, uint64(c.Generation))
	b = amount.AppendBinary(b, c.Manual)
	b = amount.AppendBinary(b, c.SealedAt)
	if c.Alerted != 0 {
		b = binary.AppendUvarint(b, uint64(c.Alerted))
	}
	b = appendFold(b, &c.OnTime)
	if c.Late != nil {
		b = appendFold(b, c.Late)
	}
	return b
}

func appendFold(b []byte, f *usage.Fold) []byte {
	b = binary.AppendUvarint(b, uint64(f.Count))
	b = amount.AppendBinary(b, f.Sum)
	b = amount.AppendBinary(b, f.Min)
	b = amount.AppendBinary(b, f.Max)
	b = binary.AppendUvarint(b, uint64(f.AtMin))
	b = binary.AppendUvarint(b, uint64(f.AtMax))
	b = amount.AppendBinary(b, f.Last)
	b = binary.AppendVarint(b, int64(f.LastTime))
	b = binary.AppendUvarint(b, uint64(len(f.LastKey)))
	b = append(b, f.LastKey...)
	return binary.AppendUvarint(b, uint64(f.Members))
}

// ReadCounter decodes what AppendCounter encoded, and keeps none of its memory.
func ReadCounter(v []byte) (c Counter, err error) {
	err = DecodeCounter(&c, v)
	return c, err
}

// DecodeCounter is ReadCounter into a counter that was used before, whose memory it uses again.
func DecodeCounter(c *Counter, v []byte) error {
	r := read(v)
	flags := r.Byte()
	c.Section = r.Uvarint()
	c.Started, c.Sealed, c.Adjusted = flags&counterStarted != 0, flags&counterSealed != 0, flags&counterAdjusted != 0
	c.Watermark, c.Generation = calendar.Micros(r.Varint()), uint32(r.Uvarint())
	c.Manual, c.SealedAt = r.Amount(), r.Amount()
	c.Alerted = 0
	if flags&counterAlerted != 0 {
		c.Alerted = uint16(r.Uvarint())
	}
	r.fold(&c.OnTime)
	c.Late = nil
	if flags&counterLate != 0 {
		c.Late = &usage.Fold{}
		r.fold(c.Late)
	}
	return r.err()
}

func (r *reader) fold(f *usage.Fold) {
	f.Count, f.Sum, f.Min, f.Max = int64(r.Uvarint()), r.Amount(), r.Amount(), r.Amount()
	f.AtMin, f.AtMax, f.Last = int64(r.Uvarint()), int64(r.Uvarint()), r.Amount()
	f.LastTime = calendar.Micros(r.Varint())
	f.LastKey = append(f.LastKey[:0], r.Take(r.Uvarint())...)
	f.Members = int64(r.Uvarint())
}

// Counter reads a counter; false when there is none.
func (s *Reader) Counter(tenant uint32, p store.CounterPlace) (Counter, bool, error) {
	v, closer, err := s.from.Get(placeKey(tenant, p))
	if errors.Is(err, pebble.ErrNotFound) {
		return Counter{}, false, nil
	}
	if err != nil {
		return Counter{}, false, err
	}
	c, err := ReadCounter(v)
	return c, err == nil, errors.Join(err, closer.Close())
}

// Counters lists counters from a place on, in order, until fn returns false.
func (s *Reader) Counters(tenant uint32, from store.CounterPlace, fn func(store.CounterPlace, *Counter) bool) error {
	prefix := key(kindCounter, tenant)
	return s.scan(prefix, placeKey(tenant, from), func(k, v []byte) (bool, error) {
		p, ok := readPlace(k[5:])
		if !ok {
			return false, errValue
		}
		c, err := ReadCounter(v)
		return err == nil && fn(p, &c), err
	})
}

// NextMonth returns the first month at or after from that has counters; false when there is none. A counter that
// facts were only refused at is empty, and does not count.
func (s *Reader) NextMonth(tenant uint32, from calendar.Month) (m calendar.Month, ok bool, err error) {
	err = s.Counters(tenant, store.CounterPlace{Month: from}, func(p store.CounterPlace, c *Counter) bool {
		m, ok = p.Month, !c.Empty()
		return !ok
	})
	return m, ok, err
}

func readPlace(k []byte) (store.CounterPlace, bool) {
	if len(k) < 4 {
		return store.CounterPlace{}, false
	}
	p := store.CounterPlace{Month: calendar.Month(binary.BigEndian.Uint32(k))}
	for i, c := range k[4:] {
		if c == 0 {
			p.Meter, p.Customer = string(k[4:4+i]), string(k[5+i:])
			return p, true
		}
	}
	return p, false
}

// reader takes a value apart.
type reader struct{ wire.Reader }

func read(value []byte) reader { return reader{wire.Reader{Rest: value}} }

func (r *reader) err() error {
	if r.Bad {
		return errValue
	}
	return nil
}
