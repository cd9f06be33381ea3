package csvtext

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/properties"
)

func TestTextIsNoFormula(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "plain": "plain", "a=b": "a=b", "1": "1", "'tis": "'tis", "''": "''", " =1": " =1",
		"=1+1": "'=1+1", "+49 30": "'+49 30", "-5": "'-5", "@SUM(A1)": "'@SUM(A1)", "\t=1": "'\t=1", "\r=1": "'\r=1",
		"\n=1": "'\n=1", "＝1": "'＝1",
		"'=1": "''=1", "''-5": "'''-5",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q is written %q, want %q", text, got, want)
		}
	}
}

func TestValuesAreToldApart(t *testing.T) {
	value := func(k properties.Kind, text string) properties.Value { return properties.Value{Kind: k, Text: text} }
	for _, c := range []struct {
		value properties.Value
		want  string
	}{
		{properties.Value{}, ""}, {value(properties.Null, "null"), ""},
		{value(properties.Number, "1"), "1"}, {value(properties.Number, "-1.5"), "-1.5"},
		{value(properties.Bool, "true"), "true"},
		{value(properties.String, ""), `""`}, {value(properties.String, "1"), `"1"`},
		{value(properties.String, "-1.5"), `"-1.5"`},
		{value(properties.String, "true"), `"true"`}, {value(properties.String, "null"), `"null"`},
		{value(properties.String, `"`), `"\""`},
		{value(properties.String, " 1"), `" 1"`}, {value(properties.String, `{}`), `"{}"`},
		{value(properties.String, "eu"), "eu"},
		{value(properties.String, "+1"), "'+1"}, {value(properties.String, "=1"), "'=1"},
		{value(properties.String, "-"), "'-"},
	} {
		if got := Value(c.value); got != c.want {
			t.Errorf("%v is written %s, want %s", c.value, got, c.want)
		}
	}
}

// unText and unValue are what the documentation says a reader does.
func unText(cell string) string {
	if rest := strings.TrimLeft(cell, "'"); rest != cell && rest != "" &&
		strings.ContainsRune(formulaMarks, firstRune(rest)) {
		return cell[1:]
	}
	return cell
}

func unValue(t *rapid.T, cell string) properties.Value {
	var v any
	switch {
	case cell == "":
		return properties.Value{}
	case json.Unmarshal([]byte(cell), &v) != nil:
		return properties.Value{Kind: properties.String, Text: unText(cell)}
	}
	switch v := v.(type) {
	case string:
		return properties.Value{Kind: properties.String, Text: v}
	case float64:
		return properties.Value{Kind: properties.Number, Text: cell}
	case bool:
		return properties.Value{Kind: properties.Bool, Text: cell}
	}
	t.Fatalf("%q is no cell", cell)
	return properties.Value{}
}

// fields splits CSV as RFC 4180 defines it, and changes nothing in the cells.
func fields(line, end string) (out []string) {
	line = strings.TrimSuffix(line, end)
	for {
		if !strings.HasPrefix(line, `"`) {
			cell, rest, more := strings.Cut(line, ",")
			if out = append(out, cell); !more {
				return out
			}
			line = rest
			continue
		}
		cell := ""
		for line = line[1:]; ; {
			i := strings.IndexByte(line, '"')
			cell, line = cell+line[:i], line[i+1:]
			if !strings.HasPrefix(line, `"`) {
				break
			}
			cell, line = cell+`"`, line[1:]
		}
		if out = append(out, cell); line == "" {
			return out
		}
		line = line[1:]
	}
}

// Whatever the value, it is read back as it was, and the cell of a text begins with nothing that is computed.
func TestCellsRoundTrip(t *testing.T) {
	texts := rapid.StringOf(rapid.SampledFrom([]rune("'\"=+-@\t\r\n,; 0123.5eé{}[]truefalsn＝")))
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(texts, rapid.SampledFrom([]string{"1", "true", "null", "-0", "\"\"", "'", "''=",
			"1e5"})).Draw(t, "text")
		value := properties.Value{Kind: properties.String, Text: text}
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end")
		got := fields(string(AppendLine(nil, end, "-1", Text(text), Value(value))), end)
		if len(got) != 3 || got[0] != "-1" || unText(got[1]) != text || unValue(t, got[2]) != value {
			t.Fatalf("%q is written %q", text, got)
		}
		for _, cell := range got[1:] {
			if cell != "" && strings.ContainsRune(formulaMarks, firstRune(cell)) {
				t.Fatalf("%q is a formula", cell)
			}
		}
	})
	for _, v := range []properties.Value{{Kind: properties.Number, Text: "-1.5"},
		{Kind: properties.Bool, Text: "true"}} {
		if Value(v) != v.Text {
			t.Errorf("%v is written %s", v, Value(v))
		}
	}
	if line := AppendLine(nil, "\n", "a", "", " b",
		"c\"d"); !slices.Equal(fields(string(line), "\n"), []string{"a", "", " b", "c\"d"}) {
		t.Errorf("%q", line)
	}
}
