package eventjson

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// seeds are bodies for every decoder: most are of the wrong shape for some of them.
var seeds = []string{
	exampleEvent, bareEvent, spacedEvent, escapedEvent, cloudEvent,
	"[" + exampleEvent + "," + spacedEvent + "]", `{"events":[` + bareEvent + `]}`,
	exampleEvent + "\n\r\n" + bareEvent + "\n", "[" + cloudEvent + "]",
	`{}`, `[]`, `[1,"x",null,[],{}]`, `{"events":[]}`, `{"events":[{}],"x":1}`, `{"x":1,"events":[]}`, "", " \n",
	"\xef\xbb\xbf{}", `{}}`, `[{},]`, `{"a":1,"a":2}`,
	`{"id":"a","\u0069d":"b"}`, `{"id":"\ud83d\ude00"}`, `{"id":"\ud83d"}`, "{\"id\":\"\xff\"}",
	`{"id":"\u001F\u001f"}`, "{\"id\":\"a\x01\"}", `{"id":"日本語日本語日本語"}`,
	`{"quantity":1e3}`, `{"quantity":"-0.0000000000001"}`, `{"quantity":1e-40}`, `{"quantity":01}`, `{"quantity":1e}`,
	`{"quantity":"1E99999999999"}`,
	`{"time":"2024-02-29T23:59:59.1234567+23:59"}`, `{"time":"2023-02-29T00:00:00Z"}`,
	`{"time":"1969-12-31T23:59:59.9Z"}`, `{"time":"0000-01-01T00:00:00Z"}`,
	`{"time":"2000-01-01T0:00:00Z"}`, `{"time":"2000-01-01T00:00:00,5+24:00"}`, `{"time":1.735561800e12}`,
	`{"time":1735561800}`, `{"time":1735561800000.5}`, `{"time":1e400}`,
	`{"properties":{"b":1,"a":-0,"c":1.50,"d":"\u00e9\n","e":null,"f":true}}`, `{"properties":{"a":{"b":1,"b":2}}}`,
	`{"properties":{"a":{"b":[1]}}}`,
	`{"properties":{"a":"\u000a\"\\","b\"":1}}`, `{"properties":{"a\n":1,"a\u000a":2}}`,
	`{"x":` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + `}`,
	`{"x":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}`,
	`{"specversion":"1.0","id":"1","source":"a ` +
		`b","type":"t","subject":"s","quantity":5,"ext":null,"Ext":1,"data_base64":""}`,
	`{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"s","datacontenttype":"application/x+JSON; ` +
		`a=b","dataschema":"u","data":null}`,
}

// FuzzDecode holds every decoder against the reference.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, m := range modes {
			compare(t, m, body)
		}
	})
}

// FuzzField does so for one field at a time, where random bodies seldom get past the syntax.
func FuzzField(f *testing.F) {
	for _, name := range []string{"id", "time", "quantity", "properties", "data", "subject", "x"} {
		for _, value := range []string{`1.5e3`, `"2026-11-15T02:10:00.5-00:30"`, `{"b":1.0,"a":"\t"}`, `"\ud83d\ude00"`,
			`17e11`, `-0.10`} {
			f.Add(name, value)
		}
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		for _, m := range modes {
			compare(t, m, []byte(`{"`+name+`":`+value+`}`))
			compare(t, m, []byte(`[{"`+name+`":`+quoted(value)+`, "id" : "a"}]`))
		}
	})
}

func compare(t *testing.T, m mode, body []byte) {
	t.Helper()
	want, code := m.reference(body)
	original := slices.Clone(body)
	got, err := m.decode(body, dirty())
	if string(original) != string(body) {
		t.Fatalf("%s: the decoder wrote to %q", m.name, original)
	}
	if problem.CodeOf(err) != code || err != nil && code == "" {
		t.Fatalf("%s: %q: got %v, want code %q", m.name, body, err, code)
	}
	paths(got.Events)
	paths(want.Events)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(problem.Error{}, usage.Event{}.Quantity)); diff != "" {
		t.Fatalf("%s: %q (-want +got):\n%s", m.name, body, diff)
	}
	for i := range got.Events {
		inside(t, body, &got.Events[i])
	}
}

// dirty returns room for events that holds leftovers of an earlier use.
func dirty() []usage.Event {
	leftover := usage.Event{
		ID: "x", Meter: "x", Type: "x", Customer: "x", Resource: "x", Properties: "x", Corrects: "x", Reason: "x",
		Unrounded: "x", Time: 1, Given: 0xff, Invalid: problem.At("x", "x"),
	}
	return []usage.Event{leftover, leftover}
}

// paths reduces the problems of events to where they are.
func paths(events []usage.Event) {
	for i := range events {
		if p := events[i].Invalid; p != nil {
			events[i].Invalid = problem.At(p.Fields[0].Path, "wrong")
		}
	}
}

// inside checks that a string that starts in the body does not end outside it.
func inside(t *testing.T, body []byte, ev *usage.Event) {
	t.Helper()
	first := uintptr(unsafe.Pointer(unsafe.SliceData(body)))
	end := first + uintptr(len(body))
	for _, s := range []string{ev.ID, ev.Meter, ev.Type, ev.Customer, ev.Resource, ev.Properties, ev.Corrects,
		ev.Reason, ev.Unrounded} {
		if s == "" {
			continue
		}
		at := uintptr(unsafe.Pointer(unsafe.StringData(s)))
		if at < end && at+uintptr(len(s)) > first && (at < first || at+uintptr(len(s)) > end) {
			t.Fatalf("%q lies across the edge of the body %q", s, body)
		}
	}
}

// A refusal without a code would answer 500.
func TestEveryRefusalIsCoded(t *testing.T) {
	for _, s := range seeds {
		for _, m := range modes {
			_, err := m.decode([]byte(s), nil)
			var p *problem.Error
			if err != nil && (!errors.As(err, &p) || p.Detail == "") {
				t.Errorf("%s: %q: %v", m.name, s, err)
			}
		}
	}
}
