package eventjson

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/usage"
)

// Attribute is one of a CloudEvent in binary content mode, where they travel beside the data: in HTTP as headers ce-….
type Attribute struct {
	Name  string   // without ce-, in lower case
	Value []string // as it travels; more than one is an error
}

// DecodeBinaryCloudEvent reads a CloudEvent in binary content mode: its attributes, and a body that is its data.
// contentType is that of the data, "" if it is not stated. What comes of it is what DecodeCloudEvent makes of the same
// event.
func DecodeBinaryCloudEvent(attributes []Attribute, contentType string, body []byte, into []usage.Event) (Batch,
	error) {
	d := decoder{body: body, events: into[:0], index: -1, cloud: true}
	ev := d.next()
	slices.SortFunc(attributes, func(a, b Attribute) int { return cmp.Compare(a.Name, b.Name) })
	env := envelope{contentType: contentType}
	for i := range attributes {
		env.header(ev, &attributes[i])
	}
	ok := d.data(ev)
	env.complete(ev)
	return d.result(true, ok)
}

// header takes an attribute.
func (env *envelope) header(ev *usage.Event, a *Attribute) {
	value, wrong := headerText(a.Value)
	if wrong != "" {
		invalid(ev, brief(a.Name), "%s", wrong)
		return
	}
	set := func(to *string, given usage.Given) {
		if *to, ev.Given = value, ev.Given|given; value == "" {
			invalid(ev, a.Name, "must not be empty")
		}
	}
	switch attributeOf(a.Name) {
	case attrSpecVersion:
		set(&env.version, 0)
	case attrID:
		set(&ev.ID, 0)
	case attrSource:
		set(&env.source, 0)
	case attrType:
		set(&ev.Type, usage.GivenType)
	case attrSubject:
		set(&ev.Customer, usage.GivenCustomer)
	case attrTime:
		setTime(ev, value)
	case attrContentType:
		invalid(ev, a.Name, "in binary mode this is the header Content-Type")
	case attrData, attrDataBase64:
		invalid(ev, a.Name, "in binary mode the data is the body")
	default:
		checkExtension(ev, a.Name)
	}
}

// data reads the body: an object, or nothing.
func (d *decoder) data(ev *usage.Event) bool {
	if d.peek() == 0 && d.pos == len(d.body) {
		return true
	}
	if d.peek() == 'n' {
		_, ok := d.literal()
		return ok && d.end()
	}
	return d.start() && d.propertiesField(ev, "data") && d.end()
}

// headerText reads a value as it travels in a header: perhaps quoted, with bytes beyond printable ASCII
// percent-encoded.
func headerText(values []string) (text, wrong string) {
	if len(values) != 1 {
		return "", "stands twice"
	}
	text = values[0]
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		text = unquote(text[1 : len(text)-1])
	}
	if strings.IndexByte(text, '%') >= 0 {
		var err error
		if text, err = url.PathUnescape(text); err != nil {
			return "", "a % must begin a percent-encoded byte, such as %20 or %25"
		}
	}
	if !utf8.ValidString(text) {
		return "", "must be UTF-8, percent-encoded"
	}
	return text, ""
}

// unquote takes the backslashes out of a quoted string.
func unquote(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}
