package request

import (
	"strings"
	"testing"
)

func TestParseKey(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{"abc", "abc"}, {`"abc"`, "abc"}, {"  abc\t", "abc"}, {"a", "a"},
		{strings.Repeat("x", 255), strings.Repeat("x", 255)},
		{"8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"},
		{"", ""}, {`""`, ""}, {"a b", ""}, {"é", ""}, {`a"b`, ""}, {"a\x00", ""}, {strings.Repeat("x", 256), ""},
		{`"abc`, ""},
	} {
		got, err := ParseKey(c.header, MaxKey)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q, %v", c.header, got, err)
		}
	}
}

func TestFingerprintTellsEveryPartApart(t *testing.T) {
	base := Fingerprint("POST", "/v1/meters", "a=1", "application/json", []byte("{}"))
	if base != Fingerprint("POST", "/v1/meters", "a=1", "application/json", []byte("{}")) {
		t.Fatal("one request has two fingerprints")
	}
	for name, other := range map[string][32]byte{
		"method":       Fingerprint("PUT", "/v1/meters", "a=1", "application/json", []byte("{}")),
		"route":        Fingerprint("POST", "/v1/meter", "a=1", "application/json", []byte("{}")),
		"query":        Fingerprint("POST", "/v1/meters", "a=2", "application/json", []byte("{}")),
		"content type": Fingerprint("POST", "/v1/meters", "a=1", "text/csv", []byte("{}")),
		"body":         Fingerprint("POST", "/v1/meters", "a=1", "application/json", []byte("{} ")),
		"shifted":      Fingerprint("POST/", "v1/meters", "a=1", "application/json", []byte("{}")),
	} {
		if other == base {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
}
