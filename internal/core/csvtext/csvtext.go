// Package csvtext writes CSV that means what it says: every cell can be read back to the value it came from, and no
// text of a customer's is a formula to the spreadsheet that opens the file.
//
// It writes lines itself: encoding/csv changes line breaks inside cells where lines end in CRLF, so two texts could
// become one.
package csvtext

import (
	"encoding/json"
	"strings"

	"github.com/tallystick/tallystick/internal/core/properties"
)

// formulaMarks begin what a spreadsheet computes: the usual signs, their wide forms, and white space that it skips
// before them.
const formulaMarks = "=+-@\t\r\n＝＋－＠"

// Text is the cell of a text. One that a spreadsheet would compute has an apostrophe before it. So has one that would
// look as if it had been given one, so that a reader takes one apostrophe off any cell that has some before such a
// mark, and is left with the text.
func Text(s string) string {
	if rest := strings.TrimLeft(s, "'"); rest != "" && strings.ContainsRune(formulaMarks, firstRune(rest)) {
		return "'" + s
	}
	return s
}

func firstRune(s string) rune {
	for _, r := range s {
		return r
	}
	return -1
}

// Value is the cell of a property: empty where there is none, numbers and booleans as JSON has them, and strings as
// they are. A string that would be taken for one of those, or is empty, or begins with a quotation mark, is a JSON
// string in quotation marks.
func Value(v properties.Value) string {
	switch v.Kind {
	case 0, properties.Null:
		return ""
	case properties.String:
		if v.Text == "" || v.Text[0] == '"' || json.Valid([]byte(v.Text)) {
			return string(properties.AppendString(nil, v.Text))
		}
		return Text(v.Text)
	}
	return v.Text
}

// AppendLine writes one line. Cells are quoted where RFC 4180 asks for it, or where they begin with white space;
// nothing inside them changes.
func AppendLine(b []byte, end string, cells ...string) []byte {
	for i, cell := range cells {
		if i > 0 {
			b = append(b, ',')
		}
		if !strings.ContainsAny(cell, "\",\r\n") && strings.TrimSpace(cell) == cell {
			b = append(b, cell...)
			continue
		}
		b = append(b, '"')
		b = append(b, strings.ReplaceAll(cell, `"`, `""`)...)
		b = append(b, '"')
	}
	return append(b, end...)
}
