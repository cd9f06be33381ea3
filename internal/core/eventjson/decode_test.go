package eventjson

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
)

func mustAmount(t *testing.T, s string) amount.Amount {
	t.Helper()
	a, err := amount.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func micros(t *testing.T, s string) calendar.Micros {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return calendar.FromTime(at)
}

// one decodes a body that is a single valid event.
func one(t *testing.T, decode func([]byte, []usage.Event) (Batch, error), body string) usage.Event {
	t.Helper()
	b, err := decode([]byte(body), nil)
	if err != nil || !b.Single || len(b.Events) != 1 || b.Events[0].Invalid != nil {
		t.Fatalf("%s: %+v, %v", body, b, err)
	}
	return b.Events[0]
}

func TestExample(t *testing.T) {
	want := usage.Event{
		ID: "req_8f2", Meter: "api_calls", Customer: "cus_42", Resource: "gpt-9", Properties: `{"region":"eu"}`,
		Time: micros(t, "2026-11-15T02:10:00Z"), Quantity: mustAmount(t, "3"),
		Given: usage.GivenMeter | usage.GivenCustomer | usage.GivenResource | usage.GivenTime | usage.GivenQuantity |
			usage.GivenProperties,
	}
	if diff := cmp.Diff(want, one(t, Decode, exampleEvent), cmp.AllowUnexported(amount.Amount{})); diff != "" {
		t.Error(diff)
	}
}

func TestCorrection(t *testing.T) {
	want := usage.Event{ID: "c1", Corrects: "req_8f2", Reason: "billed twice", Quantity: mustAmount(t, "-1"),
		Given: usage.GivenQuantity}
	got := one(t, Decode, `{"id":"c1","corrects":"req_8f2","quantity":"-1","reason":"billed twice"}`)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(amount.Amount{})); diff != "" {
		t.Error(diff)
	}
}

func TestCloudEvent(t *testing.T) {
	want := usage.Event{
		ID: "/gateway 8f2", Type: "llm_call", Customer: "cus_42", Properties: `{"region":"eu","tokens":12}`,
		Time: micros(t, "2026-11-15T02:10:00Z"), Quantity: amount.One,
		Given: usage.GivenType | usage.GivenCustomer | usage.GivenTime | usage.GivenProperties,
	}
	if diff := cmp.Diff(want, one(t, DecodeCloudEvent, cloudEvent), cmp.AllowUnexported(amount.Amount{})); diff != "" {
		t.Error(diff)
	}
}

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		decode func([]byte, []usage.Event) (Batch, error)
		body   string
		ids    string
		single bool
	}{
		{Decode, `{"id":"a"}`, "a", true},
		{Decode, ` { "id" : "a" } ` + "\r\n", "a", true},
		{Decode, `[{"id":"a"}]`, "a", false},
		{Decode, `[{"id":"a"},{},{"id":"c"}]`, "a,,c", false},
		{Decode, `{"events":[{"id":"a"},{"id":"b"}]}`, "a,b", false},
		{Decode, ` { "events" : [ {"id":"a"} , {"id":"b"} ] } `, "a,b", false},
		{DecodeLines, `{"id":"a"}`, "a", false},
		{DecodeLines, "\n{\"id\":\"a\"}\r\n\t \r\n{\"id\":\"b\"}\n", "a,b", false},
		{DecodeCloudEvent, `{"id":"a","source":"s"}`, "s a", true},
		{DecodeCloudEvents, `[{"id":"a","source":"s"},{"id":"b"}]`, "s a,b", false},
	} {
		b, err := c.decode([]byte(c.body), nil)
		var ids []string
		for i := range b.Events {
			ids = append(ids, b.Events[i].ID)
		}
		if err != nil || b.Single != c.single || strings.Join(ids, ",") != c.ids {
			t.Errorf("%q: %v, single %v, %v", c.body, ids, b.Single, err)
		}
	}
}

func TestMalformed(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth)
	many := "{"
	for i := range 100 {
		many += `"` + strings.Repeat("k", i+1) + `":1,`
	}
	for _, c := range []struct {
		decode func([]byte, []usage.Event) (Batch, error)
		body   string
		detail string
	}{
		{Decode, ``, "byte 0: the body is empty"},
		{Decode, " \n", "byte 2: the body is empty"},
		{Decode, `[]`, "the body holds no events"},
		{Decode, `{"events":[]}`, "the body holds no events"},
		{Decode, `1`, `byte 0: the body must be an event, an array of events, or {"events":[…]}`},
		{Decode, "\xef\xbb\xbf{}", "byte 0: the body starts with a byte order mark, which JSON does not allow"},
		{Decode, `{}{}`, "event 0, byte 2: there are bytes after the end of the JSON value"},
		{Decode, `[{}] x`, "byte 5: there are bytes after the end of the JSON value"},
		{Decode, `{"events":[{}]}x`, "byte 15: there are bytes after the end of the JSON value"},
		{Decode, `{"events":{}}`, "byte 10: events must be an array"},
		{Decode, `{"events":[{}],"x":1}`, "byte 14: an object with the member events must have no other member"},
		{Decode, `{"x":1,"events":[{}]}`, "event 0, byte 7: an object with the member events must have no other " +
			"member"},
		{Decode, `[{},{"id"}]`, "event 1, byte 9: expected a colon, found '}'"},
		{Decode, `[{},`, "event 1, byte 4: the body ends where a value was expected"},
		{Decode, `[{},]`, "event 1, byte 4: expected a value, found ']'"},
		{Decode, `[{} {}]`, "event 0, byte 4: expected a comma or ], found '{'"},
		{Decode, `{"id":"a",}`, "event 0, byte 10: expected a name in double quotes, found '}'"},
		{Decode, `{id:1}`, "event 0, byte 1: expected a name in double quotes, found 'i'"},
		{Decode, `{"id":"a`, "event 0, byte 8: the body ends where the end of a string was expected"},
		{Decode, `{"id":nul}`, "event 0, byte 6: expected a value, found 'n'"},
		{Decode, `{"quantity":01}`, "event 0, byte 13: a number must not have leading zeros"},
		{Decode, `{"quantity":-}`, "event 0, byte 13: expected a digit, found '}'"},
		{Decode, `{"quantity":1.}`, "event 0, byte 14: expected a digit, found '}'"},
		{Decode, `{"quantity":1e+}`, "event 0, byte 15: expected a digit, found '}'"},
		{Decode, `{"quantity":+1}`, "event 0, byte 12: expected a value, found '+'"},
		{Decode, "{\"id\":\"a\tb\"}", "event 0, byte 8: a string must not hold the control character 0x09"},
		{Decode, "{\"id\":\"aé\xff\"}", "event 0, byte 10: the text is not valid UTF-8"},
		{Decode, "{\"x\":\"\xed\xa0\x80\"}", "event 0, byte 6: the text is not valid UTF-8"},
		{Decode, `{"id":"\x"}`, "event 0, byte 7: unknown escape in a string"},
		{Decode, `{"id":"\u12g4"}`, `event 0, byte 7: \u needs four hexadecimal digits`},
		{Decode, `{"id":"\ud800"}`, "event 0, byte 7: lone surrogate in a string"},
		{Decode, `{"id":"\ude00\ud83d"}`, "event 0, byte 7: lone surrogate in a string"},
		{Decode, `{"id":"a","id":"a"}`, `event 0, byte 10: duplicate name "id" in an object`},
		{Decode, `{"id":"a","\u0069d":"a"}`, `event 0, byte 10: duplicate name "id" in an object`},
		{Decode, `{"x":1,"y":1,"x":1}`, `event 0, byte 13: duplicate name "x" in an object`},
		{Decode, `{"properties":{"a":1,"a":1}}`, `event 0, byte 21: duplicate name "a" in an object`},
		{Decode, `{"properties":{"a":1,"b":{"c":1,"c":1}}}`, `event 0, byte 32: duplicate name "c" in an object`},
		{Decode, `{"x":[{"c":1,"c":1}]}`, `event 0, byte 13: duplicate name "c" in an object`},
		{Decode, `{"x":` + many + `"kk":1}}`, `event 0, byte 5556: duplicate name "kk" in an object`},
		{Decode, `{"x":` + deep, "event 0, byte 36: values nest deeper than 32"},
		{DecodeLines, "\n\n", "byte 2: the body is empty"},
		{DecodeLines, "{}\n{\"id\":\n\"a\"}", "line 2, event 1, byte 9: the line ends where a value was expected"},
		{DecodeLines, "{}\n\n{} {}", "line 3, event 1, byte 7: there are bytes after the end of the JSON value"},
		{DecodeCloudEvent, `[{}]`, "byte 0: the body must be a CloudEvent object"},
		{DecodeCloudEvents, `{}`, "byte 0: the body must be an array of CloudEvents"},
		{DecodeCloudEvents, `[]`, "the body holds no events"},
		{DecodeCloudEvent, `{"id":"a","id":"a"}`, `event 0, byte 10: duplicate name "id" in an object`},
		{DecodeCloudEvent, `{"ext":1,"ext":1}`, `event 0, byte 9: duplicate name "ext" in an object`},
	} {
		b, err := c.decode([]byte(c.body), nil)
		want := "malformed: " + c.detail
		if err == nil || err.Error() != want || b.Events != nil {
			t.Errorf("%.80q:\n got %v\nwant %s", c.body, err, want)
		}
	}
}

// manyNames is an event with an object of n members in an unknown field.
func manyNames(n int) string {
	var b strings.Builder
	b.WriteString(`{"x":`)
	for i := range n {
		b.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(&b, `"%d":1`, i)
	}
	return b.String() + "}}"
}

func TestManyNames(t *testing.T) {
	// The field itself is one of the names.
	if b, err := Decode([]byte(manyNames(maxNames-1)), nil); err != nil || b.Events[0].Invalid == nil {
		t.Errorf("as many as are allowed: %v", err)
	}
	_, err := Decode([]byte(manyNames(maxNames)), nil)
	if !problem.Is(err, problem.Malformed) || !strings.Contains(err.Error(), "more than 10000 members") {
		t.Errorf("one more: %v", err)
	}
}

func TestTooManyEvents(t *testing.T) {
	for _, c := range []struct {
		decode func([]byte, []usage.Event) (Batch, error)
		body   func(n int) string
	}{
		{Decode, func(n int) string { return string(arrayOf("{}", n)) }},
		{Decode, func(n int) string { return `{"events":` + string(arrayOf("{}", n)) + `}` }},
		{DecodeLines, func(n int) string { return strings.Repeat("{}\n", n) }},
		{DecodeCloudEvents, func(n int) string { return string(arrayOf("{}", n)) }},
	} {
		if b, err := c.decode([]byte(c.body(MaxEvents)), nil); err != nil || len(b.Events) != MaxEvents {
			t.Errorf("%d events: %v", len(b.Events), err)
		}
		if _, err := c.decode([]byte(c.body(MaxEvents+1)), nil); !problem.Is(err, problem.TooLarge) {
			t.Errorf("one too many: %v", err)
		}
	}
}

func TestPlainEventsDoNotAllocate(t *testing.T) {
	into := make([]usage.Event, 0, 100)
	for _, event := range []string{exampleEvent, bareEvent,
		`{"id":"日本","properties":{"a":"\u000a","b":-1.5,"c":null}}`} {
		body := arrayOf(event, 100)
		lines := []byte(strings.Repeat(event+"\n", 100))
		n := testing.AllocsPerRun(10, func() {
			if b, err := Decode(body, into); err != nil || b.Events[99].Invalid != nil {
				t.Fatal(err)
			}
			if b, err := DecodeLines(lines, into); err != nil || b.Events[99].Invalid != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations for 200 events", event, n)
		}
	}
}

// Rewritten properties of one event must not be overwritten by those of the next.
func TestEventsDoNotShareScratch(t *testing.T) {
	b, err := Decode([]byte(`[{"id":"\/a","properties":{"b":"\/1","a":1e1}},{"id":"\/b","properties":{"b":"\/2",`+
		`"a":2e1}}]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`/a {"a":10,"b":"/1"}`, `/b {"a":20,"b":"/2"}`} {
		if got := b.Events[i].ID + " " + b.Events[i].Properties; got != want {
			t.Errorf("event %d: %s, want %s", i, got, want)
		}
	}
}
