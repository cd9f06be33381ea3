package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Row is an event as the ledger keeps it.
type Row struct {
	ID         string     `json:"id"`
	Seq        uint64     `json:"seq"`
	Status     Status     `json:"status"`
	Overage    bool       `json:"overage"`
	Meter      string     `json:"meter"`
	Type       string     `json:"type"`
	Customer   string     `json:"customer"`
	Resource   string     `json:"resource"`
	Time       time.Time  `json:"time"`
	ReceivedAt time.Time  `json:"received_at"`
	Quantity   Decimal    `json:"quantity"`
	Properties Properties `json:"properties"`
	Corrects   string     `json:"corrects"`
	Reason     string     `json:"reason"`
	// Corrections of this event; in answers to Event only.
	Corrections []Row `json:"corrections"`
}

// EventFilter narrows Events. Empty fields do not; From ≤ time < To.
type EventFilter struct {
	Meter, Customer, Resource string
	From, To                  time.Time
	Status                    Status
	Paging
}

func (f EventFilter) query() url.Values {
	q := f.Paging.query()
	setNonEmpty(q, "meter", f.Meter)
	setNonEmpty(q, "customer", f.Customer)
	setNonEmpty(q, "resource", f.Resource)
	setNonEmpty(q, "status", string(f.Status))
	setTime(q, "from", f.From)
	setTime(q, "to", f.To)
	return q
}

// Events reads one page of ledger rows in the order of seq.
func (c *Client) Events(ctx context.Context, f EventFilter) (*Page[Row], error) {
	return getPage[Row](ctx, c, "/v1/events", f.query())
}

// AllEvents yields every matching row in the order of seq, page by page. It
// stops after the first error.
func (c *Client) AllEvents(ctx context.Context, f EventFilter) iter.Seq2[Row, error] {
	return walk[Row](ctx, c, "/v1/events", f.query())
}

// Event reads one row with its corrections.
func (c *Client) Event(ctx context.Context, id string) (*Row, error) {
	return fetch[Row](ctx, c, http.MethodGet, "/v1/events/"+segment(id), nil, nil)
}

// Counter is the fold of one meter, customer and month. Count to Last are over
// the on-time rows; Total is what is billed.
type Counter struct {
	ID          string    `json:"id"`
	Meter       string    `json:"meter"`
	Customer    string    `json:"customer"`
	Period      string    `json:"period"`
	State       string    `json:"state"`
	Count       int64     `json:"count"`
	Sum         Decimal   `json:"sum"`
	Min         Decimal   `json:"min"`
	Max         Decimal   `json:"max"`
	Last        Decimal   `json:"last"`
	Watermark   time.Time `json:"watermark"`
	Adjustments Decimal   `json:"adjustments"`
	Total       Decimal   `json:"total"`
	// SealedTotal is empty while the period is open.
	SealedTotal Decimal `json:"sealed_total"`
}

// CounterFilter narrows Counters and Adjustments. Period is written "2026-11".
type CounterFilter struct {
	Meter, Customer, Period string
	Paging
}

func (f CounterFilter) query() url.Values {
	q := f.Paging.query()
	setNonEmpty(q, "meter", f.Meter)
	setNonEmpty(q, "customer", f.Customer)
	setNonEmpty(q, "period", f.Period)
	return q
}

// Counters reads one page of counters.
func (c *Client) Counters(ctx context.Context, f CounterFilter) (*Page[Counter], error) {
	return getPage[Counter](ctx, c, "/v1/counters", f.query())
}

// AllCounters yields every matching counter, page by page.
func (c *Client) AllCounters(ctx context.Context, f CounterFilter) iter.Seq2[Counter, error] {
	return walk[Counter](ctx, c, "/v1/counters", f.query())
}

// Adjustment is a change of a total beside its on-time rows: a late event's, or
// a person's.
type Adjustment struct {
	ID        string    `json:"id"`
	Seq       uint64    `json:"seq"`
	Meter     string    `json:"meter"`
	Customer  string    `json:"customer"`
	Period    string    `json:"period"`
	Amount    Decimal   `json:"amount"`
	Reason    string    `json:"reason"`
	Actor     string    `json:"actor"`
	EventID   string    `json:"event_id"`
	Reverts   string    `json:"reverts"`
	CreatedAt time.Time `json:"created_at"`
}

// NewAdjustment is what CreateAdjustment takes; all of it is required.
type NewAdjustment struct {
	Meter    string  `json:"meter"`
	Customer string  `json:"customer"`
	Period   string  `json:"period"`
	Amount   Decimal `json:"amount"`
	Reason   string  `json:"reason"`
}

// Adjustments reads one page of adjustments.
func (c *Client) Adjustments(ctx context.Context, f CounterFilter) (*Page[Adjustment], error) {
	return getPage[Adjustment](ctx, c, "/v1/adjustments", f.query())
}

// AllAdjustments yields every matching adjustment, page by page.
func (c *Client) AllAdjustments(ctx context.Context, f CounterFilter) iter.Seq2[Adjustment, error] {
	return walk[Adjustment](ctx, c, "/v1/adjustments", f.query())
}

// CreateAdjustment changes a total by hand. It has no id of the caller's: a second
// call is a second adjustment, so it is tried once, and a caller whose answer was
// lost looks at Adjustments first.
func (c *Client) CreateAdjustment(ctx context.Context, a NewAdjustment) (*Adjustment, error) {
	return fetch[Adjustment](ctx, c, http.MethodPost, "/v1/adjustments", nil, a)
}

// RevertAdjustment posts the exact opposite of an adjustment, once; a second
// time is a 409.
func (c *Client) RevertAdjustment(ctx context.Context, id string) (*Adjustment, error) {
	return fetch[Adjustment](ctx, c, http.MethodPost, "/v1/adjustments/"+segment(id)+"/revert", nil, nil)
}

// Period is a month of the ledger, "2026-11".
type Period struct {
	ID       string    `json:"id"`
	Period   string    `json:"period"`
	State    string    `json:"state"`
	ClosedAt time.Time `json:"closed_at"`
}

// ClosePeriod closes a month that is over; it is in force when the call
// returns. One that is not over is a 409 with the code period_not_over.
func (c *Client) ClosePeriod(ctx context.Context, period string) (*Period, error) {
	return fetch[Period](ctx, c, http.MethodPost, "/v1/periods/"+segment(period)+"/close", nil, nil)
}

// CloseRunningPeriod closes a month also when it is not over. What is used in
// the rest of it becomes adjustments.
func (c *Client) CloseRunningPeriod(ctx context.Context, period string) (*Period, error) {
	confirmed := struct {
		Confirm bool `json:"confirm"`
	}{true}
	return fetch[Period](ctx, c, http.MethodPost, "/v1/periods/"+segment(period)+"/close", nil, confirmed)
}

// Period reads one month.
func (c *Client) Period(ctx context.Context, period string) (*Period, error) {
	return fetch[Period](ctx, c, http.MethodGet, "/v1/periods/"+segment(period), nil, nil)
}

// Periods reads one page of months.
func (c *Client) Periods(ctx context.Context, p Paging) (*Page[Period], error) {
	return getPage[Period](ctx, c, "/v1/periods", p.query())
}

// AllPeriods yields every month, page by page.
func (c *Client) AllPeriods(ctx context.Context, p Paging) iter.Seq2[Period, error] {
	return walk[Period](ctx, c, "/v1/periods", p.query())
}
