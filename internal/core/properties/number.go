package properties

import (
	"errors"
	"strings"
)

// MaxDigits bounds a number that is written out. It covers every Amount, every 64-bit integer and the floats that mean
// something; an exponent must not turn a few bytes into a long text.
const MaxDigits = 40

// ErrDigits is returned for a number that needs more than MaxDigits digits.
var ErrDigits = errors.New("number has more than 40 digits when written without an exponent")

// maxExponent is where reading an exponent stops counting: no request is long enough to bring a larger one back into
// range.
const maxExponent = 1 << 40

// CanonicalNumber reports whether a JSON number is written canonically.
func CanonicalNumber(number string) bool {
	digits := strings.TrimPrefix(number, "-")
	if len(digits) > MaxDigits+1 || number == "-0" {
		return false
	}
	point := false
	for i := 0; i < len(digits); i++ {
		switch digits[i] {
		case '.':
			point = true
		case 'e', 'E':
			return false
		}
	}
	if !point {
		return len(digits) <= MaxDigits
	}
	return digits[len(digits)-1] != '0'
}

// AppendNumber writes a JSON number canonically. The text must be in the grammar of JSON; it may be of any length.
func AppendNumber(dst []byte, number string) ([]byte, error) {
	unsigned, negative := strings.CutPrefix(number, "-")
	mantissa, exponent := cutExponent(unsigned)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	whole = strings.TrimLeft(whole, "0")
	exponent += len(whole)
	if whole == "" {
		significant := strings.TrimLeft(fraction, "0")
		exponent -= len(fraction) - len(significant)
		fraction = significant
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction == "" {
		whole = strings.TrimRight(whole, "0")
	}
	// The number is now 0.<whole><fraction> · 10^exponent, with no zero at either end of the digits.
	n := len(whole) + len(fraction)
	if n == 0 {
		return append(dst, '0'), nil
	}
	if written(n, exponent) > MaxDigits {
		return dst, ErrDigits
	}
	if negative {
		dst = append(dst, '-')
	}
	var buf [MaxDigits]byte
	digits := append(append(buf[:0], whole...), fraction...)
	switch {
	case exponent <= 0:
		dst = appendZeros(append(dst, "0."...), -exponent)
		return append(dst, digits...), nil
	case exponent >= n:
		return appendZeros(append(dst, digits...), exponent-n), nil
	default:
		dst = append(append(dst, digits[:exponent]...), '.')
		return append(dst, digits[exponent:]...), nil
	}
}

// written counts the digits of 0.<n digits> · 10^exponent as a plain decimal.
func written(n, exponent int) int {
	if exponent <= 0 {
		return 1 - exponent + n
	}
	return max(n, exponent)
}

func appendZeros(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}

// cutExponent splits a number at its exponent, which saturates at maxExponent or a little above it.
func cutExponent(unsigned string) (mantissa string, exponent int) {
	at := strings.IndexAny(unsigned, "eE")
	if at < 0 {
		return unsigned, 0
	}
	text, negative := strings.CutPrefix(strings.TrimPrefix(unsigned[at+1:], "+"), "-")
	for i := 0; i < len(text) && exponent < maxExponent; i++ {
		exponent = exponent*10 + int(text[i]-'0')
	}
	if negative {
		exponent = -exponent
	}
	return unsigned[:at], exponent
}
