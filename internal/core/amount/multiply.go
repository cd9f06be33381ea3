package amount

import "math/bits"

// Smallest is the least amount above zero.
var Smallest = Amount{lo: 1}

// Mul returns a·b rounded toward zero to 12 decimals, and whether it had to be rounded. It reports false when the
// product's magnitude would reach 10^26.
func (a Amount) Mul(b Amount) (product Amount, exact, ok bool) {
	negA, ahi, alo := a.magnitude()
	negB, bhi, blo := b.magnitude()
	// The product of the counts has up to 256 bits, in words from the lowest on.
	var w [4]uint64
	w[1], w[0] = bits.Mul64(alo, blo)
	addAt(&w, 1, ahi, blo)
	addAt(&w, 1, alo, bhi)
	addAt(&w, 2, ahi, bhi)
	rest := uint64(0)
	for i := len(w) - 1; i >= 0; i-- {
		w[i], rest = bits.Div64(rest, w[i], unit)
	}
	if w[3] != 0 || w[2] != 0 || w[1]>>63 != 0 || !inRange(w[1], w[0]) {
		return Amount{}, false, false
	}
	return signed(negA != negB, w[1], w[0]), rest == 0, true
}

// addAt adds x·y at a word. The whole cannot overflow: both factors are below 2^127.
func addAt(w *[4]uint64, at int, x, y uint64) {
	hi, lo := bits.Mul64(x, y)
	var carry uint64
	w[at], carry = bits.Add64(w[at], lo, 0)
	for i := at + 1; i < len(w); i++ {
		w[i], carry = bits.Add64(w[i], hi, carry)
		hi = 0
	}
}
