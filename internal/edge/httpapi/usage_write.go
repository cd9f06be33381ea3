package httpapi

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/windows"
)

// streamChunk is how much of a long answer is gathered before it is sent.
const streamChunk = 64 << 10

var csvType = []string{"text/csv; charset=utf-8; header=present"}

// report sends a report piece by piece: it may be far longer than what is worth holding.
func (x *exchange) report(media string, q query, wanted *windows.Query, r windows.Report) error {
	h := x.w.Header()
	h["Tally-As-Of"] = []string{strconv.FormatUint(r.Seq, 10)}
	h["Vary"] = append(h["Vary"], "Accept")
	if media == mediaCSV {
		h["Content-Type"] = csvType
		x.begin(http.StatusOK)
		return x.reportCSV(wanted, r)
	}
	h["Content-Type"] = jsonType
	x.begin(http.StatusOK)
	return x.reportJSON(q, wanted, r)
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

func (x *exchange) reportJSON(q query, wanted *windows.Query, r windows.Report) error {
	b := append(make([]byte, 0, streamChunk+4096), `{"items":[`...)
	first := true
	for w := range r.Windows {
		if !first {
			b = append(b, ',')
		}
		first = false
		if b = appendWindow(b, wanted.GroupBy, &w); len(b) < streamChunk {
			continue
		}
		if !x.send(b) {
			return nil
		}
		b = b[:0]
	}
	x.send(endList(b, q, windowCursor(r.Next)))
	return nil
}

func appendWindow(b []byte, by []usage.Dimension, w *usage.Window) []byte {
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
	b = appendAmount(append(b, '}'), "value", w.Value)
	return append(b, '}')
}

// reportCSV writes as RFC 4180 has it. What is absent is an empty field.
func (x *exchange) reportCSV(wanted *windows.Query, r windows.Report) error {
	var b bytes.Buffer
	lines := csv.NewWriter(&b)
	lines.UseCRLF = true
	record := []string{"from", "to"}
	for _, d := range wanted.GroupBy {
		record = append(record, d.String())
	}
	record = append(record, "value")
	if err := lines.Write(record); err != nil {
		return fmt.Errorf("write the header line: %w", err)
	}
	for w := range r.Windows {
		record = append(record[:0], w.From.String(), w.To.String())
		for _, l := range w.Group {
			record = append(record, l.Text)
		}
		if err := lines.Write(append(record, w.Value.String())); err != nil {
			return fmt.Errorf("write a line: %w", err)
		}
		if lines.Flush(); b.Len() < streamChunk {
			continue
		}
		if !x.send(b.Bytes()) {
			return nil
		}
		b.Reset()
	}
	lines.Flush()
	x.send(b.Bytes())
	return nil
}
