package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// MaxEvents is the most events the server takes in one request.
	MaxEvents = 10_000
	// MaxBody is the most bytes it takes in one request, before compression.
	MaxBody = 16 << 20
)

// Status is what became of an event.
type Status string

// The verdicts. Adjusted and overage events are kept and are part of accepted.
const (
	Accepted  Status = "accepted"
	Duplicate Status = "duplicate"
	Adjusted  Status = "adjusted"
	Overage   Status = "overage"
	Conflict  Status = "conflict"
	Rejected  Status = "rejected"
)

// Verdict is the server's word on one event.
type Verdict struct {
	Index   int    `json:"index"`
	ID      string `json:"id"`
	Status  Status `json:"status"`
	Seq     uint64 `json:"seq"`
	Overage bool   `json:"overage"`
	// Code, Detail and Errors say why an event was refused.
	Code   string       `json:"code"`
	Detail string       `json:"detail"`
	Errors []FieldError `json:"errors"`
}

// Delivery is how an answer came about.
type Delivery struct {
	// Attempts is how many times the request was sent; above 1, a "duplicate"
	// may be the echo of an earlier attempt of the same call.
	Attempts  int
	RequestID string
	// Fallback: kept, while a sink is down.
	Fallback bool
	// QuotaExceeded: at least one event was refused for its quota, which is
	// worth trying again after RetryAfter.
	QuotaExceeded bool
	RetryAfter    time.Duration
}

// EventAnswer is the answer to SendEvent.
type EventAnswer struct {
	Verdict
	Delivery `json:"-"`
}

// BatchAnswer is the answer to SendEvents. Accepted + Duplicates + Conflicts +
// Rejected is the number of events sent.
type BatchAnswer struct {
	Accepted   int `json:"accepted"`
	Duplicates int `json:"duplicates"`
	Adjusted   int `json:"adjusted"`
	Overage    int `json:"overage"`
	Conflicts  int `json:"conflicts"`
	Rejected   int `json:"rejected"`
	// Results holds every event that was not plainly accepted, or with AllResults every event.
	Results  []Verdict `json:"results"`
	Delivery `json:"-"`
}

// SendEvent sends one event and returns its verdict: accepted, duplicate,
// adjusted or overage. A conflict, a rejection and a spent quota are a *Problem
// with status 409, 422 or 429. An absent ID is filled in (see the package
// comment), so calling again with the same event is safe.
func (c *Client) SendEvent(ctx context.Context, e *Event, opts ...CallOption) (*EventAnswer, error) {
	r := c.factCall(opts)
	if c.fillsIDs(r) && e.ID == "" {
		e.ID = newID(c.clock.Now())
	}
	body, err := e.appendJSON(nil)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	r.body = body
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &EventAnswer{Delivery: c.delivery(a)}
	if err := a.decode(out); err != nil {
		return nil, fmt.Errorf("send event %q: %w", e.ID, err)
	}
	switch out.Status {
	case Accepted, Duplicate, Adjusted, Overage:
		return out, nil
	}
	return nil, fmt.Errorf("send event %q: %w: status %q", e.ID, ErrMalformed, out.Status)
}

// SendEvents sends a batch in one request, at most MaxEvents and MaxBody.
// Events that were refused are in the answer, not in the error: an error means
// that the outcome of the batch is unknown or that none of it was taken. Absent
// IDs are filled in, in the caller's slice, so calling again with the
// same slice is safe. An empty batch sends nothing.
func (c *Client) SendEvents(ctx context.Context, events []Event, opts ...CallOption) (*BatchAnswer, error) {
	if len(events) == 0 {
		return &BatchAnswer{}, nil
	}
	r := c.factCall(opts)
	if c.fillsIDs(r) {
		for i := range events {
			if events[i].ID == "" {
				events[i].ID = newID(c.clock.Now())
			}
		}
	}
	// A common event's size, to spare most of the growing.
	body := make([]byte, 0, 192*len(events))
	body = append(body, '[')
	for i := range events {
		if i > 0 {
			body = append(body, ',')
		}
		var err error
		if body, err = events[i].appendJSON(body); err != nil {
			return nil, fmt.Errorf("encode event %d: %w", i, err)
		}
	}
	r.body = append(body, ']')
	return c.sendBatch(ctx, r, len(events))
}

func (c *Client) factCall(opts []CallOption) call {
	r := call{method: http.MethodPost, path: "/v1/events", facts: true}
	for _, opt := range opts {
		opt(&r)
	}
	return r
}

func (c *Client) fillsIDs(r call) bool { return c.generateIDs && r.idempotencyKey == nil }

func (c *Client) sendBatch(ctx context.Context, r call, sent int) (*BatchAnswer, error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &BatchAnswer{Delivery: c.delivery(a)}
	if err := a.decode(out); err != nil {
		return nil, fmt.Errorf("send %d events: %w", sent, err)
	}
	if err := out.check(sent, r.allResults); err != nil {
		return nil, fmt.Errorf("send %d events: %w: %w", sent, ErrMalformed, err)
	}
	return out, nil
}

// check holds the answer to its own arithmetic. Whoever reads it takes an event
// that is not listed for accepted, so an answer that leaves one out is not
// to be believed.
func (a *BatchAnswer) check(sent int, all bool) error {
	if sum := a.Accepted + a.Duplicates + a.Conflicts + a.Rejected; sum != sent ||
		min(a.Accepted, a.Duplicates, a.Conflicts, a.Rejected) < 0 {
		return fmt.Errorf("verdicts on %d events for %d sent", sum, sent)
	}
	seen := make(map[int]bool, len(a.Results))
	listed := map[Status]int{}
	for _, v := range a.Results {
		if v.Index < 0 || v.Index >= sent || seen[v.Index] {
			return fmt.Errorf("index %d is out of range or listed twice", v.Index)
		}
		seen[v.Index] = true
		listed[v.Status]++
	}
	if listed[Duplicate] != a.Duplicates || listed[Conflict] != a.Conflicts || listed[Rejected] != a.Rejected {
		return fmt.Errorf("results list %d duplicates, %d conflicts, %d rejected; the counts say %d, %d, %d",
			listed[Duplicate], listed[Conflict], listed[Rejected], a.Duplicates, a.Conflicts, a.Rejected)
	}
	kept := listed[Accepted] + listed[Adjusted] + listed[Overage]
	if kept+a.Duplicates+a.Conflicts+a.Rejected != len(a.Results) {
		return fmt.Errorf("results hold an unknown status")
	}
	if all && len(a.Results) != sent {
		return fmt.Errorf("%d results for %d events, all were asked for", len(a.Results), sent)
	}
	return nil
}

func (c *Client) delivery(a answer) Delivery {
	return Delivery{
		Attempts:      a.attempts,
		RequestID:     a.header.Get("Tally-Request-Id"),
		Fallback:      a.header.Get("Tally-Fallback") != "",
		QuotaExceeded: a.header.Get("Tally-Quota-Exceeded") != "",
		RetryAfter:    parseRetryAfter(a.header.Get("Retry-After"), c.clock.Now()),
	}
}
