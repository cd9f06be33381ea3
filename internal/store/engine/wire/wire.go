// Package wire takes apart the bytes that the engine's files are made of: journal records and entries of the state. It
// owns no format; it reads the numbers that formats are built from and remembers when they do not fit.
package wire

import (
	"encoding/binary"

	"github.com/tallystick/tallystick/internal/core/amount"
)

// Reader reads from the front of Rest. What does not fit sets Bad and reads as zero, so that a decoder checks once, at
// the end.
type Reader struct {
	Rest []byte
	Bad  bool
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.Rest) == 0 {
		r.Bad = true
		return 0
	}
	c := r.Rest[0]
	r.Rest = r.Rest[1:]
	return c
}

// Uvarint reads an unsigned number.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Bad = true
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Varint reads a signed number.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Rest)
	if n <= 0 {
		r.Bad = true
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Amount reads an amount.
func (r *Reader) Amount() amount.Amount {
	v, n, err := amount.ReadBinary(r.Rest)
	if err != nil {
		r.Bad = true
		return amount.Zero
	}
	r.Rest = r.Rest[n:]
	return v
}

// Take reads n bytes, which share the reader's memory.
func (r *Reader) Take(n uint64) []byte {
	if n > uint64(len(r.Rest)) {
		r.Bad = true
		return nil
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}
