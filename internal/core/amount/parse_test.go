package amount

import (
	"errors"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in, want string
		err      error
	}{
		{"0", "0", nil},
		{"-0", "0", nil},
		{"-0.000e5", "0", nil},
		{"3", "3", nil},
		{"-3.5", "-3.5", nil},
		{"1.50", "1.5", nil},
		{"1e3", "1000", nil},
		{"1E+03", "1000", nil},
		{"12.5e-1", "1.25", nil},
		{"0.000000000001", "0.000000000001", nil},
		{"1e-12", "0.000000000001", nil},
		{"10e-13", "0.000000000001", nil},
		{"1.5000000000000000", "1.5", nil},
		{"9999999999999999999", "9999999999999999999", nil},
		{"99999999999999999.99", "99999999999999999.99", nil},
		{"0.1234567890123e1", "1.234567890123", nil},
		{"99999999999999999999999999.999999999999", "99999999999999999999999999.999999999999", nil},
		{"-99999999999999999999999999.999999999999", "-99999999999999999999999999.999999999999", nil},
		{"11000000000000000000", "11000000000000000000", nil},
		{"10000000000000000001", "10000000000000000001", nil},
		{"1e25", "10000000000000000000000000", nil},
		{"0." + strings.Repeat("0", 57) + "1e49", "0.000000001", nil},
		{"0e99999999999999999999999999999999999999999999999999999999999999", "0", nil},
		{"0.0e-9999999999999999999", "0", nil},

		{"1e26", "", ErrRange},
		{"-1e26", "", ErrRange},
		{"100000000000000000000000000", "", ErrRange},
		{"1e99999999999999999999999", "", ErrRange},
		{"100000000000000000000000000.0000000000001", "", ErrRange},
		{"1e-13", "", ErrPrecision},
		{"-0.0000000000001", "", ErrPrecision},
		{"1.0000000000001", "", ErrPrecision},
		{"1e-99999999999999999999999", "", ErrPrecision},
		{"1e-9223372036854775808", "", ErrPrecision},

		{"", "", ErrSyntax},
		{"-", "", ErrSyntax},
		{"+1", "", ErrSyntax},
		{"--1", "", ErrSyntax},
		{"01", "", ErrSyntax},
		{"-01", "", ErrSyntax},
		{"00", "", ErrSyntax},
		{".5", "", ErrSyntax},
		{"5.", "", ErrSyntax},
		{"5.e1", "", ErrSyntax},
		{"1.2.3", "", ErrSyntax},
		{"1e", "", ErrSyntax},
		{"1e+", "", ErrSyntax},
		{"1e+-1", "", ErrSyntax},
		{"1e1.5", "", ErrSyntax},
		{"e1", "", ErrSyntax},
		{" 1", "", ErrSyntax},
		{"1 ", "", ErrSyntax},
		{"1,5", "", ErrSyntax},
		{"1_000", "", ErrSyntax},
		{"0x10", "", ErrSyntax},
		{"NaN", "", ErrSyntax},
		{"Infinity", "", ErrSyntax},
		{"1\x00", "", ErrSyntax},
		{"٣", "", ErrSyntax},
		{"1." + strings.Repeat("0", 62), "1", nil},
		{"1." + strings.Repeat("0", 63), "", ErrSyntax},
	} {
		got, err := Parse(c.in)
		if err != c.err {
			t.Errorf("Parse(%q): %v, want %v", c.in, err, c.err)
			continue
		}
		if err == nil && got.String() != c.want {
			t.Errorf("Parse(%q) = %v, want %s", c.in, got, c.want)
		}
		if err != nil && got != Zero {
			t.Errorf("Parse(%q) failed with a value, %v", c.in, got)
		}
	}
}

func TestParseRounded(t *testing.T) {
	for _, c := range []struct {
		in, want string
		err      error
	}{
		{"3", "3", nil},
		{"0.0000000000004", "0", nil},
		{"0.0000000000005", "0", nil},
		{"0.00000000000050001", "0.000000000001", nil},
		{"0.0000000000015", "0.000000000002", nil},
		{"0.0000000000025", "0.000000000002", nil},
		{"-0.0000000000025", "-0.000000000002", nil},
		{"-0.0000000000026", "-0.000000000003", nil},
		{"-0.0000000000001", "0", nil},
		{"9e-14", "0", nil},
		{"1e-99999999999999", "0", nil},
		{"0.9999999999999", "1", nil},
		{"18.4467440737095516150", "18.44674407371", nil},
		{"18446744.0737095516155", "18446744.073709551616", nil},
		{"99999999999999999999999999.9999999999994", "99999999999999999999999999.999999999999", nil},
		{"99999999999999999999999999.9999999999995", "", ErrRange},
		{"1e26", "", ErrRange},
		{"1.", "", ErrSyntax},
	} {
		got, err := ParseRounded(c.in)
		if err != c.err {
			t.Errorf("ParseRounded(%q): %v, want %v", c.in, err, c.err)
			continue
		}
		if err == nil && got.String() != c.want {
			t.Errorf("ParseRounded(%q) = %v, want %s", c.in, got, c.want)
		}
		if err != nil && got != Zero {
			t.Errorf("ParseRounded(%q) failed with a value, %v", c.in, got)
		}
	}
}

func TestTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := amounts().Draw(t, "a")
		text := a.String()
		if want := referenceText(a); text != want {
			t.Fatalf("String: %s, want %s", text, want)
		}
		if got := string(a.AppendText([]byte("x="))); got != "x="+text {
			t.Fatalf("AppendText: %s", got)
		}
		if got, err := Parse(text); err != nil || got != a {
			t.Fatalf("Parse(%s) = %v, %v", text, got, err)
		}
	})
}

// referenceText prints a through big.Rat.
func referenceText(a Amount) string {
	s := new(big.Rat).SetFrac(toBig(a), bigUnit).FloatString(Decimals)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

var jsonNumber = regexp.MustCompile(`\A(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?)(?:[eE]([+-]?[0-9]+))?\z`)

// referenceParse is Parse and ParseRounded by rational arithmetic.
func referenceParse(s string, round bool) (Amount, error) {
	m := jsonNumber.FindStringSubmatch(s)
	if m == nil || len(s) > 64 {
		return Amount{}, ErrSyntax
	}
	v, ok := new(big.Rat).SetString(m[1])
	if !ok {
		return Amount{}, errors.New("the reference cannot read " + m[1])
	}
	exp := new(big.Int)
	if m[2] != "" {
		exp.SetString(strings.TrimPrefix(m[2], "+"), 10)
	}
	// 64 digits cannot undo an exponent of 200; do not compute 10^(10^50).
	if far := big.NewInt(200); v.Sign() != 0 && exp.CmpAbs(far) > 0 {
		exp.SetInt64(int64(200 * exp.Sign()))
	} else if v.Sign() == 0 {
		exp.SetInt64(0)
	}
	power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), new(big.Int).Abs(exp), nil))
	if exp.Sign() < 0 {
		power.Inv(power)
	}
	v.Mul(v, power).Mul(v, new(big.Rat).SetInt(bigUnit))
	if !round && v.Num().CmpAbs(new(big.Int).Mul(bigLimit, v.Denom())) >= 0 {
		return Amount{}, ErrRange
	}
	if !round && !v.IsInt() {
		return Amount{}, ErrPrecision
	}
	a, ok := fromBig(roundHalfEvenBig(v.Num(), v.Denom()))
	if !ok {
		return Amount{}, ErrRange
	}
	return a, nil
}

func checkParse(t interface {
	Helper()
	Fatalf(string, ...any)
}, s string) {
	t.Helper()
	want, wantErr := referenceParse(s, false)
	a, err := Parse(s)
	if a != want || err != wantErr {
		t.Fatalf("Parse(%q) = %v, %v; want %v, %v", s, a, err, want, wantErr)
	}
	want, wantErr = referenceParse(s, true)
	r, rErr := ParseRounded(s)
	if r != want || rErr != wantErr {
		t.Fatalf("ParseRounded(%q) = %v, %v; want %v, %v", s, r, rErr, want, wantErr)
	}
	if err != nil {
		return
	}
	if back, err := Parse(a.String()); err != nil || back != a {
		t.Fatalf("%q prints as %q, which reads as %v, %v", s, a.String(), back, err)
	}
}

// Random bytes seldom are numbers, so this draws numbers, and near misses.
func TestParseAgainstRat(t *testing.T) {
	text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,3}|[0-9]{15,30}|9{20,27})(\.([0-9]{1,20}|0{10,13}[0-9]{0,` +
		`3}|[0-9]{12}50{0,6}[01]?|9{11,14}))?([eE][+-]?(0?[0-9]|[1-4][0-9]|[0-9]{9,25}))?`)
	rapid.Check(t, func(t *rapid.T) { checkParse(t, text.Draw(t, "text")) })
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"0", "-0", "3", "-3.5", "1.50", "1e3", "1e-13", "1e26", "0e999999999999", "1E+0025",
		"99999999999999999999999999.999999999999", "99999999999999999999999999.9999999999995",
		"0.0000000000015", "01", ".5", "5.", "+1", "1e", "1.5000000000000000",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { checkParse(t, s) })
}
