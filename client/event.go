package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Event is one usage event, or a correction of one.
type Event struct {
	// ID is the event's identity, 1 to 255 bytes. See the package comment for
	// what happens when it is empty.
	ID string
	// Meter feeds one meter; Type instead feeds every meter of that event type.
	Meter, Type string
	Customer    string
	Resource    string
	// Time is kept to the microsecond. Zero means the server's now.
	Time time.Time
	// Quantity is 1 when empty. A count meter takes no other, and a meter
	// with a value_property none at all.
	Quantity   Decimal
	Properties Properties
	// Corrects is the id of the event that this one corrects, for the given
	// Reason. It takes a key with the scope billing.
	Corrects, Reason string
}

// Properties are flat: strings, booleans, nil, integers, Decimal and
// json.Number. Floats are refused, because a property may be what is billed.
// Numbers in answers are json.Number.
type Properties map[string]any

// UnmarshalJSON keeps numbers digit by digit.
func (p *Properties) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return err
	}
	*p = m
	return nil
}

// MarshalJSON writes the event as the API takes it.
func (e Event) MarshalJSON() ([]byte, error) { return e.appendJSON(nil) }

// appendJSON is written by hand because encoding is most of what a busy sender
// does, and because encoding/json replaces bad UTF-8 in silence, which
// could make two ids one.
func (e *Event) appendJSON(b []byte) ([]byte, error) {
	b = append(b, '{')
	var err error
	for _, f := range [...]struct{ name, value string }{
		{"id", e.ID}, {"meter", e.Meter}, {"type", e.Type}, {"customer", e.Customer}, {"resource", e.Resource},
		{"quantity", string(e.Quantity)}, {"corrects", e.Corrects}, {"reason", e.Reason},
	} {
		if f.value == "" {
			continue
		}
		b = appendName(b, f.name)
		if b, err = appendString(b, f.value); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if !e.Time.IsZero() {
		t := e.Time.UTC()
		if y := t.Year(); y < 0 || y > 9999 {
			return nil, fmt.Errorf("time: year %d has no RFC 3339 form", y)
		}
		b = append(appendName(b, "time"), '"')
		b = append(t.AppendFormat(b, time.RFC3339Nano), '"')
	}
	if len(e.Properties) > 0 {
		if b, err = e.Properties.appendJSON(appendName(b, "properties")); err != nil {
			return nil, fmt.Errorf("properties: %w", err)
		}
	}
	return append(b, '}'), nil
}

func (p Properties) appendJSON(b []byte) ([]byte, error) {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(p)) {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendString(b, name); err != nil {
			return nil, fmt.Errorf("a name: %w", err)
		}
		if b, err = appendScalar(append(b, ':'), p[name]); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
	return append(b, '}'), nil
}

func appendScalar(b []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...), nil
	case string:
		return appendString(b, v)
	case Decimal:
		return appendString(b, string(v))
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case int32:
		return strconv.AppendInt(b, int64(v), 10), nil
	case uint:
		return strconv.AppendUint(b, uint64(v), 10), nil
	case uint64:
		return strconv.AppendUint(b, v, 10), nil
	case uint32:
		return strconv.AppendUint(b, uint64(v), 10), nil
	case json.Number:
		number, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		return append(b, number...), nil
	case float32, float64:
		return nil, errors.New("a float is not exact: use Decimal or json.Number")
	}
	return nil, fmt.Errorf("%T is not a flat value", value)
}

func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func appendString(b []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return appendEscaped(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"'), nil
}

func appendEscaped(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, errors.New("not valid UTF-8")
	}
	quoted, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return append(b, quoted...), nil
}
