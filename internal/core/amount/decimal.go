package amount

import "encoding/binary"

// Decimal is an Amount as columnar formats keep a DECIMAL(38,12): the number of 10^-12 in two's complement, big endian.
type Decimal = [16]byte

// Decimal returns a as a DECIMAL(38,12).
func (a Amount) Decimal() (d Decimal) {
	binary.BigEndian.PutUint64(d[:8], uint64(a.hi))
	binary.BigEndian.PutUint64(d[8:], a.lo)
	return d
}

// FromDecimal reads a DECIMAL(38,12); it reports false for one of more than 38 digits.
func FromDecimal(d *Decimal) (Amount, bool) {
	hi, lo := binary.BigEndian.Uint64(d[:8]), binary.BigEndian.Uint64(d[8:])
	return Amount{int64(hi), lo}, inRange(hi, lo)
}
