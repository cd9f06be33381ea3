package state

import (
	"encoding/binary"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
)

func dayKey(tenant, meter uint32, d calendar.Day) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(key(kindDay, tenant), meter), uint32(d))
}

// SetDay writes the hours of a meter's day.
func (c *Checkpoint) SetDay(tenant, meter uint32, d calendar.Day, day *usage.Day) {
	c.set(dayKey(tenant, meter, d), usage.AppendDay(nil, day))
}

// Day reads what SetDay wrote; it is new when nothing was.
func (s *Reader) Day(tenant, meter uint32, d calendar.Day) (*usage.Day, error) {
	v, err := s.get(dayKey(tenant, meter, d))
	if err != nil {
		return nil, err
	}
	return usage.ReadDay(v)
}

// Days calls fn for the days of a meter from one to another, both included.
func (s *Reader) Days(tenant, meter uint32, from, to calendar.Day, fn func(calendar.Day, *usage.Day) error) error {
	prefix := binary.BigEndian.AppendUint32(key(kindDay, tenant), meter)
	return s.scan(prefix, dayKey(tenant, meter, from), func(k, v []byte) (bool, error) {
		if len(k) != len(prefix)+4 {
			return false, errValue
		}
		d := calendar.Day(binary.BigEndian.Uint32(k[len(prefix):]))
		if d > to {
			return false, nil
		}
		day, err := usage.ReadDay(v)
		if err == nil {
			err = fn(d, day)
		}
		return err == nil, err
	})
}
