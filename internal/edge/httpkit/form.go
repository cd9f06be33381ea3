package httpkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// maxFormDepth bounds the nesting of a setup body; none needs more than 2.
const maxFormDepth = 8

// Form is the JSON object of a setup request. Readers take its fields one by one and note every wrong one; what nobody
// took is unknown. A null is the field's default, in a PATCH too.
type Form struct {
	prefix string // of paths, for an object within an object
	fields map[string]any
	wrong  []problem.Field
}

// Form reads the request's body, which must be an object.
func (x *Exchange) Form() (*Form, error) {
	body, err := x.Body()
	if err != nil {
		return nil, err
	}
	return ParseForm(body)
}

// OptionalForm reads a body that may be left out, which is the same as an empty object.
func (x *Exchange) OptionalForm() (*Form, error) {
	body, err := x.Body()
	if err != nil || len(body) == 0 {
		return &Form{}, err
	}
	return ParseForm(body)
}

// NoForm reads the body of a request that needs none: nothing, or an empty object.
func (x *Exchange) NoForm() error {
	f, err := x.OptionalForm()
	if err != nil {
		return err
	}
	return f.Done()
}

// ParseForm reads an object from bytes.
func ParseForm(body []byte) (*Form, error) {
	if !utf8.Valid(body) {
		return nil, problem.New(problem.Malformed, "the body is not UTF-8")
	}
	if !json.Valid(body) {
		return nil, problem.New(problem.Malformed, "the body is not one JSON value%s", syntaxError(body))
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	v, err := readValue(d, 0)
	if err != nil {
		return nil, problem.New(problem.Malformed, "%v", err)
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, problem.New(problem.Malformed, "the body must be a JSON object")
	}
	return &Form{fields: fields}, nil
}

func syntaxError(body []byte) string {
	var v any
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, &v); errors.As(err, &syntax) {
		return ": " + syntax.Error() + " at byte " + strconv.FormatInt(syntax.Offset, 10)
	}
	return ""
}

// readValue reads the next value of a body that is known to be valid JSON. It exists because encoding/json lets the
// last of two members with one name win.
func readValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return readObject(d, depth+1)
	case json.Delim('['):
		return readArray(d, depth+1)
	}
	if s, ok := token.(string); ok && strings.ContainsRune(s, utf8.RuneError) {
		return nil, errors.New("a string holds a lone surrogate or U+FFFD")
	}
	return token, nil
}

var errDepth = errors.New("the body is nested too deep")

func readObject(d *json.Decoder, depth int) (any, error) {
	if depth > maxFormDepth {
		return nil, errDepth
	}
	out := map[string]any{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // in valid JSON it is one
		if _, twice := out[name]; twice {
			return nil, errors.New("the name " + strconv.Quote(name) + " stands twice in one object")
		}
		if out[name], err = readValue(d, depth); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return out, err
}

func readArray(d *json.Decoder, depth int) (any, error) {
	if depth > maxFormDepth {
		return nil, errDepth
	}
	out := []any{}
	for d.More() {
		v, err := readValue(d, depth)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := d.Token()
	return out, err
}

// take removes a field, so that what is left in the end is unknown.
func (f *Form) take(name string) (v any, given bool) {
	v, given = f.fields[name]
	delete(f.fields, name)
	return v, given
}

// Any takes a field as JSON was decoded, numbers as json.Number.
func (f *Form) Any(name string) (v any, given bool) { return f.take(name) }

// Has reports whether a field that was not taken yet is there, a null too.
func (f *Form) Has(name string) bool {
	_, there := f.fields[name]
	return there
}

// IsNull reports whether a field that was not taken yet is there and null.
func (f *Form) IsNull(name string) bool { return f.Has(name) && f.fields[name] == nil }

// Fault notes that a field is wrong.
func (f *Form) Fault(name, message string) {
	f.wrong = append(f.wrong, problem.Field{Path: f.prefix + name, Message: message})
}

// Check notes what a rule said of a field.
func (f *Form) Check(p *problem.Error) {
	if p != nil {
		f.wrong = append(f.wrong, p.Fields...)
	}
}

// Object reads an object within the object; it is nil when absent or null.
func (f *Form) Object(name string) *Form {
	v, given := f.take(name)
	if !given || v == nil {
		return nil
	}
	fields, ok := v.(map[string]any)
	if !ok {
		f.Fault(name, "must be an object")
		return nil
	}
	return &Form{prefix: f.prefix + name + ".", fields: fields}
}

// Objects reads an array of objects; it is empty when absent or null.
func (f *Form) Objects(name string) (out []*Form) {
	v, _ := f.take(name)
	items, ok := v.([]any)
	if !ok && v != nil {
		f.Fault(name, "must be an array of objects")
	}
	for i, item := range items {
		fields, ok := item.(map[string]any)
		path := name + "[" + strconv.Itoa(i) + "]"
		if !ok {
			f.Fault(path, "must be an object")
			continue
		}
		out = append(out, &Form{prefix: f.prefix + path + ".", fields: fields})
	}
	return out
}

// ObjectsText keeps an array of objects as it is, for others to read; it is nil when absent or empty.
func (f *Form) ObjectsText(name string) []byte {
	items, _ := f.fields[name].([]any)
	f.Objects(name)
	if len(items) == 0 {
		return nil
	}
	b, err := json.Marshal(items)
	if err != nil {
		f.Fault(name, "cannot be kept")
	}
	return b
}

// Join takes over the findings of an inner object, and what is unknown in it.
func (f *Form) Join(inner *Form) {
	inner.unknown()
	f.wrong = append(f.wrong, inner.wrong...)
}

func (f *Form) unknown() {
	for _, name := range slices.Sorted(maps.Keys(f.fields)) {
		f.Fault(name, "unknown field")
	}
}

// Done returns everything that was wrong.
func (f *Form) Done() error {
	f.unknown()
	if len(f.wrong) == 0 {
		return nil
	}
	first := f.wrong[0]
	return &problem.Error{Code: problem.Invalid, Detail: first.Path + ": " + first.Message, Fields: f.wrong}
}
