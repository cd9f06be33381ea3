package render_test

import (
	"encoding/json"
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
)

// Given a value of every kind, there and not there, then the object is valid JSON, in the order of writing.
func TestObject(t *testing.T) {
	b := render.String([]byte{'{'}, "text", "a\"\\\n\xff é")
	b = render.Optional(b, "none", "")
	b = render.Optional(b, "some", "x")
	b = render.Present(b, "left_out", "")
	b = render.Present(b, "present", "y")
	b = render.Strings(b, "list", []string{"a", "b"})
	b = render.Strings(b, "empty", nil)
	b = render.Bool(b, "bool", true)
	b = render.Int(b, "int", -1)
	b = render.Uint(b, "uint", 1<<63)
	b = render.Amount(b, "amount", amount.FromInt(-3))
	b = render.AmountIf(b, "no_amount", amount.One, false)
	b = render.Moment(b, "moment", calendar.Micros(1_763_000_000_000_000))
	b = render.MomentIf(b, "no_moment", 1, false)
	b = render.Hash(b, "no_hash", nil)
	b = append(b, '}')
	const want = `{"text":"a\"\\\u000a` + "\uFFFD" + ` é","none":null,"some":"x","present":"y","list":["a","b"],` +
		`"empty":[],"bool":true,"int":-1,"uint":9223372036854775808,"amount":"-3","no_amount":null,` +
		`"moment":"2025-11-13T02:13:20Z","no_moment":null,"no_hash":null}`
	if string(b) != want || !json.Valid(b) {
		t.Errorf("written\n%s, want\n%s", b, want)
	}
}

// Given lines of CSV, then they end as RFC 4180 has it, and what means nothing is an empty cell.
func TestLines(t *testing.T) {
	b := render.Line(nil, "a", "b")
	b = render.Line(b, render.AmountCell(amount.One, true), render.AmountCell(amount.One, false))
	b = render.Line(b, render.MomentCell(0, true), render.MomentCell(0, false))
	if want := "a,b\r\n1,\r\n1970-01-01T00:00:00Z,\r\n"; string(b) != want {
		t.Errorf("written %q, want %q", b, want)
	}
}
