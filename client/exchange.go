package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// CallOption changes one call.
type CallOption func(*call)

// IdempotencyKey names a call of SendEvent or SendEvents, so that a caller that was
// cut off, even by its own restart, can make the same call again and have it take
// effect once: 1 to 240 printable ASCII characters. The key gives events without an
// id theirs, and none are generated.
func IdempotencyKey(key string) CallOption { return func(r *call) { r.idempotencyKey = &key } }

// AllResults asks SendEvents for a verdict, with seq, on plainly accepted events
// too.
func AllResults() CallOption { return func(r *call) { r.allResults = true } }

// Atomic makes SendEvents all or nothing: if one event is refused, or in conflict
// with what is recorded, none is recorded, and the error is a *Problem with the
// code batch_refused whose Results say which and why.
func Atomic() CallOption {
	return func(r *call) {
		if r.facts {
			r.query = url.Values{"atomic": {"true"}}
		}
	}
}

// call is one request to be made, over as many attempts as it takes.
type call struct {
	method string
	path   string // escaped, from the root of the API
	query  url.Values
	body   []byte // JSON, or nil

	idempotencyKey *string
	allResults     bool
	// facts marks /v1/events: identity is in each event, so no request key is
	// made up for it.
	facts bool
	// probe marks a question about this very instant: no key, no second attempt.
	probe bool
}

// showsSecret reports whether the answer holds a key that is shown once: the server
// gives the same answer to a second attempt, but without it.
func (r *call) showsSecret() bool {
	return r.method == http.MethodPost && (r.path == "/v1/tenants" || r.path == "/v1/api-keys")
}

// answer is what a 2xx brought.
type answer struct {
	header   http.Header
	body     []byte
	attempts int
}

// do makes the call, retrying as the policy allows. The body and the
// idempotency key are fixed before the first attempt, so all attempts are the
// same request to the server.
func (c *Client) do(ctx context.Context, r call, opts ...CallOption) (answer, error) {
	for _, opt := range opts {
		opt(&r)
	}
	header, body, err := c.prepare(&r)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	maxAttempts := c.retry.MaxAttempts
	if r.probe || r.showsSecret() {
		maxAttempts = 1
	}
	for attempt := 1; ; attempt++ {
		a, err := c.attempt(ctx, r, header, body)
		a.attempts = attempt
		if err == nil {
			return a, nil
		}
		var p *Problem
		again, retryAfter := true, c.retry.wait(attempt, 0)
		switch {
		case errors.As(err, &p):
			p.Attempts = attempt
			again = p.retryable() && p.RetryAfter <= c.retry.MaxRetryAfter
			retryAfter = c.retry.wait(attempt, p.RetryAfter)
		case errors.Is(err, ErrAnswerTooLarge):
			again = false
		}
		if !again || attempt >= maxAttempts || ctx.Err() != nil {
			return a, fmt.Errorf("%s %s: attempt %d: %w", r.method, r.path, attempt, err)
		}
		// A wait that outlives the deadline would only turn a precise error
		// into a bare timeout.
		if deadline, ok := ctx.Deadline(); ok && c.clock.Now().Add(retryAfter).After(deadline) {
			return a, fmt.Errorf("%s %s: attempt %d, no time for another: %w", r.method, r.path, attempt, err)
		}
		if stopped := c.clock.Sleep(ctx, retryAfter); stopped != nil {
			return a, fmt.Errorf("%s %s: %w while waiting to retry after attempt %d: %w", r.method, r.path,
				stopped, attempt, err)
		}
	}
}

func (c *Client) prepare(r *call) (http.Header, []byte, error) {
	h := http.Header{}
	h.Set("User-Agent", c.userAgent)
	if !r.probe {
		if c.apiKey != "" {
			h.Set("Authorization", "Bearer "+c.apiKey)
		}
		if c.tenant != "" {
			h.Set("Tally-Tenant", c.tenant)
		}
	}
	if r.allResults {
		h.Set("Prefer", "return=representation")
	}
	if r.idempotencyKey == nil && r.method == http.MethodPost && !r.facts && !r.showsSecret() {
		key := newID(c.clock.Now()) // a creation whose answer was lost may have happened: the key finds its answer
		r.idempotencyKey = &key
	}
	if r.idempotencyKey != nil {
		key := *r.idempotencyKey
		if key == "" || len(key) > 240 || !headerSafe(key) {
			return nil, nil, errors.New("idempotency key: want 1 to 240 printable ASCII characters")
		}
		h.Set("Idempotency-Key", key)
	}
	if r.body == nil {
		return h, nil, nil
	}
	h.Set("Content-Type", "application/json")
	if c.gzipThreshold < 0 || len(r.body) < c.gzipThreshold {
		return h, r.body, nil
	}
	packed, err := compress(r.body)
	if err != nil {
		return nil, nil, err
	}
	h.Set("Content-Encoding", "gzip")
	return h, packed, nil
}

// attempt sends the request once. A failure to read the whole answer is a
// failure of the attempt, like a failure to connect.
func (c *Client) attempt(ctx context.Context, r call, header http.Header, body []byte) (answer, error) {
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, reader)
	if err != nil {
		return answer{}, fmt.Errorf("make request: %w", err)
	}
	req.Header = header.Clone()
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, c.maxAnswer+1))
	if err != nil {
		return answer{}, fmt.Errorf("read answer: %w", err)
	}
	ok := resp.StatusCode >= 200 && resp.StatusCode <= 299
	if int64(len(got)) > c.maxAnswer {
		if ok {
			return answer{}, fmt.Errorf("%w: more than %d bytes", ErrAnswerTooLarge, c.maxAnswer)
		}
		got = nil
	}
	if !ok {
		return answer{}, newProblem(resp.StatusCode, resp.Header, got, c.clock.Now())
	}
	return answer{header: resp.Header, body: got}, nil
}

var gzipWriters = sync.Pool{New: func() any {
	// BestSpeed: usage repeats itself so much that more effort buys little.
	w, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

func compress(body []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	w.Reset(&out)
	if _, err := w.Write(body); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return out.Bytes(), nil
}

// fetch makes a call with an optional JSON body and decodes its answer.
func fetch[T any](ctx context.Context, c *Client, method, path string, query url.Values, in any) (*T, error) {
	r := call{method: method, path: path, query: query}
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("%s %s: encode: %w", method, path, err)
		}
		r.body = body
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := a.decode(out); err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return out, nil
}

func (a answer) decode(into any) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// segment escapes one path segment. Dots are escaped too when they are all of
// it: an event may be called "..", and no proxy should climb with it.
func segment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}
