package properties

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func text(name, value string) Member     { return Member{name, Value{String, value}} }
func literal(name, number string) Member { return Member{name, Value{Number, number}} }

func TestAppend(t *testing.T) {
	for _, c := range []struct {
		want    string
		members []Member
	}{
		{``, nil},
		{`{"a":"x"}`, []Member{text("a", "x")}},
		{`{"":"","a":1,"b":"x"}`, []Member{text("b", "x"), literal("a", "1"), text("", "")}},
		{`{"a":true,"b":null}`, []Member{{"b", Value{Null, "null"}}, {"a", Value{Bool, "true"}}}},
		{`{"a\"b":"c\\d"}`, []Member{text(`a"b`, `c\d`)}},
		{`{"a":"\u0000\u000a\u001f` + "\x7f" + `</é"}`, []Member{text("a", "\x00\n\x1f\x7f</é")}},
		{`{"a":1,"ab":2,"é":3}`, []Member{literal("é", "3"), literal("ab", "2"), literal("a", "1")}},
	} {
		if got := string(Append(nil, c.members)); got != c.want {
			t.Errorf("Append(%v) = %s, want %s", c.members, got, c.want)
		}
	}
}

func TestNumber(t *testing.T) {
	forty := strings.Repeat("9", 40)
	for _, c := range [][2]string{
		{"0", "0"}, {"-0", "0"}, {"-0.00", "0"}, {"0e99999999999999999999", "0"}, {"1", "1"}, {"-1", "-1"},
		{"10", "10"}, {"1.0", "1"}, {"1.50", "1.5"},
		{"1e3", "1000"}, {"1E+3", "1000"}, {"1.25e1", "12.5"}, {"1.25e2", "125"}, {"1.25e3", "1250"}, {"100e-2", "1"},
		{"120e-2", "1.2"}, {"5e-3", "0.005"},
		{"-12.5e-4", "-0.00125"}, {"0.10", "0.1"}, {"0.001e3", "1"}, {"0.0012e3", "1.2"},
		{"1e39", "1" + strings.Repeat("0", 39)}, {"1e40", ""},
		{"1e-39", "0." + strings.Repeat("0", 38) + "1"}, {"1e-40", ""}, {forty, forty}, {forty + "9", ""},
		{forty + ".0", forty},
		{"9." + forty[1:], "9." + forty[1:]}, {"9." + forty, ""}, {"1e99999999999999999999", ""},
		{"1e-99999999999999999999", ""},
		{"1" + strings.Repeat("0", 300) + "e-300", "1"},
	} {
		got, err := AppendNumber(nil, c[0])
		if string(got) != c[1] || (err != nil) != (c[1] == "") {
			t.Errorf("AppendNumber(%s) = %q, %v; want %q", c[0], got, err, c[1])
		}
		if canonical := c[0] == c[1]; CanonicalNumber(c[0]) != canonical {
			t.Errorf("CanonicalNumber(%s) = %v", c[0], !canonical)
		}
	}
}

func TestNumberKeepsItsValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		got, err := AppendNumber(nil, number)
		value, _ := new(big.Rat).SetString(number)
		plain := strings.TrimRight(value.FloatString(200), "0")
		plain = strings.TrimSuffix(plain, ".")
		if digits := len(strings.Trim(plain, "-")) - strings.Count(plain, "."); digits > MaxDigits {
			if err != ErrDigits {
				t.Fatalf("%s: %d digits, got %s, %v", number, digits, got, err)
			}
			return
		}
		if err != nil || string(got) != plain {
			t.Fatalf("%s: got %s, %v; want %s", number, got, err, plain)
		}
		if CanonicalNumber(number) != (number == plain) || !CanonicalNumber(plain) {
			t.Fatalf("CanonicalNumber is wrong about %s or %s", number, plain)
		}
	})
}

func TestLookup(t *testing.T) {
	const canonical = `{"":"empty","a":"x,\"}","b":-1.5,"c":true,"d":false,"e":null,"f\\\u0009":"é\\\u000a","g":"",` +
		`"h":7}`
	for _, c := range []struct {
		name string
		want Value
	}{
		{"", Value{String, "empty"}}, {"a", Value{String, `x,"}`}}, {"b", Value{Number, "-1.5"}},
		{"c", Value{Bool, "true"}},
		{"d", Value{Bool, "false"}}, {"e", Value{Null, "null"}}, {"f\\\t", Value{String, "é\\\n"}},
		{"g", Value{String, ""}}, {"h", Value{Number, "7"}},
		{"i", Value{}}, {"A", Value{}}, {`f\\\u0009`, Value{}}, {"x,", Value{}}, {`a":"x,`, Value{}},
	} {
		got, ok := Lookup(canonical, c.name)
		if got != c.want || ok != (c.want.Kind != 0) {
			t.Errorf("Lookup(%q) = %v, %v; want %v", c.name, got, ok, c.want)
		}
	}
	for _, broken := range []string{"", "{", "{}", "[]", `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":"`, `{"a":}`, `{"a":1`,
		`{"a\`} {
		if v, ok := Lookup(broken, "a"); ok {
			t.Errorf("Lookup(%s) = %v", broken, v)
		}
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	n := testing.AllocsPerRun(100, func() {
		if v, ok := Lookup(`{"model":"gpt-9","region":"eu","tokens":12}`, "tokens"); !ok || v.Text != "12" {
			t.Fatal(v, ok)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzText: what is written reads back, by Lookup and by any JSON parser.
func FuzzText(f *testing.F) {
	f.Add("a", "x", "b")
	f.Add(`q"\`, "\x00\x1f\x7f", "é")
	f.Add("", "", "\n")
	f.Add("\u2028", "<&>", "a,b}")
	f.Fuzz(func(t *testing.T, first, value, second string) {
		Lookup(first, second)
		if first == second || !utf8.ValidString(first) || !utf8.ValidString(second) || !utf8.ValidString(value) {
			return
		}
		canonical := string(Append(nil, []Member{text(first, value), literal(second, "1")}))
		if v, ok := Lookup(canonical, first); !ok || v != (Value{String, value}) {
			t.Fatalf("Lookup(%s, %q) = %v, %v", canonical, first, v, ok)
		}
		if v, ok := Lookup(canonical, second); !ok || v != (Value{Number, "1"}) {
			t.Fatalf("Lookup(%s, %q) = %v, %v", canonical, second, v, ok)
		}
		if v, ok := Lookup(canonical, first+second+"x"); ok {
			t.Fatalf("found %v in %s", v, canonical)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(canonical), &got); err != nil || len(got) != 2 || got[first] != value ||
			got[second] != 1.0 {
			t.Fatalf("%s means %v, %v", canonical, got, err)
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	for b.Loop() {
		Lookup(`{"model":"gpt-9","region":"eu","tokens":12}`, "tokens")
	}
}
