package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// UsageQuery asks for usage by time and group; the meter is required.
type UsageQuery struct {
	Meter, Customer, Resource string
	// Properties narrows to events with these values of their properties.
	Properties map[string]string
	// From and To bound the events' times, half open; a zero takes the server's default.
	From, To time.Time
	// Window is "minute", "hour", "day", "week" (from Monday) or "month"; empty is one window over the whole range.
	Window string
	// Fill asks for the windows too in which nothing counts, of each group that has usage in the range; without
	// GroupBy, of the total.
	Fill bool
	// GroupBy names "customer", "resource" and "properties.<name>".
	GroupBy []string
	// Timezone is an IANA name such as "Europe/Berlin". Default UTC.
	Timezone string
	// AsOf is a seq or a time in RFC 3339: usage as it was then. Default now.
	AsOf string
	Paging
}

func (u UsageQuery) query() url.Values {
	q := u.Paging.query()
	setNonEmpty(q, "meter", u.Meter)
	setNonEmpty(q, "customer", u.Customer)
	setNonEmpty(q, "resource", u.Resource)
	for name, value := range u.Properties {
		setNonEmpty(q, "properties."+name, value)
	}
	setTime(q, "from", u.From)
	setTime(q, "to", u.To)
	setNonEmpty(q, "window", u.Window)
	if u.Fill {
		q.Set("fill", "zero")
	}
	setNonEmpty(q, "group_by", strings.Join(u.GroupBy, ","))
	setNonEmpty(q, "timezone", u.Timezone)
	setNonEmpty(q, "as_of", u.AsOf)
	return q
}

// UsageWindow is the usage of one group in one window. Value is empty where there is none: the minimum, maximum,
// average or last value of a filled window in which nothing counts.
type UsageWindow struct {
	From  time.Time      `json:"from"`
	To    time.Time      `json:"to"`
	Group map[string]any `json:"group"`
	Value Decimal        `json:"value"`
}

// Usage reads one page of usage.
func (c *Client) Usage(ctx context.Context, u UsageQuery) (*Page[UsageWindow], error) {
	return getPage[UsageWindow](ctx, c, "/v1/usage", u.query())
}

// AllUsage yields all of it, page by page.
func (c *Client) AllUsage(ctx context.Context, u UsageQuery) iter.Seq2[UsageWindow, error] {
	return walk[UsageWindow](ctx, c, "/v1/usage", u.query())
}

// AuditEvent records one change.
type AuditEvent struct {
	ID         string          `json:"id"`
	Seq        uint64          `json:"seq"`
	EventType  string          `json:"event_type"`
	Source     string          `json:"source"`
	Actor      string          `json:"actor"`
	EntityType string          `json:"entity_type"`
	EntityID   string          `json:"entity_id"`
	Payload    json.RawMessage `json:"payload"`
	CreatedAt  time.Time       `json:"created_at"`
}

// AuditFilter narrows AuditEvents; empty fields take any.
type AuditFilter struct {
	EntityType, EntityID, EventType, Source string
	// Start and End bound the time of the change, half open.
	Start, End time.Time
	Paging
}

func (f AuditFilter) query() url.Values {
	q := f.Paging.query()
	setNonEmpty(q, "entity_type", f.EntityType)
	setNonEmpty(q, "entity_id", f.EntityID)
	setNonEmpty(q, "event_type", f.EventType)
	setNonEmpty(q, "source", f.Source)
	setTime(q, "start", f.Start)
	setTime(q, "end", f.End)
	return q
}

// AuditEvents reads one page of the audit log, the newest first.
func (c *Client) AuditEvents(ctx context.Context, f AuditFilter) (*Page[AuditEvent], error) {
	return getPage[AuditEvent](ctx, c, "/v1/audit-events", f.query())
}

// AllAuditEvents yields every matching audit event, page by page.
func (c *Client) AllAuditEvents(ctx context.Context, f AuditFilter) iter.Seq2[AuditEvent, error] {
	return walk[AuditEvent](ctx, c, "/v1/audit-events", f.query())
}

// Quota bounds a meter within a plan.
type Quota struct {
	Meter string  `json:"meter"`
	Limit Decimal `json:"limit"`
	// Soft keeps what is over the limit, as overage, up to limit × HardCapMultiplier; without a multiplier it never
	// refuses.
	Soft              bool    `json:"soft,omitempty"`
	HardCapMultiplier Decimal `json:"hard_cap_multiplier,omitempty"`
	// Thresholds, in percent of the limit, are reported in the audit log. Default 80 and 100.
	Thresholds []int `json:"thresholds,omitempty"`
}

// Plan is a named set of quotas.
type Plan struct {
	Name   string  `json:"name"`
	Quotas []Quota `json:"quotas"`
}

// PutPlan makes a plan or replaces it.
func (c *Client) PutPlan(ctx context.Context, p Plan) (*Plan, error) {
	body := struct {
		Quotas []Quota `json:"quotas"`
	}{p.Quotas}
	return fetch[Plan](ctx, c, http.MethodPut, "/v1/plans/"+segment(p.Name), nil, body)
}

// AssignPlan gives a customer a plan, or the tenant itself when customer is empty. An empty plan takes it away.
func (c *Client) AssignPlan(ctx context.Context, customer, plan string) error {
	return c.AssignPlanFrom(ctx, customer, plan, time.Time{})
}

// AssignPlanFrom is AssignPlan from a moment on; the zero time is now.
func (c *Client) AssignPlanFrom(ctx context.Context, customer, plan string, from time.Time) error {
	path := "/v1/tenant-plan"
	if customer != "" {
		path = "/v1/customers/" + segment(customer) + "/plan"
	}
	body := struct {
		Plan *string    `json:"plan"`
		From *time.Time `json:"from,omitempty"`
	}{}
	if plan != "" {
		body.Plan = &plan
	}
	if !from.IsZero() {
		body.From = &from
	}
	_, err := fetch[struct{}](ctx, c, http.MethodPut, path, nil, body)
	return err
}

// QuotaState is what is left of a quota in a period.
type QuotaState struct {
	Meter     string    `json:"meter"`
	Customer  string    `json:"customer"` // empty: the tenant as a whole
	Period    string    `json:"period"`
	Plan      string    `json:"plan"`
	Limit     Decimal   `json:"limit"`
	Used      Decimal   `json:"used"`
	Remaining Decimal   `json:"remaining"`
	ResetsAt  time.Time `json:"resets_at"`
	State     string    `json:"state"` // within, over, exhausted
}

// Quotas reads one page of quotas. A period is that of the filter, default the current month.
func (c *Client) Quotas(ctx context.Context, f CounterFilter) (*Page[QuotaState], error) {
	return getPage[QuotaState](ctx, c, "/v1/quotas", f.query())
}
