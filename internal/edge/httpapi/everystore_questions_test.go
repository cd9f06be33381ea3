package httpapi

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// questions makes GET requests out of the published document. It knows values for each parameter's name and none of the
// routes, so that a route that is added is asked, and a parameter that is added must be given values here.
type questions struct {
	t      *testing.T
	random *rand.Rand
	ids    func(list string) []string // that a list shows
}

func newQuestions(t *testing.T, ids func(list string) []string) *questions {
	return &questions{t: t, random: rand.New(rand.NewPCG(6, 1)), ids: ids}
}

// good values narrow a question. Odd ones stand at an edge, must be refused or find nothing: each is asked about by
// itself.
type values struct{ good, odd []string }

// oddText is what no text parameter may be, or what nobody is called.
var oddText = []string{"", "nobody", "a\x00", "\x00", "\xff", "\xed\xa0\x80", strings.Repeat("x", 255),
	strings.Repeat("x", 1024), strings.Repeat("é", 600)}

var (
	slugValues = values{[]string{"calls", "m-sum", "m-count", "m-min", "m-max", "m-last", "m-avg", "m-unique",
		"strict", "typed-sum", "typed-count", "derived", "empty"}, oddText}
	moments = values{[]string{"2026-09-20T06:30:00Z", "2026-10-01T00:00:00Z", "2026-11-01T00:00:00+02:00",
		"2026-11-15T02:10:00.123456Z", "1794700800000", "2026-12-01T00:00:00Z"},
		[]string{"", "2026-13-01T00:00:00Z", "1794700800", "99999999999999999999", "-1", "yesterday",
			"9999-12-31T23:59:59.999999Z", "10000-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z"}}
	months = values{[]string{"2026-08", "2026-09", "2026-10", "2026-11", "2026-12"}, []string{"", "2026-13", "2026-1",
		"9999-12", "1970-01", "0001-01", "26-11", "2026-11-01", "a\x00"}}
)

// byName are the values of query parameters.
var byName = map[string]values{
	"meter":    slugValues,
	"customer": {oddNames, oddText},
	"resource": {[]string{"r1", "r%2", "r 3"}, oddText},
	"from":     moments,
	"to":       moments,
	"start":    moments,
	"end":      moments,
	"period":   months,
	"status":   {[]string{"accepted", "adjusted", "overage"}, []string{"", "rejected", "ACCEPTED", "a\x00"}},
	"window":   {[]string{"minute", "hour", "day", "week", "month"}, []string{"", "year", "a\x00"}},
	"fill":     {[]string{"zero"}, []string{"", "one", "a\x00"}},
	"group_by": {[]string{"customer", "resource", "properties.region", "customer,resource",
		"properties.user,customer"}, []string{"", "x", "customer,customer", "properties.", "properties.nobody",
		"properties.\x00"}},
	"timezone": {[]string{"UTC", "Europe/Vienna", "Asia/Kolkata", "America/St_Johns"}, []string{"", "Mars/Olympus",
		"../etc/passwd", "Local", "a\x00"}},
	"as_of": {[]string{"1", "20", "60", "120", "200", "2026-11-15T12:00:30Z", "2026-11-15T12:20:00Z"},
		[]string{"", "0", "-1", "999999999", "9223372036854775808", "99999999999999999999", "a\x00",
			"1999-01-01T00:00:00Z"}},
	"limit":       {[]string{"40", "101", "1000"}, []string{"", "3", "0", "-1", "1001", "x", "9223372036854775808"}},
	"offset":      {[]string{"0", "1", "50"}, []string{"", "-1", "100000", "100001", "x", "9223372036854775808"}},
	"cursor":      {nil, []string{"", "x", "AQ", "AQAAAAAAAAAAAA", "%00", strings.Repeat("A", 1024)}},
	"entity_type": {[]string{"meter", "tenant", "api_key", "plan", "adjustment", "period", "quota"}, oddText},
	"entity_id":   {[]string{"acme", "calls", "pro", "2026-09", "a", "cus_1"}, oddText},
	"event_type": {[]string{"meter.created", "adjustment.created", "period.closed", "plan.updated", "quota.alert"},
		oddText},
	"source":    {[]string{"api", "operator", "system"}, oddText},
	"rows":      {[]string{"events", "changes"}, []string{"", "event", "a\x00"}},
	"from_seq":  {[]string{"0", "1", "20", "60"}, []string{"", "-1", "x", "100000", "9223372036854775808"}},
	"after_seq": {[]string{"0", "5", "100"}, []string{"", "-1", "x", "9223372036854775808"}},
	"until_seq": {[]string{"20", "9223372036854775807"}, []string{"", "-1", "x", "9223372036854775808"}},
}

// byPath are the values of variables in paths, by their route.
var byPath = map[string][]string{
	"/v1/tenants/{id}":  {"acme", "bolt", "zeta", "a-b"},
	"/v1/api-keys/{id}": nil, // as listed
	"/v1/meters/{slug}": slugValues.good,
	"/v1/events/{id}": {"e0-a", "e1-a\x01", "e2-%", "e3-a/b", "fix-a", "late-日本", "now", "many-3", "hit-2",
		"fix2-😀", "e4-\U0010ffff"},
	"/v1/adjustments/{id}":    nil,
	"/v1/periods/{period}":    months.good,
	"/v1/plans/{name}":        {"pro", "free", "all"},
	"/v1/customers/{id}/plan": oddNames,
	"/v1/sinks/{id}/failures": nil,
	"/v1/audit-events/{id}":   nil,
	"/v1/ledgers/{id}/rows":   {"acme", "bolt", "zeta"},
}

// asked is one route of the document.
type asked struct {
	path   string
	params []*openapi3.Parameter // of the query
	values []string              // of the variable in its path
}

// kindsOfRows are the values of rows where it names kinds of rows, not what is exported.
var kindsOfRows = values{[]string{"event", "change", "entry", "event,change"},
	[]string{"", "events", "event,", "a\x00"}}

func (r asked) valuesOf(name string) values {
	if r.path == streamPath && name == "rows" {
		return kindsOfRows
	}
	return byName[name]
}

func (r asked) takes(name string) bool {
	return slices.ContainsFunc(r.params, func(p *openapi3.Parameter) bool { return p.Name == name })
}

// routes lists the document's GET routes.
func (q *questions) routes(doc *openapi3.T) (out []asked) {
	q.t.Helper()
	for _, path := range doc.Paths.InMatchingOrder() {
		item := doc.Paths.Value(path)
		if item.Get == nil {
			continue
		}
		r := asked{path: path}
		for _, ref := range append(slices.Clone(item.Parameters), item.Get.Parameters...) {
			if p := ref.Value; p.In == openapi3.ParameterInQuery {
				if _, known := byName[p.Name]; !known {
					q.t.Fatalf("GET %s takes %q: give it values in this file", path, p.Name)
				}
				r.params = append(r.params, p)
			}
		}
		if list, _, found := strings.Cut(path, "/{"); found {
			values, known := byPath[path]
			if !known && list+"/{id}" != path {
				q.t.Fatalf("GET %s: give its variable values in this file", path)
			}
			if r.values = values; values == nil {
				r.values = q.ids(list)
			}
		}
		out = append(out, r)
	}
	return out
}

// keys are who asks: the tenant itself, another one, and the operator.
var askers = []string{"admin", "bolt", "operator"}

// question is a request, and whether it is well formed.
type question struct {
	call
	good bool
}

// of makes all questions to a route.
func (q *questions) of(r asked) (out []question) {
	add := func(c call, good bool) { out = append(out, question{c, good}) }
	ask := func(path, key string) { add(call{method: http.MethodGet, path: path, key: key}, false) }
	for i, path := range q.paths(r) {
		if i > 0 { // who asks, and for what, was asked about the first
			ask(path, askers[i%2])
			continue
		}
		for _, key := range append(askers, "zeta", "read", "ingest", "") {
			ask(path, key)
		}
		for _, accept := range []string{"application/json", "text/csv", "text/csv;q=0.5, application/json;q=0.1",
			"text/html", "*/*", "*/*;q=0", "nonsense"} {
			add(call{method: http.MethodGet, path: path, key: "admin"}.with("Accept", accept), false)
		}
		for _, tenant := range []string{"acme", "bolt", "zeta", "nobody", "é"} {
			add(call{method: http.MethodGet, path: path, key: "operator"}.with("Tally-Tenant", tenant), false)
		}
		ask(at(path, "unknown", "1"), "admin")
		ask(path+"?limit=1&limit=2", "admin")
		ask(path+"?customer=%zz", "admin")
	}
	for _, path := range q.oddPaths(r) {
		ask(path, "admin")
	}
	base := q.paths(r)[0]
	for _, p := range r.params {
		v := r.valuesOf(p.Name)
		for i, value := range append(slices.Clone(v.good), v.odd...) {
			path := at(q.required(r, base, p.Name), p.Name, value)
			// One end of a range alone may lie on the wrong side of where the other is by default.
			good := i < len(v.good) && v.good[0] != moments.good[0]
			add(call{method: http.MethodGet, path: path, key: "admin"}, good)
		}
	}
	for range 6 * len(r.params) {
		ask(q.mixed(r, base), askers[q.random.IntN(2)])
	}
	return out
}

// paths are the route with good values in its variable.
func (q *questions) paths(r asked) []string {
	head, rest, found := strings.Cut(r.path, "{")
	if !found {
		return []string{r.path}
	}
	_, tail, _ := strings.Cut(rest, "}")
	var out []string
	for _, value := range r.values {
		out = append(out, head+url.PathEscape(value)+tail)
	}
	return out
}

// oddPaths are the route with bad values in its variable, also ones that must not be decoded twice.
func (q *questions) oddPaths(r asked) (out []string) {
	head, rest, found := strings.Cut(r.path, "{")
	if !found {
		return []string{r.path + "/", r.path + "%00", strings.ToUpper(r.path)}
	}
	_, tail, _ := strings.Cut(rest, "}")
	for _, value := range []string{"nobody", "%00", "a%00", "%ff", "%ed%a0%80", "%2541", "%25", "%2F", "a%2Fb", "..",
		"%2e%2e", "+", "%20", "%01", "%7f", "adj_0", "adj_1", "adj_9223372036854775808", "adj_1_1",
		"aud_0", "aud_01", "aud_1", "aud_9223372036854775807", "aud_99999999999999999999", "9999-12",
		"0000-01", "key%3Aabc",
		strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 1025)} {
		out = append(out, head+value+tail)
	}
	return out
}

// required adds what a route cannot do without, but for the parameter that is asked about.
func (q *questions) required(r asked, path, but string) string {
	for _, p := range r.params {
		if p.Required && p.Name != but {
			path = at(path, p.Name, byName[p.Name].good[0])
		}
	}
	return path
}

// mixed is a question with several parameters, rarely an odd one.
func (q *questions) mixed(r asked, path string) string {
	for _, p := range r.params {
		v := r.valuesOf(p.Name)
		switch {
		case q.random.IntN(24) == 0:
			path = at(path, p.Name, v.odd[q.random.IntN(len(v.odd))])
		case len(v.good) > 0 && (p.Required || q.random.IntN(2) == 0):
			path = at(path, p.Name, v.good[q.random.IntN(len(v.good))])
		}
	}
	return path
}

// lists are questions whose answers have cursors of every shape that the route knows.
func (q *questions) lists(r asked) (out []string) {
	out = append(out, q.required(r, r.path, ""))
	for _, p := range r.params {
		if p.Name == "customer" || p.Name == "meter" {
			out = append(out, at(q.required(r, r.path, p.Name), p.Name, byName[p.Name].good[0]))
		}
	}
	return out
}
