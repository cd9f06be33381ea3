package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// oddNames are customers: pairs of which one begins the other, names that mean something to SQL, URLs or JSON, and both
// ends of what may be a name.
var oddNames = []string{
	"a", "a\x01", "a\x01b", "a ", "ab", "b", "cus_1", "cus_10", "cus_2", "Z", "%", "%41", "_", "it's", `"q"`,
	`back\slash`, " spaced out ", "a/b", "a?b=c&d#e", "+", "é", "e\u0301",
	"日本", "😀", "\U0010ffff", "\x7f", "'; DROP TABLE counters; --", "null",
}

// oldest is the first time that the ledger has facts of.
var oldest = time.Date(2026, 9, 20, 6, 30, 0, 0, time.UTC)

// play writes the ledger that questions are asked about: tenants, every aggregation, corrections, late rows,
// adjustments, closed months, plans, quotas and request keys. The answers are compared too.
func (all *everyStore) play() {
	all.t.Helper()
	for _, id := range []string{"bolt", "a-b", "zeta"} {
		all.make("operator", "POST", "/v1/tenants", fmt.Sprintf(`{"id":%q,"name":"Tenant %s"}`, id, id), 201)
	}
	all.configure()
	all.usage()
	all.late()
	all.people()
	all.examples()
	all.tick(time.Hour)
	all.make("operator", "POST", "/v1/tenants/zeta/close", "", 200)
	all.make("operator", "PATCH", "/v1/tenants/acme",
		`{"name":"Acme & Söhne","allowed_origins":["https://acme.test"]}`, 200)
}

// examples makes, for two tenants, what nothing before has made, as the document's example has it.
func (all *everyStore) examples() {
	all.t.Helper()
	bodies := creations(all.t, newContract(all.t).doc)
	for _, path := range slices.Sorted(maps.Keys(bodies)) {
		if !all.made[path] {
			all.make("admin", "POST", path, bodies[path], 201)
			all.make("bolt", "POST", path, bodies[path], 201)
		}
	}
	for _, id := range all.ids(sinksPath) {
		for from := range 3 {
			all.make("admin", "POST", sinksPath+"/"+id+"/replay", fmt.Sprintf(`{"from_seq":%d}`, from+1), 201)
		}
	}
}

// make sends a write and wants it to succeed; an admin key that it makes is known by the tenant's name from then on.
func (all *everyStore) make(key, method, path, body string, status int) answer {
	all.t.Helper()
	all.tick(time.Second)
	c := call{method: method, path: path, key: key, body: body}
	a := all.do(c).status(all.t, status)
	if path == "/v1/tenants" {
		for _, w := range all.worlds {
			w.keys[a.text("id")] = a.text("api_key")
		}
	}
	return a
}

// tick moves every clock.
func (all *everyStore) tick(d time.Duration) {
	for _, w := range all.worlds {
		w.clock.Add(int64(d))
	}
}

func (all *everyStore) configure() {
	all.t.Helper()
	for _, tenant := range []string{"admin", "bolt", "zeta"} {
		for _, a := range []string{"sum", "count", "min", "max", "last", "avg"} {
			all.make(tenant, "POST", "/v1/meters", fmt.Sprintf(`{"slug":"m-%s","aggregation":%q,"lateness":"24h"}`, a,
				a), 201)
		}
		all.make(tenant, "POST", "/v1/meters", `{"slug":"m-unique","aggregation":"unique","unique_property":"user"}`,
			201)
	}
	for _, body := range []string{
		`{"slug":"calls","aggregation":"sum","name":"Calls \"made\""}`,
		`{"slug":"strict","aggregation":"sum","late":"reject","lateness":"1h"}`,
		`{"slug":"typed-sum","aggregation":"sum","event_type":"hit","value_property":"bytes"}`,
		`{"slug":"typed-count","aggregation":"count","event_type":"hit"}`,
		`{"slug":"derived","aggregation":"sum","key_policy":"derived","key_fields":["meter","customer",` +
			`"properties.url","time"],"key_bucket":"5s"}`,
		`{"slug":"empty","aggregation":"sum"}`,
	} {
		all.make("admin", "POST", "/v1/meters", body, 201)
	}
	all.make("admin", "PATCH", "/v1/meters/strict", `{"name":"Strict one"}`, 200)
	all.make("admin", "POST", "/v1/api-keys",
		`{"name":"old","scopes":["read","audit"],"expires_at":"2027-01-01T00:00:00Z"}`, 201)
	revoked := all.make("admin", "POST", "/v1/api-keys",
		`{"scopes":["ingest"],"rate_limit":{"events_per_second":100}}`, 201)
	all.make("admin", "DELETE", "/v1/api-keys/"+url.PathEscape(revoked.text("id")), "", 204)
	all.make("admin", "PUT", "/v1/plans/pro",
		`{"quotas":[{"meter":"calls","limit":50,"soft":true,"hard_cap_multiplier":"2"},{"meter":"m-count","limit":5}]}`,
		200)
	all.make("admin", "PUT", "/v1/plans/free", `{"quotas":[{"meter":"calls","limit":3}]}`, 200)
	all.make("admin", "PUT", "/v1/plans/all", `{"quotas":[{"meter":"calls","limit":100000,"thresholds":[1,2,50]}]}`,
		200)
	all.make("admin", "PUT", "/v1/tenant-plan", `{"plan":"all"}`, 200)
	for i, name := range oddNames {
		if i%3 == 0 {
			all.make("admin", "PUT", "/v1/customers/"+url.PathEscape(name)+"/plan", fmt.Sprintf(`{"plan":%q}`,
				[]string{"pro", "free"}[i/3%2]), 200)
		}
	}
	all.make("admin", "PUT", "/v1/customers/nobody/plan", `{"plan":"pro"}`, 200)
	all.make("admin", "PUT", "/v1/customers/nobody/plan", `{"plan":null}`, 200)
}

// usage sends events that go up in time, of every customer and meter, over three months.
func (all *everyStore) usage() {
	all.t.Helper()
	batch := func(key string, events []string) {
		all.make(key, "POST", "/v1/events", "["+strings.Join(events, ",")+"]", 200)
	}
	meters := []string{"m-sum", "m-count", "m-min", "m-max", "m-last", "m-avg", "m-unique", "calls", "strict"}
	moment := oldest
	for round := range 6 {
		var events []string
		for i, name := range oddNames {
			meter := meters[(i+round*2)%len(meters)]
			moment = moment.Add(7 * time.Hour)
			events = append(events, object(map[string]any{"id": fmt.Sprintf("e%d-%s", round, name), "meter": meter,
				"customer": name, "resource": []string{"r1", "r%2", "r 3"}[i%3],
				"time": moment.Format(time.RFC3339Nano), "quantity": quantity(meter, i,
					round), "properties": map[string]any{"user": fmt.Sprint("u", i%4), "region": []any{"eu", 1, true,
					nil, "1"}[i%5]}}))
		}
		batch("admin", events)
		if round == 2 {
			batch("bolt", events)
			batch("zeta", events)
		}
	}
	for i := range 12 {
		events := []string{
			object(map[string]any{"id": fmt.Sprint("hit-", i), "type": "hit", "customer": oddNames[i%5],
				"time": hours(i), "properties": map[string]any{"bytes": i * 100}}),
			object(map[string]any{"id": "kept as data", "meter": "derived", "customer": oddNames[i%4],
				"time": hours(i / 2), "quantity": "1.5", "properties": map[string]any{"url": "/x"}}),
			object(map[string]any{"id": fmt.Sprint("many-", i), "meter": "calls", "customer": "a", "time": hours(i),
				"quantity": "10.25"}),
			object(map[string]any{"id": fmt.Sprint("few-", i), "meter": "calls", "customer": "cus_1", "time": hours(i),
				"quantity": "1"}),
		}
		batch("admin", events)
	}
	batch("admin", []string{object(map[string]any{"id": "now", "meter": "calls", "customer": "b", "quantity": "1"})})
	batch("admin", []string{object(map[string]any{"id": "soon", "meter": "calls", "customer": "b",
		"time": now.Add(72 * time.Hour).Format(time.RFC3339), "quantity": "1"})})
}

// hours is a time of the running month.
func hours(n int) string { return now.Add(time.Duration(n-48) * time.Hour).Format(time.RFC3339) }

// quantity is absent where a meter takes none.
func quantity(meter string, i, round int) any {
	if meter == "m-count" || meter == "m-unique" {
		return nil
	}
	return fmt.Sprintf("%d.%03d", i+1, round*i)
}

func object(fields map[string]any) string {
	for name, value := range fields {
		if value == nil {
			delete(fields, name)
		}
	}
	b, err := json.Marshal(fields)
	if err != nil {
		panic(err) // fields are plain
	}
	return string(b)
}

// late closes months and sends what comes after: late rows, corrections, repetitions and contradictions.
func (all *everyStore) late() {
	all.t.Helper()
	all.tick(30 * time.Minute)
	all.make("admin", "POST", "/v1/periods/2026-09/close", "", 200)
	all.make("admin", "POST", "/v1/periods/2026-10/close", "", 200)
	all.make("bolt", "POST", "/v1/periods/2026-09/close", "", 200)
	all.make("admin", "POST", "/v1/periods/2026-08/close", "", 200) // without a row
	var events []string
	for i, name := range oddNames {
		month := oldest.Add(time.Duration(i) * 40 * time.Hour).Format(time.RFC3339)
		meter := []string{"m-sum", "m-max", "m-last", "m-avg", "strict", "calls"}[i%6]
		events = append(events,
			object(map[string]any{"id": "late-" + name, "meter": meter, "customer": name, "time": month,
				"quantity": fmt.Sprint(i + 1)}),
			object(map[string]any{"id": "fix-" + name, "corrects": "e0-" + name, "quantity": "-0.5",
				"reason": "wrong " + name}),
			object(map[string]any{"id": "fix-" + name, "corrects": "e0-" + name, "quantity": "-0.25",
				"reason": "another content"}),
			object(map[string]any{"id": "fix2-" + name, "corrects": "e5-" + name, "quantity": "0.125",
				"reason": "raised"}),
			object(map[string]any{"id": "lost-" + name, "corrects": "nothing", "quantity": "1", "reason": "x"}),
			object(map[string]any{"id": "e1-" + name, "meter": "calls", "customer": name, "time": month,
				"quantity": "7"}))
	}
	all.make("admin", "POST", "/v1/events", `{"events":[`+strings.Join(events, ",")+`]}`, 200)
	all.make("admin", "POST", "/v1/events", `[`+strings.Join(events, ",")+`]`, 200)
}

// people adjust totals and undo it, some under request keys.
func (all *everyStore) people() {
	all.t.Helper()
	for i, name := range oddNames {
		body := object(map[string]any{"meter": []string{"calls", "m-sum", "m-max"}[i%3], "customer": name,
			"period": []string{"2026-09", "2026-11", "2026-12"}[i%3], "amount": fmt.Sprintf("%d.5", i-3),
			"reason": "goodwill for " + name})
		c := call{method: "POST", path: "/v1/adjustments", key: "admin", body: body}
		if i%2 == 0 {
			c = keyed(c, fmt.Sprint("adjust-", i))
		}
		a := all.do(c).status(all.t, 201)
		if i%2 == 0 {
			all.do(c).status(all.t, 201).replayed(all.t, true)
		}
		if i%4 == 0 {
			all.make("admin", "POST", "/v1/adjustments/"+url.PathEscape(a.text("id"))+"/revert", `{}`, 201)
		}
	}
}
