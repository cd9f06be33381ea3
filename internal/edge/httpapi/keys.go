package httpapi

import (
	"net/http"
	"net/url"

	"github.com/tallystick/tallystick/internal/core/tenant"
)

// postKey serves POST /v1/api-keys.
func postKey(x *exchange) error {
	f, err := x.form()
	if err != nil {
		return err
	}
	k, err := readKey(f)
	if err != nil {
		return err
	}
	k, token, err := x.s.options.Registry.CreateKey(x.r.Context(), x.caller.Actor(), x.caller.Tenant, k)
	if err != nil {
		return err
	}
	return x.created("/v1/api-keys/"+url.PathEscape(k.ID), appendKey(nil, &k), token)
}

func readKey(f *form) (k tenant.APIKey, err error) {
	f.text("name", &k.Name)
	var scopes []string
	_, there := f.fields["scopes"]
	if given := f.texts("scopes", &scopes); given || !there {
		parsed, p := tenant.ParseScopes(scopes)
		f.check(p)
		k.Scopes = parsed
	}
	f.moment("expires_at", &k.ExpiresAt)
	if limit := f.object("rate_limit"); limit != nil {
		limit.count("requests_per_second", &k.RateLimit.RequestsPerSecond)
		limit.count("events_per_second", &k.RateLimit.EventsPerSecond)
		limit.count("bytes_per_second", &k.RateLimit.BytesPerSecond)
		f.join(limit)
	}
	return k, f.done()
}

// listKeys serves GET /v1/api-keys.
func listKeys(x *exchange) error {
	q, limit, after, err := x.page()
	if err != nil {
		return err
	}
	keys, err := x.s.options.Registry.Keys(x.r.Context(), x.caller.Tenant, after, limit+1)
	if err != nil {
		return err
	}
	return listByName(x, q, limit, keys, func(k *tenant.APIKey) string { return k.ID }, appendKey)
}

// getKey serves GET /v1/api-keys/{id}.
func getKey(x *exchange) error {
	if err := x.noQuery(); err != nil {
		return err
	}
	k, err := x.s.options.Registry.Key(x.r.Context(), x.caller.Tenant, x.param)
	if err != nil {
		return err
	}
	return x.answer(http.StatusOK, append(appendKey(nil, &k), '\n'))
}

// deleteKey serves DELETE /v1/api-keys/{id}.
func deleteKey(x *exchange) error {
	if err := x.noForm(); err != nil {
		return err
	}
	if err := x.s.options.Registry.RevokeKey(x.r.Context(), x.caller.Actor(), x.caller.Tenant, x.param); err != nil {
		return err
	}
	x.write(http.StatusNoContent, nil)
	return nil
}

// appendKey never sees the secret: the registry keeps its hash to itself.
func appendKey(b []byte, k *tenant.APIKey) []byte {
	b = appendString(append(b, '{'), "id", k.ID)
	b = appendString(b, "name", k.Name)
	b = appendStrings(b, "scopes", k.Scopes.Names())
	if k.RateLimit == (tenant.RateLimit{}) {
		b = appendNull(b, "rate_limit")
	} else {
		b = append(appendName(b, "rate_limit"), '{')
		b = appendLimit(b, "requests_per_second", k.RateLimit.RequestsPerSecond)
		b = appendLimit(b, "events_per_second", k.RateLimit.EventsPerSecond)
		b = appendLimit(b, "bytes_per_second", k.RateLimit.BytesPerSecond)
		b = append(b, '}')
	}
	b = appendMoment(b, "created_at", k.CreatedAt)
	b = appendMomentIf(b, "expires_at", k.ExpiresAt, k.ExpiresAt != 0)
	b = appendMomentIf(b, "revoked_at", k.RevokedAt, k.RevokedAt != 0)
	return append(b, '}')
}

// appendLimit leaves out what is not limited.
func appendLimit(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return appendInt(b, name, n)
}
