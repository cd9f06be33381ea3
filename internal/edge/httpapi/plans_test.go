package httpapi

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/service/billing"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/plans"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/store/engine"
)

func (w *world) put(path, body string) answer {
	w.t.Helper()
	return w.do(call{method: "PUT", path: path, key: "billing", body: body})
}

// plans is the part of the contract's story that is about them.
func (w *world) plans() {
	t := w.t
	w.put("/v1/plans/pro", `{"quotas":[{"meter":"calls","limit":"1000","soft":true,"hard_cap_multiplier":"2"},`+
		`{"meter":"tokens","limit":5e3,"thresholds":[50,90]}],"prices":[{"meter":"calls",`+
		`"per_unit":0.10}]}`).status(t, 200)
	w.put("/v1/plans/free", `{"quotas":[{"meter":"tokens","limit":1,"soft":null,"hard_cap_multiplier":null,`+
		`"thresholds":null}],"prices":null}`).status(t, 200)
	w.put("/v1/tenant-plan", `{"plan":"pro"}`).status(t, 200)
	w.put("/v1/customers/c1/plan", `{"plan":"pro"}`).status(t, 200)
	w.put("/v1/customers/c2/plan", `{"plan":"pro"}`).status(t, 200)
	for _, path := range []string{"/v1/plans?limit=1", "/v1/plans/pro", "/v1/tenant-plan", "/v1/customers/c1/plan",
		"/v1/customers/nobody/plan", "/v1/quotas?limit=1", "/v1/quotas?meter=calls&customer=c1&period=2026-11"} {
		w.get(path).status(t, 200)
	}
	w.get("/v1/quotas?customer="+strings.Repeat("x", 256)).refused(t, 400, "malformed")
	w.put("/v1/tenant-plan", `{"plan":null}`).status(t, 200)
}

func quotaWorld(t *testing.T) *world {
	w := ingestWorld(t)
	w.meter(`{"slug":"peak","aggregation":"max"}`)
	return w
}

func TestPlans(t *testing.T) {
	w := quotaWorld(t)
	a := w.put("/v1/plans/pro", `{"quotas":[{"meter":"calls","limit":"10.50","soft":true,"hard_cap_multiplier":2},`+
		`{"meter":"views","limit":0,"thresholds":[]}],"prices":[{"b":1.10,"a":"x"}]}`).status(t, 200)
	want := `{"id":"pro","name":"pro","quotas":[{"meter":"calls","limit":"10.5","soft":true,` +
		`"hard_cap_multiplier":"2","thresholds":[80,100]},` +
		`{"meter":"views","limit":"0","soft":false,"hard_cap_multiplier":null,"thresholds":[]}],"prices":[{"a":"x",` +
		`"b":1.10}],"created_at":"2026-11-15T12:00:00Z","updated_at":"2026-11-15T12:00:00Z"}`
	if got := strings.TrimSpace(string(a.body)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := strings.TrimSpace(string(w.get("/v1/plans/pro").body)); got != want {
		t.Errorf("read back %s", got)
	}
	w.clock.Add(int64(time.Hour))
	b := w.put("/v1/plans/pro", `{}`).status(t, 200)
	if b.part("quotas") != "[]" || b.part("prices") != "[]" || b.text("created_at") != a.text("created_at") ||
		b.text("updated_at") == a.text("updated_at") {
		t.Errorf("replaced by nothing: %s", b.body)
	}
	w.clock.Add(int64(time.Hour))
	if again := w.put("/v1/plans/pro", `{"quotas":[]}`).status(t, 200); string(again.body) != string(b.body) {
		t.Errorf("the same again is %s", again.body)
	}
	w.put("/v1/plans/a", `{}`).status(t, 200)
	if got := w.pages("read", "/v1/plans?limit=1", "id"); !slices.Equal(got, []string{"a", "pro"}) {
		t.Errorf("listed %v", got)
	}
	w.get("/v1/plans/none").refused(t, 404, "not_found")
	w.addTenant("other")
	w.do(call{method: "GET", path: "/v1/plans/pro", key: "other"}).refused(t, 404, "not_found")
}

func TestPlansThatAreRefused(t *testing.T) {
	w := quotaWorld(t)
	for body, path := range map[string]string{
		`{"quota":[]}`:                            "quota",
		`{"quotas":{}}`:                           "quotas",
		`{"quotas":[7]}`:                          "quotas[0]",
		`{"quotas":[{"limit":1}]}`:                "quotas[0].meter",
		`{"quotas":[{"meter":"nope","limit":1}]}`: "quotas[0].meter",
		`{"quotas":[{"meter":"peak","limit":1}]}`: "quotas[0].meter",
		`{"quotas":[{"meter":"calls","limit":1},{"meter":"calls","limit":1}]}`: "quotas[1].meter",
		`{"quotas":[{"meter":"calls"}]}`:                                       "quotas[0].limit",
		`{"quotas":[{"meter":"calls","limit":""}]}`:                            "quotas[0].limit",
		`{"quotas":[{"meter":"calls","limit":true}]}`:                          "quotas[0].limit",
		`{"quotas":[{"meter":"calls","limit":-1}]}`:                            "quotas[0].limit",
		`{"quotas":[{"meter":"calls","limit":"0.0000000000001"}]}`:             "quotas[0].limit",
		`{"quotas":[{"meter":"calls","limit":1,"soft":"yes"}]}`:                "quotas[0].soft",
		`{"quotas":[{"meter":"calls","limit":1,"max":2}]}`:                     "quotas[0].max",
		`{"quotas":[{"meter":"calls","limit":1,"hard_cap_multiplier":0}]}`:     "quotas[0].hard_cap_multiplier",
		`{"quotas":[{"meter":"calls","limit":1,"hard_cap_multiplier":"0.9"}]}`: "quotas[0].hard_cap_multiplier",
		`{"quotas":[{"meter":"calls","limit":1,"hard_cap_multiplier":"x"}]}`:   "quotas[0].hard_cap_multiplier",
		`{"quotas":[{"meter":"calls","limit":1,"thresholds":[100,80]}]}`:       "quotas[0].thresholds",
		`{"quotas":[{"meter":"calls","limit":1,"thresholds":["80"]}]}`:         "quotas[0].thresholds[0]",
		`{"quotas":[{"meter":"calls","limit":1,"thresholds":[80.5]}]}`:         "quotas[0].thresholds[0]",
		`{"quotas":[{"meter":"calls","limit":1,"thresholds":80}]}`:             "quotas[0].thresholds",
		`{"prices":[1]}`: "prices[0]",
		`{"prices":"x"}`: "prices",
		`{"prices":[{"a":"` + strings.Repeat("x", 64<<10) + `"}]}`: "prices",
	} {
		if a := w.put("/v1/plans/pro", body); a.code != 422 ||
			!strings.Contains(a.part("errors"), `"path":"`+path+`"`) {
			t.Errorf("%.80s: %d %s, want %s to be at fault", body, a.code, a.body, path)
		}
	}
	w.put("/v1/plans/-x", `{}`).refused(t, 422, "invalid")
	for _, body := range []string{`{}`, `{"plan":""}`, `{"plan":7}`, `{"plan":"none"}`, `{"plan":null,"x":1}`} {
		w.put("/v1/tenant-plan", body).refused(t, 422, "invalid")
		w.put("/v1/customers/c/plan", body).refused(t, 422, "invalid")
	}
	w.put("/v1/customers/"+strings.Repeat("x", 256)+"/plan", `{"plan":null}`).refused(t, 422, "invalid")
	w.get("/v1/customers/"+strings.Repeat("x", 256)+"/plan").refused(t, 404, "not_found")
	w.put("/v1/plans/pro", `{"quotas":[{"meter":"tokens","limit":1}]}`).status(t, 200)
	w.do(call{method: "PATCH", path: "/v1/meters/tokens", key: "admin",
		body: `{"aggregation":"max"}`}).refused(t, 409, "conflict")
	w.do(call{method: "PATCH", path: "/v1/meters/tokens", key: "admin", body: `{"aggregation":"count"}`}).status(t, 200)
}

// Given a soft plan, then events are accepted, overage, refused, and accepted once after an upgrade; headers and quotas
// say so.
func TestQuotaFromTheFirstEventToTheUpgrade(t *testing.T) {
	w := quotaWorld(t)
	event := func(id, customer, quantity string) string {
		return fmt.Sprintf(`{"id":%q,"meter":"calls","customer":%q,"time":"2026-11-14T00:00:00Z","quantity":%q}`, id,
			customer, quantity)
	}
	w.put("/v1/plans/pro",
		`{"quotas":[{"meter":"calls","limit":10,"soft":true,"hard_cap_multiplier":"1.5"}]}`).status(t, 200)
	if a := w.put("/v1/customers/c%2F1/plan", `{"plan":"pro"}`).status(t,
		200); strings.TrimSpace(string(a.body)) != `{"id":"c/1","customer":"c/1","plan":"pro",`+
		`"from":"2026-11-15T12:00:00Z","assignments":[{"from":"2026-11-15T12:00:00Z","plan":"pro"}]}` {
		t.Errorf("assigned %s", a.body)
	}
	w.quota("customer=c%2F1", `{"id":"calls:2026-11:c/1","meter":"calls","customer":"c/1","period":"2026-11",`+
		`"plan":"pro","limit":"10","soft":true,"hard_cap":"15","used":"0","remaining":"10",`+
		`"resets_at":"2026-12-01T00:00:00Z","state":"within"}`)
	if a := w.send(event("a", "c/1", "10")).status(t, 200); a.text("status") != "accepted" ||
		a.header.Get("Tally-Overage") != "" {
		t.Errorf("up to the limit: %s %v", a.body, a.header)
	}
	if a := w.send(event("b", "c/1", "2")).status(t, 200); a.text("status") != "overage" ||
		a.header.Get("Tally-Overage") != "true" {
		t.Errorf("over it: %s %v", a.body, a.header)
	}
	w.quota("customer=c%2F1&meter=calls", `{"id":"calls:2026-11:c/1","meter":"calls","customer":"c/1",`+
		`"period":"2026-11","plan":"pro","limit":"10","soft":true,"hard_cap":"15","used":"12","remaining":"0",`+
		`"resets_at":"2026-12-01T00:00:00Z","state":"over"}`)
	a := w.send(event("c", "c/1", "3.5")).refused(t, http.StatusTooManyRequests, "quota_exceeded")
	if a.text("resets_at") != "2026-12-01T00:00:00Z" || a.header.Get("Tally-Quota-Exceeded") != "1" ||
		a.header.Get("Retry-After") != "3600" {
		t.Errorf("refused with %s %v, want to wait an hour at most", a.body, a.header)
	}
	if a := w.send(event("b", "c/1", "2")).status(t, 200); a.header.Get("Tally-Dedup") != "1" ||
		a.header.Get("Tally-Quota-Exceeded") != "" {
		t.Errorf("a duplicate at the limit: %s %v", a.body, a.header)
	}
	a = w.send("["+event("c", "c/1", "3.5")+","+event("d", "c/1", "3")+","+event("e", "free", "100")+","+
		event("a", "c/1", "10")+"]").status(t, 200)
	if a.header.Get("Tally-Overage") != "true" || a.header.Get("Tally-Quota-Exceeded") != "1" ||
		a.header.Get("Retry-After") != "" ||
		a.part("accepted") != "2" || a.part("overage") != "1" || a.part("rejected") != "1" ||
		a.part("duplicates") != "1" || !strings.Contains(string(a.body), `"resets_at":"2026-12-01T00:00:00Z"`) {
		t.Errorf("a batch: %s %v", a.body, a.header)
	}
	w.quota("customer=c%2F1&period=2026-11",
		`{"id":"calls:2026-11:c/1","meter":"calls","customer":"c/1","period":"2026-11",`+
			`"plan":"pro","limit":"10","soft":true,"hard_cap":"15","used":"15","remaining":"0",`+
			`"resets_at":"2026-12-01T00:00:00Z","state":"exhausted"}`)
	w.get("/v1/events/c").refused(t, 404, "not_found")
	w.put("/v1/plans/pro", `{"quotas":[{"meter":"calls","limit":20}]}`).status(t, 200)
	for range 2 {
		w.send(event("c", "c/1", "3.5")).status(t, 200)
	}
	w.quota("customer=c%2F1", `{"id":"calls:2026-11:c/1","meter":"calls","customer":"c/1","period":"2026-11",`+
		`"plan":"pro","limit":"20","soft":false,"hard_cap":"20","used":"18.5","remaining":"1.5",`+
		`"resets_at":"2026-12-01T00:00:00Z","state":"within"}`)
	if a := w.get("/v1/events?status=overage"); len(a.items(t)) != 2 {
		t.Errorf("overage rows: %s", a.body)
	}
	// The alerts of a quota are found under the id that the list of quotas gives it.
	id, _ := w.get("/v1/quotas?customer=c%2F1").items(t)[0]["id"].(string)
	path := "/v1/audit-events?event_type=quota.threshold_reached&entity_type=quota&entity_id=" + url.QueryEscape(id)
	if a := w.do(call{method: "GET", path: path, key: "audit"}); len(a.items(t)) != 2 {
		t.Errorf("alerts of %s: %s", id, a.body)
	}
}

// quota wants exactly one.
func (w *world) quota(query, want string) {
	w.t.Helper()
	a := w.get("/v1/quotas?"+query).status(w.t, 200)
	if got := strings.TrimSpace(string(a.body)); got != `{"items":[`+want+`],"next_cursor":null}` {
		w.t.Errorf("%s: got  %s\nwant %s", query, got, want)
	}
}

func TestQuotasAreListedPageByPage(t *testing.T) {
	w := quotaWorld(t)
	w.put("/v1/plans/two", `{"quotas":[{"meter":"views","limit":2},{"meter":"calls","limit":1}]}`).status(t, 200)
	w.put("/v1/plans/empty", `{}`).status(t, 200)
	w.put("/v1/tenant-plan", `{"plan":"two"}`).status(t, 200)
	for _, c := range []string{"b", "a", "é", "c"} {
		w.put("/v1/customers/"+c+"/plan", `{"plan":"two"}`).status(t, 200)
	}
	w.put("/v1/customers/c/plan", `{"plan":"empty"}`).status(t, 200)
	want := []string{"calls:2026-11", "views:2026-11", "calls:2026-11:a", "views:2026-11:a", "calls:2026-11:b",
		"views:2026-11:b", "calls:2026-11:é", "views:2026-11:é"}
	for limit := 1; limit < 10; limit++ {
		if got := w.pages("read", fmt.Sprintf("/v1/quotas?limit=%d", limit), "id"); !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v", limit, got)
		}
	}
	if got := w.pages("read", "/v1/quotas?meter=views&limit=1&period=2026-10", "id"); !slices.Equal(got,
		[]string{"views:2026-10", "views:2026-10:a", "views:2026-10:b", "views:2026-10:é"}) {
		t.Errorf("of one meter: %v", got)
	}
	if got := w.pages("read", "/v1/quotas?customer=a"+
		"&limit=1", "id"); !slices.Equal(got, []string{"calls:2026-11:a", "views:2026-11:a"}) {
		t.Errorf("of one customer: %v", got)
	}
	w.get("/v1/quotas?meter=none").refused(t, 404, "not_found")
	w.put("/v1/tenant-plan", `{"plan":null}`).status(t, 200)
	if a := w.get("/v1/tenant-plan"); a.part("plan") != "null" || a.text("tenant") != "acme" {
		t.Errorf("the tenant's plan is %s", a.body)
	}
	if got := w.pages("read", "/v1/quotas?customer=c", "id"); len(got) != 0 {
		t.Errorf("of an empty plan: %v", got)
	}
}

// Given a hard limit, when 64 clients race for it over real connections, then exactly as much as it says is kept, a
// retry of what was kept is a duplicate, and the quota reads so at once.
func TestRacingClientsNeverExceedAHardLimit(t *testing.T) {
	e, err := engine.Open(engine.Options{Dir: "data", FS: vfs.NewMem(), Now: func() time.Time { return now },
		SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *Options) {
		o.Store, o.Gate, o.Billing, o.Plans = e, gate.New(e,
			gate.Options{RootKey: rootKey, Now: func() time.Time { return now }}), billing.New(e), plans.New(e)
		o.Registry = registry.New(e, &lockedRandom{from: rand.NewChaCha8([32]byte{2})})
	})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	w.put("/v1/plans/pro", `{"quotas":[{"meter":"calls","limit":100}]}`).status(t, 200)
	w.put("/v1/tenant-plan", `{"plan":"pro"}`).status(t, 200)
	const clients, each = 64, 8
	var kept, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for n := range each {
				body := fmt.Sprintf(`{"id":"%d-%d","meter":"calls","customer":"c%d","time":"2026-11-14T00:00:00Z"}`, i,
					n, i%3)
				switch first, again := w.post(body), w.post(body); {
				case first == 200 && again == 200:
					kept.Add(1)
				case first == 429 && again == 429:
					refused.Add(1)
				default:
					t.Errorf("%d-%d was answered %d and then %d", i, n, first, again)
				}
			}
		})
	}
	wg.Wait()
	if kept.Load() != 100 || refused.Load() != clients*each-100 {
		t.Errorf("%d kept, %d refused", kept.Load(), refused.Load())
	}
	if q := w.get("/v1/quotas").items(t)[0]; q["used"] != "100" || q["state"] != "exhausted" {
		t.Errorf("the quota says %v", q)
	}
}

// post sends one event and returns the status; it may be called by many at once.
func (w *world) post(body string) int {
	resp, err := w.server.Client().Do(w.request(call{method: "POST", path: "/v1/events", key: "ingest", body: body}))
	if err != nil {
		w.t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
