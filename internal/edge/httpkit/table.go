package httpkit

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/service/gate"
)

// table finds the route of a request. A mux of our own, because ids may hold slashes and dots, which the standard one
// cleans away with a redirect, and because it answers 404 and 405 in plain text.
type table struct {
	resources []resource // of two that match a path, the one that is meant stands first
	edges     []Edge     // the longest prefix first
}

// resource is one path with its methods.
type resource struct {
	pattern string
	methods map[string]*Route
	allow   string // the header
	shape   *Shape
}

func newTable(edges []Edge) (t table) {
	t.edges = slices.Clone(edges)
	for i := range t.edges {
		e := &t.edges[i]
		if e.Problems == nil {
			e.Problems = &ProblemJSON
		}
		for _, rt := range e.Routes {
			if !within(rt.Pattern, e.Prefix) {
				panic(fmt.Sprintf("httpkit: the route %s is outside of its edge's prefix %s", rt.Pattern, e.Prefix))
			}
			rt.shape, rt.variables = e.Problems, variables(rt.Pattern)
			if !rt.knowsLedger() {
				panic(fmt.Sprintf("httpkit: the route %s %s does not say in whose ledger an answer under an "+
					"Idempotency-Key is kept: it needs Facts, NoKey or Founds", rt.Method, rt.Pattern))
			}
			t.add(&rt)
		}
	}
	slices.SortStableFunc(t.edges, func(a, b Edge) int { return len(b.Prefix) - len(a.Prefix) })
	slices.SortStableFunc(t.resources, func(a, b resource) int { return moreLiteral(a.pattern, b.pattern) })
	return t
}

func (t *table) add(rt *Route) {
	at := slices.IndexFunc(t.resources, func(r resource) bool { return moreLiteral(r.pattern, rt.Pattern) == 0 })
	if at < 0 {
		at = len(t.resources)
		t.resources = append(t.resources, resource{pattern: rt.Pattern, methods: map[string]*Route{}, shape: rt.shape})
	}
	r := &t.resources[at]
	if r.methods[rt.Method] != nil || r.pattern != rt.Pattern {
		panic(fmt.Sprintf("httpkit: %s and %s %s are for the same requests", r.pattern, rt.Method, rt.Pattern))
	}
	r.methods[rt.Method] = rt
	if r.allow != "" {
		r.allow += ", "
	}
	r.allow += rt.Method
	if rt.Method == http.MethodGet {
		r.allow += ", HEAD"
	}
}

// knowsLedger reports whether it is clear what becomes of an Idempotency-Key. Callers without an API key keep none.
func (rt *Route) knowsLedger() bool {
	switch {
	case rt.Method == http.MethodGet, rt.Facts, rt.NoKey != "", rt.Founds != nil, rt.Who == gate.OfTenant:
		return true
	}
	return (rt.Who == gate.OfNamed || rt.Who == gate.OfOperator) && len(rt.variables) > 0
}

// within reports whether a path is a prefix's, or below it.
func within(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

func isVariable(segment string) bool { return strings.HasPrefix(segment, "{") }

func isRest(segment string) bool { return isVariable(segment) && strings.HasSuffix(segment, "...}") }

// variables are the names in a pattern. It panics on a pattern that cannot be matched.
func variables(pattern string) (names []string) {
	for left := pattern; left != ""; {
		var segment string
		if left[0] != '/' || left == "/" {
			panic(fmt.Sprintf("httpkit: the pattern %s is not segments between slashes", pattern))
		}
		if segment, left = cutSegment(left); !isVariable(segment) {
			continue
		}
		if isRest(segment) && left != "" {
			panic(fmt.Sprintf("httpkit: %s is not at the end of the pattern %s", segment, pattern))
		}
		name := strings.TrimSuffix(strings.Trim(segment, "{}"), "...")
		if name == "" || slices.Contains(names, name) {
			panic(fmt.Sprintf("httpkit: a variable of the pattern %s has no name, or that of another", pattern))
		}
		names = append(names, name)
	}
	return names
}

// moreLiteral orders patterns by the first segment in which they differ: literals, a variable, all the rest. Those
// that differ in the names of variables alone are equal: they are for the same requests.
func moreLiteral(a, b string) int {
	for a != "" && b != "" {
		var one, other string
		one, a = cutSegment(a)
		other, b = cutSegment(b)
		if d := rank(one) - rank(other); d != 0 {
			return d
		}
		if rank(one) == 0 && one != other {
			return strings.Compare(one, other)
		}
	}
	return len(a) - len(b) // one of them has ended
}

func rank(segment string) int {
	switch {
	case isRest(segment):
		return 2
	case isVariable(segment):
		return 1
	}
	return 0
}

// dispatch finds the route and serves it.
func (h *Handler) dispatch(x *Exchange) error {
	path := x.r.URL.EscapedPath()
	for i := range h.table.resources {
		r := &h.table.resources[i]
		values, ok := match(r.pattern, path)
		if !ok {
			continue
		}
		method := x.r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		if rt := r.methods[method]; rt != nil {
			x.variables = values
			return x.serve(rt)
		}
		return x.notAllowed(r)
	}
	return x.nothingThere(path)
}

// notAllowed refuses a method, unless a browser asks whether it may send one.
func (x *Exchange) notAllowed(r *resource) error {
	x.route = &Route{shape: r.shape}
	if x.isPreflight() {
		return x.preflight(r.allow)
	}
	x.hangUp()
	x.w.Header()["Allow"] = []string{r.allow}
	return problem.New(problem.MethodNotAllowed, "%s is not allowed here; allowed: %s", x.r.Method, r.allow)
}

// nothingThere refuses a path in the shape of the edge that it is nearest to.
func (x *Exchange) nothingThere(path string) error {
	x.hangUp()
	lists := ""
	for i := range x.handler.table.edges {
		if e := &x.handler.table.edges[i]; within(path, e.Prefix) {
			x.route, lists = &Route{shape: e.Problems}, e.Lists
			break
		}
	}
	if lists == "" {
		return problem.New(problem.NotFound, "there is nothing at this path")
	}
	return problem.New(problem.NotFound, "there is nothing at this path; %s lists what there is", lists)
}

// match compares an escaped path with a pattern, segment by segment. What cannot be the name of anything does not
// match: an empty segment, a bad escape, bytes that are not UTF-8, NUL.
func match(pattern, path string) (values []string, ok bool) {
	for pattern != "" {
		if path == "" || path[0] != '/' {
			return nil, false
		}
		var want, have string
		want, pattern = cutSegment(pattern)
		if isRest(want) {
			rest, err := url.PathUnescape(path[1:])
			return append(values, rest), err == nil && IsText(rest)
		}
		have, path = cutSegment(path)
		if isVariable(want) {
			name, err := url.PathUnescape(have)
			if err != nil || name == "" || !IsText(name) {
				return nil, false
			}
			values = append(values, name)
		} else if want != have {
			return nil, false
		}
	}
	return values, path == ""
}

// cutSegment splits "/a/b" into "a" and "/b".
func cutSegment(path string) (segment, rest string) {
	path = path[1:]
	if end := strings.IndexByte(path, '/'); end >= 0 {
		return path[:end], path[end:]
	}
	return path, ""
}
