package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tallystick/tallystick/internal/core/csvtext"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/windows"
)

// streamChunk is how much of a long answer is gathered before it is sent.
const streamChunk = 64 << 10

// report sends a report piece by piece: it may be far longer than what is worth holding.
func (x *exchange) report(q query, wanted *windows.Query, r windows.Report) error {
	x.w.Header()["Tally-As-Of"] = []string{strconv.FormatUint(r.Seq, 10)}
	if x.media == mediaCSV {
		x.tableHeader(q, windowCursor(r.Next))
		x.begin(http.StatusOK)
		x.reportCSV(wanted, r)
		return nil
	}
	x.w.Header()["Content-Type"] = jsonType
	x.begin(http.StatusOK)
	x.reportJSON(q, wanted, r)
	return nil
}

// begin sends the status of an answer whose body follows.
func (x *exchange) begin(status int) {
	x.prolong()
	x.status = status
	x.w.WriteHeader(status)
}

// prolong gives what is sent next the whole time that an answer has: folding may have used up what there was.
func (x *exchange) prolong() {
	// A connection without deadlines needs none prolonged.
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(x.s.options.WriteTimeout))
}

// send writes a part of a body. It reports false when the caller is gone, who cannot be told so.
func (x *exchange) send(b []byte) bool {
	x.prolong()
	_, err := x.w.Write(b)
	return err == nil
}

func (x *exchange) reportJSON(q query, wanted *windows.Query, r windows.Report) {
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
		if !x.send(b) {
			return
		}
		b = b[:0]
	}
	x.send(endList(b, q, windowCursor(r.Next)))
}

func appendWindow(b []byte, by []usage.Dimension, w *usage.Window, a meter.Aggregation) []byte {
	b = appendMoment(append(b, '{'), "from", w.From)
	b = appendMoment(b, "to", w.To)
	b = append(appendName(b, "group"), '{')
	for i, d := range by {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, d.String()), ':')
		switch l := w.Group[i]; l.Kind {
		case 0:
			b = append(b, "null"...)
		case properties.String:
			b = appendText(b, l.Text)
		default:
			b = append(b, l.Text...)
		}
	}
	b = appendAmountIf(append(b, '}'), "value", w.Value, !w.None(a))
	return append(b, '}')
}

// reportCSV writes a column for each dimension between the window and its value.
func (x *exchange) reportCSV(wanted *windows.Query, r windows.Report) {
	cells := []string{"from", "to"}
	for _, d := range wanted.GroupBy {
		cells = append(cells, csvtext.Text(d.String()))
	}
	b := csvtext.AppendLine(make([]byte, 0, streamChunk+4096), csvEnd, append(cells, "value")...)
	for w := range r.Windows {
		cells = append(cells[:0], w.From.String(), w.To.String())
		for i, l := range w.Group {
			if wanted.GroupBy[i].Of == usage.ByProperty {
				cells = append(cells, csvtext.Value(l))
			} else {
				cells = append(cells, csvtext.Text(l.Text))
			}
		}
		b = csvtext.AppendLine(b, csvEnd, append(cells, amountCell(w.Value, !w.None(r.Aggregation)))...)
		if len(b) < streamChunk {
			continue
		}
		if !x.send(b) {
			return
		}
		b = b[:0]
	}
	x.send(b)
}
