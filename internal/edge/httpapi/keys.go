package httpapi

import (
	"net/http"
	"net/url"

	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
)

// postKey serves POST /v1/api-keys.
func (s *Server) postKey(x *httpkit.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	k, err := readKey(f)
	if err != nil {
		return err
	}
	k, token, err := s.options.Registry.CreateKey(x.Context(), x.Caller.Actor(), x.Caller.Tenant, k)
	if err != nil {
		return err
	}
	return x.CreatedWithSecret("/v1/api-keys/"+url.PathEscape(k.ID), appendKey(nil, &k), "api_key", token)
}

func readKey(f *httpkit.Form) (k tenant.APIKey, err error) {
	f.Text("name", &k.Name)
	var scopes []string
	absent := !f.Has("scopes")
	if given := f.Texts("scopes", &scopes); given || absent {
		parsed, p := tenant.ParseScopes(scopes)
		f.Check(p)
		k.Scopes = parsed
	}
	f.Moment("expires_at", &k.ExpiresAt)
	if limit := f.Object("rate_limit"); limit != nil {
		limit.Count("requests_per_second", &k.RateLimit.RequestsPerSecond)
		limit.Count("events_per_second", &k.RateLimit.EventsPerSecond)
		limit.Count("bytes_per_second", &k.RateLimit.BytesPerSecond)
		f.Join(limit)
	}
	return k, f.Done()
}

// listKeys serves GET /v1/api-keys.
func (s *Server) listKeys(x *httpkit.Exchange) error {
	q, limit, after, err := x.Page()
	if err != nil {
		return err
	}
	keys, err := s.options.Registry.Keys(x.Context(), x.Caller.Tenant, after, limit+1)
	if err != nil {
		return err
	}
	return httpkit.ListByName(x, q, limit, keys, func(k *tenant.APIKey) string { return k.ID }, appendKey)
}

// getKey serves GET /v1/api-keys/{id}.
func (s *Server) getKey(x *httpkit.Exchange) error {
	if err := x.NoQuery(); err != nil {
		return err
	}
	k, err := s.options.Registry.Key(x.Context(), x.Caller.Tenant, x.Path("id"))
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendKey(nil, &k), '\n'))
}

// deleteKey serves DELETE /v1/api-keys/{id}.
func (s *Server) deleteKey(x *httpkit.Exchange) error {
	if err := x.NoForm(); err != nil {
		return err
	}
	if err := s.options.Registry.RevokeKey(x.Context(), x.Caller.Actor(), x.Caller.Tenant, x.Path("id")); err != nil {
		return err
	}
	x.Write(http.StatusNoContent, nil)
	return nil
}

// appendKey never sees the secret: the registry keeps its hash to itself.
func appendKey(b []byte, k *tenant.APIKey) []byte {
	b = render.String(append(b, '{'), "id", k.ID)
	b = render.String(b, "name", k.Name)
	b = render.Strings(b, "scopes", k.Scopes.Names())
	if k.RateLimit == (tenant.RateLimit{}) {
		b = render.Null(b, "rate_limit")
	} else {
		b = append(render.Name(b, "rate_limit"), '{')
		b = appendLimit(b, "requests_per_second", k.RateLimit.RequestsPerSecond)
		b = appendLimit(b, "events_per_second", k.RateLimit.EventsPerSecond)
		b = appendLimit(b, "bytes_per_second", k.RateLimit.BytesPerSecond)
		b = append(b, '}')
	}
	b = render.Moment(b, "created_at", k.CreatedAt)
	b = render.MomentIf(b, "expires_at", k.ExpiresAt, k.ExpiresAt != 0)
	b = render.MomentIf(b, "revoked_at", k.RevokedAt, k.RevokedAt != 0)
	return append(b, '}')
}

// appendLimit leaves out what is not limited.
func appendLimit(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return render.Int(b, name, n)
}
