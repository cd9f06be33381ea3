package httpapi

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// totals is what a key that may only send must not learn: plans, limits, what is used, and when others sent.
var totals = []string{"platinum", "9137", "7351", "1786", "2026-11-14T23:41:07", "10^26", "99999999"}

// discreetWorld has a meter of each kind that refuses something, with numbers that occur nowhere else.
func discreetWorld(t *testing.T) *world {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	w.meter(`{"slug":"strict","aggregation":"sum","late":"reject","lateness":"1h"}`)
	w.meter(`{"slug":"full","aggregation":"sum"}`)
	w.put("/v1/plans/platinum", `{"quotas":[{"meter":"calls","limit":9137}]}`).status(t, 200)
	w.put("/v1/tenant-plan", `{"plan":"platinum"}`).status(t, 200)
	w.put("/v1/customers/c/plan", `{"plan":"platinum"}`).status(t, 200)
	w.correct(`[{"id":"a","meter":"calls","customer":"c","quantity":7351,"time":"2026-11-14T00:00:00Z"},
		{"id":"s","meter":"strict","customer":"c","time":"2026-11-14T23:41:07Z"},
		{"id":"old","meter":"strict","customer":"c","time":"2026-10-14T23:41:07Z"}]`).status(t, 200)
	err := w.store.Update(t.Context(), "acme", func(tx store.Tx) error {
		_, err := storetest.Adjust(tx, "full", "c", calendar.Month(2026*12+10), "99999999999999999999999999", "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.do(call{method: "POST", path: "/v1/periods/2026-10/close", key: "admin"}).status(t, 200)
	return w
}

// Given a key that is put into web pages, when its events are refused for any reason, then it learns the reason and
// nothing about what others used or what they pay for. A key that may read or bill learns it all.
func TestAKeyThatOnlySendsLearnsNothingOfTotalsOrPlans(t *testing.T) {
	w := discreetWorld(t)
	key := func(scopes string) string {
		return w.do(call{method: "POST", path: "/v1/api-keys", key: "admin", body: `{"name":"k","scopes":` + scopes +
			`}`}).status(t, 201).text("api_key")
	}
	blind, seeing := []string{key(`["ingest"]`), key(`["ingest","audit"]`)}, []string{key(`["ingest","read"]`),
		key(`["ingest","billing"]`), key(`["admin"]`)}
	for _, c := range []struct {
		name, event, code string
		status            int
		secret            string // what a key that may read learns
	}{
		{"quota", `{"id":"q","meter":"calls","customer":"c","quantity":1787,"time":"2026-11-14T00:00:00Z"}`,
			"quota_exceeded", 429, "7351"},
		{"quota of another", `{"id":"q","meter":"calls","customer":"d","quantity":1787,"time":"2026-11-14T00:00:00Z"}`,
			"quota_exceeded", 429, "platinum"},
		{"late", `{"id":"l","meter":"strict","customer":"c","time":"2026-11-13T00:00:00Z"}`, "late", 422,
			"2026-11-14T23:41:07"},
		{"closed period", `{"id":"l","meter":"strict","customer":"c","time":"2026-10-15T00:00:00Z"}`, "late",
			422, "is closed"},
		{"overflow", `{"id":"o","meter":"full","customer":"c","quantity":999999999999,"time":"2026-11-14T00:00:00Z"}`,
			"overflow", 422, "10^26"},
		{"conflict", `{"id":"a","meter":"calls","customer":"c","quantity":1,"time":"2026-11-14T00:00:00Z"}`, "conflict",
			409, "as seq"},
	} {
		for _, k := range append(blind, seeing...) {
			single := w.do(call{method: "POST", path: eventsPath, key: k, body: c.event}).refused(t, c.status, c.code)
			batch := w.do(call{method: "POST", path: eventsPath, key: k, body: "[" + c.event + "]"}).status(t, 200)
			if !strings.Contains(string(batch.body), `"code":"`+c.code+`"`) {
				t.Errorf("%s: a batch is answered %s", c.name, batch.body)
			}
			if quota := c.code == "quota_exceeded"; quota != (single.text("resets_at") != "") ||
				quota != strings.Contains(string(batch.body), "resets_at") {
				t.Errorf("%s: resets_at of %s and %s", c.name, single.body, batch.body)
			}
			for _, a := range []answer{single, batch} {
				body := string(a.body)
				if !slices.Contains(blind, k) {
					if !strings.Contains(body, c.secret) {
						t.Errorf("%s: a key that may read or bill does not learn of %s: %s", c.name, c.secret, body)
					}
					continue
				}
				for _, secret := range append(totals, c.secret) {
					if strings.Contains(body, secret) {
						t.Errorf("%s: a key that only sends learns of %s: %s", c.name, secret, body)
					}
				}
			}
		}
	}
}

// Given keys of every kind, when they correct, then those with billing do; for the others it is the same whether the
// target exists, whether the correction was made already, and whether anything else is wrong with it.
func TestCorrectionsNeedTheScopeBilling(t *testing.T) {
	w := discreetWorld(t)
	fix := func(id, target, quantity string) string {
		return `{"id":"` + id + `","corrects":"` + target + `","quantity":"` + quantity + `","reason":"r"}`
	}
	key := func(scopes string) string {
		return w.do(call{method: "POST", path: "/v1/api-keys", key: "admin", body: `{"name":"k","scopes":` + scopes +
			`}`}).status(t, 201).text("api_key")
	}
	w.correct(fix("made", "a", "-1")).status(t, 200)
	post := func(k, body string) answer { return w.do(call{method: "POST", path: eventsPath, key: k, body: body}) }
	for _, k := range []string{key(`["ingest"]`), key(`["ingest","read","audit"]`)} {
		head := w.get("/v1/events").status(t, 200)
		var first string
		for _, body := range []string{fix("x", "a", "-1"), fix("x", "nothing", "-1"), fix("made", "a", "-1"),
			fix("made", "a", "-2"), fix("x", "a", "0"), fix("x", "a", "-9999999"),
			`{"id":"x","corrects":"a","qty":"-1"}`, `{"corrects":"a"}`} {
			a := post(k, body).refused(t, 403, "forbidden")
			if first == "" {
				first = a.text("detail")
			}
			if a.text("detail") != first || !strings.Contains(first, "billing") {
				t.Errorf("%s: %s", body, a.body)
			}
		}
		mixed := post(k, "["+fix("x", "a", "-1")+`,{"id":"a","meter":"calls","customer":"c","quantity":7351,`+
			`"time":"2026-11-14T00:00:00Z"},`+fix("y", "none", "5")+`,{"meter":"none"},`+
			fix("made", "a", "-1")+`,`+fix("made", "a", "-2")+`]`).status(t, 200)
		want := `{"accepted":0,"duplicates":1,"adjusted":0,"overage":0,"conflicts":0,"rejected":5,` +
			`"results":[{"index":0,"id":"x","status":"rejected","code":"forbidden","detail":"` + first + `"},` +
			`{"index":1,"id":"a","status":"duplicate","seq":`
		if !strings.HasPrefix(string(mixed.body), want) || strings.Count(string(mixed.body), `"forbidden"`) != 4 {
			t.Errorf("a batch of all kinds: %s", mixed.body)
		}
		if after := w.get("/v1/events").status(t, 200); string(after.body) != string(head.body) {
			t.Errorf("what was forbidden changed the ledger: %s", after.body)
		}
	}
	for i, k := range []string{key(`["ingest","billing"]`), key(`["admin"]`)} {
		id := "fix" + string(rune('a'+i))
		post(k, fix(id, "a", "-1")).status(t, 200)
		post(k, fix("x", "nothing", "-1")).refused(t, 422, "unknown_correction_target")
	}
	operator := call{method: "POST", path: eventsPath, key: "operator",
		body: fix("fixo", "a", "-1")}.with("Tally-Tenant", "acme")
	w.do(operator).status(t, 200)
}

// The lane asks the same gate: a correction of an ingest key ends there.
func TestCorrectionsInALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoad(throughLane)
		defer r.shutdown(t)
		conn := r.inner.dial()
		defer conn.Close()
		body := `{"id":"x","corrects":"a","quantity":"-1","reason":"r"}`
		head := "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + ingestToken + "\r\nContent-Length: "
		exchangeOn(t, conn, head+strconv.Itoa(len(body))+"\r\n\r\n"+body, 403)
		exchangeOn(t, conn, plainPost("b"), 200)
		if got := r.store.kept(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("the store was given %v", got)
		}
	})
}
