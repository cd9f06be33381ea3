package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tallystick/tallystick/internal/edge/httpkit"
)

// Values that no parameter takes, as they stand in a URL. The first two stand for the name alone.
var neverGood = map[string]string{
	"twice":                       "1&%s=1",
	"empty":                       "",
	"longer than any name":        strings.Repeat("x", httpkit.MaxFilter+1),
	"bad UTF-8":                   "%%FF",
	"half a letter":               "%%C3",
	"bad percent-encoding":        "%%zz",
	"a percent sign":              "100%%",
	"an escape that is cut short": "%%4",
	"NUL":                         "a%%00b",
	"a semicolon":                 "a;b",
}

var (
	badTimes = []string{"yesterday", "7", "-1", "1793923200", "2026-13-01", "2026-02-29", "2026-11", "2026-11-1",
		"2026-11-01T02:10:00", "2026-11-01 02:10:00Z",
		"1969-12-31", "1969-12-31T23:59:59Z", "10000-01-01", "99999999999999999999", "2026-11-01T02:10:00 02:00"}
	badNumbers = []string{"-1", "x", "1.5", "1e2", "0x1", " 1", "99999999999999999999", "%2B1"}
	// badValues of a parameter, beside those that no parameter takes; nil where any other text may name something.
	badValues = map[string][]string{
		"from": badTimes, "to": badTimes, "start": badTimes, "end": badTimes,
		"as_of": {"now", "-1", "1.5", "0x1", "2026-13-01", "2026-02-29", "2026-11", "1969-12-31",
			"99999999999999999999", "100000", "2027-01-01", "2027-01-01T00:00:00Z"},
		"period":   {"2026", "2026-13", "2026-00", "2026-11-01", "26-11", "november", "0000-01", "2026-1"},
		"limit":    append([]string{"0", "1001"}, badNumbers...),
		"offset":   append([]string{"1000001"}, badNumbers...),
		"cursor":   {"AAAA", "x", "!", "=", "AQ"},
		"window":   {"decade", "Hour", "days"},
		"fill":     {"0", "null", "Zero", "true"},
		"timezone": {"Local", "Mars/Olympus", "../etc/passwd", "/etc/localtime", "UTC%2B1", "europe"},
		"group_by": {"meter", "customer,", ",customer", "customer,customer", "properties.",
			"customer,resource,properties.a,properties.b,properties.c,properties.d,properties.e,properties.f," +
				"properties.g"},
		"status":    {"rejected", "Accepted"},
		"rows":      {"Events", "1", "event,", ",event", "event,event", "event events", "rows"},
		"after_seq": badNumbers, "until_seq": badNumbers, "from_seq": append([]string{"100000"}, badNumbers...),
		"meter": nil, "customer": nil, "resource": nil, "entity_type": nil, "entity_id": nil, "event_type": nil,
		"source": nil, "properties.region": nil,
	}
	// needed are the parameters without which a route answers nothing.
	needed = map[string]string{"/v1/usage": "meter=calls"}
	// unquestioned are the routes of tools that make up parameters of their own; they ignore any.
	unquestioned = []string{"/healthz", "/readyz", "/openapi.yaml", "/metrics"}
)

// Whatever is wrong with a parameter of whatever route, the answer is 400 with the code malformed, and it names the
// parameter.
func TestBadQueryValuesAreAnsweredAlike(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	w.send(`{"id":"nobody","meter":"calls","customer":"c1","time":"2026-11-15T02:10:00Z",`+
		`"properties":{"region":"eu"}}`).status(t, 200)
	doc := newContract(t).doc
	asked := 0
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		item := doc.Paths.Value(path)
		if item.Get == nil || slices.Contains(unquestioned, path) {
			continue
		}
		names := queryParameters(item)
		if path == "/v1/usage" {
			names = append(names, "properties.region")
		}
		w.wantBad(path, "nope", "1")
		w.wantBad(path, "nope", "%zz")
		for _, name := range names {
			for _, value := range badOf(t, name) {
				w.wantBad(path, name, value)
				asked++
			}
		}
	}
	if asked < 500 {
		t.Errorf("only %d values were tried", asked)
	}
}

func queryParameters(item *openapi3.PathItem) (names []string) {
	for _, p := range append(slices.Clone(item.Parameters), item.Get.Parameters...) {
		if p.Value.In == openapi3.ParameterInQuery {
			names = append(names, p.Value.Name)
		}
	}
	return names
}

func badOf(t *testing.T, name string) (values []string) {
	t.Helper()
	own, known := badValues[name]
	if !known {
		t.Errorf("no bad value of %s is known here", name)
	}
	for _, pattern := range neverGood {
		value := strings.ReplaceAll(pattern, "%%", "%")
		values = append(values, strings.ReplaceAll(value, "%s", name))
	}
	for _, value := range own {
		if !strings.Contains(value, "%") {
			value = strings.ReplaceAll(url.QueryEscape(value), "%2C", ",")
		}
		values = append(values, value)
	}
	return values
}

// wantBad asks a route with one bad value.
func (w *world) wantBad(path, name, value string) {
	w.t.Helper()
	for _, rt := range (*Server)(nil).routes() {
		if rt.method != http.MethodGet || rt.pattern != path {
			continue
		}
		c := w.example(rt)
		if rest, ok := needed[path]; ok && name != rest[:strings.IndexByte(rest, '=')] {
			c.path += "?" + rest + "&" + name + "=" + value
		} else {
			c.path += "?" + name + "=" + value
		}
		a := w.do(c)
		list, _ := a.doc["errors"].([]any)
		if a.code != http.StatusBadRequest || a.text("code") != "malformed" || len(list) != 1 ||
			!strings.Contains(a.text("detail"), name) {
			w.t.Errorf("%s: %d %s", c.path, a.code, a.body)
			continue
		}
		if first, _ := list[0].(map[string]any); first["path"] != name || first["message"] == "" {
			w.t.Errorf("%s: %s", c.path, a.body)
		}
	}
}

// Of several bad parameters the first is named, always the same, and one that is absurdly long is not repeated whole.
func TestTheFirstBadParameterIsNamed(t *testing.T) {
	w := newWorld(t)
	for range 20 {
		a := w.get("/v1/counters?nope=1&limit=0&also=%zz").refused(t, 400, "malformed")
		if a.text("detail") != "query parameter nope: unknown parameter" {
			t.Fatal(a.text("detail"))
		}
	}
	if a := w.get("/v1/counters?"+strings.Repeat("x", 4000)+"=1").refused(t, 400, "malformed"); len(a.body) > 600 {
		t.Errorf("%d bytes", len(a.body))
	}
	if a := w.get("/v1/counters?%zz=1").refused(t, 400, "malformed"); !strings.Contains(a.text("detail"), "%zz") {
		t.Error(a.text("detail"))
	}
	w.get("/v1/counters?&limit=1&").status(t, 200)
}

// A date alone is midnight in UTC, in whatever zone the windows are.
func TestADateIsMidnightInUTC(t *testing.T) {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	for i, at := range []string{"2026-10-31T23:59:59.999999Z", "2026-11-01T00:00:00Z", "2026-11-01T23:59:59Z",
		"2026-11-02T00:00:00Z"} {
		w.send(fmt.Sprintf(`{"id":"e%d","meter":"calls","customer":"c1","time":"%s"}`, i, at)).status(t, 200)
	}
	ids := func(a answer) (out string) {
		for _, item := range a.status(t, 200).items(t) {
			out += fmt.Sprint(item["id"], " ")
		}
		return out
	}
	if got := ids(w.get("/v1/events?from=2026-11-01&to=2026-11-02")); got != "e1 e2 " {
		t.Errorf("events: %s", got)
	}
	for _, zone := range []string{"UTC", "Asia/Kolkata"} {
		got := lines(t, w.get("/v1/usage?meter=calls&from=2026-11-01&to=2026-11-02&timezone="+zone))
		if len(got) != 1 || got[0] != "2026-11-01T00 2026-11-02T00 [] 2" {
			t.Errorf("usage in %s: %v", zone, got)
		}
	}
	audit := func(query string) int {
		return len(w.do(call{method: "GET", path: "/v1/audit-events?" + query, key: "audit"}).status(t, 200).items(t))
	}
	if all := audit("start=2026-11-15&end=2026-11-16"); all == 0 || audit("end=2026-11-15") != 0 ||
		audit("start=2026-11-16") != 0 {
		t.Errorf("%d audit events of the day", all)
	}
	w.get("/v1/counters?as_of=2026-11-15").status(t, 200)
	w.get("/v1/usage?meter=calls&as_of=2026-11-15").refused(t, 404, "not_found") // the meter was made later that day
	key := w.do(call{method: "POST", path: "/v1/api-keys", key: "admin",
		body: `{"scopes":["read"],"expires_at":"2027-01-01"}`}).status(t, 201)
	if key.text("expires_at") != "2027-01-01T00:00:00Z" {
		t.Errorf("the key expires at %s", key.text("expires_at"))
	}
}
