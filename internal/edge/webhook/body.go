package webhook

import (
	"encoding/json"
	"strconv"

	"github.com/tallystick/tallystick/internal/service/sinks"
)

// appendBody appends what a receiver reads. The same delivery gives the same bytes every time.
func appendBody(b []byte, d *sinks.Delivery) []byte {
	b = append(b, `{"type":"rows","tenant":`...)
	b = appendString(b, d.Tenant)
	b = append(b, `,"sink":`...)
	b = appendString(b, d.Sink)
	b = append(b, `,"from_seq":`...)
	b = strconv.AppendUint(b, d.From, 10)
	b = append(b, `,"to_seq":`...)
	b = strconv.AppendUint(b, d.To, 10)
	if d.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	b = append(b, `,"data":[`...)
	for i, row := range d.Rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, row.Body...)
	}
	return append(b, "]}"...)
}

func appendString(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("a string has no JSON: " + err.Error())
	}
	return append(b, text...)
}
