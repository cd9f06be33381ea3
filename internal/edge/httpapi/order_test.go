package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/limit"
	"github.com/tallystick/tallystick/internal/store"
)

// anyRate limits everything; how far is for the buckets of the test to say.
var anyRate = limit.Rate{Requests: 1, Events: 1, Bytes: 1}

const goodPage = "https://app.example.com"

// attempts are made at one server, each in a tenant of its own: a store for each would take all the time there is.
type attempts struct {
	*world
	buckets stillBuckets
	made    int
}

func newAttempts(t *testing.T, open opener) *attempts {
	t.Helper()
	buckets := stillBuckets{}
	return &attempts{buckets: buckets, world: newWorldOn(t, open, gate.Options{
		Limiter: limit.New(limit.Options{Shared: buckets}), TenantRate: anyRate, KeyRate: anyRate})}
}

// attempt is one request with one event, which faults bend.
type attempt struct {
	*world
	tenant    string
	buckets   stillBuckets
	call      call
	event     map[string]any
	malformed bool
	// arm is what happens before, in this order: the id is used, a newer event comes, the floor moves, a plan is
	// assigned.
	arm [4]func()
}

// stillBuckets are what is left, by owner and dimension. Nothing comes back to them by itself.
type stillBuckets map[string]int64

func (s stillBuckets) Take(_ context.Context, c limit.Cost, from []limit.Bucket) (o limit.Outcome, err error) {
	costs := [...]int64{c.Requests, c.Events, c.Bytes}
	each := func(do func(b limit.Bucket, of limit.Dimension, name string, cost int64)) {
		for _, b := range from {
			for of, cost := range costs {
				do(b, limit.Dimension(of), fmt.Sprint(b.By, " ", b.Name, " ", limit.Dimension(of)), cost)
			}
		}
	}
	each(func(b limit.Bucket, of limit.Dimension, name string, cost int64) {
		if s[name] < cost {
			o.Wait, o.By, o.Of = time.Second, b.By, of
		}
	})
	each(func(_ limit.Bucket, _ limit.Dimension, name string, cost int64) {
		if o.OK() {
			s[name] -= cost
		}
	})
	o.Standing = limit.Standing{Limit: 1}
	return o, nil
}

// fault is a reason to refuse a request. They stand in the order in which they are looked for.
type fault struct {
	name   string
	status int
	code   string // of the problem; of a duplicate, its status
	detail string // a word of the problem's
	takes  string // what was taken of the rates by the time that this is found
	bend   func(*attempt)
}

var faults = []fault{
	{"bad key", 401, "unauthorized", "", "",
		func(a *attempt) { a.call.key = "tk_" + a.tenant + ".00_" + strings.Repeat("0", 64) }},
	{"wrong scope", 403, "forbidden", "scope", "", func(a *attempt) {
		if a.call.key == "ingest" {
			a.call.key = "read"
		}
	}},
	{"foreign origin", 403, "forbidden", "origin", "",
		func(a *attempt) { a.call = a.call.with("Origin", "https://evil.test") }},
	{"too many requests", 429, "rate_limited", "requests", "", spend("requests")},
	{"too many bytes", 429, "rate_limited", "bytes", "requests", spend("bytes")},
	{"malformed body", 400, "malformed", "", "requests bytes", func(a *attempt) { a.malformed = true }},
	{"correction without the scope", 403, "forbidden", "billing", "requests bytes", func(a *attempt) {
		a.event["corrects"], a.event["quantity"], a.event["reason"] = "target", "-1", "mistake"
	}},
	{"too many events", 429, "rate_limited", "events", "requests bytes", spend("events")},
	{"duplicate", 200, "duplicate", "", "requests bytes events", func(a *attempt) {
		a.arm[0] = func() {
			if target := a.event["corrects"]; target != nil {
				a.operator("POST", eventsPath, `{"id":"target","meter":"calls","customer":"c","time":"`+
					now.Add(-time.Minute).Format(time.RFC3339)+`"}`).status(a.t, 200)
			}
			a.operator("POST", eventsPath, a.body()).status(a.t, 200)
		}
	}},
	{"invalid", 422, "invalid", "quantity", "requests bytes events", func(a *attempt) { a.event["quantity"] = "-1" }},
	{"unknown meter", 422, "unknown_meter", "", "requests bytes events",
		func(a *attempt) { a.event["meter"] = "nothing" }},
	{"future", 422, "future", "", "requests bytes events",
		func(a *attempt) { a.event["time"] = now.Add(2 * time.Hour) }},
	{"beyond the horizon", 422, "beyond_horizon", "", "requests bytes events", func(a *attempt) {
		a.event["time"] = now.AddDate(0, 0, -200)
		a.arm[2] = func() { a.moveFloor(now.AddDate(0, 0, -100)) }
	}},
	{"conflict", 409, "conflict", "", "requests bytes events", func(a *attempt) {
		a.arm[0] = func() {
			a.operator("POST", eventsPath, `{"id":"e","meter":"calls","customer":"other",`+
				`"time":"2026-11-15T11:00:00Z"}`).status(a.t, 200)
		}
	}},
	{"late", 422, "late", "", "requests bytes events", func(a *attempt) {
		if _, moved := a.event["time"]; !moved {
			a.event["time"] = now.Add(-3 * time.Hour)
		}
		at, _ := a.event["time"].(time.Time)
		a.arm[1] = func() {
			newer := `{"id":"newer","meter":"calls","customer":"c","time":"` +
				at.Add(2*time.Hour).Format(time.RFC3339) + `"}`
			a.operator("POST", eventsPath, newer).status(a.t, 200)
		}
	}},
	{"quota exceeded", 429, "quota_exceeded", "", "requests bytes events", func(a *attempt) {
		a.arm[3] = func() {
			a.operator("PUT", "/v1/plans/none", `{"quotas":[{"meter":"calls","limit":0}]}`).status(a.t, 200)
			a.operator("PUT", "/v1/tenant-plan", `{"plan":"none"}`).status(a.t, 200)
		}
	}},
}

// exclusive are faults that cannot be in one event with the first of their list. What is in the ledger was neither
// invalid nor in the future.
var exclusive = [][]string{{"future", "beyond the horizon", "late", "duplicate"},
	{"duplicate", "conflict", "invalid", "unknown meter"}}

func exclude(a, b string) bool {
	for _, group := range exclusive {
		if group[0] == a && slices.Contains(group, b) || group[0] == b && slices.Contains(group, a) {
			return true
		}
	}
	return false
}

// Every reason to refuse against every other, in one request: the first in the order answers, and nothing behind it is
// touched.
func TestRefusalsHaveOneOrder(t *testing.T) {
	for store, open := range openers {
		t.Run(store, func(t *testing.T) {
			at := newAttempts(t, open)
			for i, first := range faults {
				t.Run(first.name, func(t *testing.T) { at.meet(t, first) })
				for _, second := range faults[i+1:] {
					if !exclude(first.name, second.name) {
						t.Run(first.name+" and "+second.name, func(t *testing.T) { at.meet(t, first, second) })
					}
				}
			}
		})
	}
}

// Whoever mends a request that has everything wrong with it, one thing after the other, meets all reasons in their
// order.
func TestRefusalsAreToldOneByOne(t *testing.T) {
	var all []fault
	for _, f := range faults {
		if f.name != "duplicate" && f.name != "future" { // they cannot be with others
			all = append(all, f)
		}
	}
	for store, open := range openers {
		at := newAttempts(t, open)
		for i := range all {
			t.Run(store+", "+all[i].name, func(t *testing.T) { at.meet(t, all[i:]...) })
		}
	}
}

// meet sends a request that has all these faults, of which the first must be the answer.
func (at *attempts) meet(t *testing.T, all ...fault) {
	defer func(outer *testing.T) { at.t = outer }(at.t)
	at.t = t
	a := at.next()
	for _, f := range all {
		f.bend(a)
	}
	for _, arm := range a.arm {
		if arm != nil {
			arm()
		}
	}
	if a.call.body = a.body(); a.malformed {
		a.call.body += "}"
	}
	first, before, left := all[0], a.state(), a.without(all[0].takes)
	got := a.do(a.call)
	code := got.text("code")
	if got.code == 200 {
		code = got.text("status")
	}
	if got.code != first.status || code != first.code || !strings.Contains(got.text("detail"), first.detail) {
		t.Errorf("answered %d %s, want %d %s", got.code, got.body, first.status, first.code)
	}
	if diff := cmp.Diff(before, a.state()); diff != "" {
		t.Errorf("the ledger changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(left, a.buckets); diff != "" {
		t.Errorf("left in the buckets (-want +got):\n%s", diff)
	}
	if limited := got.header.Get("Tally-Ratelimit") == "1"; limited != (first.code == "rate_limited") {
		t.Errorf("Tally-Ratelimit: %v", limited)
	}
	// Whoever got past the door may read why not from a page.
	if origin, may := got.header.Get("Access-Control-Allow-Origin"), first.status == 429 ||
		first.takes != ""; may != (origin == goodPage) {
		t.Errorf("Access-Control-Allow-Origin: %q", origin)
	}
}

func (at *attempts) next() *attempt {
	at.t.Helper()
	at.made++
	clear(at.buckets)
	a := &attempt{world: at.world, tenant: fmt.Sprint("tenant-", at.made), buckets: at.buckets,
		event: map[string]any{"id": "e", "meter": "calls", "customer": "c"}}
	a.addTenant(a.tenant)
	for _, scope := range []string{"ingest", "read"} {
		a.keys[scope] = a.makeKey(a.tenant, scope)
	}
	a.call = call{method: "POST", path: eventsPath, key: "ingest"}.with("Origin", goodPage)
	_, id, _ := tenant.SplitToken(a.keys["ingest"])
	for _, of := range []string{"requests", "events", "bytes"} {
		a.buckets["api_key "+id+" "+of], a.buckets["tenant "+a.tenant+" "+of] = 1000, 1000
	}
	a.operator("PATCH", "/v1/tenants/"+a.tenant, `{"allowed_origins":["`+goodPage+`"]}`).status(a.t, 200)
	a.operator("POST", "/v1/meters", `{"slug":"calls","aggregation":"sum","late":"reject",`+
		`"lateness":"1h"}`).status(a.t, 201)
	return a
}

// operator acts on the tenant without being limited.
func (a *attempt) operator(method, path, body string) answer {
	a.t.Helper()
	return a.do(call{method: method, path: path, key: "operator", body: body}.with("Tally-Tenant", a.tenant))
}

func (a *attempt) body() string {
	if _, given := a.event["time"]; !given {
		a.event["time"] = now.Add(-time.Minute)
	}
	b, err := json.Marshal(a.event)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(b)
}

func (a *attempt) moveFloor(to time.Time) {
	floor := calendar.FromTime(to)
	c := ledger.Change{Event: audit.Of("horizon", "moved", floor.String()),
		State: ledger.FloorKind.State(&ledger.Floor{At: floor})}
	c.Source, c.Actor, c.Payload = audit.SourceSystem, "system", "{}"
	if err := a.store.Update(a.t.Context(), a.tenant,
		func(tx store.Tx) error { _, err := tx.Append(c); return err }); err != nil {
		a.t.Fatal(err)
	}
}

// spend leaves nothing of one dimension in the tenant's bucket.
func spend(of string) func(*attempt) {
	return func(a *attempt) { a.buckets["tenant "+a.tenant+" "+of] = 0 }
}

// without is what the buckets hold once a request of one event has taken of these dimensions.
func (a *attempt) without(takes string) stillBuckets {
	out := maps.Clone(a.buckets)
	for name := range out {
		switch of := name[strings.LastIndexByte(name, ' ')+1:]; {
		case !strings.Contains(takes, of):
		case of == "bytes":
			out[name] -= int64(len(a.call.body))
		default:
			out[name]--
		}
	}
	return out
}

// state is everything that an event could have changed.
func (a *attempt) state() map[string]string {
	a.t.Helper()
	out := map[string]string{}
	for _, path := range []string{eventsPath, "/v1/counters", "/v1/quotas", "/v1/adjustments", "/v1/periods",
		"/v1/audit-events"} {
		out[path] = string(a.operator("GET", path, "").status(a.t, 200).body)
	}
	err := a.store.View(a.t.Context(), a.tenant, func(v store.View) error {
		m, err := store.GetMeter(v, "calls")
		if err != nil {
			return err
		}
		first, last := calendar.FromTime(now.AddDate(0, -8, 0)), calendar.FromTime(now)
		for month := calendar.MonthOf(first); month <= calendar.MonthOf(last); month++ {
			tally, err := v.Tally(m.Number, month)
			if err != nil {
				return err
			}
			out[fmt.Sprint("tally ", month)] = fmt.Sprintf("%+v", tally)
		}
		out["head"] = fmt.Sprintf("%+v", v.Head())
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return out
}
