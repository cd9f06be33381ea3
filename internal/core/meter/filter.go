package meter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/tenant"
)

// Bounds of a filter.
const (
	MaxFilterNames  = 8
	MaxFilterValues = 100 // of a name
	MaxFilterValue  = 255 // bytes
)

// ResourceField is the name of a filter that looks at an event's resource; others are properties.<name>.
const ResourceField = "resource"

// Filter says which events of its type a meter takes: those that have, under every name, one of its values. Values are
// canonical strings, numbers and booleans in a fixed order; the string "1" is not the number 1. An empty filter takes
// all. It is not changed in place.
type Filter map[string][]Scalar

// Scalar is a value of a filter.
type Scalar properties.Value

// NewFilter reads a filter from decoded JSON in which numbers are json.Number; null is none.
func NewFilter(decoded any) (Filter, *problem.Error) {
	in, ok := decoded.(map[string]any)
	if !ok && decoded != nil {
		return nil, problem.At("filter", `must be an object like {"properties.model":["gpt-9"]}`)
	}
	if len(in) == 0 {
		return nil, nil
	}
	out := make(Filter, len(in))
	for _, name := range slices.Sorted(maps.Keys(in)) {
		values, ok := in[name].([]any)
		if !ok {
			return nil, problem.At("filter."+name, "must be an array of values")
		}
		for i, v := range values {
			s, wrong := scalar(v)
			if wrong != "" {
				return nil, problem.At(fmt.Sprintf("filter.%s[%d]", name, i), "%s", wrong)
			}
			out[name] = append(out[name], s)
		}
		if len(values) == 0 {
			return nil, problem.At("filter."+name, "needs a value")
		}
		slices.SortFunc(out[name], Scalar.compare)
	}
	return out, nil
}

func scalar(v any) (s Scalar, wrong string) {
	switch v := v.(type) {
	case string:
		return Scalar{Kind: properties.String, Text: v}, ""
	case bool:
		return Scalar{Kind: properties.Bool, Text: fmt.Sprint(v)}, ""
	case json.Number:
		text, err := properties.AppendNumber(nil, v.String())
		if err != nil {
			return s, err.Error()
		}
		return Scalar{Kind: properties.Number, Text: string(text)}, ""
	}
	return s, "must be a string, a number, true or false"
}

func (s Scalar) compare(o Scalar) int {
	if s.Kind != o.Kind {
		return int(s.Kind) - int(o.Kind)
	}
	return strings.Compare(s.Text, o.Text)
}

// check judges the filter's shape.
func (f Filter) check() *problem.Error {
	if len(f) > MaxFilterNames {
		return problem.At("filter", "at most %d names", MaxFilterNames)
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		path, property := "filter."+name, ""
		if name != ResourceField {
			var ok bool
			property, ok = strings.CutPrefix(name, PropertyField)
			if !ok || property == "" {
				return problem.At(path, "a filter names resource or properties.<name>")
			}
		}
		if p := tenant.CheckName(path, property, MaxProperty); p != nil {
			return p
		}
		if len(f[name]) == 0 || len(f[name]) > MaxFilterValues {
			return problem.At(path, "between 1 and %d values", MaxFilterValues)
		}
		for i, s := range f[name] {
			switch {
			case tenant.CheckName(path, s.Text, MaxFilterValue) != nil:
				return problem.At(path, "a value has at most %d bytes of UTF-8 without NUL", MaxFilterValue)
			case name == ResourceField && (s.Kind != properties.String || s.Text == ""):
				return problem.At(path, "a resource is a string that is not empty")
			case i > 0 && s == f[name][i-1]:
				return problem.At(path, "%s stands twice", s.append(nil))
			}
		}
	}
	return nil
}

// Equal reports whether two filters take the same events.
func (f Filter) Equal(o Filter) bool { return maps.EqualFunc(f, o, slices.Equal) }

// Append writes the filter as JSON.
func (f Filter) Append(b []byte) []byte {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(f)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(properties.AppendString(b, name), ':', '[')
		for j, s := range f[name] {
			if j > 0 {
				b = append(b, ',')
			}
			b = s.append(b)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func (s Scalar) append(b []byte) []byte {
	if s.Kind == properties.String {
		return properties.AppendString(b, s.Text)
	}
	return append(b, s.Text...)
}

// MarshalJSON implements json.Marshaler.
func (f Filter) MarshalJSON() ([]byte, error) { return f.Append(nil), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (f *Filter) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var decoded any
	if err := d.Decode(&decoded); err != nil {
		return err
	}
	read, p := NewFilter(decoded)
	if p != nil {
		return p
	}
	*f = read
	return nil
}
