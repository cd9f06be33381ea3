package httpapi

import (
	"net/http"
	"strconv"

	"github.com/tallystick/tallystick/internal/core/csvtext"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/service/windows"
)

// streamChunk is how much of a long answer is gathered before it is sent.
const streamChunk = 64 << 10

// answerReport sends a report piece by piece: it may be far longer than what is worth holding.
func answerReport(x *httpkit.Exchange, q httpkit.Query, wanted *windows.Query, r windows.Report) error {
	x.Header()["Tally-As-Of"] = []string{strconv.FormatUint(r.Seq, 10)}
	if x.Media() == httpkit.MediaCSV {
		x.BeginTable(q, windowCursor(r.Next))
		x.Begin(http.StatusOK)
		answerCSV(x, wanted, r)
		return nil
	}
	x.Header()["Content-Type"] = []string{httpkit.MediaJSON}
	x.Begin(http.StatusOK)
	answerJSON(x, q, wanted, r)
	return nil
}

func answerJSON(x *httpkit.Exchange, q httpkit.Query, wanted *windows.Query, r windows.Report) {
	b := append(make([]byte, 0, streamChunk+4096), `{"items":[`...)
	first := true
	for w := range r.Windows {
		if !first {
			b = append(b, ',')
		}
		first = false
		if b = appendWindow(b, wanted.GroupBy, &w, r.Aggregation); len(b) < streamChunk {
			continue
		}
		if !x.Send(b) {
			return
		}
		b = b[:0]
	}
	x.Send(httpkit.EndList(b, q, windowCursor(r.Next)))
}

func appendWindow(b []byte, by []usage.Dimension, w *usage.Window, a meter.Aggregation) []byte {
	b = render.Moment(append(b, '{'), "from", w.From)
	b = render.Moment(b, "to", w.To)
	b = append(render.Name(b, "group"), '{')
	for i, d := range by {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(render.Text(b, d.String()), ':')
		switch l := w.Group[i]; l.Kind {
		case 0:
			b = append(b, "null"...)
		case properties.String:
			b = render.Text(b, l.Text)
		default:
			b = append(b, l.Text...)
		}
	}
	b = render.AmountIf(append(b, '}'), "value", w.Value, !w.None(a))
	return append(b, '}')
}

// answerCSV writes a column for each dimension between the window and its value.
func answerCSV(x *httpkit.Exchange, wanted *windows.Query, r windows.Report) {
	cells := []string{"from", "to"}
	for _, d := range wanted.GroupBy {
		cells = append(cells, csvtext.Text(d.String()))
	}
	b := render.Line(make([]byte, 0, streamChunk+4096), append(cells, "value")...)
	for w := range r.Windows {
		cells = append(cells[:0], w.From.String(), w.To.String())
		for i, l := range w.Group {
			if wanted.GroupBy[i].Of == usage.ByProperty {
				cells = append(cells, csvtext.Value(l))
			} else {
				cells = append(cells, csvtext.Text(l.Text))
			}
		}
		b = render.Line(b, append(cells, render.AmountCell(w.Value, !w.None(r.Aggregation)))...)
		if len(b) < streamChunk {
			continue
		}
		if !x.Send(b) {
			return
		}
		b = b[:0]
	}
	x.Send(b)
}
