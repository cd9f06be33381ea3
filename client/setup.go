package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Tenant is one customer of the operator, with a ledger of its own.
type Tenant struct {
	ID             string   `json:"id"`
	Name           string   `json:"name"`
	AllowedOrigins []string `json:"allowed_origins"`
	State          string   `json:"state"`
	// Epoch rises when the ledger goes on after it lost its last commits: sequence
	// numbers are unique within one.
	Epoch     int       `json:"epoch"`
	CreatedAt time.Time `json:"created_at"`
	// APIKey is the tenant's admin key. It is shown once, in the answer to
	// CreateTenant; if that answer is lost and the call retried, it is empty, and
	// the operator makes another key with CreateAPIKey.
	APIKey string `json:"api_key"`
}

// NewTenant is what CreateTenant takes.
type NewTenant struct {
	ID             string   `json:"id"`
	Name           string   `json:"name,omitempty"`
	AllowedOrigins []string `json:"allowed_origins,omitempty"`
}

// TenantUpdate changes what is not nil.
type TenantUpdate struct {
	Name           *string   `json:"name,omitempty"`
	AllowedOrigins *[]string `json:"allowed_origins,omitempty"`
}

// CreateTenant makes a tenant and its first key.
func (c *Client) CreateTenant(ctx context.Context, t NewTenant) (*Tenant, error) {
	return fetch[Tenant](ctx, c, http.MethodPost, "/v1/tenants", nil, t)
}

// Tenant reads one tenant.
func (c *Client) Tenant(ctx context.Context, id string) (*Tenant, error) {
	return fetch[Tenant](ctx, c, http.MethodGet, "/v1/tenants/"+segment(id), nil, nil)
}

// Tenants reads one page of tenants.
func (c *Client) Tenants(ctx context.Context, p Paging) (*Page[Tenant], error) {
	return getPage[Tenant](ctx, c, "/v1/tenants", p.query())
}

// AllTenants yields every tenant, page by page.
func (c *Client) AllTenants(ctx context.Context, p Paging) iter.Seq2[Tenant, error] {
	return walk[Tenant](ctx, c, "/v1/tenants", p.query())
}

// UpdateTenant changes a tenant.
func (c *Client) UpdateTenant(ctx context.Context, id string, u TenantUpdate) (*Tenant, error) {
	return fetch[Tenant](ctx, c, http.MethodPatch, "/v1/tenants/"+segment(id), nil, u)
}

// CloseTenant makes a tenant refuse writes; it stays readable.
func (c *Client) CloseTenant(ctx context.Context, id string) (*Tenant, error) {
	return fetch[Tenant](ctx, c, http.MethodPost, "/v1/tenants/"+segment(id)+"/close", nil, nil)
}

// RateLimit bounds a key per second; 0 is no bound.
type RateLimit struct {
	RequestsPerSecond int64 `json:"requests_per_second,omitempty"`
	EventsPerSecond   int64 `json:"events_per_second,omitempty"`
	BytesPerSecond    int64 `json:"bytes_per_second,omitempty"`
}

// APIKey is a key of a tenant.
type APIKey struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Scopes    []string   `json:"scopes"`
	ExpiresAt time.Time  `json:"expires_at"`
	RateLimit *RateLimit `json:"rate_limit"`
	CreatedAt time.Time  `json:"created_at"`
	// Secret is the key itself. It is shown once, in the answer to CreateAPIKey;
	// if that answer is lost and the call retried, it is empty: delete the key
	// and make another.
	Secret string `json:"api_key"`
}

// NewAPIKey is what CreateAPIKey takes. Scopes are ingest, read, audit, billing
// and admin. A zero ExpiresAt never expires.
type NewAPIKey struct {
	Name      string     `json:"name,omitempty"`
	Scopes    []string   `json:"scopes"`
	ExpiresAt time.Time  `json:"expires_at,omitzero"`
	RateLimit *RateLimit `json:"rate_limit,omitempty"`
}

// CreateAPIKey makes a key.
func (c *Client) CreateAPIKey(ctx context.Context, k NewAPIKey) (*APIKey, error) {
	return fetch[APIKey](ctx, c, http.MethodPost, "/v1/api-keys", nil, k)
}

// APIKey reads one key, without its secret.
func (c *Client) APIKey(ctx context.Context, id string) (*APIKey, error) {
	return fetch[APIKey](ctx, c, http.MethodGet, "/v1/api-keys/"+segment(id), nil, nil)
}

// APIKeys reads one page of keys.
func (c *Client) APIKeys(ctx context.Context, p Paging) (*Page[APIKey], error) {
	return getPage[APIKey](ctx, c, "/v1/api-keys", p.query())
}

// AllAPIKeys yields every key, page by page.
func (c *Client) AllAPIKeys(ctx context.Context, p Paging) iter.Seq2[APIKey, error] {
	return walk[APIKey](ctx, c, "/v1/api-keys", p.query())
}

// DeleteAPIKey ends a key.
func (c *Client) DeleteAPIKey(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{method: http.MethodDelete, path: "/v1/api-keys/" + segment(id)})
	return err
}
