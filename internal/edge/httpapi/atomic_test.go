package httpapi

import (
	"strings"
	"testing"
)

// atomicBatch sends a batch, atomic or as the query says.
func atomicBatch(query, key, body string) call {
	return call{method: "POST", path: eventsPath + query, key: key, body: body}
}

// Given batches in which something is refused, when they are sent as atomic, then every refusal is listed, nothing is
// recorded, and the same ids are accepted later, on every store.
func TestAtomicBatches(t *testing.T) {
	t.Parallel()
	all := newEveryStore(t)
	all.make("admin", "POST", "/v1/meters", `{"slug":"calls","aggregation":"sum"}`, 201)
	all.make("admin", "POST", "/v1/meters", `{"slug":"strict","aggregation":"sum","late":"reject","lateness":"1h"}`,
		201)
	all.make("admin", "PUT", "/v1/plans/pro", `{"quotas":[{"meter":"calls","limit":10}]}`, 200)
	all.make("admin", "PUT", "/v1/tenant-plan", `{"plan":"pro"}`, 200)
	all.make("ingest", "POST", eventsPath,
		`[{"id":"a","meter":"calls","customer":"c","quantity":1,"time":"2026-11-14T00:00:00Z"},
		{"id":"s","meter":"strict","customer":"c","time":"2026-11-15T02:00:00Z"}]`, 200)
	const good = `{"id":"g","meter":"calls","customer":"c","quantity":3,"time":"2026-11-14T00:00:00Z"}`
	const known = `{"id":"a","meter":"calls","customer":"c","quantity":1,"time":"2026-11-14T00:00:00Z"}`
	rest := strings.Join([]string{
		good, known,
		`{"id":"a","meter":"calls","customer":"c","quantity":2,"time":"2026-11-14T00:00:00Z"}`, // conflict
		`{"id":"n","meter":"calls","customer":"c","qty":1}`,                                    // invalid
		`7`,
		`{"id":"fix","corrects":"a","quantity":"-1","reason":"r"}`, // forbidden
		`{"id":"f","meter":"calls","customer":"c","time":"2026-11-25T00:00:00Z"}`,
		`{"id":"l","meter":"strict","customer":"c","time":"2026-11-14T00:00:00Z"}`,
		`{"id":"q","meter":"calls","customer":"c","quantity":7,"time":"2026-11-14T00:00:00Z"}`, // 1 + 3 + 7
		`{"id":"u","meter":"nothing","customer":"c"}`,
	}, ",")
	a := all.do(atomicBatch("?atomic=true", "ingest", "["+rest+"]")).refused(t, 422, "batch_refused")
	results, _ := a.doc["results"].([]any)
	var got []string
	for _, r := range results {
		one, _ := r.(map[string]any)
		index, _ := one["index"].(interface{ String() string })
		code, _ := one["code"].(string)
		got = append(got, index.String()+" "+code)
	}
	want := "2 conflict,3 invalid,4 invalid,5 forbidden,6 future,7 late,8 quota_exceeded,9 unknown_meter"
	if strings.Join(got, ",") != want {
		t.Errorf("refused %s, want %s", got, want)
	}
	if a.header.Get("Tally-Quota-Exceeded") != "1" || a.header.Get("Retry-After") != "" ||
		a.header.Get("Tally-Overage") != "" {
		t.Errorf("headers %v", a.header)
	}
	for _, part := range []string{`"resets_at":"2026-12-01T00:00:00Z"`, `"errors":[{"path":"qty"`, "8 of 10 events"} {
		if !strings.Contains(string(a.body), part) {
			t.Errorf("no %s in %s", part, a.body)
		}
	}
	items := all.do(call{method: "GET", path: "/v1/events", key: "admin"}).items(t)
	if len(items) != 2 {
		t.Errorf("%d events are kept", len(items))
	}
	quota := all.do(call{method: "GET", path: "/v1/quotas", key: "admin"})
	if !strings.Contains(string(quota.body), `"used":"1"`) {
		t.Errorf("quotas %s", quota.body)
	}
	// Nothing refused: as any batch, with its duplicates.
	a = all.do(atomicBatch("?atomic=true", "ingest", "["+good+","+known+","+good+"]")).status(t, 200)
	if a.part("accepted") != "1" || a.part("duplicates") != "2" {
		t.Errorf("got %s", a.body)
	}
	// A batch of one is a batch, and the default is that each event is judged by itself.
	bad := `{"id":"u","meter":"nothing","customer":"c"}`
	all.do(atomicBatch("?atomic=true", "ingest", "["+bad+"]")).refused(t, 422, "batch_refused")
	all.do(atomicBatch("?atomic=true", "ingest", bad)).refused(t, 422, "unknown_meter")
	all.do(atomicBatch("?atomic=true", "ingest", known)).status(t, 200)
	all.do(atomicBatch("?atomic=false", "ingest", "["+bad+"]")).status(t, 200)
	for query, word := range map[string]string{"?atomic=yes": "atomic", "?atomic=": "atomic",
		"?atomic=true&atomic=true": "atomic", "?Atomic=true": "Atomic", "?atomic=1": "atomic"} {
		a := all.do(atomicBatch(query, "ingest", "["+bad+"]")).refused(t, 400, "malformed")
		if !strings.Contains(a.text("detail"), word) {
			t.Errorf("%s: %s", query, a.body)
		}
	}
}

// Every form of a batch can be atomic.
func TestAtomicBatchesInEveryForm(t *testing.T) {
	w := ingestWorld(t)
	const bad = `{"id":"u","meter":"nothing","customer":"c"}`
	for media, body := range map[string]string{
		"application/json":     `{"events":[{"id":"x","meter":"calls","customer":"c"},` + bad + `]}`,
		"application/x-ndjson": `{"id":"x","meter":"calls","customer":"c"}` + "\n" + bad,
		"application/cloudevents-batch+json": `[{"specversion":"1.0","id":"7","source":"/s","type":"llm",` +
			`"subject":"c","data":{"tokens":5}},
			{"specversion":"1.0","id":"8","source":"/s","type":"none","subject":"c"}]`,
	} {
		a := w.do(atomicBatch("?atomic=true", "ingest", body).with("Content-Type", media)).refused(t, 422,
			"batch_refused")
		if results, _ := a.doc["results"].([]any); len(results) != 1 ||
			!strings.Contains(a.part("results"), `"index":1`) {
			t.Errorf("%s: %s", media, a.body)
		}
	}
	keyed := atomicBatch("?atomic=true", "ingest", `[{"meter":"calls","customer":"c"},`+bad+`]`).with("Idempotency-Key",
		"k1")
	w.do(keyed).refused(t, 422, "batch_refused")
	keyed.body = `[{"meter":"calls","customer":"c"}]`
	if a := w.do(keyed).status(t, 200); a.part("accepted") != "1" {
		t.Errorf("after a refusal the key's events are new: %s", a.body)
	}
	if got := w.get("/v1/events").items(t); len(got) != 1 {
		t.Errorf("%d events are kept", len(got))
	}
}

// A key that only sends learns no more of a refused atomic batch than of another.
func TestAtomicRefusalsAreDiscreet(t *testing.T) {
	w := discreetWorld(t)
	key := w.do(call{method: "POST", path: "/v1/api-keys", key: "admin",
		body: `{"name":"k","scopes":["ingest"]}`}).status(t, 201).text("api_key")
	a := w.do(atomicBatch("?atomic=true", key,
		`[{"id":"q","meter":"calls","customer":"c","quantity":1787,"time":"2026-11-14T00:00:00Z"},
		{"id":"l","meter":"strict","customer":"c","time":"2026-11-13T00:00:00Z"},
		{"id":"o","meter":"full","customer":"c","quantity":999999999999,"time":"2026-11-14T00:00:00Z"},
		{"id":"a","meter":"calls","customer":"c","quantity":1,"time":"2026-11-14T00:00:00Z"}]`)).
		refused(t, 422, "batch_refused")
	for _, secret := range append(totals, "as seq") {
		if strings.Contains(string(a.body), secret) {
			t.Errorf("it learns of %s: %s", secret, a.body)
		}
	}
}
