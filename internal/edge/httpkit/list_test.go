package httpkit

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"testing"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// cursorOf is a query with nothing but a cursor.
func cursorOf(text string) (Query, error) {
	if text == "" {
		return ParseQuery("", "acme", "/v1/things", "cursor")
	}
	return ParseQuery(url.Values{"cursor": {text}}.Encode(), "acme", "/v1/things", "cursor")
}

// Whatever a cursor's bytes are, reading them ends in a place or a refusal, and a place is written as it was read.
func FuzzCursor(f *testing.F) {
	q, err := cursorOf("")
	if err != nil {
		f.Fatal(err)
	}
	for _, place := range [][]byte{nil, SeqPlace(1 << 40), []byte("acme.00ff"), {0xff, 0xff}} {
		f.Add(q.Cursor(place))
	}
	f.Add("!")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, text string) {
		check := func(err error) {
			if err != nil && !problem.Is(err, problem.Malformed) {
				t.Errorf("%q: %v", text, err)
			}
		}
		q, err := cursorOf(text)
		if check(err); err != nil {
			return
		}
		place, err := q.Place()
		if err == nil && text != "" && q.Cursor(place) != text {
			t.Errorf("%q is also written %q", text, q.Cursor(place))
		}
		check(err)
		seq, err := q.AfterSeq()
		if check(err); err == nil && place != nil && !bytes.Equal(SeqPlace(seq), place) && len(place) <= 1 {
			t.Errorf("%x was read as %d", place, seq)
		}
		_, err = q.AfterName()
		check(err)
	})
}

// Given a cursor, when it is used with another tenant, path or filter, or is of another version, then it is refused.
func TestCursorsOfOthers(t *testing.T) {
	first, err := ParseQuery("color=red&limit=5", "acme", "/v1/things", "color", "limit", "cursor")
	if err != nil {
		t.Fatal(err)
	}
	cursor := "&cursor=" + url.QueryEscape(first.Cursor(SeqPlace(7)))
	for _, tc := range []struct {
		raw, tenantID, path string
		ok                  bool
	}{
		{"color=red", "acme", "/v1/things", true},
		{"color=red&limit=9", "acme", "/v1/things", true},
		{"color=blue", "acme", "/v1/things", false},
		{"limit=5", "acme", "/v1/things", false},
		{"color=red", "other", "/v1/things", false},
		{"color=red", "acme", "/v1/others", false},
	} {
		q, err := ParseQuery(tc.raw+cursor, tc.tenantID, tc.path, "color", "limit", "cursor")
		if err != nil {
			t.Fatal(err)
		}
		seq, err := q.AfterSeq()
		if tc.ok && (err != nil || seq != 7) || !tc.ok && !problem.Is(err, problem.Malformed) {
			t.Errorf("%+v: %d, %v", tc, seq, err)
		}
	}
	version2 := base64.RawURLEncoding.EncodeToString(append([]byte{2}, make([]byte, cursorHash+1)...))
	q, err := cursorOf(version2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Place(); !problem.Is(err, problem.Malformed) {
		t.Errorf("another version: %v", err)
	}
}
