package amount

import "math/bits"

const (
	// maxText bounds the input of Parse. The longest Amount prints in 40
	// bytes; the rest is room for exponents and superfluous zeros.
	maxText = 64

	// shortText is the longest unsigned text whose digits surely fit 64 bits.
	shortText = 19

	// maxDigits is the number of digits of the largest count, 10^38-1.
	maxDigits = 38

	// maxExponent is where reading an exponent stops counting: a text of
	// maxText bytes cannot bring a larger one back into range.
	maxExponent = 10_000
)

// Parse reads a number in the grammar of JSON, exactly or not at all:
// ErrSyntax for anything else or more than 64 bytes, ErrRange for a magnitude
// of 10^26 or more, and ErrPrecision for a number that needs more than 12
// decimals. It does not keep s.
func Parse(s string) (Amount, error) {
	if a, ok := parseShort(s); ok {
		return a, nil
	}
	return parseLong(s, false)
}

// ParseRounded is Parse with excess decimals rounded half even instead of
// refused. ErrRange is judged after rounding.
func ParseRounded(s string) (Amount, error) {
	if a, ok := parseShort(s); ok {
		return a, nil
	}
	return parseLong(s, true)
}

// parseShort reads nearly all numbers met in practice in one pass over 64-bit
// words. Whatever it declines, valid or not, is judged by parseLong.
func parseShort(s string) (Amount, bool) {
	neg := len(s) > 0 && s[0] == '-'
	if neg {
		s = s[1:]
	}
	if len(s) == 0 || len(s) > shortText {
		return Amount{}, false
	}
	var n uint64
	i := 0
	for ; i < len(s) && isDigit(s[i]); i++ {
		n = n*10 + uint64(s[i]-'0')
	}
	if i == 0 || i > 1 && s[0] == '0' {
		return Amount{}, false
	}
	scale := uint64(unit)
	if i < len(s) {
		if s[i] != '.' {
			return Amount{}, false
		}
		point := i
		for i++; i < len(s) && isDigit(s[i]); i++ {
			n = n*10 + uint64(s[i]-'0')
		}
		decimals := i - point - 1
		if i < len(s) || decimals == 0 || decimals > Decimals {
			return Amount{}, false
		}
		scale = pow10[Decimals-decimals]
	}
	hi, lo := bits.Mul64(n, scale)
	return signed(neg, hi, lo), true
}

// parseLong decides every text. The number is digits·10^exp counts, with no
// zero at either end of digits: then the count's length alone decides the
// range, and any negative exponent means lost decimals.
func parseLong(s string, round bool) (Amount, error) {
	var d decimal
	if len(s) > maxText || !d.scan(s) {
		return Amount{}, ErrSyntax
	}
	digits := d.digits[:d.n]
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
	}
	exp := d.exp + Decimals
	for len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		exp++
	}
	if len(digits) == 0 {
		return Amount{}, nil
	}
	if len(digits)+exp > maxDigits {
		return Amount{}, ErrRange
	}
	if exp >= 0 {
		hi, lo := count(digits)
		for ; exp > shortText; exp -= shortText {
			hi, lo = mul(hi, lo, pow10[shortText])
		}
		hi, lo = mul(hi, lo, pow10[exp])
		return signed(d.neg, hi, lo), nil
	}
	if !round {
		return Amount{}, ErrPrecision
	}
	return roundHalfEven(d.neg, digits, len(digits)+exp)
}

// roundHalfEven keeps the first keep of digits. The last digit is not zero, so
// more than one dropped digit is never exactly half.
func roundHalfEven(neg bool, digits []byte, keep int) (Amount, error) {
	if keep < 0 {
		return Amount{}, nil // below a tenth of a count
	}
	hi, lo := count(digits[:keep])
	next, more := digits[keep], len(digits) > keep+1
	if next > '5' || next == '5' && (more || lo&1 == 1) {
		var carry uint64
		lo, carry = bits.Add64(lo, 1, 0)
		hi += carry
	}
	if !inRange(hi, lo) {
		return Amount{}, ErrRange
	}
	return signed(neg, hi, lo), nil
}

// count returns the value of at most maxDigits digits.
func count(digits []byte) (hi, lo uint64) {
	head := digits[:min(len(digits), shortText)]
	tail := digits[len(head):]
	hi, lo = bits.Mul64(word(head), pow10[len(tail)])
	lo, carry := bits.Add64(lo, word(tail), 0)
	return hi + carry, lo
}

// word returns the value of at most shortText digits.
func word(digits []byte) (n uint64) {
	for _, c := range digits {
		n = n*10 + uint64(c-'0')
	}
	return n
}

// decimal is a scanned number: ±digits[:n]·10^exp.
type decimal struct {
	neg    bool
	n      int
	exp    int
	digits [maxText]byte
}

// scan fills d from a text of at most maxText bytes and reports whether all of
// it is one JSON number.
func (d *decimal) scan(s string) bool {
	i := 0
	if i < len(s) && s[i] == '-' {
		d.neg = true
		i++
	}
	whole := i
	i = skipDigits(s, i)
	if i == whole || i > whole+1 && s[whole] == '0' {
		return false
	}
	d.n = copy(d.digits[:], s[whole:i])
	if i < len(s) && s[i] == '.' {
		fraction := i + 1
		i = skipDigits(s, fraction)
		if i == fraction {
			return false
		}
		d.n += copy(d.digits[d.n:], s[fraction:i])
		d.exp = fraction - i
	}
	if i == len(s) {
		return true
	}
	if s[i] != 'e' && s[i] != 'E' {
		return false
	}
	exp, ok := scanExponent(s[i+1:])
	d.exp += exp
	return ok
}

// scanExponent reads what follows the e, saturating at maxExponent or a little
// above it.
func scanExponent(s string) (exp int, ok bool) {
	neg := false
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if len(s) == 0 || skipDigits(s, 0) != len(s) {
		return 0, false
	}
	for i := 0; i < len(s) && exp < maxExponent; i++ {
		exp = exp*10 + int(s[i]-'0')
	}
	if neg {
		exp = -exp
	}
	return exp, true
}

func skipDigits(s string, i int) int {
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return c-'0' <= 9 }
