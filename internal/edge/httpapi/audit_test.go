package httpapi

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

func (w *world) audit(path string) answer {
	w.t.Helper()
	return w.do(call{method: "GET", path: path, key: "audit"})
}

func TestAuditEvents(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	w.do(call{method: "PATCH", path: "/v1/meters/calls", key: "admin", body: `{"lateness":"1h"}`}).status(t, 200)
	newest := w.audit("/v1/audit-events?limit=1").status(t, 200)
	item := newest.items(t)[0]
	if item["event_type"] != "meter.updated" || item["source"] != "api" || item["entity_type"] != "meter" ||
		item["entity_id"] != "calls" || item["created_at"] != "2026-11-15T12:00:00Z" {
		t.Errorf("got %v", item)
	}
	if payload, ok := item["payload"].(map[string]any); !ok || payload["lateness"] == nil {
		t.Errorf("payload %v", item["payload"])
	}
	single := w.audit(fmt.Sprint("/v1/audit-events/", item["id"])).status(t, 200)
	if single.text("id") != item["id"] || single.text("event_type") != "meter.updated" {
		t.Errorf("got %s", single.body)
	}
	for _, id := range []string{"aud_0", "aud_99999", "aud_01", "aud_", "aud_-1", "1", "aud_99999999999999999999"} {
		w.audit("/v1/audit-events/"+id).refused(t, 404, "not_found")
	}
	w.send(`{"id":"e","meter":"calls","customer":"c","time":"2026-11-15T11:00:00Z"}`).status(t, 200)
	seq := w.get("/v1/events/e").part("seq")
	w.audit("/v1/audit-events/aud_"+seq).refused(t, 404, "not_found") // a usage row is its own audit
}

func TestAuditFilters(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.clock.Add(int64(time.Minute))
		w.meter(fmt.Sprintf(`{"slug":"m%d","aggregation":"sum"}`, i))
	}
	w.do(call{method: "POST", path: "/v1/periods/2026-10/close", key: "billing"}).status(t, 200)
	at := func(minutes int) string {
		return url.QueryEscape(now.Add(time.Duration(minutes) * time.Minute).Format(time.RFC3339))
	}
	for query, want := range map[string]string{
		"entity_type=meter":                                           "m3 m2 m1 m0",
		"entity_type=meter&entity_id=m2":                              "m2",
		"entity_id=m2":                                                "m2",
		"event_type=period.closed":                                    "2026-10",
		"event_type=meter.created&source=api":                         "m3 m2 m1 m0",
		"event_type=meter.created&source=system":                      "",
		"event_type=meter.created&limit=2":                            "m3 m2",
		"event_type=meter.created&limit=2&offset=1":                   "m2 m1",
		"event_type=meter.created&start=" + at(2) + "&end=" + at(4):   "m2 m1",
		"event_type=meter.created&offset=1&start=" + at(2):            "m2 m1",
		"event_type=meter.created&end=" + at(2) + "&entity_type=none": "",
	} {
		var got []string
		for _, item := range w.audit("/v1/audit-events?"+query).status(t, 200).items(t) {
			got = append(got, fmt.Sprint(item["entity_id"]))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if got := strings.Join(w.pages("audit", "/v1/audit-events?event_type=meter.created&limit=1&offset=1", "entity_id"),
		" "); got != "m2 m1 m0" {
		t.Errorf("by cursor after an offset: %s", got)
	}
	for _, bad := range []string{"offset=-1", "offset=100001", "offset=x", "start=yesterday",
		"start=" + at(2) + "&end=" + at(1), "entity=meter", "cursor=x", "source=%00"} {
		w.audit("/v1/audit-events?"+bad).refused(t, 400, "malformed")
	}
}

func TestAuditIsForItsScopeAndTenant(t *testing.T) {
	w := newWorld(t)
	w.addTenant("bolt")
	for _, key := range []string{"read", "ingest", "billing"} {
		w.do(call{method: "GET", path: "/v1/audit-events", key: key}).refused(t, 403, "forbidden")
	}
	for _, key := range []string{"audit", "admin"} {
		for _, item := range w.do(call{method: "GET", path: "/v1/audit-events", key: key}).status(t, 200).items(t) {
			if strings.Contains(fmt.Sprint(item), "bolt") {
				t.Errorf("acme sees %v", item)
			}
		}
	}
	for _, token := range w.keys {
		if body := string(w.audit("/v1/audit-events").body); strings.Contains(body, token) {
			t.Errorf("a key stands in the audit log: %s", body)
		}
	}
}
