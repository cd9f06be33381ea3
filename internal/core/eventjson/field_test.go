package eventjson

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/usage"
)

// fieldEvent decodes an event with the members and returns it.
func fieldEvent(t *testing.T, decode func([]byte, []usage.Event) (Batch, error), member string) usage.Event {
	t.Helper()
	b, err := decode([]byte("{"+member+"}"), nil)
	if err != nil {
		t.Fatalf("%s: %v", member, err)
	}
	return b.Events[0]
}

func TestQuantity(t *testing.T) {
	for _, c := range []struct{ value, quantity, unrounded string }{
		{`3`, "3", ""}, {`"3"`, "3", ""}, {`0`, "0", ""}, {`-1.50`, "-1.5", ""}, {`1e3`, "1000", ""},
		{`"1.5E-2"`, "0.015", ""}, {`"\u0033"`, "3", ""},
		{`0.000000000001`, "0.000000000001", ""}, {`1.0000000000000000`, "1", ""},
		{`0.0000000000001`, "0", "0.0000000000001"}, {`"12.34567890123450"`, "0", "12.3456789012345"},
		{`1e-13`, "0", "0.0000000000001"},
	} {
		ev := fieldEvent(t, Decode, `"quantity":`+c.value)
		if ev.Invalid != nil || ev.Quantity.String() != c.quantity || ev.Unrounded != c.unrounded ||
			ev.Given != usage.GivenQuantity {
			t.Errorf("%s: %v %q %b %v", c.value, ev.Quantity, ev.Unrounded, ev.Given, ev.Invalid)
		}
	}
}

func TestTime(t *testing.T) {
	for _, c := range [][2]string{
		{`"2026-11-15T02:10:00Z"`, "2026-11-15T02:10:00Z"}, {`"2026-11-15T02:10:00.1Z"`, "2026-11-15T02:10:00.1Z"},
		{`"2026-11-15T02:10:00.123456999999Z"`, "2026-11-15T02:10:00.123456Z"},
		{`"2026-11-15T02:10:00+05:30"`, "2026-11-14T20:40:00Z"},
		{`"2026-11-15T02:10:00-00:00"`, "2026-11-15T02:10:00Z"},
		{`"2026-11-15T23:10:00-01:00"`, "2026-11-16T00:10:00Z"}, {`"2024-02-29T00:00:00Z"`, "2024-02-29T00:00:00Z"},
		{`"2000-02-29T00:00:00Z"`, "2000-02-29T00:00:00Z"}, {`"1970-01-01T00:00:00Z"`, "1970-01-01T00:00:00Z"},
		{`"9999-12-31T23:59:59.9999999Z"`, "9999-12-31T23:59:59.999999Z"},
		{`1735561800000`, "2024-12-30T12:30:00Z"}, {`1.7355618e12`, "2024-12-30T12:30:00Z"},
		{`1735561800001.0`, "2024-12-30T12:30:00.001Z"},
		{`100000000000`, "1973-03-03T09:46:40Z"}, {`253402300799999`, "9999-12-31T23:59:59.999Z"},
	} {
		ev := fieldEvent(t, Decode, `"time":`+c[0])
		if ev.Invalid != nil || ev.Time.String() != c[1] || ev.Given != usage.GivenTime {
			t.Errorf("%s: %v %b %v", c[0], ev.Time, ev.Given, ev.Invalid)
		}
	}
}

func TestProperties(t *testing.T) {
	for _, c := range [][2]string{
		{`{}`, ``}, {`{ }`, ``}, {`{"a":"x"}`, `{"a":"x"}`}, {`{ "a" : "x" }`, `{"a":"x"}`},
		{`{"b":1,"a":2}`, `{"a":2,"b":1}`}, {`{"ab":1,"a":2}`, `{"a":2,"ab":1}`},
		{`{"a":true,"b":false,"c":null}`, `{"a":true,"b":false,"c":null}`},
		{`{"a":1.50,"b":-0,"c":1e2}`, `{"a":1.5,"b":0,"c":100}`}, {`{"":""}`, `{"":""}`},
		{`{"a":"\/\n\u00e9\u001F"}`, `{"a":"/\u000aé\u001f"}`}, {`{"a":"\ud83d\ude00<"}`, `{"a":"😀<"}`},
		{`{"a\"":"\\"}`, `{"a\"":"\\"}`},
		{`{"é":1,"z":2}`, `{"z":2,"é":1}`},
	} {
		ev := fieldEvent(t, Decode, `"properties":`+c[0])
		if ev.Invalid != nil || ev.Properties != c[1] || ev.Has(usage.GivenProperties) != (c[1] != "") {
			t.Errorf("%s: %s %b %v", c[0], ev.Properties, ev.Given, ev.Invalid)
		}
	}
}

// The limits are on the canonical text, whichever way it was sent.
func TestPropertiesLimits(t *testing.T) {
	members := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"%03d":%d`, i, i))
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	long := func(n int) string { return `{"a":"` + strings.Repeat("x", n-len(`{"a":""}`)) + `"}` }
	for _, c := range []struct{ value, invalid string }{
		{members(64), ""}, {members(65), "properties: at most 64 members, these are 65"},
		{long(4096), ""}, {long(4097), "properties: at most 4096 bytes, these have 4097"},
	} {
		for _, value := range []string{c.value, strings.Replace(c.value, ":", " : ", 1)} {
			ev := fieldEvent(t, Decode, `"properties":`+value)
			if ev.Invalid == nil && (c.invalid != "" || ev.Properties != c.value) ||
				ev.Invalid != nil && ev.Invalid.Detail != c.invalid {
				t.Errorf("%.40s: %v", value, ev.Invalid)
			}
		}
	}
}

// A wrong field refuses its event alone, names the first problem, and the rest is still read.
func TestInvalid(t *testing.T) {
	forty := strings.Repeat("9", 40)
	for _, c := range [][2]string{
		{`"id":""`, `id: must not be empty`},
		{`"id":7`, `id: must be a string, not a number`},
		{`"meter":null`, `meter: must be a string, not null; leave out what is not known`},
		{`"type":true`, `type: must be a string, not a boolean`},
		{`"customer":["a"]`, `customer: must be a string, not an array`},
		{`"resource":{"a":{}}`, `resource: must be a string, not an object`},
		{`"corrects":""`, `corrects: must not be empty`},
		{`"reason":""`, `reason: must not be empty`},
		{`"qty":5`, `qty: unknown field`},
		{`"ID":"a"`, `ID: unknown field`},
		{`"":1`, `: unknown field`},
		{`"` + strings.Repeat("é", 50) + `":1`, strings.Repeat("é", 32) + `…: unknown field`},
		{`"quantity":null`, `quantity: must be a number or a string that holds one, not null; leave out what is not ` +
			`known`},
		{`"quantity":""`, `quantity: not a decimal number of at most 64 characters`},
		{`"quantity":"1,5"`, `quantity: not a decimal number of at most 64 characters`},
		{`"quantity":"NaN"`, `quantity: not a decimal number of at most 64 characters`},
		{`"quantity":" 1"`, `quantity: not a decimal number of at most 64 characters`},
		{`"quantity":1e26`, `quantity: number is too large: its magnitude must be below 10^26`},
		{`"quantity":1e-40`, `quantity: number has more than 40 digits when written without an exponent`},
		{`"time":"yesterday"`, `time: must be a time in RFC 3339, for example 2026-11-15T02:10:00Z`},
		{`"time":"2026-11-15T02:10:60Z"`, `time: must be a time in RFC 3339, for example 2026-11-15T02:10:00Z`},
		{`"time":"2026-02-29T02:10:00Z"`, `time: must be a time in RFC 3339, for example 2026-11-15T02:10:00Z`},
		{`"time":"2026-11-15 02:10:00Z"`, `time: must be a time in RFC 3339, for example 2026-11-15T02:10:00Z`},
		{`"time":"2026-11-15T02:10:00"`, `time: must be a time in RFC 3339, for example 2026-11-15T02:10:00Z`},
		{`"time":"2026-11-15T02:10:00.Z"`, `time: must be a time in RFC 3339, for example 2026-11-15T02:10:00Z`},
		{`"time":"2026-11-15T02:10:00+24:00"`, `time: must be a time in RFC 3339, for example 2026-11-15T02:10:00Z`},
		{`"time":"1969-12-31T23:59:59.9999999Z"`, `time: must lie between 1970 and 9999`},
		{`"time":"9999-12-31T23:59:59-01:00"`, `time: must lie between 1970 and 9999`},
		{`"time":1735561800`, `time: looks like seconds; a number must be milliseconds since 1970`},
		{`"time":99999999999`, `time: looks like seconds; a number must be milliseconds since 1970`},
		{`"time":-1735561800000`, `time: must lie between 1970 and 9999`},
		{`"time":253402300800000`, `time: must lie between 1970 and 9999`},
		{`"time":1e300`, `time: must lie between 1970 and 9999`},
		{`"time":` + forty, `time: must lie between 1970 and 9999`},
		{`"time":1735561800000.5`, `time: must be whole milliseconds`},
		{`"time":false`, `time: must be a string in RFC 3339 or a number of milliseconds since 1970, not a boolean`},
		{`"properties":[]`, `properties: must be an object, not an array`},
		{`"properties":null`, `properties: must be an object, not null; leave out what is not known`},
		{`"properties":{"a":1,"b":{"c":1}}`,
			`properties.b: must be a string, a number, a boolean or null: properties are flat`},
		{`"properties":{"a":[]}`, `properties.a: must be a string, a number, a boolean or null: properties are flat`},
		{`"properties":{"a":1e40}`, `properties.a: number has more than 40 digits when written without an exponent`},
		{`"properties":{"a":9` + forty + `}`,
			`properties.a: number has more than 40 digits when written without an exponent`},
		{`"meter":1,"customer":2`, `meter: must be a string, not a number`},
	} {
		member := c[0]
		if !strings.HasPrefix(member, `"id"`) {
			member += `,"id":"known"`
		}
		b, err := Decode([]byte(`[{"id":"before"},{`+member+`},{"id":"after"}]`), nil)
		if err != nil || len(b.Events) != 3 || b.Events[0].ID != "before" || b.Events[2].ID != "after" ||
			b.Events[0].Invalid != nil || b.Events[2].Invalid != nil {
			t.Errorf("%s: %+v, %v", c[0], b, err)
			continue
		}
		ev := b.Events[1]
		if ev.Invalid == nil || ev.Invalid.Detail != c[1] || ev.ID != "known" && member != c[0] {
			t.Errorf("%s: %q\n got %v\nwant %s", c[0], ev.ID, ev.Invalid, c[1])
		}
	}
}

func TestNotAnObject(t *testing.T) {
	for _, body := range []string{`[1]`, `["a"]`, `[null]`, `[[]]`, `{"events":[false]}`} {
		b, err := Decode([]byte(body), nil)
		if err != nil || b.Events[0].Invalid == nil || b.Events[0].Invalid.Fields[0].Path != "event" {
			t.Errorf("%s: %+v, %v", body, b, err)
		}
	}
}

func TestCloudEventAttributes(t *testing.T) {
	const required = `"specversion":"1.0","id":"1","source":"s","type":"t","subject":"c"`
	without := func(member string) string { return strings.Trim(strings.Replace(required+",", member+",", "", 1), ",") }
	for _, c := range [][2]string{
		{required, ``},
		{required + `,"time":null,"data":null,"datacontenttype":null,"data_base64":null,"ext":null,"quantity":null`,
			``},
		{required + `,"datacontenttype":"application/json; charset=utf-8"`, ``},
		{required + `,"datacontenttype":"application/vnd.usage+JSON"`, ``},
		{required + `,"traceparent":"00-0","dataschema":"https://example.com/s","ext1":7,"ext2":true`, ``},
		{without(`"specversion":"1.0"`), `specversion: required: must be "1.0"`},
		{without(`"id":"1"`), `id: required`},
		{without(`"source":"s"`), `source: required`},
		{without(`"type":"t"`), `type: required`},
		{without(`"subject":"c"`), `subject: required: it names the customer`},
		{without(`"subject":"c"`) + `,"subject":null`, `subject: required: it names the customer`},
		{without(`"subject":"c"`) + `,"subject":""`, `subject: must not be empty`},
		{without(`"source":"s"`) + `,"source":"a b"`, `source: must be a URI reference, which has no space`},
		{without(`"specversion":"1.0"`) + `,"specversion":"0.3"`, `specversion: required: must be "1.0"`},
		{required + `,"datacontenttype":"text/xml"`, `datacontenttype: must be JSON, such as application/json`},
		{required + `,"data":"text"`, `data: must be an object, not a string`},
		{required + `,"data":{"a":{}}`, `data.a: must be a string, a number, a boolean or null: properties are flat`},
		{required + `,"data_base64":"AA=="`, `data_base64: binary data has no properties; send a JSON object in data`},
		{required + `,"time":1735561800000`, `time: must be a string in RFC 3339, not a number`},
		{required + `,"quantity":5`, `quantity: not a CloudEvents attribute; state it in data, or send a plain usage ` +
			`event`},
		{required + `,"Ext":1`, `Ext: unknown attribute: the name of an extension has only lower-case letters and ` +
			`digits`},
		{required + `,"ext":[1]`, `ext: an extension attribute must be a string, a number or a boolean`},
	} {
		ev := fieldEvent(t, DecodeCloudEvent, c[0])
		detail := ""
		if ev.Invalid != nil {
			detail = ev.Invalid.Detail
		}
		if detail != c[1] {
			t.Errorf("%s:\n got %s\nwant %s", c[0], detail, c[1])
		}
	}
}
