package httpapi

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/registry"
)

// postTenant serves POST /v1/tenants.
func postTenant(x *exchange) error {
	f, err := x.form()
	if err != nil {
		return err
	}
	t := tenant.Tenant{ID: f.required("id")}
	f.text("name", &t.Name)
	f.texts("allowed_origins", &t.AllowedOrigins)
	if err := f.done(); err != nil {
		return err
	}
	t, token, err := x.s.options.Registry.CreateTenant(x.r.Context(), x.caller.Actor(), t)
	if err != nil {
		return err
	}
	return x.created("/v1/tenants/"+url.PathEscape(t.ID), appendTenant(nil, &t), token)
}

// created answers 201 with the object and, once, the secret that belongs to it.
func (x *exchange) created(location string, object []byte, token string) error {
	h := x.w.Header()
	h["Location"] = []string{location}
	if token != "" {
		h["Cache-Control"] = []string{"no-store"}
		x.public = append(slices.Clone(object), '\n')
		object = append(appendString(object[:len(object)-1], "api_key", token), '}')
	}
	return x.answer(http.StatusCreated, append(object, '\n'))
}

// listTenants serves GET /v1/tenants.
func listTenants(x *exchange) error {
	q, limit, after, err := x.page()
	if err != nil {
		return err
	}
	tenants, err := x.s.options.Registry.Tenants(x.r.Context(), after, limit+1)
	if err != nil {
		return err
	}
	return listByName(x, q, limit, tenants, func(t *tenant.Tenant) string { return t.ID }, appendTenant)
}

// getTenant serves GET /v1/tenants/{id}.
func getTenant(x *exchange) error {
	if err := x.noQuery(); err != nil {
		return err
	}
	t, err := x.s.options.Registry.Tenant(x.r.Context(), x.param)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, append(appendTenant(nil, &t), '\n'))
}

// patchTenant serves PATCH /v1/tenants/{id}.
func patchTenant(x *exchange) error {
	f, err := x.form()
	if err != nil {
		return err
	}
	var patch registry.TenantPatch
	var name string
	if f.text("name", &name) {
		patch.Name = &name
	}
	var origins []string
	if f.texts("allowed_origins", &origins) {
		patch.AllowedOrigins = &origins
	}
	if err := f.done(); err != nil {
		return err
	}
	t, err := x.s.options.Registry.UpdateTenant(x.r.Context(), x.caller.Actor(), x.param, patch)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, append(appendTenant(nil, &t), '\n'))
}

// closeTenant serves POST /v1/tenants/{id}/close.
func closeTenant(x *exchange) error {
	if err := x.noForm(); err != nil {
		return err
	}
	t, err := x.s.options.Registry.CloseTenant(x.r.Context(), x.caller.Actor(), x.param)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, append(appendTenant(nil, &t), '\n'))
}

func appendTenant(b []byte, t *tenant.Tenant) []byte {
	b = appendString(append(b, '{'), "id", t.ID)
	b = appendString(b, "name", t.Name)
	b = appendStrings(b, "allowed_origins", t.AllowedOrigins)
	b = appendString(b, "state", openOrClosed(t.Closed))
	b = appendInt(b, "epoch", int64(len(t.Epochs)+1))
	b = appendMoment(b, "created_at", t.CreatedAt)
	b = appendMomentIf(b, "closed_at", t.ClosedAt, t.Closed)
	b = appendPresent(b, "moved_to", t.MovedTo)
	if t.MovedTo != "" {
		b = appendMoment(b, "moved_at", t.MovedAt)
	}
	return append(b, '}')
}
