package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/store"
)

// Given plans that are dated ahead and back, when time passes, then each is shown, judges events and fills the list of
// quotas from its date on, on every store.
func TestDatedPlans(t *testing.T) {
	t.Parallel()
	all := newEveryStore(t)
	all.make("admin", "POST", "/v1/meters", `{"slug":"calls","aggregation":"sum"}`, 201)
	all.make("admin", "PUT", "/v1/plans/free", `{"quotas":[{"meter":"calls","limit":1}]}`, 200)
	all.make("admin", "PUT", "/v1/plans/pro", `{"quotas":[{"meter":"calls","limit":3}]}`, 200)
	shows := func(path, want string) {
		t.Helper()
		a := all.do(call{method: "GET", path: path, key: "admin"}).status(t, 200)
		if got := strings.TrimSpace(string(a.body)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	const c = "/v1/customers/c/plan"
	shows(c, `{"id":"c","customer":"c","plan":null,"from":null,"assignments":[]}`)
	all.make("admin", "PUT", c, `{"plan":"free","from":"2026-11-10"}`, 200)
	all.make("admin", "PUT", c, `{"plan":"pro","from":"2026-11-16T00:00:00+00:00"}`, 200)
	all.make("admin", "PUT", c, `{"plan":null,"from":1796083200000}`, 200) // the first of December
	a := all.make("admin", "PUT", c, `{"plan":"free","from":"2026-11-16"}`, 200)
	const list = `"assignments":[{"from":"2026-11-10T00:00:00Z","plan":"free"},{"from":"2026-11-16T00:00:00Z",` +
		`"plan":"%s"},{"from":"2026-12-01T00:00:00Z","plan":null}]}`
	if got, want := strings.TrimSpace(string(a.body)),
		`{"id":"c","customer":"c","plan":"free","from":"2026-11-10T00:00:00Z",`+fmt.Sprintf(list, "free"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	all.make("admin", "PUT", c, `{"plan":"pro","from":"2026-11-16"}`, 200) // the same time again replaces
	shows(c, `{"id":"c","customer":"c","plan":"free","from":"2026-11-10T00:00:00Z",`+fmt.Sprintf(list, "pro"))
	n := 0
	send := func(status int) {
		t.Helper()
		n++
		all.do(call{method: "POST", path: eventsPath, key: "ingest",
			body: fmt.Sprintf(`{"id":"e%d","meter":"calls","customer":"c","time":"2026-11-15T10:00:00Z"}`,
				n)}).status(t, status)
	}
	quotas := func(want string) {
		t.Helper()
		a := all.do(call{method: "GET", path: "/v1/quotas?customer=c", key: "admin"}).status(t, 200)
		if got := a.part("items"); !strings.Contains(got, want) || want == "" && got != "[]" {
			t.Errorf("quotas %s, want %s", got, want)
		}
	}
	send(200)
	send(429)
	quotas(`"limit":"1"`)
	all.tick(24 * time.Hour) // past midnight
	quotas(`"limit":"3"`)
	send(200)
	send(200)
	send(429)
	shows(c, `{"id":"c","customer":"c","plan":"pro","from":"2026-11-16T00:00:00Z",`+fmt.Sprintf(list, "pro"))
	all.tick(16 * 24 * time.Hour)
	quotas("")
	send(200)
	shows(c, `{"id":"c","customer":"c","plan":null,"from":"2026-12-01T00:00:00Z",`+fmt.Sprintf(list, "pro"))
	all.make("admin", "PUT", "/v1/tenant-plan", `{"plan":"free","from":"2027-01-01"}`, 200)
	shows("/v1/tenant-plan", `{"id":"acme","tenant":"acme","plan":null,"from":null,`+
		`"assignments":[{"from":"2027-01-01T00:00:00Z","plan":"free"}]}`)
	send(200)
	all.tick(31 * 24 * time.Hour)
	send(429)
}

// What would change a closed period, or is no time, is refused and changes nothing.
func TestDatedPlansThatAreRefused(t *testing.T) {
	w := ingestWorld(t)
	w.put("/v1/plans/pro", `{}`).status(t, 200)
	w.put("/v1/plans/free", `{}`).status(t, 200)
	w.put("/v1/customers/d/plan", `{"plan":"pro","from":"2026-09-01"}`).status(t, 200)
	w.do(call{method: "POST", path: "/v1/periods/2026-09/close", key: "admin"}).status(t, 200)
	const c = "/v1/customers/c/plan"
	for from, word := range map[string]string{`"2026-09-01"`: "2026-09", `"2026-09-30T23:59:59.999999Z"`: "2026-09",
		`"2026-08-01"`: "2026-09", `"1970-01-01"`: "2026-09"} {
		a := w.put(c, `{"plan":"pro","from":`+from+`}`).refused(t, 409, "period_closed")
		if !strings.Contains(a.text("detail"), word) {
			t.Errorf("%s: %s", from, a.body)
		}
	}
	w.put(c, `{"plan":"pro","from":"2026-10-01"}`).status(t, 200)
	// What another plan ends before the closed period begins does not change it.
	w.put("/v1/customers/d/plan", `{"plan":"free","from":"2026-08-01"}`).status(t, 200)
	w.put("/v1/customers/d/plan", `{"plan":"free","from":"2026-09-01"}`).refused(t, 409, "period_closed")
	for _, from := range []string{`"soon"`, `7`, `true`, `"2026-13-01"`, `[]`, `"1796083200000"`, `""`} {
		a := w.put(c, `{"plan":"pro","from":`+from+`}`).refused(t, 422, "invalid")
		if !strings.Contains(a.part("errors"), `"path":"from"`) {
			t.Errorf("%s: %s", from, a.body)
		}
	}
	before := string(w.get(c).body)
	w.put(c, `{"plan":"pro","from":null}`).status(t, 200) // in force already: nothing changes
	if after := string(w.get(c).body); after != before {
		t.Errorf("got %s, want %s", after, before)
	}
	w.do(call{method: "POST", path: "/v1/periods/2026-11/close", key: "admin", body: `{"confirm":true}`}).status(t, 200)
	w.put(c, `{"plan":"free"}`).refused(t, 409, "period_closed") // the month that now lies in
	w.put(c, `{"plan":"free","from":"2026-12-01"}`).status(t, 200)
	const byHand = 20 // each reads all that are there; the others come at once, in the customer's state
	w.assignHourly("c", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), quota.MaxAssignments-2-byHand)
	for i := range byHand {
		from := time.Date(2027, 1, 1, quota.MaxAssignments-2-byHand+i, 0, 0, 0, time.UTC).Format(time.RFC3339)
		w.put(c, `{"plan":"pro","from":"`+from+`"}`).status(t, 200)
	}
	a := w.put(c, `{"plan":"pro","from":"2028-01-01"}`).refused(t, 409, "conflict")
	if !strings.Contains(a.text("detail"), fmt.Sprint(quota.MaxAssignments)) {
		t.Errorf("detail %s", a.text("detail"))
	}
	w.put(c, `{"plan":"free","from":"2027-01-01"}`).status(t, 200) // one of a known time fits
	// Plans that ended on the day on which they began make room for one from now on.
	w.clock.Store(time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	w.put(c, `{"plan":null}`).status(t, 200)
	if got := w.get(c); got.part("plan") != "null" || strings.Count(string(got.body), `"from"`) > 100 {
		t.Errorf("after a year %s", got.body)
	}
}

// assignHourly gives a customer so many more assignments of pro, an hour apart, in one change of the ledger.
func (w *world) assignHourly(customer string, from time.Time, count int) {
	w.t.Helper()
	err := w.store.Update(w.t.Context(), "acme", func(tx store.Tx) error {
		a, err := store.Assignment(tx, customer)
		if err != nil {
			return err
		}
		for i := range count {
			at := calendar.FromTime(from.Add(time.Duration(i) * time.Hour))
			a.Plans = a.Plans.With(quota.Dated{From: at, Plan: "pro"})
		}
		c := ledger.Change{Event: audit.Of("customer", "plan_assigned", customer),
			State: quota.AssignmentKind.State(&a)}
		c.Source, c.Actor, c.Payload = audit.SourceSystem, "system", "{}"
		_, err = tx.Append(c)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
