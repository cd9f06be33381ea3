package httpapi

import (
	"strings"

	"github.com/tallystick/tallystick/internal/core/eventjson"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
)

// attributePrefix begins the headers of a CloudEvent in binary content mode, as net/http spells them.
const attributePrefix = "Ce-"

// required are the headers that every CloudEvent in binary mode has.
var required = []string{attributePrefix + "Specversion", attributePrefix + "Id", attributePrefix + "Source",
	attributePrefix + "Type"}

// binaryMode returns a header that says that the event is a CloudEvent in binary mode, or "".
func binaryMode(x *httpkit.Exchange) string {
	for _, name := range required {
		if _, given := x.Request().Header[name]; given {
			return name
		}
	}
	return ""
}

// binaryDecoder reads a CloudEvent whose attributes are headers. A body that is a CloudEvent itself, or many events,
// contradicts them.
func binaryDecoder(x *httpkit.Exchange, header, media string) (decode, error) {
	if strings.HasPrefix(media, "application/cloudevents") || media == "application/x-ndjson" {
		return nil, problem.New(problem.Malformed,
			"the header %s says that the body is the data of one CloudEvent (binary mode), "+
				"and the Content-Type that it is %s: leave out the ce- headers, or send the data as application/json",
			strings.ToLower(header), media)
	}
	var attributes []eventjson.Attribute
	for name, values := range x.Request().Header {
		if attribute, ok := strings.CutPrefix(name, attributePrefix); ok {
			attributes = append(attributes, eventjson.Attribute{Name: strings.ToLower(attribute), Value: values})
		}
	}
	return func(body []byte, into []usage.Event) (eventjson.Batch, error) {
		return eventjson.DecodeBinaryCloudEvent(attributes, media, body, into)
	}, nil
}
