package secrets

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
)

func whsec(n int) string { return prefix + base64.StdEncoding.EncodeToString(make([]byte, n)) }

func TestMadeSecretsAreGoodAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		s, err := NewSigning(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := ParseSigning("secret", s.Reveal())
		if err != nil || !parsed.Equal(s) || seen[s.Reveal()] {
			t.Fatalf("%v, %v", parsed, err)
		}
		seen[s.Reveal()] = true
	}
}

func TestSecretsThatCallersBring(t *testing.T) {
	for _, n := range []int{24, 25, 26, 32, 63, 64} {
		if s, err := ParseSigning("secret", whsec(n)); err != nil || s.Reveal() != whsec(n) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	good := strings.TrimPrefix(whsec(25), prefix) // ends in ==
	for _, c := range []struct{ text, says string }{
		{"", "must begin with whsec_"},
		{good, "must begin with whsec_"},
		{"WHSEC_" + good, "must begin with whsec_"},
		{" " + whsec(32), "must begin with whsec_"},
		{prefix, "holds 0 bytes"},
		{whsec(23), "between 24 and 64"},
		{whsec(65), "between 24 and 64"},
		{whsec(67), "longer than 64 bytes"},
		{whsec(10000), "longer than 64 bytes"},
		{prefix + strings.TrimRight(good, "="), "padded"},
		{prefix + good + "\n", "base64"},
		{prefix + good[:8] + "\r\n" + good[8:], "base64"},
		{prefix + "!!!!" + good, "base64"},
		{prefix + strings.Repeat("-_", 20), "base64"},
		{prefix + good[:len(good)-3] + "B==", "base64"}, // stray bits: two texts would be one secret
		{prefix + prefix + good, "base64"},
	} {
		s, err := ParseSigning("secret", c.text)
		if err == nil || !strings.Contains(err.Error(), c.says) || !problem.Is(err, problem.Invalid) ||
			s.Reveal() != "" {
			t.Errorf("%q: %v, want %q", c.text, err, c.says)
		}
		if len(c.text) > 12 && strings.Contains(err.Error(), c.text[6:]) {
			t.Errorf("the problem shows the secret: %v", err)
		}
	}
}

func TestNothingOfASecretIsPrinted(t *testing.T) {
	s, err := NewSigning(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	type nested struct {
		Shown  Signing
		hidden Signing
		List   []Validity
	}
	for _, v := range []any{s, &s, nested{s, s, []Validity{{Secret: s}}}, &nested{hidden: s}, []Signing{s},
		map[string]Signing{"a": s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			if got := fmt.Sprintf(verb, v); shows(got, s) {
				t.Errorf("%s prints %s", verb, got)
			}
		}
		text, err := json.Marshal(v)
		if err != nil || shows(string(text), s) {
			t.Errorf("as JSON: %s, %v", text, err)
		}
	}
}

func shows(text string, s Signing) bool {
	part := s.Reveal()[len(prefix) : len(prefix)+8]
	hexed := fmt.Sprintf("%x", part)
	return strings.Contains(text, part) || strings.Contains(strings.ToLower(text), hexed)
}

// signing is a secret with a name that tests can read.
func signing(name string) Signing { return Signing{&name} }

func names(list []Validity, from time.Time) (out []string) {
	for _, v := range list {
		until := "for good"
		if !v.Until.IsZero() {
			until = v.Until.Sub(from).String()
		}
		out = append(out, v.Secret.Reveal()+" "+until)
	}
	return out
}

func TestRotation(t *testing.T) {
	start := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	at := func(h int) time.Time { return start.Add(time.Duration(h) * time.Hour) }
	expect := func(what string, list []Validity, want ...string) {
		t.Helper()
		if got := names(list, start); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	one := Rotate(nil, signing("a"), start, Overlap)
	expect("the first", one, "a for good")
	two := Rotate(one, signing("b"), at(1), Overlap)
	expect("the second", two, "b for good", "a 25h0m0s")
	expect("a moment before the end", Valid(two, at(25).Add(-1)), "b for good", "a 25h0m0s")
	expect("at the end", Valid(two, at(25)), "b for good")
	three := Rotate(two, signing("c"), at(2), Overlap)
	expect("nobody's time grows", three, "c for good", "b 26h0m0s", "a 25h0m0s")
	expect("a shorter overlap shortens all", Rotate(three, signing("d"), at(3), time.Hour), "d for good", "c 4h0m0s",
		"b 4h0m0s", "a 4h0m0s")
	expect("none", Rotate(three, signing("d"), at(3), 0), "d for good")
	expect("those at their end are gone", Rotate(three, signing("d"), at(25), Overlap), "d for good", "c 49h0m0s",
		"b 26h0m0s")
	expect("the same again", Rotate(two, signing("b"), at(2), Overlap), "b for good", "a 25h0m0s")
	expect("back to the one before", Rotate(two, signing("a"), at(2), Overlap), "a for good", "b 26h0m0s")
	list := one
	for i := range 10 {
		list = Rotate(list, signing(fmt.Sprint(i)), at(1), Overlap)
	}
	expect("the oldest of many goes", list, "9 for good", "8 25h0m0s", "7 25h0m0s", "6 25h0m0s")
	expect("what was passed in is as it was", one, "a for good")
}

func FuzzParseSigning(f *testing.F) {
	for _, text := range []string{whsec(24), whsec(64), whsec(25), "whsec_", "x", "whsec_AAAA\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSigning("secret", text)
		if err != nil {
			return
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, prefix))
		if err != nil || len(raw) < minSecret || len(raw) > maxSecret || s.Reveal() != text ||
			prefix+base64.StdEncoding.EncodeToString(raw) != text {
			t.Errorf("%q is taken", text)
		}
	})
}
