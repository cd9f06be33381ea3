package httpkit

import (
	"slices"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/service/gate"
)

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		pattern, path string
		want          string // the variables, between bars; "-": no match
	}{
		{"/v1/events", "/v1/events", ""},
		{"/v1/events", "/v1/events/", "-"},
		{"/v1/events", "/v1", "-"},
		{"/v1/events/{id}", "/v1/events/a%2Fb", "a/b"},
		{"/v1/events/{id}", "/v1/events/..", ".."},
		{"/v1/events/{id}", "/v1/events/", "-"},
		{"/v1/events/{id}", "/v1/events/%zz", "-"},
		{"/v1/events/{id}", "/v1/events/%ff", "-"},
		{"/v1/events/{id}", "/v1/events/%00", "-"},
		{"/v1/sinks/{id}/failures/{fid}/replay", "/v1/sinks/s/failures/f/replay", "s|f"},
		{"/v1/sinks/{id}/failures/{fid}/replay", "/v1/sinks/s/failures/f", "-"},
		{"/v1/webhooks/{provider}/{tenant}", "/v1/webhooks/stripe/acme", "stripe|acme"},
		{"/v1/webhooks/{provider}/{tenant}", "/v1/webhooks/stripe", "-"},
		{"/console/{path...}", "/console/", ""},
		{"/console/{path...}", "/console", "-"},
		{"/console/{path...}", "/console/a/b%2Fc", "a/b/c"},
		{"/console/{path...}", "/console/%00", "-"},
		{"/x", "", "-"},
		{"/x", "*", "-"},
	} {
		values, ok := match(tc.pattern, tc.path)
		if got := strings.Join(values, "|"); ok != (tc.want != "-") || ok && got != tc.want {
			t.Errorf("%s, %s: %q %v, want %q", tc.pattern, tc.path, got, ok, tc.want)
		}
	}
}

// Given patterns of several edges in any order, then the most literal one that matches is meant.
func TestTheMostLiteralPatternIsMeant(t *testing.T) {
	patterns := []string{
		"/v1/billing/{period}", "/v1/billing/meter_events", "/v1/{any...}", "/v1/billing/{period}/invoices",
		"/{a}/{b}/{c}", "/v1/billing",
	}
	want := map[string]string{
		"/v1/billing":                  "/v1/billing",
		"/v1/billing/2026-11":          "/v1/billing/{period}",
		"/v1/billing/meter_events":     "/v1/billing/meter_events",
		"/v1/billing/2026-11/invoices": "/v1/billing/{period}/invoices",
		"/v1/billing/2026-11/else":     "/v1/{any...}",
		"/v1/x":                        "/v1/{any...}",
		"/v2/x/y":                      "/{a}/{b}/{c}",
	}
	for range len(patterns) {
		var edges []Edge
		for _, p := range patterns {
			edges = append(edges, Edge{Routes: []Route{{Method: "GET", Pattern: p}}})
		}
		resources := newTable(edges).resources
		for path, pattern := range want {
			at := slices.IndexFunc(resources, func(r resource) bool { _, ok := match(r.pattern, path); return ok })
			if at < 0 || resources[at].pattern != pattern {
				t.Errorf("%s of %v: %d, want %s", path, patterns, at, pattern)
			}
		}
		patterns = append(patterns[1:], patterns[0])
	}
}

// Given routes of which nobody could say what they do, then there is no handler.
func TestBadRoutes(t *testing.T) {
	get := func(pattern string) Route { return Route{Method: "GET", Pattern: pattern} }
	for name, tc := range map[string]struct {
		edges []Edge
		want  string
	}{
		"twice": {[]Edge{{Routes: []Route{get("/a")}}, {Routes: []Route{get("/a")}}}, "same requests"},
		"another name": {[]Edge{{Routes: []Route{get("/{a}"), {Method: "PUT", Pattern: "/{b}", Facts: true}}}},
			"same requests"},
		"outside":            {[]Edge{{Prefix: "/a", Routes: []Route{get("/ab")}}}, "outside"},
		"no slash":           {[]Edge{{Routes: []Route{get("a")}}}, "outside"},
		"an end":             {[]Edge{{Routes: []Route{get("/a/")}}}, "segments"},
		"the rest, and more": {[]Edge{{Routes: []Route{get("/{a...}/b")}}}, "end of the pattern"},
		"no name":            {[]Edge{{Routes: []Route{get("/{}")}}}, "no name"},
		"a name twice":       {[]Edge{{Routes: []Route{get("/{a}/{a}")}}}, "that of another"},
		"whose key": {[]Edge{{Routes: []Route{{Method: "POST", Pattern: "/{a}", Who: gate.Anyone}}}},
			"Idempotency-Key"},
		"which ledger": {
			[]Edge{{Routes: []Route{{Method: "POST", Pattern: "/a", Who: gate.OfOperator}}}}, "Idempotency-Key",
		},
	} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, tc.want) {
					t.Errorf("%s: %q", name, said)
				}
			}()
			New(Options{}, tc.edges...)
		}()
	}
}
