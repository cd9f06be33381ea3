package render

import (
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/csvtext"
)

// lineEnd ends a line as RFC 4180 has it.
const lineEnd = "\r\n"

// Line appends a line of CSV. Cells that callers filled must be csvtext's.
func Line(b []byte, cells ...string) []byte { return csvtext.AppendLine(b, lineEnd, cells...) }

// AmountCell is a decimal, empty when it means nothing.
func AmountCell(a amount.Amount, there bool) string {
	if !there {
		return ""
	}
	return a.String()
}

// MomentCell is a time in RFC 3339, empty when it means nothing.
func MomentCell(m calendar.Micros, there bool) string {
	if !there {
		return ""
	}
	return m.String()
}
