package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/store"
)

func TestListsByName(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.addTenant(fmt.Sprintf("t%d", i))
		w.meter(fmt.Sprintf(`{"slug":"m%d","aggregation":"sum"}`, i))
	}
	for _, limit := range []int{1, 2, 3, 5, 6, 1000} {
		q := fmt.Sprintf("?limit=%d", limit)
		got := w.pages("operator", "/v1/tenants"+q, "id")
		if !slices.Equal(got, []string{"acme", "t0", "t1", "t2", "t3", "t4"}) {
			t.Errorf("tenants, limit %d: %v", limit, got)
		}
		if got := w.pages("read", "/v1/meters"+q, "slug"); !slices.Equal(got, []string{"m0", "m1", "m2", "m3", "m4"}) {
			t.Errorf("meters, limit %d: %v", limit, got)
		}
		if got := w.pages("admin", "/v1/api-keys"+q, "id"); len(got) != 5 || !slices.IsSorted(got) {
			t.Errorf("keys, limit %d: %v", limit, got)
		}
	}
	if a := w.get("/v1/meters?limit=5"); a.doc["next_cursor"] != nil {
		t.Errorf("a full last page has the cursor %v", a.doc["next_cursor"])
	}
}

func TestBadQueries(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	for _, tc := range []struct{ path, parameter string }{
		{"/v1/events?custmer=c", "custmer"}, {"/v1/events/x?expand=1", "expand"}, {"/v1/meters?slug=x", "slug"},
		{"/v1/events?limit=0", "limit"}, {"/v1/events?limit=1001", "limit"}, {"/v1/events?limit=-1", "limit"},
		{"/v1/events?limit=ten", "limit"},
		{"/v1/events?customer=", "customer"}, {"/v1/events?customer=a&customer=b", "customer"},
		{"/v1/events?customer=%FF", "customer"},
		{"/v1/events?customer=" + strings.Repeat("x", httpkit.MaxFilter+1), "customer"},
		{"/v1/events?status=rejected", "status"}, {"/v1/events?from=yesterday", "from"},
		{"/v1/events?to=1793923200", "to"}, {"/v1/events?from=99999999999999999", "from"},
		{"/v1/events?from=2026-11-15T05:10:00+03:00", "from"}, {"/v1/events?from=1969-12-31T23:59:59Z", "from"},
		{"/v1/events?from=2026-11-02T00:00:00Z&to=2026-11-01T00:00:00Z", "from"},
		{"/v1/counters?period=2026-13", "period"}, {"/v1/adjustments?period=2026", "period"},
		{"/v1/events?cursor=x", "cursor"}, {"/v1/counters?cursor=!!", "cursor"},
		{"/v1/periods?cursor=" + strings.Repeat("A", 1025), "cursor"},
	} {
		a := w.get(tc.path).refused(t, 400, "malformed")
		if !strings.Contains(a.part("errors"), `"path":"`+tc.parameter+`"`) {
			t.Errorf("%.60s: errors %s", tc.path, a.part("errors"))
		}
	}
	for _, path := range []string{"/v1/events?customer=%zz", "/v1/events?a;b"} {
		w.get(path).refused(t, 400, "malformed")
	}
	for _, path := range []string{"/v1/events?meter=nope", "/v1/counters?meter=nope", "/v1/adjustments?meter=nope"} {
		w.get(path).refused(t, 404, "not_found")
	}
	if a := w.get("/v1/meters?limit=1001"); !strings.Contains(a.text("detail"), "1000") {
		t.Errorf("the limit is not in %q", a.text("detail"))
	}
}

// A cursor leads on only in the list that it came from.
func TestCursorsBelongToTheirList(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	w.send(`[{"id":"1","meter":"calls","customer":"c"},{"id":"2","meter":"calls","customer":"c"},{"id":"3",`+
		`"meter":"calls","customer":"d"}]`).status(t, 200)
	cursor := "&cursor=" + url.QueryEscape(w.get("/v1/events?limit=1&customer=c").text("next_cursor"))
	w.get("/v1/events?customer=c"+cursor).status(t, 200)
	w.get("/v1/events?limit=7&customer=c"+cursor).status(t, 200)
	for _, path := range []string{"/v1/events?customer=d", "/v1/events?limit=1", "/v1/events?customer=c&meter=calls",
		"/v1/counters?customer=c", "/v1/adjustments?customer=c"} {
		w.get(path+cursor).refused(t, 400, "malformed")
	}
	w.addTenant("other")
	w.do(call{method: "GET", path: "/v1/events?customer=c" + cursor, key: "other"}).refused(t, 400, "malformed")
}

// cursorOf is a query with nothing but a cursor.
func cursorOf(text string) (httpkit.Query, error) {
	if text == "" {
		return httpkit.ParseQuery("", "acme", "/v1/counters", "cursor")
	}
	return httpkit.ParseQuery(url.Values{"cursor": {text}}.Encode(), "acme", "/v1/counters", "cursor")
}

// Whatever a cursor's bytes are, reading them ends in a place or a refusal, and a place is written as it was read.
func FuzzCursor(f *testing.F) {
	q, err := cursorOf("")
	if err != nil {
		f.Fatal(err)
	}
	counter := counterPlace(&store.CounterPlace{Month: 24322, Meter: "m", Customer: "c"})
	for _, place := range [][]byte{nil, httpkit.SeqPlace(1 << 40), []byte("acme.00ff"), counter, {0xff, 0xff}} {
		f.Add(q.Cursor(place))
	}
	f.Add("!")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, text string) {
		check := func(err error) {
			if err != nil && !problem.Is(err, problem.Malformed) {
				t.Errorf("%q: %v", text, err)
			}
		}
		q, err := cursorOf(text)
		if check(err); err != nil {
			return
		}
		month, err := fromMonth(q)
		check(err)
		if month < 0 {
			t.Errorf("%q: month %d", text, month)
		}
		p, err := afterCounter(q)
		check(err)
		if p == nil {
			return
		}
		q, err = cursorOf(q.Cursor(counterPlace(p)))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := afterCounter(q); err != nil || *again != *p {
			t.Errorf("%+v was read again as %+v, %v", p, again, err)
		}
	})
}

func TestCounterPlaceSurvivesACursor(t *testing.T) {
	for _, want := range []store.CounterPlace{
		{}, {Month: 24322, Meter: "calls", Customer: "ü:/x"}, {Month: lastMonth, Customer: strings.Repeat("c", 255)},
	} {
		q, err := cursorOf("")
		if err != nil {
			t.Fatal(err)
		}
		if q, err = cursorOf(q.Cursor(counterPlace(&want))); err != nil {
			t.Fatal(err)
		}
		got, err := afterCounter(q)
		if err != nil || *got != want {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
	}
}
