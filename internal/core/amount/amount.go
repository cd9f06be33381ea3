// Package amount owns the one number type of the ledger: an exact decimal
// with 12 decimals and a magnitude below 10^26, which is PostgreSQL's
// numeric(38,12). Quantities, prices and balances are all Amounts.
//
// It never loses a digit silently: an operation is exact, refuses, or has
// rounding in its name or comment. It never touches a float, allocates only in
// String, and knows nothing of units, currencies or JSON documents.
//
// It exists although decimal libraries do because every fact passes through it
// several times: a value of two words that is compared with ==, added without
// allocating and parsed in nanoseconds is what the ingest path needs, and
// general decimals carry a scale, and often a heap, with each value.
package amount

import (
	"errors"
	"math/bits"
)

// Decimals is the number of decimal places every Amount has.
const Decimals = 12

// unit is the count of 10^-12 in the number one.
const unit = 1_000_000_000_000

// An Amount stays strictly inside ±10^38 counts. Range checks shift a sum up
// by bias = 10^38-1, so that the valid values become [0, span) with
// span = 2·10^38-1, and one unsigned comparison decides.
const (
	biasHi, biasLo = 0x4b3b4ca85a86c47a, 0x098a223fffffffff
	spanHi, spanLo = 0x96769950b50d88f4, 0x1314447fffffffff
)

// What was wrong with a number; the messages are fit for an API's user.
var (
	ErrSyntax    = errors.New("not a decimal number of at most 64 characters")
	ErrPrecision = errors.New("number has more than 12 decimals")
	ErrRange     = errors.New("number is too large: its magnitude must be below 10^26")
)

// Amount is a decimal number counted in units of 10^-12, in 128-bit two's
// complement. The zero value is 0. Equal numbers are equal under ==, so an
// Amount can be a map key.
type Amount struct {
	hi int64
	lo uint64
}

var (
	Zero = Amount{}
	One  = Amount{lo: unit}
)

// FromInt returns n. Every int64 is in range.
func FromInt(n int64) Amount {
	if n < 0 {
		hi, lo := bits.Mul64(-uint64(n), unit)
		return signed(true, hi, lo)
	}
	hi, lo := bits.Mul64(uint64(n), unit)
	return Amount{int64(hi), lo}
}

// Add returns a+b, or false when its magnitude would reach 10^26.
func (a Amount) Add(b Amount) (Amount, bool) {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(uint64(a.hi), uint64(b.hi), carry)
	if !inRange(hi, lo) {
		return Amount{}, false
	}
	return Amount{int64(hi), lo}, true
}

// Sub returns a-b, or false when its magnitude would reach 10^26.
func (a Amount) Sub(b Amount) (Amount, bool) {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(uint64(a.hi), uint64(b.hi), borrow)
	if !inRange(hi, lo) {
		return Amount{}, false
	}
	return Amount{int64(hi), lo}, true
}

// inRange judges the sum or difference of two Amounts, taken modulo 2^128. The
// true result lies within ±2·10^38 and may have overflowed the sign bit. No
// separate overflow check is needed: shifted by bias, a result above the range
// lies in [span, 3·10^38), short of 2^128 ≈ 3.4·10^38, and one below it wraps
// to at least 2^128-10^38-1 ≈ 2.4·10^38; both are at or past span.
func inRange(hi, lo uint64) bool {
	lo, carry := bits.Add64(lo, biasLo, 0)
	hi, _ = bits.Add64(hi, biasHi, carry)
	_, below := bits.Sub64(lo, spanLo, 0)
	_, below = bits.Sub64(hi, spanHi, below)
	return below != 0
}

// Neg returns -a. The range is symmetric, so it cannot fail.
func (a Amount) Neg() Amount {
	lo, borrow := bits.Sub64(0, a.lo, 0)
	return Amount{-a.hi - int64(borrow), lo}
}

// Cmp returns -1, 0 or +1 as a is below, equal to or above b.
func (a Amount) Cmp(b Amount) int {
	switch {
	case a == b:
		return 0
	case a.hi < b.hi, a.hi == b.hi && a.lo < b.lo:
		return -1
	default:
		return 1
	}
}

// Sign returns -1, 0 or +1 as a is negative, zero or positive.
func (a Amount) Sign() int {
	switch {
	case a.hi < 0:
		return -1
	case a.hi == 0 && a.lo == 0:
		return 0
	default:
		return 1
	}
}

// IsZero reports whether a is 0.
func (a Amount) IsZero() bool { return a == Amount{} }

// DivInt returns a/n rounded half even to 12 decimals. It panics unless n > 0:
// callers divide by counts they have already found to be positive.
func (a Amount) DivInt(n int64) Amount {
	if n <= 0 {
		panic("amount: DivInt by a count that is not positive")
	}
	neg, hi, lo := a.magnitude()
	hi, lo, rest := div(hi, lo, uint64(n))
	// rest < n < 2^63, so doubling it cannot overflow.
	if twice := 2 * rest; twice > uint64(n) || twice == uint64(n) && lo&1 == 1 {
		var carry uint64
		lo, carry = bits.Add64(lo, 1, 0)
		hi += carry
	}
	return signed(neg, hi, lo)
}

// magnitude splits a into its sign and its absolute count.
func (a Amount) magnitude() (neg bool, hi, lo uint64) {
	if a.hi < 0 {
		b := a.Neg()
		return true, uint64(b.hi), b.lo
	}
	return false, uint64(a.hi), a.lo
}

// signed is the inverse of magnitude; the count must be below 10^38.
func signed(neg bool, hi, lo uint64) Amount {
	a := Amount{int64(hi), lo}
	if neg {
		return a.Neg()
	}
	return a
}

// div returns the 128-bit quotient and the remainder of a count and n.
func div(hi, lo, n uint64) (qhi, qlo, rest uint64) {
	if hi == 0 {
		return 0, lo / n, lo % n
	}
	qhi, rest = hi/n, hi%n
	qlo, rest = bits.Div64(rest, lo, n)
	return qhi, qlo, rest
}

// mul returns a count times n; the product must be below 2^128.
func mul(hi, lo, n uint64) (phi, plo uint64) {
	phi, plo = bits.Mul64(lo, n)
	return phi + hi*n, plo
}

// pow10 holds the powers of ten that fit 64 bits.
var pow10 = [20]uint64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9,
	1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
}
