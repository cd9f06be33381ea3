package eventjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/usage"
)

// attributesOf are those of "id: 1, source: /s".
func attributesOf(list string) []Attribute {
	var out []Attribute
	for one := range strings.SplitSeq(list, ", ") {
		if name, value, ok := strings.Cut(one, ": "); ok {
			out = append(out, Attribute{name, []string{value}})
		}
	}
	return out
}

// The same event in both modes is one event: every field, and every refusal.
func TestBothModesOfCloudEventsAreAlike(t *testing.T) {
	const whole = "id: 7, source: /gateway, specversion: 1.0, subject: cus_42, type: llm"
	for _, tc := range []struct{ attributes, data string }{
		{whole, `{"tokens":812}`},
		{whole, `{"b":"x","a":[1]}`},
		{whole, `{ "b" : 1.50 , "a" : "é" }`},
		{whole, ``},
		{whole, `null`},
		{whole, `[]`},
		{whole, `"text"`},
		{whole, `5`},
		{whole, `{"a":"` + strings.Repeat("x", usage.MaxProperties) + `"}`},
		{whole + ", time: 2026-11-15T02:10:00Z", `{}`},
		{whole + ", time: 2026-11-15T02:10:00.123456789+02:00", `{}`},
		{whole + ", time: yesterday", `{}`},
		{whole + ", time: 1763172600000", `{}`},
		{whole + ", traceparent: 00-ab-cd-01, dataschema: /s", `{}`},
		{whole + ", quantity: 5", `{}`},
		{whole + ", meter: m", `{}`},
		{whole + ", my-own: x", `{}`},
		{"id: 7, source: /gateway, specversion: 0.3, subject: cus_42, type: llm", `{}`},
		{"id: 7, source: /gateway, subject: cus_42, type: llm", `{}`},
		{"source: /gateway, specversion: 1.0, subject: cus_42, type: llm", `{}`},
		{"id: 7, specversion: 1.0, subject: cus_42, type: llm", `{}`},
		{"id: 7, source: two words, specversion: 1.0, subject: cus_42, type: llm", `{}`},
		{"id: 7, source: /gateway, specversion: 1.0, type: llm", `{}`},
		{"id: 7, source: /gateway, specversion: 1.0, subject: cus_42", `{}`},
		{"id: , source: /gateway, specversion: 1.0, subject: cus_42, type: llm", `{}`},
		{"", `{}`},
	} {
		var members []string
		for _, a := range attributesOf(tc.attributes) {
			name, _ := json.Marshal(a.Name)
			value, _ := json.Marshal(a.Value[0])
			members = append(members, string(name)+":"+string(value))
		}
		if tc.data != "" {
			members = append(members, `"data":`+tc.data)
		}
		want, wantErr := DecodeCloudEvent([]byte("{"+strings.Join(members, ",")+"}"), nil)
		got, err := DecodeBinaryCloudEvent(attributesOf(tc.attributes), "", []byte(tc.data), nil)
		if err != nil || wantErr != nil {
			t.Fatalf("%s %s: %v, %v", tc.attributes, tc.data, err, wantErr)
		}
		if fmt.Sprintf("%+v %v", got, got.Events[0].Invalid) != fmt.Sprintf("%+v %v", want, want.Events[0].Invalid) {
			t.Errorf("%s %s\nbinary     %+v\nstructured %+v", tc.attributes, tc.data, got, want)
		}
	}
}

func TestBinaryCloudEventsAsTheyTravel(t *testing.T) {
	base := func(more ...Attribute) []Attribute {
		return append(attributesOf("id: 7, source: /s, specversion: 1.0, type: t"), more...)
	}
	for _, tc := range []struct{ value, want string }{
		{"plain", "plain"}, {"Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € \U0001F600"}, {"%2541", "%41"}, {"a+b", "a+b"},
		{`"quoted \"x\" \\"`, `quoted "x" \`}, {`"%20"`, " "}, {`"`, `"`},
	} {
		b, err := DecodeBinaryCloudEvent(base(Attribute{"subject", []string{tc.value}}),
			"application/json; charset=utf-8", []byte(`{"a":1}`), nil)
		if err != nil || !b.Single || b.Events[0].Invalid != nil || b.Events[0].Customer != tc.want ||
			b.Events[0].ID != "/s 7" {
			t.Errorf("%q: %+v, %v", tc.value, b, err)
		}
	}
	for _, tc := range []struct {
		more Attribute
		kind string
		path string
	}{
		{Attribute{"subject", []string{"%"}}, "", "subject"}, {Attribute{"subject", []string{"%zz"}}, "", "subject"},
		{Attribute{"subject", []string{"%ff"}}, "", "subject"},
		{Attribute{"subject", []string{"\xff"}}, "", "subject"},
		{Attribute{"subject", []string{"a", "b"}}, "", "subject"}, {Attribute{"subject", nil}, "", "subject"},
		{Attribute{"data", []string{"{}"}}, "", "data"},
		{Attribute{"data_base64", []string{"e30="}}, "", "data_base64"},
		{Attribute{"datacontenttype", []string{"application/json"}}, "", "datacontenttype"},
		{Attribute{"subject", []string{"c"}}, "text/plain", "datacontenttype"},
	} {
		b, err := DecodeBinaryCloudEvent(base(tc.more), tc.kind, []byte(`{}`), nil)
		if err != nil || b.Events[0].Invalid == nil || b.Events[0].Invalid.Fields[0].Path != tc.path {
			t.Errorf("%v %s: %+v, %v", tc.more, tc.kind, b, err)
		}
	}
	// What does not belong to the data is not taken for more of the event.
	for _, body := range []string{`{},"id":"x"`, `{"a":1}{"a":2}`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{`, `nul`,
		`null {}`, "\xef\xbb\xbf{}"} {
		if b, err := DecodeBinaryCloudEvent(base(Attribute{"subject", []string{"c"}}), "", []byte(body),
			nil); err == nil {
			t.Errorf("%q is read: %+v", body, b)
		}
	}
}
