package httpapi

import (
	"strings"
	"testing"
	"time"
)

// Given a meter that takes events of the next thirty days, then they are counted in their own months and windows, now
// and as of then, also across a close, on every store.
func TestEventsFarAhead(t *testing.T) {
	t.Parallel()
	all := newEveryStore(t)
	all.do(call{method: "POST", path: "/v1/meters", key: "admin",
		body: `{"slug":"m","aggregation":"sum","future":"8784h1s"}`}).refused(t, 422, "invalid")
	all.make("admin", "POST", "/v1/meters", `{"slug":"calls","aggregation":"sum","future":"30d","lateness":"60d"}`, 201)
	all.make("ingest", "POST", eventsPath, `{"id":"a","meter":"calls","customer":"c","time":"2026-11-20T00:00:00Z"}`,
		200)
	first := all.make("ingest", "POST", eventsPath,
		`{"id":"b","meter":"calls","customer":"c","quantity":2,"time":"2026-12-10T00:00:00Z"}`, 200).part("seq")
	all.do(call{method: "POST", path: eventsPath, key: "ingest",
		body: `{"id":"c","meter":"calls","customer":"c","time":"2026-12-16T00:00:00Z"}`}).refused(t, 422, "future")
	all.make("admin", "POST", "/v1/periods/2026-11/close", `{"confirm":true}`, 200)
	all.make("ingest", "POST", eventsPath,
		`{"id":"d","meter":"calls","customer":"c","quantity":4,"time":"2026-12-10T12:00:00Z"}`, 200)
	all.make("admin", "PATCH", "/v1/meters/calls", `{"future":"1h"}`, 200)
	shows := func(path, want string) {
		t.Helper()
		if a := all.do(call{method: "GET", path: path, key: "admin"}).status(t,
			200); !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %s, want %s", path, a.body, want)
		}
	}
	const december = "/v1/usage?meter=calls&window=day&from=2026-12-05&to=2026-12-20"
	for range 2 {
		shows(december, `"from":"2026-12-10T00:00:00Z","to":"2026-12-11T00:00:00Z","group":{},"value":"6"`)
		shows(december+"&as_of="+first, `"value":"2"`)
		shows("/v1/counters?meter=calls&period=2026-12", `"total":"6"`)
		shows("/v1/counters?meter=calls&period=2026-12&as_of="+first, `"total":"2"`)
		shows("/v1/counters?meter=calls&period=2026-11", `"sealed_total":"1"`)
		all.tick(20 * 24 * time.Hour) // their time comes
	}
}
