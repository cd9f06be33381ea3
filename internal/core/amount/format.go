package amount

import "strconv"

// longestText is the sign, 26 digits, the point and 12 decimals.
const longestText = 40

// String returns a in plain decimal: no exponent, no superfluous zeros.
// Parse(a.String()) is a.
func (a Amount) String() string {
	var buf [longestText]byte
	return string(a.AppendText(buf[:0]))
}

// AppendText appends what String returns.
func (a Amount) AppendText(dst []byte) []byte {
	neg, hi, lo := a.magnitude()
	hi, lo, fraction := div(hi, lo, unit)
	if neg {
		dst = append(dst, '-')
	}
	// Below 10^26, so two 64-bit parts of 19 decimal digits always suffice.
	if _, upper, lower := div(hi, lo, pow10[shortText]); upper != 0 {
		dst = strconv.AppendUint(dst, upper, 10)
		dst = appendPadded(dst, lower, shortText)
	} else {
		dst = strconv.AppendUint(dst, lower, 10)
	}
	if fraction == 0 {
		return dst
	}
	digits, decimals := trim(fraction)
	dst = append(dst, '.')
	return appendPadded(dst, digits, decimals)
}

// trim takes a fraction in counts, not 0 and below one, to the fewest decimals
// that hold it: fraction = digits·10^(12-decimals), digits not ending in 0.
func trim(fraction uint64) (digits uint64, decimals int) {
	digits, decimals = fraction, Decimals
	for digits%1000 == 0 {
		digits /= 1000
		decimals -= 3
	}
	for digits%10 == 0 {
		digits /= 10
		decimals--
	}
	return digits, decimals
}

// appendPadded appends n in exactly width digits; n must have no more.
func appendPadded(dst []byte, n uint64, width int) []byte {
	for k := width - 1; k > 0 && n < pow10[k]; k-- {
		dst = append(dst, '0')
	}
	return strconv.AppendUint(dst, n, 10)
}
