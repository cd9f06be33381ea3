package eventjson

import (
	"strings"

	"github.com/tallystick/tallystick/internal/core/usage"
)

// attribute is a bit for each attribute of a CloudEvent that means something here.
type attribute uint16

const (
	attrSpecVersion attribute = 1 << iota
	attrID
	attrSource
	attrType
	attrSubject
	attrTime
	attrContentType
	attrData
	attrDataBase64
	attrExtension attribute = 0
)

func attributeOf(name string) attribute {
	switch name {
	case "specversion":
		return attrSpecVersion
	case "id":
		return attrID
	case "source":
		return attrSource
	case "type":
		return attrType
	case "subject":
		return attrSubject
	case "time":
		return attrTime
	case "datacontenttype":
		return attrContentType
	case "data":
		return attrData
	case "data_base64":
		return attrDataBase64
	}
	return attrExtension
}

// envelope holds the attributes that are judged together once all are read.
type envelope struct {
	version, source, contentType string
}

// cloudEvent reads the CloudEvent at pos: type is the event's type, subject its customer, data its properties, and
// source, one space and id its id. The quantity is 1; a meter takes its value from a property.
//
// null means absent, as that standard has it. Extension attributes (dataschema, traceparent and the like) are checked
// and ignored, since a sender's infrastructure adds them; but not those that a usage event gives a meaning to, such as
// quantity: whoever sends them means them.
func (d *decoder) cloudEvent(ev *usage.Event) bool {
	if !d.open() {
		return false
	}
	base := len(d.names)
	var seen attribute
	var env envelope
	for again := !d.closes('}'); again; {
		text, at, ok := d.name()
		if !ok {
			return false
		}
		a := attributeOf(text)
		if seen&a != 0 {
			return d.duplicate(text, at)
		}
		if a == attrExtension && !d.remember(text, at) {
			return false
		}
		seen |= a
		if !d.attribute(ev, &env, a, text) {
			return false
		}
		if again, ok = d.more('}'); !ok {
			return false
		}
	}
	if !d.distinct(base) {
		return false
	}
	env.complete(ev)
	return true
}

// attribute reads the value of an attribute.
func (d *decoder) attribute(ev *usage.Event, env *envelope, a attribute, name string) bool {
	if d.peek() == 'n' && (a != attrExtension || extensionName(name)) {
		_, ok := d.literal()
		return ok
	}
	switch a {
	case attrSpecVersion:
		return d.stringField(ev, name, &env.version, 0)
	case attrID:
		return d.stringField(ev, name, &ev.ID, 0)
	case attrSource:
		return d.stringField(ev, name, &env.source, 0)
	case attrType:
		return d.stringField(ev, name, &ev.Type, usage.GivenType)
	case attrSubject:
		return d.stringField(ev, name, &ev.Customer, usage.GivenCustomer)
	case attrContentType:
		return d.stringField(ev, name, &env.contentType, 0)
	case attrTime:
		if d.peek() != '"' {
			return d.wrongType(ev, name, "a string in RFC 3339")
		}
		return d.timeString(ev)
	case attrData:
		return d.propertiesField(ev, name)
	case attrDataBase64:
		invalid(ev, name, "binary data has no properties; send a JSON object in data")
		return d.skip()
	}
	return d.extension(ev, name)
}

// extension passes over an attribute that means nothing here.
func (d *decoder) extension(ev *usage.Event, name string) bool {
	checkExtension(ev, name)
	if c := d.peek(); c == '{' || c == '[' {
		invalid(ev, brief(name), "an extension attribute must be a string, a number or a boolean")
	}
	return d.skip()
}

func checkExtension(ev *usage.Event, name string) {
	switch {
	case fieldOf(name) != fieldUnknown:
		invalid(ev, name, "not a CloudEvents attribute; state it in data, or send a plain usage event")
	case !extensionName(name):
		invalid(ev, brief(name), "unknown attribute: the name of an extension has only lower-case letters and digits")
	}
}

func extensionName(name string) bool {
	for _, c := range []byte(name) {
		if !isDigit(c) && (c < 'a' || c > 'z') {
			return false
		}
	}
	return name != ""
}

// complete judges the attributes together and joins source and id.
func (env *envelope) complete(ev *usage.Event) {
	switch {
	case env.version != "1.0":
		invalid(ev, "specversion", `required: must be "1.0"`)
	case ev.ID == "":
		invalid(ev, "id", "required")
	case env.source == "":
		invalid(ev, "source", "required")
	case strings.IndexByte(env.source, ' ') >= 0:
		// The first space of the joined id must be the one between the two, or different events would share an id.
		invalid(ev, "source", "must be a URI reference, which has no space")
	case ev.Type == "":
		invalid(ev, "type", "required")
	case ev.Customer == "":
		invalid(ev, "subject", "required: it names the customer")
	case env.contentType != "" && !isJSON(env.contentType):
		invalid(ev, "datacontenttype", "must be JSON, such as application/json")
	}
	if env.source != "" && ev.ID != "" {
		ev.ID = env.source + " " + ev.ID
	}
}

// isJSON reports whether a media type is JSON: its subtype is json or ends in +json.
func isJSON(mediaType string) bool {
	mediaType, _, _ = strings.Cut(mediaType, ";")
	_, subtype, ok := strings.Cut(strings.ToLower(strings.TrimSpace(mediaType)), "/")
	return ok && (subtype == "json" || strings.HasSuffix(subtype, "+json"))
}
