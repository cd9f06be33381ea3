package eventjson

import (
	"errors"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// field is a bit for each field of a usage event.
type field uint16

const (
	fieldID field = 1 << iota
	fieldMeter
	fieldType
	fieldCustomer
	fieldResource
	fieldTime
	fieldQuantity
	fieldProperties
	fieldCorrects
	fieldReason
	fieldUnknown field = 0
)

func fieldOf(name string) field {
	switch name {
	case "id":
		return fieldID
	case "meter":
		return fieldMeter
	case "type":
		return fieldType
	case "customer":
		return fieldCustomer
	case "resource":
		return fieldResource
	case "time":
		return fieldTime
	case "quantity":
		return fieldQuantity
	case "properties":
		return fieldProperties
	case "corrects":
		return fieldCorrects
	case "reason":
		return fieldReason
	}
	return fieldUnknown
}

// event reads the usage event at pos.
func (d *decoder) event(ev *usage.Event) bool {
	if !d.open() {
		return false
	}
	base := len(d.names)
	var seen field
	for again := !d.closes('}'); again; {
		text, at, ok := d.name()
		if !ok {
			return false
		}
		f := fieldOf(text)
		if f == fieldUnknown {
			ok = d.unknown(ev, text, at)
		} else if seen&f != 0 {
			return d.duplicate(text, at)
		} else {
			seen |= f
			ok = d.field(ev, f)
		}
		if !ok {
			return false
		}
		if again, ok = d.more('}'); !ok {
			return false
		}
	}
	return d.distinct(base)
}

// field reads the value of a known field.
func (d *decoder) field(ev *usage.Event, f field) bool {
	switch f {
	case fieldID:
		return d.stringField(ev, "id", &ev.ID, 0)
	case fieldMeter:
		return d.stringField(ev, "meter", &ev.Meter, usage.GivenMeter)
	case fieldType:
		return d.stringField(ev, "type", &ev.Type, usage.GivenType)
	case fieldCustomer:
		return d.stringField(ev, "customer", &ev.Customer, usage.GivenCustomer)
	case fieldResource:
		return d.stringField(ev, "resource", &ev.Resource, usage.GivenResource)
	case fieldTime:
		return d.timeField(ev)
	case fieldQuantity:
		return d.quantityField(ev)
	case fieldProperties:
		return d.propertiesField(ev, "properties")
	case fieldCorrects:
		return d.stringField(ev, "corrects", &ev.Corrects, 0)
	default:
		return d.stringField(ev, "reason", &ev.Reason, 0)
	}
}

// unknown refuses the event for a field that it does not have: a misspelled quantity must not bill 1.
func (d *decoder) unknown(ev *usage.Event, text string, at int) bool {
	if d.outermost && text == batchMember {
		return d.fail(at, "an object with the member events must have no other member")
	}
	invalid(ev, brief(text), "unknown field")
	return d.remember(text, at) && d.skip()
}

// stringField reads a string that says something. Empty is refused rather than taken as absent: it is what a sender's
// missing variable looks like.
func (d *decoder) stringField(ev *usage.Event, path string, to *string, given usage.Given) bool {
	if d.peek() != '"' {
		return d.wrongType(ev, path, "a string")
	}
	text, ok := d.text()
	if !ok {
		return false
	}
	if text == "" {
		invalid(ev, path, "must not be empty")
		return true
	}
	*to = text
	ev.Given |= given
	return true
}

// quantityField reads a number or a string that holds one.
func (d *decoder) quantityField(ev *usage.Event) bool {
	var text string
	var ok bool
	switch c := d.peek(); {
	case c == '"':
		text, ok = d.text()
	case c == '-' || isDigit(c):
		text, ok = d.number()
	default:
		return d.wrongType(ev, "quantity", "a number or a string that holds one")
	}
	if !ok {
		return false
	}
	quantity, err := amount.Parse(text)
	if err == nil {
		ev.Quantity = quantity
		ev.Given |= usage.GivenQuantity
		return true
	}
	if errors.Is(err, amount.ErrPrecision) {
		text, err = unrounded(text)
	}
	if err != nil {
		invalid(ev, "quantity", "%v", err)
		return true
	}
	ev.Quantity = amount.Zero
	ev.Unrounded = text
	ev.Given |= usage.GivenQuantity
	return true
}

// unrounded returns the canonical text of a number with too many decimals, so that equal quantities have equal content.
func unrounded(number string) (string, error) {
	if properties.CanonicalNumber(number) {
		return number, nil
	}
	canonical, err := properties.AppendNumber(nil, number)
	return string(canonical), err
}
