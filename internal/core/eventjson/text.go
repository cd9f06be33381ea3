package eventjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// form says what stands between the quotes of a string.
type form uint8

const (
	broken  form = iota // not a string; fault is set
	plain               // no escapes: the text is the string
	tidy                // only the escapes that the canonical form has
	escaped             // others too
)

const (
	ones  = 0x0101010101010101
	highs = ones * 0x80
)

// str takes the string at pos and returns what stands between its quotes, escapes and all. It looks at eight bytes at a
// time until one of them is special; most strings end there.
func (d *decoder) str() (raw string, f form) {
	b := d.body
	start := d.pos + 1
	i := start
	for i+8 <= len(b) {
		word := binary.LittleEndian.Uint64(b[i:])
		quote := word ^ ones*'"'
		backslash := word ^ ones*'\\'
		// A high bit is set for the first byte that is a quote, a backslash, below space or not ASCII. Bytes after it
		// may be marked by a borrow; they are not looked at.
		special := ((word-ones*' ')&^word | (quote-ones)&^quote | (backslash-ones)&^backslash | word) & highs
		if special == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(special) / 8
		if b[i] == '"' {
			d.pos = i + 1
			return d.slice(start, i), plain
		}
		break
	}
	return d.slowStr(start, i)
}

// slowStr goes on with the string from i byte by byte.
func (d *decoder) slowStr(start, i int) (raw string, f form) {
	b := d.body
	f = plain
	ascii := true
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			if !ascii && !utf8.Valid(b[start:i]) {
				d.fail(start+validPrefix(b[start:i]), "the text is not valid UTF-8")
				return "", broken
			}
			d.pos = i + 1
			return d.slice(start, i), f
		case c == '\\':
			n, form := d.escape(i)
			if form == broken {
				return "", broken
			}
			f = max(f, form)
			i += n
		case c < ' ':
			d.fail(i, "a string must not hold the control character %#02x", c)
			return "", broken
		default:
			ascii = ascii && c < utf8.RuneSelf
			i++
		}
	}
	d.pos = i
	d.unexpected("the end of a string")
	return "", broken
}

// validPrefix returns the length of the valid UTF-8 that text starts with.
func validPrefix(text []byte) int {
	i := 0
	for i < len(text) {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	return i
}

// escape judges the escape at i and returns its length; a surrogate pair is one escape.
func (d *decoder) escape(i int) (n int, f form) {
	var next byte
	if i+1 < len(d.body) {
		next = d.body[i+1]
	}
	switch next {
	case '"', '\\':
		return 2, tidy
	case '/', 'b', 'f', 'n', 'r', 't':
		return 2, escaped
	case 'u':
		return d.unicodeEscape(i)
	}
	d.fail(i, "unknown escape in a string")
	return 0, broken
}

func (d *decoder) unicodeEscape(i int) (n int, f form) {
	r := hex4(d.body, i+2)
	switch {
	case r < 0:
		d.fail(i, `\u needs four hexadecimal digits`)
		return 0, broken
	case !utf16.IsSurrogate(r):
		// Upper-case digits have the bit 0x20 clear where lower-case ones and decimals have it set.
		if r < ' ' && d.body[i+5]&0x20 != 0 {
			return 6, tidy
		}
		return 6, escaped
	}
	if i+7 < len(d.body) && d.body[i+6] == '\\' && d.body[i+7] == 'u' {
		if low := hex4(d.body, i+8); utf16.DecodeRune(r, low) != utf8.RuneError {
			return 12, escaped
		}
	}
	d.fail(i, "lone surrogate in a string")
	return 0, broken
}

// hex4 reads the four hexadecimal digits at i, or returns -1.
func hex4[T []byte | string](b T, i int) rune {
	if i+4 > len(b) {
		return -1
	}
	var r rune
	for _, c := range []byte(b[i : i+4]) {
		switch {
		case isDigit(c):
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unescape appends what raw, which str has accepted, stands for.
func unescape(dst []byte, raw string) []byte {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			continue
		}
		i++
		switch c := raw[i]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(raw, i+1)
			i += 4
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, hex4(raw, i+3))
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
