package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/meter"
)

// Given a meter per model and one for what a call may lack, when calls come, then each feeds the meters that take it,
// and what none takes is refused, on every store.
func TestFilteredMeters(t *testing.T) {
	t.Parallel()
	all := newEveryStore(t)
	a := all.make("admin", "POST", "/v1/meters",
		`{"slug":"nine","aggregation":"sum","event_type":"llm","value_property":"tokens",`+
			`"filter":{"properties.tier":[2,1.0,true,"1"],"properties.model":["gpt-9"]}}`, 201)
	if got, want := a.part("filter"), `{"properties.model":["gpt-9"],"properties.tier":["1",1,2,true]}`; got != want {
		t.Errorf("filter %s, want %s", got, want)
	}
	all.make("admin", "POST", "/v1/meters",
		`{"slug":"images","aggregation":"sum","event_type":"llm","value_property":"images","missing_value":"skip"}`,
		201)
	all.make("admin", "POST", "/v1/meters",
		`{"slug":"plain","aggregation":"count","missing_value":"refuse","filter":{}}`, 201)
	send := func(status int, id, properties string) answer {
		t.Helper()
		return all.do(call{method: "POST", path: eventsPath, key: "ingest",
			body: fmt.Sprintf(`{"id":%q,"type":"llm","customer":"c","time":"2026-11-15T10:00:00Z","properties":%s}`, id,
				properties)}).status(t, status)
	}
	send(200, "a", `{"model":"gpt-9","tier":1e0,"tokens":5}`)
	send(200, "b", `{"model":"gpt-9","tier":true,"tokens":6,"images":2}`)
	send(200, "c", `{"model":"gpt-8","tier":1,"images":"3"}`)
	for id, properties := range map[string]string{"d": `{"model":"gpt-8","tier":1}`,
		"e": `{"model":"gpt-9","tier":"true"}`, "f": `{}`, "g": `{"model":null,"images":null}`} {
		a := send(422, id, properties)
		if a.text("code") != "unknown_meter" || strings.Contains(a.text("detail"), "nine") {
			t.Errorf("%s: %s", id, a.body)
		}
		batch := all.do(call{method: "POST", path: eventsPath, key: "admin",
			body: fmt.Sprintf(`[{"id":%q,"type":"llm","customer":"c","properties":%s}]`, id, properties)})
		for _, word := range []string{"nine has a filter", "images skips events without properties.images"} {
			if !strings.Contains(string(batch.body), word) {
				t.Errorf("%s: no %q in %s", id, word, batch.body)
			}
		}
	}
	for slug, want := range map[string]string{"nine": "11", "images": "5"} {
		counters := all.do(call{method: "GET", path: "/v1/counters?meter=" + slug, key: "admin"})
		if !strings.Contains(string(counters.body), `"total":"`+want+`"`) {
			t.Errorf("%s: %s", slug, counters.body)
		}
		usage := all.do(call{method: "GET", path: "/v1/usage?window=month&from=2026-11-01&to=2026-12-01&meter=" + slug,
			key: "admin"})
		if !strings.Contains(string(usage.body), `"value":"`+want+`"`) {
			t.Errorf("%s: %s", slug, usage.body)
		}
		events := all.do(call{method: "GET", path: "/v1/events?meter=" + slug, key: "admin"})
		if got := len(events.items(t)); got != 2 {
			t.Errorf("%s has %d events: %s", slug, got, events.body)
		}
	}
	patch := func(slug, body string) answer {
		return all.do(call{method: "PATCH", path: "/v1/meters/" + slug, key: "admin", body: body})
	}
	patch("nine", `{"filter":{"properties.model":["gpt-9"]}}`).refused(t, 409, "fixed_after_first_event")
	patch("nine", `{"filter":null}`).refused(t, 409, "fixed_after_first_event")
	// the same
	patch("nine", `{"filter":{"properties.tier":["1",true,1,2],"properties.model":["gpt-9"]}}`).status(t, 200)
	patch("images", `{"missing_value":null}`).status(t, 200)
	if a := send(422, "h", `{"model":"gpt-8"}`); a.text("code") != "invalid" {
		t.Errorf("with the default again: %s", a.body)
	}
}

func TestFiltersThatAreRefused(t *testing.T) {
	w := newWorld(t)
	many := func(n int, one func(i int) string) string {
		var parts []string
		for i := range n {
			parts = append(parts, one(i))
		}
		return strings.Join(parts, ",")
	}
	value := func(i int) string { return fmt.Sprint(i) }
	name := func(i int) string { return fmt.Sprintf(`"properties.p%d":[1]`, i) }
	for fields, path := range map[string]string{
		`"filter":7`:                         "filter",
		`"filter":[]`:                        "filter",
		`"filter":{"model":["x"]}`:           "filter.model",
		`"filter":{"properties.":["x"]}`:     "filter.properties.",
		`"filter":{"customer":["x"]}`:        "filter.customer",
		`"filter":{"resource":"x"}`:          "filter.resource",
		`"filter":{"resource":[]}`:           "filter.resource",
		`"filter":{"resource":[1]}`:          "filter.resource",
		`"filter":{"resource":[""]}`:         "filter.resource",
		`"filter":{"resource":["a","a"]}`:    "filter.resource",
		`"filter":{"properties.m":[null]}`:   "filter.properties.m[0]",
		`"filter":{"properties.m":["a",{}]}`: "filter.properties.m[1]",
		`"filter":{"properties.m":[1,1.0]}`:  "filter.properties.m",
		`"filter":{"properties.m":[1e99]}`:   "filter.properties.m[0]",
		`"filter":{"properties.m":["` + strings.Repeat("x", meter.MaxFilterValue+1) + `"]}`: "filter.properties.m",
		`"filter":{"properties.m":["a\u0000"]}`:                                             "filter.properties.m",
		`"filter":{"properties.m":[` + many(meter.MaxFilterValues+1, value) + `]}`:          "filter.properties.m",
		`"filter":{` + many(meter.MaxFilterNames+1, name) + `}`:                             "filter",
		`"missing_value":"skip"`:   "missing_value",
		`"missing_value":"ignore"`: "missing_value",
	} {
		a := w.do(call{method: "POST", path: "/v1/meters", key: "admin",
			body: `{"slug":"m","aggregation":"sum","event_type":"t",` + fields + `}`}).refused(t, 422, "invalid")
		if !strings.Contains(a.part("errors"), fmt.Sprintf(`"path":%q`, path)) {
			t.Errorf("%.80s: %s", fields, a.body)
		}
	}
	for _, fields := range []string{`"filter":{"resource":["x"]}`, `"missing_value":"skip","value_property":"v"`} {
		w.do(call{method: "POST", path: "/v1/meters", key: "admin",
			body: `{"slug":"m","aggregation":"sum",` + fields + `}`}).refused(t, 422, "invalid")
	}
	w.meter(`{"slug":"m","aggregation":"sum","event_type":"t","value_property":"v","missing_value":"skip",` +
		`"filter":{"properties.m":["` +
		strings.Repeat("x", meter.MaxFilterValue) + `",` + many(meter.MaxFilterValues-1, value) + `],` +
		many(meter.MaxFilterNames-1, name) + `}}`)
	w.do(call{method: "PATCH", path: "/v1/meters/m", key: "admin", body: `{"event_type":null}`}).refused(t, 422,
		"invalid")
}
