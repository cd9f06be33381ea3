package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
)

// Seal hashes the sealed totals of a closed period. Sealed totals never change, so the seal can be taken at any time
// after the close and is always the same.
type Seal struct {
	sum hash.Hash
	buf []byte
}

const sealVersion = 1

// NewSeal starts the seal of a period that was closed by row seq.
func NewSeal(m calendar.Month, seq uint64) *Seal {
	s := &Seal{sum: sha256.New()}
	b := append(s.buf, "tallystick seal"...)
	b = append(b, sealVersion)
	b = binary.AppendVarint(b, int64(m))
	b = binary.AppendUvarint(b, seq)
	s.sum.Write(b)
	return s
}

// Add takes the next counter, in order of meter slug, then customer. A counter that was empty at the close is left out.
func (s *Seal) Add(meter, customer string, sealed amount.Amount) {
	b := appendString(s.buf[:0], meter)
	b = appendString(b, customer)
	s.buf = amount.AppendBinary(b, sealed)
	s.sum.Write(s.buf)
}

// Sum is the seal.
func (s *Seal) Sum() [sha256.Size]byte { return [sha256.Size]byte(s.sum.Sum(nil)) }
