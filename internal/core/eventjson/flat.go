package eventjson

import (
	"unsafe"

	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// propertiesField reads a flat object into the event's properties. Properties that are canonical already are taken as
// they stand; others are read again and rewritten.
func (d *decoder) propertiesField(ev *usage.Event, path string) bool {
	if d.peek() != '{' {
		return d.wrongType(ev, path, "an object")
	}
	start, depth := d.pos, d.depth
	text, ok := d.canonical()
	if d.fault != nil {
		return false
	}
	if !ok {
		d.pos, d.depth = start, depth
		if text, ok = d.rewritten(ev, path); !ok {
			return false
		}
	}
	if len(text) > usage.MaxProperties {
		invalid(ev, path, "at most %d bytes, these have %d", usage.MaxProperties, len(text))
		return true
	}
	if text != "" {
		ev.Properties = text
		ev.Given |= usage.GivenProperties
	}
	return true
}

// canonical takes the object at pos if it is canonical already. Names in rising order are distinct. It gives up at the
// first thing that is not canonical, names with escapes included, unless that is a fault.
func (d *decoder) canonical() (string, bool) {
	start := d.pos
	if !d.open() {
		return "", false
	}
	last := ""
	for n := range properties.MaxMembers {
		if !d.at('"') {
			return "", false
		}
		name, form := d.str()
		if form != plain || n > 0 && name <= last || !d.at(':') {
			return "", false
		}
		last = name
		d.pos++
		if !d.canonicalValue() {
			return "", false
		}
		if d.at('}') {
			d.depth--
			d.pos++
			return d.slice(start, d.pos), true
		}
		if !d.at(',') {
			return "", false
		}
		d.pos++
	}
	return "", false
}

func (d *decoder) at(c byte) bool { return d.pos < len(d.body) && d.body[d.pos] == c }

// canonicalValue takes the value at pos if it is a scalar in its canonical form.
func (d *decoder) canonicalValue() bool {
	if d.pos == len(d.body) {
		return false
	}
	switch c := d.body[d.pos]; {
	case c == '"':
		_, form := d.str()
		return form == plain || form == tidy
	case c == '-' || isDigit(c):
		number, ok := d.number()
		return ok && properties.CanonicalNumber(number)
	case c == 't' || c == 'f' || c == 'n':
		_, ok := d.literal()
		return ok
	}
	return false
}

// rewritten takes the object at pos and returns its canonical text. ok is false only for a fault; an object that is
// refused with the event yields "".
func (d *decoder) rewritten(ev *usage.Event, path string) (text string, ok bool) {
	start, base := d.pos, len(d.names)
	if !d.open() {
		return "", false
	}
	d.members, d.scratch = d.members[:0], d.scratch[:0]
	count, flat := 0, true
	for again := !d.closes('}'); again; count++ {
		text, at, ok := d.name()
		if !ok || !d.remember(text, at) {
			return "", false
		}
		value, ok := d.scalar(ev, path, text)
		if !ok {
			return "", false
		}
		flat = flat && value.Kind != 0
		if count < properties.MaxMembers {
			d.members = append(d.members, properties.Member{Name: text, Value: value})
		}
		if again, ok = d.more('}'); !ok {
			return "", false
		}
	}
	if !d.distinct(base) {
		return "", false
	}
	if count > properties.MaxMembers {
		invalid(ev, path, "at most %d members, these are %d", properties.MaxMembers, count)
		return "", true
	}
	if !flat {
		return "", true
	}
	used := len(d.scratch)
	d.scratch = properties.Append(d.scratch, d.members)
	if canonical := d.scratch[used:]; string(canonical) != string(d.body[start:d.pos]) {
		return string(canonical), true
	}
	return d.slice(start, d.pos), true
}

// scalar reads a property's value; its text may lie in scratch. A value of no kind was refused with the event.
func (d *decoder) scalar(ev *usage.Event, path, name string) (v properties.Value, ok bool) {
	switch c := d.peek(); {
	case c == '"':
		raw, form := d.str()
		if form > plain {
			used := len(d.scratch)
			d.scratch = unescape(d.scratch, raw)
			raw = alias(d.scratch[used:])
		}
		return properties.Value{Kind: properties.String, Text: raw}, form != broken
	case c == '-' || isDigit(c):
		return d.scalarNumber(ev, path, name)
	case c == '{' || c == '[':
		invalid(ev, path+"."+brief(name), "must be a string, a number, a boolean or null: properties are flat")
		return properties.Value{}, d.skip()
	}
	text, ok := d.literal()
	if text == "null" {
		return properties.Value{Kind: properties.Null, Text: text}, ok
	}
	return properties.Value{Kind: properties.Bool, Text: text}, ok
}

func (d *decoder) scalarNumber(ev *usage.Event, path, name string) (v properties.Value, ok bool) {
	number, ok := d.number()
	if !ok {
		return v, false
	}
	if !properties.CanonicalNumber(number) {
		used := len(d.scratch)
		canonical, err := properties.AppendNumber(d.scratch, number)
		if err != nil {
			invalid(ev, path+"."+brief(name), "%v", err)
			return v, true
		}
		d.scratch = canonical
		number = alias(d.scratch[used:])
	}
	return properties.Value{Kind: properties.Number, Text: number}, true
}

// alias is b as a string, for use until b is written to. Growing scratch moves it and leaves b as it was.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
