package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Meter says how events become a billed total. Durations are written as the API
// writes them, such as "48h" or "5s". Empty fields take the server's defaults
// when a meter is created.
type Meter struct {
	ID             string   `json:"id,omitempty"`
	Slug           string   `json:"slug"`
	Name           string   `json:"name,omitempty"`
	Aggregation    string   `json:"aggregation"`
	EventType      string   `json:"event_type,omitempty"`
	ValueProperty  string   `json:"value_property,omitempty"`
	UniqueProperty string   `json:"unique_property,omitempty"`
	Lateness       string   `json:"lateness,omitempty"`
	Late           string   `json:"late,omitempty"`
	KeyPolicy      string   `json:"key_policy,omitempty"`
	KeyFields      []string `json:"key_fields,omitempty"`
	KeyBucket      string   `json:"key_bucket,omitempty"`
	Future         string   `json:"future,omitempty"`
	Rounding       string   `json:"rounding,omitempty"`
	MissingValue   string   `json:"missing_value,omitempty"` // "refuse" or "skip"
	// Filter says which events of EventType feed the meter: under every name one of its values, which are
	// strings, numbers and booleans.
	Filter    map[string][]any `json:"filter,omitempty"`
	CreatedAt time.Time        `json:"created_at,omitzero"`
}

// MeterUpdate changes what is not nil. After the first event only Name,
// Lateness, Late, Future and MissingValue may change; the rest is a 409.
type MeterUpdate struct {
	Name           *string   `json:"name,omitempty"`
	Lateness       *string   `json:"lateness,omitempty"`
	Late           *string   `json:"late,omitempty"`
	Future         *string   `json:"future,omitempty"`
	Aggregation    *string   `json:"aggregation,omitempty"`
	EventType      *string   `json:"event_type,omitempty"`
	ValueProperty  *string   `json:"value_property,omitempty"`
	UniqueProperty *string   `json:"unique_property,omitempty"`
	KeyPolicy      *string   `json:"key_policy,omitempty"`
	KeyFields      *[]string `json:"key_fields,omitempty"`
	KeyBucket      *string   `json:"key_bucket,omitempty"`
	Rounding       *string   `json:"rounding,omitempty"`
	MissingValue   *string   `json:"missing_value,omitempty"`

	Filter *map[string][]any `json:"filter,omitempty"`
}

// CreateMeter makes a meter.
func (c *Client) CreateMeter(ctx context.Context, m Meter) (*Meter, error) {
	return fetch[Meter](ctx, c, http.MethodPost, "/v1/meters", nil, m)
}

// Meter reads one meter by its slug.
func (c *Client) Meter(ctx context.Context, slug string) (*Meter, error) {
	return fetch[Meter](ctx, c, http.MethodGet, "/v1/meters/"+segment(slug), nil, nil)
}

// Meters reads one page of meters.
func (c *Client) Meters(ctx context.Context, p Paging) (*Page[Meter], error) {
	return getPage[Meter](ctx, c, "/v1/meters", p.query())
}

// AllMeters yields every meter, page by page.
func (c *Client) AllMeters(ctx context.Context, p Paging) iter.Seq2[Meter, error] {
	return walk[Meter](ctx, c, "/v1/meters", p.query())
}

// UpdateMeter changes a meter.
func (c *Client) UpdateMeter(ctx context.Context, slug string, u MeterUpdate) (*Meter, error) {
	return fetch[Meter](ctx, c, http.MethodPatch, "/v1/meters/"+segment(slug), nil, u)
}
