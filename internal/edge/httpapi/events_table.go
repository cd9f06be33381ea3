package httpapi

import (
	"strconv"

	"github.com/tallystick/tallystick/internal/core/csvtext"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
)

// eventColumns are those of `tallystick export`, without the tenant.
var eventColumns = []string{"seq", "id", "status", "overage", "meter", "type", "customer", "resource", "time",
	"quantity", "properties", "client_id", "corrects", "reason", "received_at", "outcomes"}

// eventLines writes rows as lines of a table.
func eventLines(names slugs) (begin []byte, take func([]byte, *ledger.Row) []byte) {
	begin = render.Line(make([]byte, 0, 4<<10), eventColumns...)
	return begin, func(b []byte, r *ledger.Row) []byte { return appendEventLine(b, r, names) }
}

// appendEventLine writes properties and outcomes as the JSON that a list of events has there.
func appendEventLine(b []byte, row *ledger.Row, names slugs) []byte {
	r := row.Event
	properties, clientID := r.Properties, ""
	if properties == "" {
		properties = "{}"
	}
	if r.Key.Space == usage.DerivedSpace {
		clientID = r.ID
	}
	return render.Line(b,
		strconv.FormatUint(row.Seq, 10), csvtext.Text(r.Key.ID()), r.Status().String(), strconv.FormatBool(r.Over()),
		csvtext.Text(r.Meter), csvtext.Text(r.Type), csvtext.Text(r.Customer), csvtext.Text(r.Resource),
		r.Time.String(), r.Quantity.String(), properties,
		csvtext.Text(clientID), csvtext.Text(r.Corrects), csvtext.Text(r.Reason), row.At.String(),
		string(appendOutcomes(nil, row, names)))
}
