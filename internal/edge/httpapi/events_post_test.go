package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
)

func ingestWorld(t *testing.T) *world {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	w.meter(`{"slug":"tokens","aggregation":"sum","event_type":"llm","value_property":"tokens"}`)
	w.meter(`{"slug":"views","aggregation":"count","key_policy":"derived"}`)
	return w
}

// Every form of a single event and its answer. The cases share one ledger: each finds what those above it left.
func TestSingleEvents(t *testing.T) {
	w := ingestWorld(t)
	const jsonBody, cloud = "application/json", "application/cloudevents+json"
	for _, tc := range []struct {
		name, media, body string
		status            int
		want              string // the whole body of a 200, the code of anything else
		dedup             string
		key               string // default: ingest
	}{
		{"accepted", "", `{"id":"a","meter":"calls","customer":"c","time":"2026-11-15T02:10:00Z","quantity":"3"}`, 200,
			`{"id":"a","status":"accepted","seq":10}`, "", ""},
		{"duplicate", jsonBody, `{"id":"a","meter":"calls","customer":"c","time":"2026-11-15T02:10:00Z",` +
			`"quantity":3.0}`, 200, `{"id":"a","status":"duplicate","seq":10}`, "1", ""},
		{"conflict", jsonBody, `{"id":"a","meter":"calls","customer":"c","time":"2026-11-15T02:10:00Z","quantity":"4"}`,
			409, "conflict", "", ""},
		{"adjusted", "application/json; charset=utf-8",
			`{"id":"late","meter":"calls","customer":"c","time":"2026-11-01T00:00:00Z"}`, 200,
			`{"id":"late","status":"adjusted","seq":11}`, "", ""},
		{"escaped id", "", `{"id":"q\"\\ü\n","meter":"calls","customer":"c"}`, 200,
			`{"id":"q\"\\ü\u000a","status":"accepted","seq":12}`, "", ""},
		{"cloud event", cloud, `{"specversion":"1.0","id":"7","source":"/s","type":"llm","subject":"c",` +
			`"time":"2026-11-15T02:10:00Z","data":{"tokens":5}}`, 200, `{"id":"/s 7","status":"accepted","seq":13}`, "",
			""},
		{"correction", "", `{"id":"fix","corrects":"a","quantity":"-1","reason":"twice"}`, 200,
			`{"id":"fix","status":"accepted","seq":14}`, "", "admin"},
		{"unknown meter", "", `{"id":"b","meter":"nope","customer":"c"}`, 422, "unknown_meter", "", ""},
		{"future", "", `{"id":"b","meter":"calls","customer":"c","time":"2026-11-16T00:00:00Z"}`, 422,
			"future", "", ""},
		{"no target", "", `{"id":"fix2","corrects":"nope","quantity":"-1","reason":"r"}`, 422,
			"unknown_correction_target", "", "admin"},
		{"no right to correct", "", `{"id":"fix2","corrects":"a","quantity":"-1","reason":"r"}`, 403,
			"forbidden", "", ""},
		{"negative", "", `{"id":"b","meter":"calls","customer":"c","quantity":"-1"}`, 422, "invalid", "", ""},
		{"unknown field", "", `{"id":"b","meter":"calls","customer":"c","qty":3}`, 422, "invalid", "", ""},
		{"seconds", "", `{"id":"b","meter":"calls","customer":"c","time":1793923200}`, 422, "invalid", "", ""},
		{"empty", "", ``, 400, "malformed", "", ""},
		{"not JSON", "", `{"id":`, 400, "malformed", "", ""},
		{"trailing", "", `{"id":"b","meter":"calls","customer":"c"} x`, 400, "malformed", "", ""},
		{"duplicate name", "", `{"id":"b","id":"b","meter":"calls","customer":"c"}`, 400, "malformed", "", ""},
		{"bad UTF-8", "", "{\"id\":\"\xff\",\"meter\":\"calls\",\"customer\":\"c\"}", 400, "malformed", "", ""},
		{"a number", "", `7`, 400, "malformed", "", ""},
		{"no events", "", `[]`, 400, "malformed", "", ""},
		{"a form", "application/x-www-form-urlencoded", `a=b`, 400, "malformed", "", ""},
		{"multipart", "multipart/form-data; boundary=x", `a=b`, 415, "unsupported_media_type", "", ""},
		{"text", "text/plain", `{}`, 415, "unsupported_media_type", "", ""},
		{"latin", "application/json; charset=latin1", `{}`, 415, "unsupported_media_type", "", ""},
		{"broken type", "application/json; =", `{}`, 415, "unsupported_media_type", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := call{method: "POST", path: "/v1/events", key: "ingest", body: tc.body}
			if tc.key != "" {
				c.key = tc.key
			}
			if tc.media != "" {
				c = c.with("Content-Type", tc.media)
			}
			a := w.do(c).status(t, tc.status)
			got := a.text("code")
			if tc.status == 200 {
				got = strings.TrimSuffix(string(a.body), "\n")
			}
			if got != tc.want || a.header.Get("Tally-Dedup") != tc.dedup {
				t.Errorf("got %s, dedup %q, want %s, %q", a.body, a.header.Get("Tally-Dedup"), tc.want, tc.dedup)
			}
		})
	}
	if got := w.send(`{"id":"b","meter":"calls","customer":"c",` +
		`"qty":3}`).part("errors"); !strings.Contains(got, `"path":"qty"`) {
		t.Errorf("errors %s", got)
	}
}

func TestBatches(t *testing.T) {
	w := ingestWorld(t)
	first := `{"id":"a","meter":"calls","customer":"c","time":"2026-11-15T02:10:00Z","quantity":"3"}`
	other := `{"id":"a","meter":"calls","customer":"c","time":"2026-11-15T02:10:00Z","quantity":"4"}`
	late := `{"id":"late","meter":"calls","customer":"c","time":"2026-11-01T00:00:00Z"}`
	a := w.send("["+strings.Join([]string{first, first, other, late,
		`{"id":"n","meter":"calls","customer":"c","qty":1}`, `7`}, ",")+"]").status(t, 200)
	const counts = `{"accepted":2,"duplicates":1,"adjusted":1,"overage":0,"conflicts":1,"rejected":2,` +
		`"results":[{"index":1,"id":"a","status":"duplicate","seq":10},` +
		`{"index":2,"id":"a","status":"conflict","seq":10,"code":"conflict","detail":`
	if !strings.HasPrefix(string(a.body), counts) {
		t.Errorf("got %s", a.body)
	}
	for _, part := range []string{`{"index":3,"id":"late","status":"adjusted","seq":11}`,
		`{"index":4,"id":"n","status":"rejected","code":"invalid",`, `"errors":[{"path":"qty",`,
		`{"index":5,"status":"rejected","code":"invalid",`} {
		if !strings.Contains(string(a.body), part) {
			t.Errorf("no %s in %s", part, a.body)
		}
	}

	plain := w.send(`{"events":[{"id":"x","meter":"calls","customer":"c"}]}`).status(t, 200)
	if plain.part("results") != "[]" || plain.header.Get("Tally-Dedup") != "" {
		t.Errorf("got %s", plain.body)
	}
	all := call{method: "POST", path: "/v1/events", key: "ingest",
		body: `[{"id":"y","meter":"calls","customer":"c"},{"meter":"views","customer":"c",` +
			`"time":"2026-11-15T02:10:00Z"}]`}
	for _, prefer := range []string{"return=representation", `respond-async, Return = "representation"; x=1`} {
		got := w.do(all.with("Prefer", prefer)).status(t, 200)
		results, _ := got.doc["results"].([]any)
		if len(results) != 2 || !strings.Contains(string(got.body), `{"index":1,"id":"key:`) {
			t.Errorf("%s: got %s", prefer, got.body)
		}
	}
	if got := w.do(all.with("Prefer", "return=minimal")); strings.Contains(string(got.body), `"accepted","seq"`) {
		t.Errorf("got %s", got.body)
	}
	long := w.send(`[{"id":"`+strings.Repeat("x", 300)+`","meter":"calls","customer":"c"}]`).status(t, 200)
	if strings.Contains(string(long.body), "xxx") {
		t.Errorf("an id that is none was repeated: %.200s", long.body)
	}
	var many strings.Builder
	for i := range 10_001 {
		fmt.Fprintf(&many, `{"id":"%d"}`+"\n", i)
	}
	c := call{method: "POST", path: "/v1/events", key: "ingest",
		body: many.String()}.with("Content-Type", "application/x-ndjson")
	if got := w.do(c).refused(t, 413, "too_large"); !strings.Contains(got.text("detail"), "10000") {
		t.Errorf("detail %s", got.text("detail"))
	}
}

// Verdicts that need plans are forced at the store.
func TestOverageAndQuotaHeaders(t *testing.T) {
	w := ingestWorld(t)
	n := 0
	force := func(verdicts ...usage.Verdict) {
		n = 0
		w.store.set(func(s *troubled) {
			s.verdict = func(v *usage.Verdict) {
				v.Status, v.Overage, v.Problem = verdicts[n].Status, verdicts[n].Overage, verdicts[n].Problem
				n++
			}
		})
	}
	refuse := func(d time.Duration) usage.Verdict {
		return usage.Verdict{Status: usage.Rejected, Problem: problem.New(problem.QuotaExceeded, "spent").Retry(d)}
	}
	force(usage.Verdict{Status: usage.Overage, Overage: true})
	a := w.send(`{"id":"1","meter":"calls","customer":"c"}`).status(t, 200)
	if a.header.Get("Tally-Overage") != "true" || a.text("status") != "overage" || a.doc["overage"] != nil {
		t.Errorf("got %v %s", a.header, a.body)
	}
	force(usage.Verdict{Status: usage.Adjusted, Overage: true})
	a = w.send(`{"id":"2","meter":"calls","customer":"c"}`).status(t, 200)
	if a.header.Get("Tally-Overage") != "true" || a.text("status") != "adjusted" || a.doc["overage"] != true {
		t.Errorf("got %v %s", a.header, a.body)
	}
	force(usage.Verdict{Status: usage.Adjusted, Overage: true}, refuse(time.Second), refuse(3*time.Second),
		usage.Verdict{Status: usage.Overage, Overage: true})
	a = w.send(`[{"id":"3","meter":"calls","customer":"c"},{"id":"4","meter":"calls","customer":"c"},{"id":"5",`+
		`"meter":"calls","customer":"c"},{"id":"6","meter":"calls","customer":"c"}]`).status(t, 200)
	if a.header.Get("Tally-Quota-Exceeded") != "1" || a.header.Get("Retry-After") != "" ||
		a.header.Get("Tally-Overage") != "true" {
		t.Errorf("headers %v", a.header)
	}
	if !strings.HasPrefix(string(a.body), `{"accepted":2,"duplicates":0,"adjusted":1,"overage":2,"conflicts":0,`+
		`"rejected":2,`) {
		t.Errorf("got %s", a.body)
	}
	force(usage.Verdict{Status: usage.Rejected, Problem: problem.New(problem.Unavailable, "cannot be read now")})
	w.send(`{"id":"7","meter":"calls","customer":"c"}`).refused(t, 503, "unavailable")
	force(usage.Verdict{Status: usage.Rejected})
	w.send(`{"id":"8","meter":"calls","customer":"c"}`).refused(t, 500, "internal")
}

func TestRequestKeyNamesEvents(t *testing.T) {
	w := ingestWorld(t)
	c := call{method: "POST", path: "/v1/events", key: "ingest",
		body: `[{"meter":"calls","customer":"c"},{"id":"own","meter":"calls",` +
			`"customer":"c"}]`}.with("Prefer", "return=representation")
	a := w.do(c.with("Idempotency-Key", `"order 7"`))
	a.refused(t, 400, "malformed")
	w.do(c.with("Idempotency-Key", strings.Repeat("k", 241))).refused(t, 400, "malformed")
	w.do(c.with("Idempotency-Key", "")).refused(t, 400, "malformed")
	a = w.do(c.with("Idempotency-Key", `"order-7"`)).status(t, 200)
	if !strings.Contains(string(a.body), `"id":"order-7#0","status":"accepted"`) ||
		!strings.Contains(string(a.body), `"id":"own","status":"accepted"`) {
		t.Errorf("got %s", a.body)
	}
	a = w.do(c.with("Idempotency-Key", "order-7")).status(t, 200)
	if a.part("duplicates") != "2" {
		t.Errorf("got %s", a.body)
	}
}

func TestEventsOfUnknownFate(t *testing.T) {
	w := ingestWorld(t)
	for _, err := range []error{fmt.Errorf("commit: %w", errDeadline), fmt.Errorf("commit: %w", errCanceled)} {
		w.store.set(func(s *troubled) { s.err = err })
		// The key is checked in the same store, so the whole request ends so.
		a := w.send(`{"id":"1","meter":"calls","customer":"c"}`).refused(t, http.StatusServiceUnavailable, "timeout")
		if !strings.Contains(a.text("detail"), "again is safe") {
			t.Errorf("detail %s", a.text("detail"))
		}
		a = w.do(call{method: "POST", path: "/v1/adjustments", key: "billing",
			body: `{}`}).refused(t, http.StatusServiceUnavailable, "timeout")
		if !strings.Contains(a.text("detail"), "look whether") {
			t.Errorf("detail %s", a.text("detail"))
		}
	}
}

// A CloudEvent is the same event in both content modes: what one mode recorded, the other is answered as a duplicate
// of.
func TestCloudEventsInBinaryMode(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"tokens","aggregation":"sum","event_type":"llm","value_property":"tokens"}`)
	structured := call{method: "POST", path: "/v1/events", key: "ingest",
		body: `{"specversion":"1.0","id":"7","source":"/gateway","type":"llm","subject":"cus 42",` +
			`"time":"2026-11-15T02:10:00Z","data":{"tokens":812}}`}.
		with("Content-Type", "application/cloudevents+json")
	binary := call{method: "POST", path: "/v1/events", key: "ingest",
		body: `{"tokens":812}`}.with("Content-Type", "application/json").
		with("Ce-Specversion", "1.0").with("ce-id", "7").with("CE-Source", "/gateway").with("ce-type", "llm").
		with("ce-subject", "cus%2042").with("ce-time", "2026-11-15T02:10:00Z")
	first := w.do(binary).status(t, 200)
	if first.text("status") != "accepted" || first.text("id") != "/gateway 7" {
		t.Errorf("got %s", first.body)
	}
	for _, again := range []call{structured, binary, binary.with("Content-Type", "application/vnd.acme+json")} {
		if a := w.do(again).status(t, 200); a.text("status") != "duplicate" {
			t.Errorf("got %s", a.body)
		}
	}
	other := binary
	other.body = `{"tokens":813}`
	w.do(other).refused(t, 409, "conflict")
	fresh := binary.with("ce-id", "8") // what is known is a duplicate, whatever else is wrong with it
	for name, tc := range map[string]struct {
		call   call
		status int
		code   string
		word   string
	}{
		"structured body": {structured.with("ce-id", "8"), 400, "malformed", "ce-id"},
		"batch body": {
			structured.with("Content-Type", "application/cloudevents-batch+json").with("ce-type", "x"), 400,
			"malformed", "binary mode"},
		"lines": {fresh.with("Content-Type", "application/x-ndjson"), 400, "malformed",
			"application/x-ndjson"},
		"text":               {fresh.with("Content-Type", "text/plain"), 422, "invalid", "datacontenttype"},
		"another version":    {fresh.with("ce-specversion", "0.3"), 422, "invalid", "specversion"},
		"quantity":           {fresh.with("ce-quantity", "5"), 422, "invalid", "quantity"},
		"bad escape":         {fresh.with("ce-subject", "%zz"), 422, "invalid", "subject"},
		"no subject":         {fresh.with("ce-subject", ""), 422, "invalid", "subject"},
		"content type twice": {fresh.with("ce-datacontenttype", "application/json"), 422, "invalid", "Content-Type"},
	} {
		if a := w.do(tc.call).refused(t, tc.status, tc.code); !strings.Contains(a.text("detail"), tc.word) {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	events := binary
	events.body = `[{"id":"x","meter":"tokens","customer":"c"}]`
	w.do(events).refused(t, 422, "invalid")
	if got := w.get("/v1/events").items(t); len(got) != 1 {
		t.Errorf("%d events are kept", len(got))
	}
}
