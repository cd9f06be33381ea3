package eventjson

import "unsafe"

// peek passes over white space and returns the next byte, or 0 at the end. It does not take it.
func (d *decoder) peek() byte {
	for ; d.pos < len(d.body); d.pos++ {
		c := d.body[d.pos]
		if c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

// open takes the bracket at pos.
func (d *decoder) open() bool {
	if d.depth == MaxDepth {
		return d.fail(d.pos, "values nest deeper than %d", MaxDepth)
	}
	d.depth++
	d.pos++
	return true
}

// closes takes the closing bracket of an empty object or array, if that is what follows.
func (d *decoder) closes(bracket byte) bool {
	if d.peek() != bracket {
		return false
	}
	d.depth--
	d.pos++
	return true
}

// more takes the comma, after which there is another member or element, or the closing bracket.
func (d *decoder) more(bracket byte) (again, ok bool) {
	switch d.peek() {
	case ',':
		d.pos++
		return true, true
	case bracket:
		d.depth--
		d.pos++
		return false, true
	}
	return false, d.unexpected("a comma or " + string(rune(bracket)))
}

// name takes a member's name and its colon.
func (d *decoder) name() (text string, at int, ok bool) {
	if d.peek() != '"' {
		return "", 0, d.unexpected("a name in double quotes")
	}
	at = d.pos
	text, ok = d.text()
	if !ok {
		return "", 0, false
	}
	if d.peek() != ':' {
		return "", 0, d.unexpected("a colon")
	}
	d.pos++
	return text, at, true
}

// text takes the string at pos, decoded. Without escapes it shares memory with the body.
func (d *decoder) text() (string, bool) {
	raw, form := d.str()
	if form <= plain {
		return raw, form == plain
	}
	return string(unescape(make([]byte, 0, len(raw)), raw)), true
}

// slice returns body[from:to] without copying it.
func (d *decoder) slice(from, to int) string {
	b := d.body[from:to]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// number takes the number at pos and returns its text.
func (d *decoder) number() (string, bool) {
	b, start := d.body, d.pos
	i := start
	if i < len(b) && b[i] == '-' {
		i++
	}
	first := i
	i = digits(b, i)
	if i > first+1 && b[first] == '0' {
		d.pos = first + 1
		return "", d.fail(d.pos, "a number must not have leading zeros")
	}
	ok := i > first
	if ok && i < len(b) && b[i] == '.' {
		first = i + 1
		i = digits(b, first)
		ok = i > first
	}
	if ok && i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		first = i
		i = digits(b, first)
		ok = i > first
	}
	d.pos = i
	if !ok {
		return "", d.unexpected("a digit")
	}
	return d.slice(start, i), true
}

func digits(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

// literal takes true, false or null.
func (d *decoder) literal() (string, bool) {
	for _, word := range [...]string{"true", "false", "null"} {
		end := d.pos + len(word)
		if end <= len(d.body) && string(d.body[d.pos:end]) == word {
			d.pos = end
			return word, true
		}
	}
	return "", d.unexpected("a value")
}

// skip passes over any value, checking all of it.
func (d *decoder) skip() bool {
	switch c := d.peek(); {
	case c == '"':
		_, form := d.str()
		return form != broken
	case c == '{':
		return d.skipObject()
	case c == '[':
		return d.skipArray()
	case c == '-' || isDigit(c):
		_, ok := d.number()
		return ok
	}
	_, ok := d.literal()
	return ok
}

func (d *decoder) skipObject() bool {
	if !d.open() {
		return false
	}
	base := len(d.names)
	for again := !d.closes('}'); again; {
		text, at, ok := d.name()
		if !ok {
			return false
		}
		if !d.remember(text, at) || !d.skip() {
			return false
		}
		if again, ok = d.more('}'); !ok {
			return false
		}
	}
	return d.distinct(base)
}

func (d *decoder) skipArray() bool {
	if !d.open() {
		return false
	}
	for again := !d.closes(']'); again; {
		if !d.skip() {
			return false
		}
		var ok bool
		if again, ok = d.more(']'); !ok {
			return false
		}
	}
	return true
}
