package httpapi

import (
	"slices"

	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/service/gate"
)

const (
	eventsPath = "/v1/events"
	replayPath = "/v1/periods/{period}/replay"
)

// Who may call a route, in the gate's words.
const (
	anyone     = gate.Anyone
	ofTenant   = gate.OfTenant
	ofOperator = gate.OfOperator
	ofNamed    = gate.OfNamed
	ofAll      = gate.OfAll
)

// route is one method of one path.
type route struct {
	method  string
	pattern string
	who     gate.Who
	need    tenant.Scope // of a key, when who is ofTenant or ofAll
	handle  func(*httpkit.Exchange) error
}

// routes is everything that is served. The contract test holds it against the published document.
func (s *Server) routes() []route {
	return []route{
		{"GET", "/healthz", anyone, 0, s.getHealth},
		{"GET", "/readyz", anyone, 0, s.getReady},
		{"GET", "/openapi.yaml", anyone, 0, s.getOpenAPI},
		{"GET", "/metrics", ofOperator, 0, s.getMetrics},

		{"POST", "/v1/tenants", ofOperator, 0, s.postTenant},
		{"GET", "/v1/tenants", ofOperator, 0, s.listTenants},
		{"GET", "/v1/tenants/{id}", ofNamed, 0, s.getTenant},
		{"PATCH", "/v1/tenants/{id}", ofNamed, 0, s.patchTenant},
		{"POST", "/v1/tenants/{id}/close", ofOperator, 0, s.closeTenant},

		{"POST", "/v1/api-keys", ofTenant, tenant.Admin, s.postKey},
		{"GET", "/v1/api-keys", ofTenant, tenant.Admin, s.listKeys},
		{"GET", "/v1/api-keys/{id}", ofTenant, tenant.Admin, s.getKey},
		{"DELETE", "/v1/api-keys/{id}", ofTenant, tenant.Admin, s.deleteKey},

		{"POST", "/v1/meters", ofTenant, tenant.Admin, s.postMeter},
		{"GET", "/v1/meters", ofTenant, tenant.Read, s.listMeters},
		{"GET", "/v1/meters/{slug}", ofTenant, tenant.Read, s.getMeter},
		{"PATCH", "/v1/meters/{slug}", ofTenant, tenant.Admin, s.patchMeter},

		{"POST", eventsPath, ofTenant, tenant.Ingest, s.acceptEvents},
		{"GET", eventsPath, ofTenant, tenant.Read, s.listEvents},
		{"GET", "/v1/events/{id}", ofTenant, tenant.Read, s.getEvent},

		{"GET", streamPath, ofTenant, tenant.Read, s.getStream},

		{"GET", "/v1/counters", ofTenant, tenant.Read, s.listCounters},
		{"GET", "/v1/usage", ofTenant, tenant.Read, s.getUsage},

		{"POST", "/v1/adjustments", ofTenant, tenant.Billing, s.postAdjustment},
		{"GET", "/v1/adjustments", ofTenant, tenant.Read, s.listAdjustments},
		{"GET", "/v1/adjustments/{id}", ofTenant, tenant.Read, s.getAdjustment},
		{"POST", "/v1/adjustments/{id}/revert", ofTenant, tenant.Billing, s.revertAdjustment},

		{"GET", "/v1/periods", ofTenant, tenant.Read, s.listPeriods},
		{"GET", "/v1/periods/{period}", ofTenant, tenant.Read, s.getPeriod},
		{"POST", "/v1/periods/{period}/close", ofTenant, tenant.Billing, s.closePeriod},

		{"POST", replayPath, ofTenant, tenant.Billing, s.replayPeriod},

		{"GET", "/v1/verification", ofAll, tenant.Admin, s.getVerification},
		{"GET", "/v1/ledgers", ofAll, tenant.Admin, s.getLedgers},
		{"GET", "/v1/ledgers/{id}/rows", ofNamed, 0, s.getLedgerRows},

		{"PUT", "/v1/plans/{name}", ofTenant, tenant.Billing, s.putPlan},
		{"GET", "/v1/plans", ofTenant, tenant.Read, s.listPlans},
		{"GET", "/v1/plans/{name}", ofTenant, tenant.Read, s.getPlan},
		{"PUT", "/v1/tenant-plan", ofTenant, tenant.Billing, s.putTenantPlan},
		{"GET", "/v1/tenant-plan", ofTenant, tenant.Read, s.getTenantPlan},
		{"PUT", "/v1/customers/{id}/plan", ofTenant, tenant.Billing, s.putCustomerPlan},
		{"GET", "/v1/customers/{id}/plan", ofTenant, tenant.Read, s.getCustomerPlan},
		{"GET", "/v1/quotas", ofTenant, tenant.Read, s.listQuotas},

		{"POST", sinksPath, ofTenant, tenant.Admin, s.postSink},
		{"GET", sinksPath, ofTenant, tenant.Read, s.listSinks},
		{"GET", "/v1/sinks/{id}", ofTenant, tenant.Read, s.getSink},
		{"PATCH", "/v1/sinks/{id}", ofTenant, tenant.Admin, s.patchSink},
		{"DELETE", "/v1/sinks/{id}", ofTenant, tenant.Admin, s.deleteSink},
		{"POST", "/v1/sinks/{id}/replay", ofTenant, tenant.Admin, s.replaySink},
		{"POST", "/v1/sinks/{id}/rotate-secret", ofTenant, tenant.Admin, s.rotateSecret},
		{"GET", "/v1/sinks/{id}/failures", ofTenant, tenant.Read, s.listFailures},
		{"POST", "/v1/sinks/{id}/failures/{failure}/replay", ofTenant, tenant.Admin, s.replayFailure},

		{"GET", "/v1/audit-events", ofTenant, tenant.Audit, s.listAuditEvents},
		{"GET", "/v1/audit-events/{id}", ofTenant, tenant.Audit, s.getAuditEvent},
	}
}

// media are what reads can be answered with, of those that have not JSON alone.
var media = map[string][]string{
	eventsPath:      {httpkit.MediaJSON, httpkit.MediaCSV},
	"/v1/counters":  {httpkit.MediaJSON, httpkit.MediaCSV},
	"/v1/usage":     {httpkit.MediaJSON, httpkit.MediaCSV},
	"/openapi.yaml": {httpkit.MediaYAML},
	streamPath:      {httpkit.MediaEvents},

	"/v1/verification":      {httpkit.MediaNDJSON},
	"/v1/ledgers":           {httpkit.MediaNDJSON},
	"/v1/ledgers/{id}/rows": {httpkit.MediaNDJSON},
}

// forMachines are answered whatever they accept.
var forMachines = []string{"/healthz", "/readyz", "/metrics"}

// edge is the product's own API.
func (s *Server) edge() httpkit.Edge {
	e := httpkit.Edge{Lists: "GET /openapi.yaml"}
	for _, r := range s.routes() {
		rt := httpkit.Route{
			Method: r.method, Pattern: r.pattern, Who: r.who, Need: r.need, Handle: r.handle, Media: media[r.pattern],
		}
		rt.AnyMedia = slices.Contains(forMachines, r.pattern)
		switch r.method + " " + r.pattern {
		case "POST " + eventsPath:
			rt.Facts = true
		case "POST /v1/tenants":
			rt.Founds = s.foundsTenant
		case "POST " + replayPath: // it answers as it goes, so that there is no answer to keep
			rt.NoKey = "a replay takes no Idempotency-Key: applying the same settings again changes nothing"
		}
		e.Routes = append(e.Routes, rt)
	}
	return e
}
