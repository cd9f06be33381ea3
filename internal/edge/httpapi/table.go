package httpapi

import (
	"net/http"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/csvtext"
)

// csvEnd ends a line as RFC 4180 has it.
const csvEnd = "\r\n"

var csvType = []string{"text/csv; charset=utf-8; header=present"}

// tableHeader says that CSV follows, and where the next page begins: a header has room for what a table has none for.
func (x *exchange) tableHeader(q query, next []byte) {
	h := x.w.Header()
	h["Content-Type"] = csvType
	if next != nil {
		h["Tally-Next-Cursor"] = []string{q.cursor(next)}
	}
}

// answerTable sends a page of CSV.
func (x *exchange) answerTable(q query, body, next []byte) error {
	x.tableHeader(q, next)
	x.write(http.StatusOK, body)
	return nil
}

// amountCell is empty when the amount means nothing.
func amountCell(a amount.Amount, there bool) string {
	if !there {
		return ""
	}
	return a.String()
}

// momentCell is empty when the moment means nothing.
func momentCell(m calendar.Micros, there bool) string {
	if !there {
		return ""
	}
	return m.String()
}

// beginTable writes the names of the columns.
func beginTable(columns []string) []byte {
	return csvtext.AppendLine(make([]byte, 0, 4<<10), csvEnd, columns...)
}
