package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readWorld has on-time, late, typed, derived and corrected events.
func readWorld(t *testing.T) *world {
	w := ingestWorld(t)
	w.correct(`[
		{"id":"a","meter":"calls","customer":"c1","resource":"r1","time":"2026-11-15T02:10:00Z","quantity":"3",
			"properties":{"z":1,"a":"é"}},
		{"id":"b","meter":"calls","customer":"c2","time":"2026-11-15T03:00:00.5Z"},
		{"id":"old","meter":"calls","customer":"c1","time":"2026-11-01T00:00:00Z","quantity":"0.5"},
		{"id":"mine","meter":"views","customer":"c1","time":"2026-11-15T04:00:00Z"},
		{"id":"t","type":"llm","customer":"c1","time":"2026-10-15T04:00:00Z","properties":{"tokens":7}},
		{"id":"fix","corrects":"a","quantity":"-1","reason":"twice"}]`).status(t, 200)
	return w
}

func TestEventRows(t *testing.T) {
	w := readWorld(t)
	a := w.get("/v1/events/a").status(t, 200)
	const want = `{"id":"a","seq":10,"status":"accepted","meter":"calls","customer":"c1","resource":"r1",` +
		`"time":"2026-11-15T02:10:00Z","quantity":"3","properties":{"a":"é","z":1},` +
		`"received_at":"2026-11-15T12:00:00Z","outcomes":[{"meter":"calls","value":"3","status":"accepted"}],` +
		`"corrections":[` +
		`{"id":"fix","seq":15,"status":"accepted","meter":"calls","customer":"c1","resource":"r1",` +
		`"time":"2026-11-15T02:10:00Z","quantity":"-1","properties":{},` +
		`"corrects":"a","reason":"twice","received_at":"2026-11-15T12:00:00Z","outcomes":[{"meter":"calls",` +
		`"value":"-1","status":"accepted"}]}]}` + "\n"
	if diff := cmp.Diff(want, string(a.body)); diff != "" {
		t.Error(diff)
	}
	late := w.get("/v1/events/old").part("outcomes")
	if late != `[{"adjustment":{"amount":"0.5","id":"adj_12_1","reason":"late"},"meter":"calls","status":"adjusted",`+
		`"value":"0.5"}]` {
		t.Errorf("outcomes %s", late)
	}
	typed := w.get("/v1/events/t")
	if typed.text("type") != "llm" || typed.doc["meter"] != nil ||
		!strings.Contains(string(typed.body), `{"meter":"tokens","value":"7"`) {
		t.Errorf("got %s", typed.body)
	}
	derived := w.get("/v1/events?meter=views").items(t)[0]
	id, _ := derived["id"].(string)
	if !strings.HasPrefix(id, "key:") || derived["client_id"] != "mine" {
		t.Errorf("got %v", derived)
	}
	w.get("/v1/events/"+url.PathEscape(id)).status(t, 200)
	w.get("/v1/events/mine").refused(t, 404, "not_found")
}

func TestEventFilters(t *testing.T) {
	w := readWorld(t)
	for query, want := range map[string]string{
		"":                                    "a b old key t fix",
		"meter=calls":                         "a b old fix",
		"meter=tokens":                        "t",
		"customer=c2":                         "b",
		"resource=r1":                         "a fix",
		"status=adjusted":                     "old",
		"status=accepted&customer=c1":         "a key t fix",
		"status=overage":                      "",
		"from=2026-11-15T03:00:00.5Z":         "b key",
		"from=2026-11-15T03:00:00.500001Z":    "key",
		"to=2026-11-15T02:10:00Z":             "old t",
		"to=1970-01-01T00:00:00Z":             "",
		"from=1792032000000&to=1794000000000": "old t",
		"from=2026-11-15T05:10:00%2B03:00&to=2026-11-15T02:10:00.000001Z": "a fix",
	} {
		for _, limit := range []int{1, 2, 100} {
			path := fmt.Sprintf("/v1/events?limit=%d", limit)
			if query != "" {
				path += "&" + query
			}
			got := w.pages("read", path, "id")
			for i := range got {
				if strings.HasPrefix(got[i], "key:") {
					got[i] = "key"
				}
			}
			if s := strings.Join(got, " "); s != want {
				t.Errorf("%s: got %q, want %q", path, s, want)
			}
		}
	}
	// A full last page is known to be the last.
	if a := w.get("/v1/events?limit=6"); a.doc["next_cursor"] != nil {
		t.Errorf("next_cursor %v", a.doc["next_cursor"])
	}
}

func TestEventIDsInPaths(t *testing.T) {
	w := ingestWorld(t)
	ids := []string{"a/b", "..", ".", "a%2Fb", "100%", "ü é", "a?b#c", "a+b c", "events/../x", "//", `q"\`, "\u2028",
		strings.Repeat("ü", 127)}
	for _, id := range ids {
		w.send(fmt.Sprintf(`{"id":%q,"meter":"calls","customer":"c"}`, id)).status(t, 200)
	}
	for _, id := range ids {
		if a := w.get("/v1/events/" + strings.ReplaceAll(url.PathEscape(id), ".", "%2E")); a.text("id") != id {
			t.Errorf("%q: got %s", id, a.body)
		}
	}
	for _, path := range []string{"/v1/events/", "/v1/events//", "/v1/events/a/b", "/v1/events/%00", "/v1/events/%FF",
		"/v1//events", "/V1/events", "/v1/events/%2E%2E%2E", "/"} {
		w.get(path).refused(t, 404, "not_found")
	}
}

func TestCounters(t *testing.T) {
	w := readWorld(t)
	w.do(call{method: "POST", path: "/v1/adjustments", key: "billing",
		body: `{"meter":"calls","customer":"ü/x","period":"2026-11","amount":"-2.25","reason":"r"}`}).status(t, 201)
	a := w.get("/v1/counters?meter=calls&customer=c1&period=2026-11").status(t, 200)
	const want = `{"items":[{"id":"2026-11:calls:c1","meter":"calls","customer":"c1","period":"2026-11",` +
		`"state":"open","count":1,"sum":"2","min":"2","max":"2","last":"2",` +
		`"watermark":"2026-11-15T02:10:00Z","adjustments":"0.5","total":"2.5","sealed_total":null}],` +
		`"next_cursor":null}` + "\n"
	if diff := cmp.Diff(want, string(a.body)); diff != "" {
		t.Error(diff)
	}
	a = w.get("/v1/counters?customer="+url.QueryEscape("ü/x")).status(t, 200)
	const byHand = `{"items":[{"id":"2026-11:calls:%C3%BC%2Fx","meter":"calls","customer":"ü/x","period":"2026-11",` +
		`"state":"open","count":0,"sum":"0","min":null,"max":null,"last":null,` +
		`"watermark":null,"adjustments":"-2.25","total":"-2.25","sealed_total":null}],"next_cursor":null}` + "\n"
	if diff := cmp.Diff(byHand, string(a.body)); diff != "" {
		t.Error(diff)
	}
	w.do(call{method: "POST", path: "/v1/periods/2026-11/close", key: "billing",
		body: `{"confirm":true}`}).status(t, 200)
	w.send(`{"id":"after","meter":"calls","customer":"c1","time":"2026-11-15T02:11:00Z"}`).status(t, 200)
	item := w.get("/v1/counters?meter=calls&customer=c1&period=2026-11").items(t)[0]
	if item["state"] != "closed" || item["sealed_total"] != "2.5" || item["total"] != "3.5" ||
		item["adjustments"] != "1.5" {
		t.Errorf("got %v", item)
	}
	for _, limit := range []int{1, 2, 100} {
		ids := w.pages("read", fmt.Sprintf("/v1/counters?limit=%d", limit), "id")
		if want := []string{"2026-10:tokens:c1", "2026-11:calls:c1", "2026-11:calls:c2", "2026-11:calls:%C3%BC%2Fx",
			"2026-11:views:c1"}; !slices.Equal(ids, want) {
			t.Errorf("limit %d: %v", limit, ids)
		}
	}
}

func TestAdjustmentsAndPeriods(t *testing.T) {
	w := readWorld(t)
	made := w.do(call{method: "POST", path: "/v1/adjustments", key: "billing",
		body: `{"meter":"calls","customer":"c1","period":"2026-11","amount":1e1,"reason":"r"}`}).status(t, 201)
	id := made.text("id")
	if made.text("amount") != "10" || made.header.Get("Location") != "/v1/adjustments/"+id || made.text("actor") == "" {
		t.Errorf("got %v %s", made.header, made.body)
	}
	undone := w.do(call{method: "POST", path: "/v1/adjustments/" + id + "/revert", key: "billing"}).status(t, 201)
	if undone.text("amount") != "-10" || undone.text("reverts") != id {
		t.Errorf("got %s", undone.body)
	}
	if a := w.get("/v1/adjustments/" + id); a.text("reverted_by") != undone.text("id") {
		t.Errorf("got %s", a.body)
	}
	for _, limit := range []int{1, 100} {
		got := w.pages("read", fmt.Sprintf("/v1/adjustments?meter=calls&period=2026-11&customer=c1&limit=%d", limit),
			"id")
		if want := []string{"adj_12_1", id, undone.text("id")}; !slices.Equal(got, want) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
	for _, limit := range []int{1, 100} {
		got := w.pages("read", fmt.Sprintf("/v1/periods?limit=%d", limit), "id")
		if !slices.Equal(got, []string{"2026-10", "2026-11"}) {
			t.Errorf("periods %v", got)
		}
	}
	closed := w.do(call{method: "POST", path: "/v1/periods/2026-10/close", key: "billing", body: "{}"}).status(t, 200)
	again := w.do(call{method: "POST", path: "/v1/periods/2026-10/close", key: "billing", chunked: true}).status(t, 200)
	if string(closed.body) != string(again.body) || closed.text("state") != "closed" {
		t.Errorf("got %s then %s", closed.body, again.body)
	}
	if a := w.get("/v1/periods/2026-10").status(t, 200); len(a.text("seal")) != 64 ||
		a.text("closed_at") != closed.text("closed_at") {
		t.Errorf("read as %s", a.body)
	}
	w.do(call{method: "POST", path: "/v1/periods/2026-12/close", key: "billing"}).refused(t, 422, "invalid")
	w.get("/v1/periods/2026-13").refused(t, 404, "not_found")
	w.get("/v1/adjustments/adj_1").refused(t, 404, "not_found")
	w.get("/v1/adjustments/x").refused(t, 404, "not_found")
}
