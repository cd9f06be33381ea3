package amount

import (
	"errors"
	"math/bits"
)

// The first bytes of the three shapes, and where each shape's integers begin.
const (
	tagPair   = 0x80
	tagScaled = 0xc0
	tagNone   = 0xe0
	signBit   = 0x10
	scaleMask = 0x0f

	pairFirst   = 128
	scaledFirst = pairFirst + 1<<14

	// maxVarint is the bytes of a number below 10^38 < 2^127; the last of
	// them then holds the single bit 126.
	maxVarint  = 19
	lastVarint = 1
)

var (
	errTruncated    = errors.New("amount: encoding is cut short")
	errNotCanonical = errors.New("amount: bytes are not an encoding of a number")
)

// AppendBinary appends the binary form of a, 1 to 20 bytes.
//
// Most quantities are small integers or have few decimals, so an Amount is
// written as ±n/10^s with the smallest s in 0…12 that holds it (n ends in 0
// only if s = 0), in one of three shapes distinguished by the first byte:
//
//	0xxxxxxx                   the integer x, 0…127
//	10xxxxxx xxxxxxxx          the integer 128+x (big endian), 128…16511
//	110gssss  n as a varint    ±n/10^s, negative if g = 1; any other value
//
// The varint holds 7 bits a byte, lowest first, with the top bit set on all
// but the last byte, which is not 0; it takes at most 19 bytes. First bytes
// from 0xe0 and scales above 12 are unassigned.
//
// Each value has exactly one encoding and no encoding is a prefix of another,
// so equal Amounts are equal bytes and hashes may be taken over them. The order
// of the bytes is not the order of the numbers.
func AppendBinary(dst []byte, a Amount) []byte {
	neg, hi, lo := a.magnitude()
	hi, lo, fraction := div(hi, lo, unit)
	if fraction == 0 && hi == 0 && lo < scaledFirst && !neg {
		if lo < pairFirst {
			return append(dst, byte(lo))
		}
		x := lo - pairFirst
		return append(dst, tagPair|byte(x>>8), byte(x))
	}
	scale := 0
	if fraction != 0 {
		fraction, scale = trim(fraction)
		hi, lo = mul(hi, lo, pow10[scale])
		var carry uint64
		lo, carry = bits.Add64(lo, fraction, 0)
		hi += carry
	}
	tag := byte(tagScaled | scale)
	if neg {
		tag |= signBit
	}
	return appendVarint(append(dst, tag), hi, lo)
}

// ReadBinary reads the Amount that src begins with and returns how many bytes
// it took. It refuses whatever AppendBinary does not write; a value out of
// range is ErrRange.
func ReadBinary(src []byte) (Amount, int, error) {
	if len(src) == 0 {
		return Amount{}, 0, errTruncated
	}
	tag := src[0]
	switch {
	case tag < tagPair:
		return whole(uint64(tag)), 1, nil
	case tag < tagScaled:
		if len(src) < 2 {
			return Amount{}, 0, errTruncated
		}
		return whole(pairFirst + uint64(tag&^tagPair)<<8 + uint64(src[1])), 2, nil
	case tag >= tagNone || tag&scaleMask > Decimals:
		return Amount{}, 0, errNotCanonical
	}
	hi, lo, n, err := readVarint(src[1:])
	if err != nil {
		return Amount{}, 0, err
	}
	a, err := scaled(tag&signBit != 0, int(tag&scaleMask), hi, lo)
	if err != nil {
		return Amount{}, 0, err
	}
	return a, 1 + n, nil
}

// whole returns a small integer of the first two shapes.
func whole(n uint64) Amount { return Amount{lo: n * unit} }

// scaled returns ±n/10^scale, refusing what has a shorter encoding.
func scaled(neg bool, scale int, hi, lo uint64) (Amount, error) {
	// n·10^(12-scale) < 10^38 is judged before multiplying: n < 10^(26+scale).
	limitHi, limitLo := bits.Mul64(pow10[shortText], pow10[maxDigits-Decimals-shortText+scale])
	if hi > limitHi || hi == limitHi && lo >= limitLo {
		return Amount{}, ErrRange
	}
	if scale == 0 && !neg && hi == 0 && lo < scaledFirst {
		return Amount{}, errNotCanonical
	}
	if scale > 0 {
		if _, _, last := div(hi, lo, 10); last == 0 {
			return Amount{}, errNotCanonical
		}
	}
	hi, lo = mul(hi, lo, pow10[Decimals-scale])
	return signed(neg, hi, lo), nil
}

func appendVarint(dst []byte, hi, lo uint64) []byte {
	for hi != 0 || lo >= 0x80 {
		dst = append(dst, byte(lo)|0x80)
		lo = lo>>7 | hi<<57
		hi >>= 7
	}
	return append(dst, byte(lo))
}

func readVarint(src []byte) (hi, lo uint64, n int, err error) {
	for i, c := range src {
		if i == maxVarint-1 && c > lastVarint {
			return 0, 0, 0, ErrRange
		}
		x, shift := uint64(c&0x7f), uint(7*i)
		lo |= x << shift
		if shift < 64 {
			hi |= x >> (64 - shift)
		} else {
			hi |= x << (shift - 64)
		}
		if c < 0x80 {
			if c == 0 {
				return 0, 0, 0, errNotCanonical
			}
			return hi, lo, i + 1, nil
		}
	}
	return 0, 0, 0, errTruncated
}
