package state

import (
	"encoding/binary"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
)

func tallyKey(tenant, meter uint32, m calendar.Month) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(key(kindTally, tenant), uint32(m)), meter)
}

// SetTally writes what all customers of a tenant used of a meter in a month.
func (c *Checkpoint) SetTally(tenant, meter uint32, m calendar.Month, t usage.Tally) {
	v := amount.AppendBinary(nil, t.Used)
	c.set(tallyKey(tenant, meter, m), binary.AppendUvarint(v, uint64(t.Alerted)))
}

// Tally reads what SetTally wrote; it is new when nothing was.
func (s *Reader) Tally(tenant, meter uint32, m calendar.Month) (usage.Tally, error) {
	v, err := s.get(tallyKey(tenant, meter, m))
	if v == nil || err != nil {
		return usage.Tally{}, err
	}
	r := read(v)
	t := usage.Tally{Used: r.Amount(), Alerted: uint16(r.Uvarint())}
	return t, r.err()
}
