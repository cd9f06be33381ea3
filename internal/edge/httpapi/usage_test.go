package httpapi

import (
	"encoding/csv"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/calendar"
)

// usageWorld has meters of every aggregation and none of their events.
func usageWorld(t *testing.T) *world {
	w := newWorld(t)
	for _, a := range []string{"sum", "count", "min", "max", "last", "avg"} {
		w.meter(fmt.Sprintf(`{"slug":"%s","aggregation":"%s"}`, a, a))
	}
	w.meter(`{"slug":"unique","aggregation":"unique","unique_property":"user"}`)
	return w
}

// lines writes items as "from to group value", times as short as they go.
func lines(t *testing.T, a answer) (out []string) {
	t.Helper()
	a.status(t, 200)
	for _, item := range a.items(t) {
		line := fmt.Sprintf("%v %v %v %v", item["from"], item["to"], item["group"], item["value"])
		out = append(out, strings.ReplaceAll(strings.ReplaceAll(line, ":00:00Z", ""), "map", ""))
	}
	return out
}

// halfHourly sends events of quantity 1, one every half hour.
func (w *world) halfHourly(customer, from string, n int) {
	w.t.Helper()
	var events []string
	at, ok := calendar.ParseMoment(from)
	if !ok {
		w.t.Fatal(from)
	}
	for i := range n {
		events = append(events, fmt.Sprintf(`{"id":"%s-%s-%d","meter":"sum","customer":"%s","time":%d}`, customer, from,
			i, customer, int64(at)/1000+int64(i)*1_800_000))
	}
	w.send("["+strings.Join(events, ",")+"]").status(w.t, 200)
}

func TestUsageAcrossChangesOfOffset(t *testing.T) {
	w := usageWorld(t)
	for i, c := range []struct{ zone, from, to, window, want string }{
		{"Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T03:00:00Z", "hour", "23:2 00:2 01:2 02:2"},
		{"Europe/Berlin", "2026-03-27T23:00:00Z", "2026-03-30T22:00:00Z", "day",
			"27T23-28T23:48 28T23-29T22:46 29T22-30T22:48"},
		{"Europe/Berlin", "2025-10-24T22:00:00Z", "2025-10-26T23:00:00Z", "day", "24T22-25T22:48 25T22-26T23:50"},
		{"America/New_York", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z", "day", "08T05-09T04:46"},
		{"America/New_York", "2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z", "day", "02T04-03T05:50"},
		{"America/New_York", "2024-11-03T05:00:00Z", "2024-11-03T07:00:00Z", "hour", "05:2 06:2"},
		{"Australia/Lord_Howe", "2026-04-04T13:00:00Z", "2026-04-04T16:30:00Z", "hour", "13:2 14:2 15:1 15:30:2"},
		{"Australia/Lord_Howe", "2025-10-04T14:30:00Z", "2025-10-04T17:00:00Z", "hour", "14:30:2 15:30:1 16:2"},
		{"Asia/Kolkata", "2026-05-01T00:00:00Z", "2026-05-01T02:00:00Z", "hour", "00:1 00:30:2 01:30:1"},
		{"Asia/Kolkata", "2026-05-10T12:00:00Z", "2026-05-11T12:00:00Z", "day", "10T12-10T18:30:13 10T18:30-11T12:35"},
		{"Europe/Berlin", "2026-07-31T12:00:00Z", "2026-08-02T00:00:00Z", "month", "31T12-31T22:20 31T22-02T00:52"},
		{"UTC", "2026-06-01T00:30:00Z", "2026-06-01T01:45:00Z", "", "01T00:30-01T01:45:3"},
	} {
		at, _ := calendar.ParseMoment(c.from)
		to, _ := calendar.ParseMoment(c.to)
		customer := fmt.Sprint("c", i)
		w.halfHourly(customer, c.from, int((to-at+1_800_000_000-1)/1_800_000_000))
		path := "/v1/usage?meter=sum&customer=" + customer + "&timezone=" + url.QueryEscape(c.zone) + "&from=" +
			c.from + "&to=" + c.to
		if c.window != "" {
			path += "&window=" + c.window
		}
		var got []string
		for _, item := range w.get(path).status(t, 200).items(t) {
			from, end := strings.TrimSuffix(fmt.Sprint(item["from"])[8:16], ":00"),
				strings.TrimSuffix(fmt.Sprint(item["to"])[8:16], ":00")
			if c.window == "hour" {
				got = append(got, fmt.Sprintf("%s:%v", from[3:], item["value"]))
			} else {
				got = append(got, fmt.Sprintf("%s-%s:%v", from, end, item["value"]))
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s %s from %s: %s, want %s", c.zone, c.window, c.from, s, c.want)
		}
	}
}

// gridWorld has a few events of every aggregation, one of them corrected, one taken away, one late.
func gridWorld(t *testing.T) *world {
	w := usageWorld(t)
	for _, slug := range []string{"sum", "count", "min", "max", "last", "avg", "unique"} {
		part, whole := "-4", "-9"
		fact := func(id, customer, resource, time, quantity, user, region string) string {
			if slug == "count" { // it takes no quantity but one
				quantity, part, whole = "1", "-0.5", "-1"
			}
			return fmt.Sprintf(`{"id":"%s-%s","meter":"%s","customer":"%s","resource":"%s",`+
				`"time":"2026-11-%s:00:00Z","quantity":"%s","properties":{"user":"%s","region":%s}}`,
				slug, id, slug, customer, resource, time, quantity, user, region)
		}
		w.correct("["+strings.Join([]string{
			fact("a", "c1", "r1", "01T00", "3", "u1", `"eu"`), fact("b", "c1", "r2", "01T00", "5", "u2", `"us"`),
			fact("c", "c1", "r1", "01T01", "4", "u1", `1`),
			fact("d", "c2", "r1", "01T00", "2", "u1", `"1"`), fact("e", "c2", "r1", "02T00", "9", "u3", `null`),
			fact("gone", "c2", "r1", "03T00", "9", "u3", `"eu"`),
			`{"id":"` + slug + `-fix","corrects":"` + slug + `-b","quantity":"` + part + `","reason":"r"}`,
			`{"id":"` + slug + `-undo","corrects":"` + slug + `-gone","quantity":"` + whole + `","reason":"r"}`,
		}, ",")+"]").status(t, 200)
	}
	w.do(call{method: "POST", path: "/v1/adjustments", key: "billing",
		body: `{"meter":"sum","customer":"c1","period":"2026-11","amount":"1000","reason":"no usage"}`}).status(t, 201)
	return w
}

const november = "&from=2026-11-01T00:00:00Z&to=2026-12-01T00:00:00Z"

func TestUsageOfEveryAggregation(t *testing.T) {
	w := gridWorld(t)
	for slug, want := range map[string]string{
		"sum": "c1=8 c2=11", "count": "c1=3 c2=2", "min": "c1=1 c2=2", "max": "c1=4 c2=9", "last": "c1=4 c2=9",
		"avg": "c1=2.666666666667 c2=5.5", "unique": "c1=2 c2=2",
	} {
		var got []string
		for _, item := range w.get("/v1/usage?window=month&group_by=customer&meter="+slug+
			november).status(t, 200).items(t) {
			group, _ := item["group"].(map[string]any)
			got = append(got, fmt.Sprintf("%v=%v", group["customer"], item["value"]))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", slug, s, want)
		}
	}
}

func TestUsageGroupsAndFilters(t *testing.T) {
	w := gridWorld(t)
	for query, want := range map[string][]string{
		"window=day": {"2026-11-01T00 2026-11-02T00 [] 10",
			"2026-11-02T00 2026-11-03T00 [] 9"},
		"window=hour&customer=c1": {"2026-11-01T00 2026-11-01T01 [] 4",
			"2026-11-01T01 2026-11-01T02 [] 4"},
		"resource=r1":                             {"2026-11-01T00 2026-12-01T00 [] 18"},
		"resource=r9":                             nil,
		"properties.region=1":                     {"2026-11-01T00 2026-12-01T00 [] 6"},
		"properties.region=us&customer=c1":        {"2026-11-01T00 2026-12-01T00 [] 1"},
		"properties.region=eu&properties.user=u1": {"2026-11-01T00 2026-12-01T00 [] 3"},
		"group_by=resource": {"2026-11-01T00 2026-12-01T00 [resource:r1] 18",
			"2026-11-01T00 2026-12-01T00 [resource:r2] 1"},
		"group_by=properties.region,customer&to=2026-11-02T00:00:00Z": {
			"2026-11-01T00 2026-11-02T00 [customer:c2 properties.region:1] 2",
			"2026-11-01T00 2026-11-02T00 [customer:c1 properties.region:eu] 3",
			"2026-11-01T00 2026-11-02T00 [customer:c1 properties.region:us] 1",
			"2026-11-01T00 2026-11-02T00 [customer:c1 properties.region:1] 4"},
		"group_by=properties.region" +
			"&from=2026-11-02T00:00:00Z": {"2026-11-02T00 2026-12-01T00 [properties.region:<nil>] 9"},
		"group_by=properties.nothing": {"2026-11-01T00 2026-12-01T00 [properties.nothing:<nil>] 19"},
	} {
		path := "/v1/usage?meter=sum&" + query
		for _, end := range strings.Split(november[1:], "&") {
			if name, _, _ := strings.Cut(end, "="); !strings.Contains(query, name+"=") {
				path += "&" + end
			}
		}
		if diff := cmp.Diff(want, lines(t, w.get(path))); diff != "" {
			t.Errorf("%s:\n%s", query, diff)
		}
	}
	typed := string(w.get("/v1/usage?meter=sum&group_by=properties.region" + november).body)
	for _, part := range []string{`{"properties.region":"1"}`, `{"properties.region":1}`, `{"properties.region":null}`,
		`"next_cursor":null}`} {
		if !strings.Contains(typed, part) {
			t.Errorf("no %s in %s", part, typed)
		}
	}
}

func TestUsageInPages(t *testing.T) {
	w := gridWorld(t)
	const path = "/v1/usage?meter=sum&window=hour&group_by=customer,resource" + november
	whole := lines(t, w.get(path))
	if len(whole) != 5 {
		t.Fatalf("%d items: %v", len(whole), whole)
	}
	for limit := 1; limit <= 6; limit++ {
		var got []string
		at := fmt.Sprintf("%s&limit=%d", path, limit)
		for n := 0; ; n++ {
			a := w.get(at)
			got = append(got, lines(t, a)...)
			// What comes in between is not on the pages that follow: they show one moment.
			w.send(fmt.Sprintf(`{"id":"%d-%d","meter":"sum","customer":"c0","time":"2026-11-01T00:00:00Z",`+
				`"quantity":"7"}`, limit, n)).status(t, 200)
			next := a.text("next_cursor")
			if next == "" {
				break
			}
			at = fmt.Sprintf("%s&limit=%d&cursor=%s", path, limit, next)
		}
		if limit > 1 { // all but the first run see what the runs before sent, as one more group
			got = slices.DeleteFunc(got, func(s string) bool { return strings.Contains(s, "c0") })
		}
		if diff := cmp.Diff(whole, got); diff != "" {
			t.Errorf("limit %d:\n%s", limit, diff)
		}
	}
	cursor := w.get(path + "&limit=1").text("next_cursor")
	w.get("/v1/usage?meter=sum&window=day&group_by=customer,resource&limit=1"+november+"&cursor="+
		cursor).refused(t, 400, "malformed")
	w.get(path+"&cursor=AAAA").refused(t, 400, "malformed")
}

func TestUsageAsCSV(t *testing.T) {
	w := usageWorld(t)
	w.send(`[{"id":"a","meter":"sum","customer":"c,1","time":"2026-11-01T00:00:00Z","quantity":"1.5",
		"properties":{"q":"say \"hi\"\r\nthere"}},
		{"id":"b","meter":"sum","customer":"c2","time":"2026-11-02T00:00:00Z","properties":{"q":7}}]`).status(t, 200)
	path := "/v1/usage?meter=sum&window=day&group_by=customer,properties.q,resource" + november
	read := call{method: "GET", path: path, key: "read"}
	a := w.do(read.with("Accept", "application/json;q=0.5, text/csv")).status(t, 200)
	const want = "from,to,customer,properties.q,resource,value\r\n" +
		"2026-11-01T00:00:00Z,2026-11-02T00:00:00Z,\"c,1\",\"say \"\"hi\"\"\r\nthere\",,1.5\r\n" +
		"2026-11-02T00:00:00Z,2026-11-03T00:00:00Z,c2,7,,1\r\n"
	if diff := cmp.Diff(want, string(a.body)); diff != "" {
		t.Error(diff)
	}
	if got := a.header.Get("Content-Type"); got != "text/csv; charset=utf-8; header=present" {
		t.Errorf("content type %s", got)
	}
	if records, err := csv.NewReader(strings.NewReader(string(a.body))).ReadAll(); err != nil || len(records) != 3 {
		t.Errorf("%d records, %v", len(records), err)
	}
	empty := w.do(call{method: "GET", path: "/v1/usage?meter=max" + november,
		key: "read"}.with("Accept", "text/*")).status(t, 200)
	if string(empty.body) != "from,to,value\r\n" {
		t.Errorf("empty: %q", empty.body)
	}
	for accept, media := range map[string]string{"": "application/json", "*/*": "application/json",
		"text/csv;q=0.4, */*;q=0.1": "text/csv; charset=utf-8; header=present", "application/*": "application/json",
		"text/csv;q=0, */*": "application/json"} {
		a := w.do(call{method: "GET", path: path, key: "read"}.with("Accept", accept)).status(t, 200)
		if got := a.header.Get("Content-Type"); got != media {
			t.Errorf("Accept %q: %s", accept, got)
		}
	}
	for _, accept := range []string{"image/png", "text/csv;q=0", "text/html, application/xml"} {
		w.do(call{method: "GET", path: path, key: "read"}.with("Accept", accept)).refused(t, 406, "not_acceptable")
	}
	if next := a.header.Get("Tally-Next-Cursor"); next != "" {
		t.Errorf("the whole has a next page: %s", next)
	}
	pages := ""
	for at := path + "&limit=1"; ; {
		page := w.do(call{method: "GET", path: at, key: "read"}.with("Accept", "text/csv")).status(t, 200)
		first, rest, _ := strings.Cut(string(page.body), "\r\n")
		if pages == "" {
			pages = first + "\r\n"
		}
		pages += rest
		next := page.header.Get("Tally-Next-Cursor")
		if next == "" {
			break
		}
		at = path + "&limit=1&cursor=" + next
	}
	if pages != want {
		t.Errorf("in pages: %s", pages)
	}
}

// Filled windows have a value where nothing adds up to zero, and none where nothing has none, in JSON and in CSV.
func TestUsageFilled(t *testing.T) {
	w := gridWorld(t)
	const days = "&window=day&fill=zero&from=2026-10-31&to=2026-11-04"
	for slug, want := range map[string]string{
		"sum": "0 10 9 0", "count": "0 4 1 0", "unique": "0 2 1 0", "min": "null 1 9 null", "max": "null 4 9 null",
		"last": "null 4 9 null", "avg": "null 2.5 9 null",
	} {
		var got []string
		for _, item := range w.get("/v1/usage?meter="+slug+days).status(t, 200).items(t) {
			if item["value"] == nil {
				item["value"] = "null"
			}
			got = append(got, fmt.Sprint(item["value"]))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", slug, s, want)
		}
		table := w.do(call{method: "GET", path: "/v1/usage?meter=" + slug + days,
			key: "read"}.with("Accept", "text/csv")).status(t, 200)
		var cells []string
		for _, line := range strings.Split(strings.TrimSuffix(string(table.body), "\r\n"), "\r\n")[1:] {
			cells = append(cells, line[strings.LastIndexByte(line, ',')+1:])
		}
		if s := strings.Join(cells, " "); s != strings.ReplaceAll(want, "null", "") {
			t.Errorf("%s in CSV: %q", slug, s)
		}
	}
	whole := lines(t, w.get("/v1/usage?meter=sum&group_by=customer"+days))
	if len(whole) != 8 || whole[0] != "2026-10-31T00 2026-11-01T00 [customer:c1] 0" ||
		whole[3] != "2026-11-01T00 2026-11-02T00 [customer:c2] 2" {
		t.Errorf("%v", whole)
	}
	for limit := 1; limit <= 9; limit++ {
		var got []string
		for at := fmt.Sprintf("/v1/usage?meter=sum&group_by=customer%s&limit=%d", days, limit); at != ""; {
			a := w.get(at)
			got = append(got, lines(t, a)...)
			w.send(fmt.Sprintf(`{"id":"%d-%d","meter":"sum","customer":"c0","time":"2026-11-03T00:00:00Z",`+
				`"quantity":"7"}`, limit, len(got))).status(t, 200)
			if at = ""; a.text("next_cursor") != "" {
				at = fmt.Sprintf("/v1/usage?meter=sum&group_by=customer%s&limit=%d&cursor=%s", days, limit,
					a.text("next_cursor"))
			}
		}
		got = slices.DeleteFunc(got,
			func(s string) bool {
				return strings.Contains(s, "c0")
			}) // a group that came meanwhile, from the second run on
		if !slices.Equal(got, whole) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
	if got := lines(t, w.get("/v1/usage?meter=sum&fill=zero&customer=nobody")); len(got) != 1 ||
		got[0] != "2026-11-01T00 2026-12-01T00 [] 0" {
		t.Errorf("the usage of nobody: %v", got)
	}
	if got := lines(t, w.get("/v1/usage?meter=sum&fill=zero&customer=nobody&group_by=customer")); len(got) != 0 {
		t.Errorf("the customers of nobody: %v", got)
	}
	tooMany := "/v1/usage?meter=sum&group_by=customer,resource&fill=zero&window=minute&from=2026-01-01&to=2026-12-31"
	if a := w.get(tooMany).refused(t, 400, "malformed"); !strings.Contains(a.text("detail"), "shorten the range") {
		t.Error(a.text("detail"))
	}
	w.get(tooMany+"&limit=1").refused(t, 400, "malformed")
}

func TestUsageByWeekAndMinute(t *testing.T) {
	w := usageWorld(t)
	w.halfHourly("c", "2026-10-25T22:00:00Z", 4) // around Monday in Berlin, the day after the clock went back
	got := lines(t, w.get("/v1/usage?meter=sum&window=week&timezone=Europe/Berlin&from=2026-10-20&to=2026-11-01"))
	want := []string{"2026-10-20T00 2026-10-25T23 [] 2", "2026-10-25T23 2026-11-01T00 [] 2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = lines(t, w.get("/v1/usage?meter=sum&window=minute&from=2026-10-25T22:00:30Z&to=2026-10-25T23:00:30Z"))
	want = []string{"2026-10-25T22:30:00Z 2026-10-25T22:31:00Z [] 1", "2026-10-25T23 2026-10-25T23:00:30Z [] 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUsageRefusals(t *testing.T) {
	w := gridWorld(t)
	for query, want := range map[string]string{
		"":                                     "400 meter",
		"meter=nope":                           "404",
		"meter=sum&window=year":                "400 window",
		"meter=sum&fill=null":                  "400 fill",
		"meter=sum&timezone=Mars/Olympus":      "400 timezone",
		"meter=sum&timezone=Local":             "400 timezone",
		"meter=sum&timezone=..%2Fetc%2Fpasswd": "400 timezone",
		"meter=sum&group_by=meter":             "400 group_by",
		"meter=sum&group_by=customer,":         "400 group_by",
		"meter=sum&group_by=customer,customer": "400 group_by",
		"meter=sum&group_by=properties.":       "400 group_by",
		"meter=sum&from=2026-11-02T00:00:00Z&to=2026-11-02T00:00:00Z":             "400 to",
		"meter=sum&from=2026-11-02T00:00:00Z&to=2026-11-01T00:00:00Z":             "400 to",
		"meter=sum&to=2026-10-01T00:00:00Z":                                       "400 to",
		"meter=sum&window=hour&from=1970-01-01T00:00:00Z&to=2100-01-01T00:00:00Z": "400 window",
		"meter=sum&from=yesterday":                                                "400 from",
		"meter=sum&to=7":                                                          "400 to",
		"meter=sum&limit=0":                                                       "400 limit",
		"meter=sum&limit=1001":                                                    "400 limit",
		"meter=sum&zone=UTC":                                                      "400 zone",
		"meter=sum&customer=":                                                     "400 customer",
		"meter=sum&properties.=x":                                                 "400 properties.",
		"meter=sum&meter=max":                                                     "400 meter",
		"meter=sum&as_of=100000":                                                  "400 as_of",
		"meter=sum&as_of=2027-01-01T00:00:00Z":                                    "400 as_of",
		"meter=sum&as_of=-1":                                                      "400 as_of",
		"meter=sum&as_of=now":                                                     "400 as_of",
		"meter=sum&as_of=99999999999999999999":                                    "400 as_of",
		"meter=sum&properties.a=1&properties.b=1&properties.c=1&properties.d=1&properties.e=1&properties.f=1" +
			"&properties.g=1&properties.h=1&properties.i=1": "400 properties.i",
	} {
		a := w.get("/v1/usage?" + query)
		got := fmt.Sprint(a.code)
		if list, ok := a.doc["errors"].([]any); ok {
			first, _ := list[0].(map[string]any)
			got += fmt.Sprintf(" %v", first["path"])
		}
		if got != want {
			t.Errorf("%s: %s, want %s: %s", query, got, want, a.body)
		}
	}
	w.addTenant("other")
	w.do(call{method: "GET", path: "/v1/usage?meter=sum", key: "other"}).refused(t, 404, "not_found")
}

// Without a range the current month of the zone is answered for.
func TestUsageOfTheCurrentMonth(t *testing.T) {
	w := usageWorld(t)
	for _, c := range [][2]string{{"UTC", "2026-11-01T00 2026-12-01T00 [] 1"},
		{"Asia/Kolkata", "2026-10-31T18:30:00Z 2026-11-30T18:30:00Z [] 1"}} {
		w.send(`{"id":"a","meter":"sum","customer":"c","time":"2026-11-15T10:00:00Z"}`)
		if got := lines(t, w.get("/v1/usage?meter=sum&timezone="+c[0])); len(got) != 1 || got[0] != c[1] {
			t.Errorf("%s: %v", c[0], got)
		}
	}
}
