package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/service/registry"
)

// postTenant serves POST /v1/tenants.
func (s *Server) postTenant(x *httpkit.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	t := tenant.Tenant{ID: f.Required("id")}
	f.Text("name", &t.Name)
	f.Texts("allowed_origins", &t.AllowedOrigins)
	if err := f.Done(); err != nil {
		return err
	}
	t, token, err := s.options.Registry.CreateTenant(x.Context(), x.Caller.Actor(), t)
	if err != nil {
		return err
	}
	return x.CreatedWithSecret("/v1/tenants/"+url.PathEscape(t.ID), appendTenant(nil, &t), "api_key", token)
}

// foundsTenant is which tenant the body of POST /v1/tenants names, and the context of a transaction that makes it.
func (s *Server) foundsTenant(ctx context.Context, body []byte) (string, context.Context, error) {
	var named struct{ ID string }
	_ = json.Unmarshal(body, &named) // what cannot be read names nobody
	if tenant.CheckID("id", named.ID, tenant.MaxID) != nil {
		return "", ctx, nil //nolint:nilerr // nobody is named; the handler refuses the body and says why
	}
	ctx, err := s.options.Registry.Foresee(ctx)
	return named.ID, ctx, err
}

// listTenants serves GET /v1/tenants.
func (s *Server) listTenants(x *httpkit.Exchange) error {
	q, limit, after, err := x.Page()
	if err != nil {
		return err
	}
	tenants, err := s.options.Registry.Tenants(x.Context(), after, limit+1)
	if err != nil {
		return err
	}
	return httpkit.ListByName(x, q, limit, tenants, func(t *tenant.Tenant) string { return t.ID }, appendTenant)
}

// getTenant serves GET /v1/tenants/{id}.
func (s *Server) getTenant(x *httpkit.Exchange) error {
	if err := x.NoQuery(); err != nil {
		return err
	}
	t, err := s.options.Registry.Tenant(x.Context(), x.Path("id"))
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendTenant(nil, &t), '\n'))
}

// patchTenant serves PATCH /v1/tenants/{id}.
func (s *Server) patchTenant(x *httpkit.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	var patch registry.TenantPatch
	var name string
	if f.Text("name", &name) {
		patch.Name = &name
	}
	var origins []string
	if f.Texts("allowed_origins", &origins) {
		patch.AllowedOrigins = &origins
	}
	if err := f.Done(); err != nil {
		return err
	}
	t, err := s.options.Registry.UpdateTenant(x.Context(), x.Caller.Actor(), x.Path("id"), patch)
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendTenant(nil, &t), '\n'))
}

// closeTenant serves POST /v1/tenants/{id}/close.
func (s *Server) closeTenant(x *httpkit.Exchange) error {
	if err := x.NoForm(); err != nil {
		return err
	}
	t, err := s.options.Registry.CloseTenant(x.Context(), x.Caller.Actor(), x.Path("id"))
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendTenant(nil, &t), '\n'))
}

func appendTenant(b []byte, t *tenant.Tenant) []byte {
	b = render.String(append(b, '{'), "id", t.ID)
	b = render.String(b, "name", t.Name)
	b = render.Strings(b, "allowed_origins", t.AllowedOrigins)
	b = render.String(b, "state", openOrClosed(t.Closed))
	b = render.Int(b, "epoch", int64(len(t.Epochs)+1))
	b = render.Moment(b, "created_at", t.CreatedAt)
	b = render.MomentIf(b, "closed_at", t.ClosedAt, t.Closed)
	b = render.Present(b, "moved_to", t.MovedTo)
	if t.MovedTo != "" {
		b = render.Moment(b, "moved_at", t.MovedAt)
	}
	return append(b, '}')
}

func openOrClosed(closed bool) string {
	if closed {
		return "closed"
	}
	return "open"
}
