package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/gate"
)

const eventsPath = "/v1/events"

// route is one method of one path.
type route struct {
	method  string
	pattern string // segments between slashes; one of them may be a variable in braces
	who     gate.Who
	need    tenant.Scope // of a key, when who is ofTenant or ofAll
	handle  func(*exchange) error
}

// Who may call a route, in the gate's words.
const (
	anyone     = gate.Anyone
	ofTenant   = gate.OfTenant
	ofOperator = gate.OfOperator
	ofNamed    = gate.OfNamed
	ofAll      = gate.OfAll
)

// routes is everything that is served. The contract test holds it against the published document.
var routes = []route{
	{"GET", "/healthz", anyone, 0, getHealth},
	{"GET", "/readyz", anyone, 0, getReady},
	{"GET", "/openapi.yaml", anyone, 0, getOpenAPI},
	{"GET", "/metrics", ofOperator, 0, getMetrics},

	{"POST", "/v1/tenants", ofOperator, 0, postTenant},
	{"GET", "/v1/tenants", ofOperator, 0, listTenants},
	{"GET", "/v1/tenants/{id}", ofNamed, 0, getTenant},
	{"PATCH", "/v1/tenants/{id}", ofNamed, 0, patchTenant},
	{"POST", "/v1/tenants/{id}/close", ofOperator, 0, closeTenant},

	{"POST", "/v1/api-keys", ofTenant, tenant.Admin, postKey},
	{"GET", "/v1/api-keys", ofTenant, tenant.Admin, listKeys},
	{"GET", "/v1/api-keys/{id}", ofTenant, tenant.Admin, getKey},
	{"DELETE", "/v1/api-keys/{id}", ofTenant, tenant.Admin, deleteKey},

	{"POST", "/v1/meters", ofTenant, tenant.Admin, postMeter},
	{"GET", "/v1/meters", ofTenant, tenant.Read, listMeters},
	{"GET", "/v1/meters/{slug}", ofTenant, tenant.Read, getMeter},
	{"PATCH", "/v1/meters/{slug}", ofTenant, tenant.Admin, patchMeter},

	postEvents,
	{"GET", eventsPath, ofTenant, tenant.Read, listEvents},
	{"GET", "/v1/events/{id}", ofTenant, tenant.Read, getEvent},

	{"GET", "/v1/counters", ofTenant, tenant.Read, listCounters},
	{"GET", "/v1/usage", ofTenant, tenant.Read, getUsage},

	{"POST", "/v1/adjustments", ofTenant, tenant.Billing, postAdjustment},
	{"GET", "/v1/adjustments", ofTenant, tenant.Read, listAdjustments},
	{"GET", "/v1/adjustments/{id}", ofTenant, tenant.Read, getAdjustment},
	{"POST", "/v1/adjustments/{id}/revert", ofTenant, tenant.Billing, revertAdjustment},

	{"GET", "/v1/periods", ofTenant, tenant.Read, listPeriods},
	{"GET", "/v1/periods/{period}", ofTenant, tenant.Read, getPeriod},
	{"POST", "/v1/periods/{period}/close", ofTenant, tenant.Billing, closePeriod},

	postReplay,

	{"GET", "/v1/verification", ofAll, tenant.Admin, getVerification},
	{"GET", "/v1/ledgers", ofAll, tenant.Admin, getLedgers},
	{"GET", "/v1/ledgers/{id}/rows", ofNamed, 0, getLedgerRows},

	{"PUT", "/v1/plans/{name}", ofTenant, tenant.Billing, putPlan},
	{"GET", "/v1/plans", ofTenant, tenant.Read, listPlans},
	{"GET", "/v1/plans/{name}", ofTenant, tenant.Read, getPlan},
	{"PUT", "/v1/tenant-plan", ofTenant, tenant.Billing, putTenantPlan},
	{"GET", "/v1/tenant-plan", ofTenant, tenant.Read, getTenantPlan},
	{"PUT", "/v1/customers/{id}/plan", ofTenant, tenant.Billing, putCustomerPlan},
	{"GET", "/v1/customers/{id}/plan", ofTenant, tenant.Read, getCustomerPlan},
	{"GET", "/v1/quotas", ofTenant, tenant.Read, listQuotas},

	{"GET", "/v1/audit-events", ofTenant, tenant.Audit, listAuditEvents},
	{"GET", "/v1/audit-events/{id}", ofTenant, tenant.Audit, getAuditEvent},
}

// postEvents is the hot route, which ServeHTTP knows by itself.
var postEvents = route{"POST", eventsPath, ofTenant, tenant.Ingest, acceptEvents}

// postReplay answers as it goes, so that there is no answer to keep under a request key.
var postReplay = route{"POST", "/v1/periods/{period}/replay", ofTenant, tenant.Billing, replayPeriod}

// resource is one path with its methods. A mux of our own, because ids may hold slashes and dots, which the standard
// one cleans away with a redirect, and because it answers 404 and 405 in plain text.
type resource struct {
	pattern string
	methods []*route
	allow   string
}

func resources() []resource {
	var out []resource
	for i := range routes {
		rt := &routes[i]
		at := len(out)
		for j := range out {
			if out[j].pattern == rt.pattern {
				at = j
			}
		}
		if at == len(out) {
			out = append(out, resource{pattern: rt.pattern})
		} else {
			out[at].allow += ", "
		}
		out[at].methods = append(out[at].methods, rt)
		out[at].allow += rt.method
		if rt.method == http.MethodGet {
			out[at].allow += ", HEAD"
		}
	}
	return out
}

// dispatch finds the route and serves it.
func (s *Server) dispatch(x *exchange) error {
	path := x.r.URL.EscapedPath()
	for i := range s.table {
		param, ok := match(s.table[i].pattern, path)
		if !ok {
			continue
		}
		method := x.r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		for _, rt := range s.table[i].methods {
			if rt.method == method {
				x.param = param
				return x.serve(rt)
			}
		}
		if x.isPreflight() {
			return x.preflight(s.table[i].allow)
		}
		x.hangUp()
		x.w.Header()["Allow"] = []string{s.table[i].allow}
		return problem.New(problem.MethodNotAllowed, "%s is not allowed here; allowed: %s", x.r.Method, s.table[i].allow)
	}
	x.hangUp()
	return problem.New(problem.NotFound, "there is nothing at this path; GET /openapi.yaml lists what there is")
}

// match compares an escaped path with a pattern, segment by segment. What cannot be the name of anything does not
// match: an empty segment, a bad escape, bytes that are not UTF-8, NUL.
func match(pattern, path string) (param string, ok bool) {
	for pattern != "" {
		if path == "" || path[0] != '/' {
			return "", false
		}
		var want, have string
		want, pattern = cutSegment(pattern)
		have, path = cutSegment(path)
		if want[0] == '{' {
			name, err := url.PathUnescape(have)
			if err != nil || name == "" || !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0 {
				return "", false
			}
			param = name
		} else if want != have {
			return "", false
		}
	}
	return param, path == ""
}

// cutSegment splits "/a/b" into "a" and "/b".
func cutSegment(path string) (segment, rest string) {
	path = path[1:]
	if end := strings.IndexByte(path, '/'); end >= 0 {
		return path[:end], path[end:]
	}
	return path, ""
}

// serve passes the gate before anything else of the request is looked at.
func (x *exchange) serve(rt *route) error {
	x.route = rt
	if rt.who != anyone {
		if err := x.enter(rt); err != nil {
			if !problem.Is(err, problem.RateLimited) { // who has a key comes back on the same connection
				x.hangUp()
			}
			return err
		}
	}
	if err := x.choose(rt); err != nil {
		return err
	}
	return x.ofQuery(x.handle(rt))
}

// enter tells the gate what the header says.
func (x *exchange) enter(rt *route) error {
	token, err := x.token()
	if err != nil {
		return err
	}
	r := gate.Request{Token: token, Origin: x.origin(), Right: gate.Right{Who: rt.who, Scope: rt.need, Named: x.param}}
	if h := x.r.Header["Tally-Tenant"]; len(h) > 0 {
		r.Tenant = strings.Join(h, ",") // two tenants name none
	}
	x.caller, err = x.s.options.Gate.Enter(x.r.Context(), &r)
	x.allowPage()
	x.tellStanding()
	if err == nil {
		x.showedKey()
	}
	return err
}

func (x *exchange) token() (string, error) {
	header := x.r.Header["Authorization"]
	if len(header) == 0 {
		return "", problem.New(problem.Unauthorized, "no API key: send the header Authorization: Bearer tk_…")
	}
	scheme, token, ok := strings.Cut(header[0], " ")
	if len(header) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", problem.New(problem.Unauthorized, "the header Authorization must be: Bearer tk_…")
	}
	return strings.TrimSpace(token), nil
}

// requestKey reads the Idempotency-Key; it is empty when there is none.
func (x *exchange) requestKey(longest int) (string, error) {
	header, given := x.r.Header["Idempotency-Key"]
	if !given {
		return "", nil
	}
	if len(header) > 1 {
		return "", problem.New(problem.Malformed, "Idempotency-Key stands twice")
	}
	key, p := request.ParseKey(header[0], longest)
	if p != nil {
		return "", p
	}
	return key, nil
}
