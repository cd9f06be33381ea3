package postgres

import (
	"encoding/binary"
	"errors"

	"github.com/tallystick/tallystick/internal/core/amount"
)

// A numeric on the wire is a count of base-10000 digits, the weight of the first, sign and scale, and the digits.
const (
	numericHeader   = 8
	numericNegative = 0x4000
	groupDigits     = 4
)

var errNumeric = errors.New("not a decimal that a ledger holds")

// appendNumeric writes an amount as a numeric with 12 decimals.
func appendNumeric(b []byte, v amount.Amount) []byte {
	var buf [48]byte
	text := v.AppendText(buf[:0])
	sign := uint16(0)
	if text[0] == '-' {
		sign, text = numericNegative, text[1:]
	}
	whole := len(text)
	for i, c := range text {
		if c == '.' {
			whole = i
			break
		}
	}
	at := len(b)
	b = append(b, make([]byte, numericHeader)...)
	weight, count := (whole+groupDigits-1)/groupDigits-1, 0
	// The first group of the whole part may be shorter than the others.
	for i, end := 0, (whole-1)%groupDigits+1; i < whole; end += groupDigits {
		d := uint16(0)
		for ; i < end; i++ {
			d = d*10 + uint16(text[i]-'0')
		}
		if d == 0 && count == 0 {
			weight--
			continue
		}
		b = binary.BigEndian.AppendUint16(b, d)
		count++
	}
	for i := whole + 1; i < len(text); i += groupDigits {
		d := uint16(0)
		for j := i; j < i+groupDigits; j++ {
			d *= 10
			if j < len(text) {
				d += uint16(text[j] - '0')
			}
		}
		if d == 0 && count == 0 {
			weight--
			continue
		}
		b = binary.BigEndian.AppendUint16(b, d)
		count++
	}
	if count == 0 {
		weight, sign = 0, 0
	}
	binary.BigEndian.PutUint16(b[at:], uint16(count))
	binary.BigEndian.PutUint16(b[at+2:], uint16(int16(weight)))
	binary.BigEndian.PutUint16(b[at+4:], sign)
	binary.BigEndian.PutUint16(b[at+6:], amount.Decimals)
	return b
}

// readNumeric reads any numeric that an amount can hold.
func readNumeric(b []byte) (amount.Amount, error) {
	if len(b) < numericHeader || len(b)%2 != 0 {
		return amount.Zero, errNumeric
	}
	count, weight := int(binary.BigEndian.Uint16(b)), int(int16(binary.BigEndian.Uint16(b[2:])))
	sign := binary.BigEndian.Uint16(b[4:])
	// A numeric(38,12) has at most 7 groups before the point and 3 after it.
	if len(b) != numericHeader+2*count || sign != 0 && sign != numericNegative || weight > 7 || weight < -4 ||
		count > 12 {
		return amount.Zero, errNumeric
	}
	digit := func(w int) uint16 { // of the group with that weight
		if i := weight - w; i >= 0 && i < count {
			return binary.BigEndian.Uint16(b[numericHeader+2*i:])
		}
		return 0
	}
	var buf [64]byte
	text := buf[:0]
	if sign != 0 {
		text = append(text, '-')
	}
	first := true
	for w := max(weight, 0); w >= 0; w-- {
		text = appendGroup(text, digit(w), first)
		first = false
	}
	if last := weight - count + 1; last < 0 {
		text = append(text, '.')
		for w := -1; w >= last; w-- {
			text = appendGroup(text, digit(w), false)
		}
	}
	return amount.Parse(string(text))
}

// appendGroup writes four digits; the first group goes without leading zeros.
func appendGroup(text []byte, d uint16, first bool) []byte {
	started := !first
	for _, p := range [...]uint16{1000, 100, 10, 1} {
		c := d / p % 10
		if c != 0 || started || p == 1 {
			text, started = append(text, '0'+byte(c)), true
		}
	}
	return text
}
