package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
)

// maxFormDepth bounds the nesting of a setup body; none needs more than 2.
const maxFormDepth = 8

// form is the JSON object of a setup request. Readers take its fields one by one and note every wrong one; what nobody
// took is unknown. A null is the field's default, in a PATCH too.
type form struct {
	prefix string // of paths, for an object within an object
	fields map[string]any
	wrong  []problem.Field
}

// form reads the request's body, which must be an object.
func (x *exchange) form() (*form, error) {
	body, err := x.setupBody()
	if err != nil {
		return nil, err
	}
	return parseForm(body)
}

// optionalForm reads a body that may be left out, which is the same as an empty object.
func (x *exchange) optionalForm() (*form, error) {
	body, err := x.setupBody()
	if err != nil || len(body) == 0 {
		return &form{}, err
	}
	return parseForm(body)
}

// noForm reads the body of a request that needs none: nothing, or an empty object.
func (x *exchange) noForm() error {
	f, err := x.optionalForm()
	if err != nil {
		return err
	}
	return f.done()
}

func (x *exchange) setupBody() ([]byte, error) {
	if x.bodyRead {
		return x.body, nil
	}
	if err := x.noQuery(); err != nil {
		return nil, err
	}
	if _, err := x.requestKey(request.MaxKey); err != nil {
		return nil, err
	}
	if x.r.ContentLength == 0 {
		return nil, nil // nothing has no type
	}
	media, err := x.mediaType()
	if err != nil {
		return nil, err
	}
	if media != "application/json" {
		return nil, problem.New(problem.UnsupportedMedia, "send Content-Type: application/json, not %s", media)
	}
	return x.readBody(maxSetupBody)
}

func parseForm(body []byte) (*form, error) {
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
	return &form{fields: fields}, nil
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
func (f *form) take(name string) (v any, given bool) {
	v, given = f.fields[name]
	delete(f.fields, name)
	return v, given
}

func (f *form) fault(name, message string) {
	f.wrong = append(f.wrong, problem.Field{Path: f.prefix + name, Message: message})
}

// check notes what a rule said of a field.
func (f *form) check(p *problem.Error) {
	if p != nil {
		f.wrong = append(f.wrong, p.Fields...)
	}
}

// text reads a string. given is false when the field is absent, and into is then left as it is.
func (f *form) text(name string, into *string) (given bool) {
	v, given := f.take(name)
	if !given {
		return false
	}
	switch v := v.(type) {
	case string:
		*into = v
	case nil:
		*into = ""
	default:
		f.fault(name, "must be a string")
		return false
	}
	return true
}

// required notes an absent or empty string.
func (f *form) required(name string) string {
	var s string
	_, there := f.fields[name]
	if given := f.text(name, &s); s == "" && (given || !there) {
		f.fault(name, "required")
	}
	return s
}

func (f *form) texts(name string, into *[]string) (given bool) {
	v, given := f.take(name)
	if !given {
		return false
	}
	if v == nil {
		*into = nil
		return true
	}
	items, ok := v.([]any)
	if !ok {
		f.fault(name, "must be an array of strings")
		return false
	}
	out := make([]string, 0, len(items))
	for i, item := range items {
		s, ok := item.(string)
		if !ok {
			f.fault(name+"["+strconv.Itoa(i)+"]", "must be a string")
			return false
		}
		out = append(out, s)
	}
	*into = out
	return true
}

// duration reads "48h"; a null is what the field is when nobody names it.
func (f *form) duration(name string, into *time.Duration, otherwise time.Duration) {
	v, given := f.take(name)
	if !given {
		return
	}
	if v == nil {
		*into = otherwise
		return
	}
	s, ok := v.(string)
	if !ok {
		f.fault(name, errDuration.Error())
		return
	}
	d, err := parseDuration(s)
	if err != nil {
		f.fault(name, err.Error())
		return
	}
	*into = d
}

// moment reads a time as events have it.
func (f *form) moment(name string, into *calendar.Micros) {
	v, given := f.take(name)
	var text string
	switch v := v.(type) {
	case nil:
		if given {
			*into = 0
		}
		return
	case string:
		text = v
		if _, err := strconv.ParseInt(v, 10, 64); err == nil {
			text = "" // milliseconds are a number, not a string
		}
	case json.Number:
		text = v.String()
	}
	m, wrong := parseMoment(text)
	if wrong != "" {
		f.fault(name, wrong)
		return
	}
	*into = m
}

// decimal reads a string or a number, digit by digit.
func (f *form) decimal(name string) string {
	v, given := f.take(name)
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case nil:
		f.fault(name, "required")
	default:
		if given {
			f.fault(name, "must be a decimal number, as a string or a number")
		}
	}
	return ""
}

// count reads a whole number that is not negative.
func (f *form) count(name string, into *int64) {
	v, given := f.take(name)
	if !given || v == nil {
		return
	}
	number, ok := v.(json.Number)
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if !ok || err != nil || n < 0 {
		f.fault(name, "must be a whole number, 0 or more")
		return
	}
	*into = n
}

// object reads an object within the object; it is nil when absent or null.
func (f *form) object(name string) *form {
	v, given := f.take(name)
	if !given || v == nil {
		return nil
	}
	fields, ok := v.(map[string]any)
	if !ok {
		f.fault(name, "must be an object")
		return nil
	}
	return &form{prefix: f.prefix + name + ".", fields: fields}
}

// join takes over the findings of an inner object, and what is unknown in it.
func (f *form) join(inner *form) {
	inner.unknown()
	f.wrong = append(f.wrong, inner.wrong...)
}

func (f *form) unknown() {
	for _, name := range slices.Sorted(maps.Keys(f.fields)) {
		f.fault(name, "unknown field")
	}
}

// done returns everything that was wrong.
func (f *form) done() error {
	f.unknown()
	if len(f.wrong) == 0 {
		return nil
	}
	first := f.wrong[0]
	return &problem.Error{Code: problem.Invalid, Detail: first.Path + ": " + first.Message, Fields: f.wrong}
}
