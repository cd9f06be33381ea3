package state

import (
	"encoding/binary"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
)

// Answered requests are found by their key, and in the order in which they expire.
const (
	kindRequest = 'q' // key → seq, when it expires
	kindExpiry  = 'z' // when it expires, tenant, key → ; of all tenants together
)

func requestKey(tenant uint32, name string) []byte { return append(key(kindRequest, tenant), name...) }

func expiryKey(at calendar.Micros, tenant uint32, name string) []byte {
	b := binary.BigEndian.AppendUint64([]byte{kindExpiry}, uint64(max(at, 0)))
	return append(binary.BigEndian.AppendUint32(b, tenant), name...)
}

// SetRequest notes the row that keeps the answer to a request.
func (c *Checkpoint) SetRequest(tenant uint32, name string, seq uint64, expires calendar.Micros) {
	c.set(requestKey(tenant, name), binary.AppendVarint(binary.AppendUvarint(nil, seq), int64(expires)))
	c.set(expiryKey(expires, tenant, name), nil)
}

// Request returns the row that keeps the answer to a request, or 0.
func (s *State) Request(tenant uint32, name string) (seq uint64, err error) {
	seq, _, err = s.request(requestKey(tenant, name))
	return seq, err
}

func (s *State) request(k []byte) (seq uint64, expires calendar.Micros, err error) {
	v, err := s.get(k)
	if v == nil || err != nil {
		return 0, 0, err
	}
	r := read(v)
	seq, expires = r.Uvarint(), calendar.Micros(r.Varint())
	return seq, expires, r.err()
}

// Reap takes out up to limit requests that have expired. A key that was used again since stays, and only its old expiry goes.
func (s *State) Reap(c *Checkpoint, now calendar.Micros, limit int) (reaped int, err error) {
	prefix := []byte{kindExpiry}
	err = s.scan(prefix, prefix, func(k, _ []byte) (bool, error) {
		if len(k) < 13 {
			return false, fmt.Errorf("expiry entry: %w", errValue)
		}
		at := calendar.Micros(binary.BigEndian.Uint64(k[1:]))
		if at > now || reaped == limit {
			return false, nil
		}
		of := requestKey(binary.BigEndian.Uint32(k[9:]), string(k[13:]))
		_, expires, err := s.request(of)
		if err != nil {
			return false, err
		}
		if expires == at {
			c.remove(of)
		}
		c.remove(append([]byte{}, k...))
		reaped++
		return true, nil
	})
	return reaped, err
}

// remove takes an entry out. A batch in memory cannot fail to.
func (c *Checkpoint) remove(key []byte) {
	if err := c.b.Delete(key, nil); err != nil {
		panic(fmt.Sprintf("state: batch refuses to take an entry out: %v", err))
	}
}
