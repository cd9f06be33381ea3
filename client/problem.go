package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// maxProblemText bounds what a Problem quotes of an answer that was not
// problem+json, such as a proxy's error page.
const maxProblemText = 512

// ErrMalformed is wrapped by the error for a 2xx answer that cannot be
// understood or whose numbers do not add up. The request may have taken effect;
// sending it again with the same ids is safe.
var ErrMalformed = errors.New("malformed answer")

// ErrAnswerTooLarge is wrapped by the error for an answer beyond the bound set
// with WithMaxAnswer.
var ErrAnswerTooLarge = errors.New("answer too large")

// Problem is an answer outside 2xx.
type Problem struct {
	Type      string       `json:"type"`
	Title     string       `json:"title"`
	Status    int          `json:"status"`
	Code      string       `json:"code"`
	Detail    string       `json:"detail"`
	RequestID string       `json:"request_id"`
	Errors    []FieldError `json:"errors"`
	// Results are the refusals of an Atomic batch.
	Results []Verdict `json:"results"`

	// RetryAfter is how long the server asked to wait; 0 when it did not.
	RetryAfter time.Duration `json:"-"`
	// RateLimited and QuotaExceeded distinguish the two kinds of 429. Only the
	// first is retried: a quota does not come back within a request.
	RateLimited   bool `json:"-"`
	QuotaExceeded bool `json:"-"`
	// Attempts is how many times the request was sent.
	Attempts int `json:"-"`
}

// FieldError names one wrong part of a request.
type FieldError struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", p.Status)
	if p.Code != "" {
		b.WriteString(" " + p.Code)
	}
	if text := p.Detail; text != "" {
		b.WriteString(": " + text)
	} else if p.Title != "" {
		b.WriteString(": " + p.Title)
	}
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "; %s: %s", e.Path, e.Message)
	}
	if p.RequestID != "" {
		b.WriteString(" (request " + p.RequestID + ")")
	}
	return b.String()
}

// Code returns the problem code that err carries, or "" when it is no Problem.
func Code(err error) string {
	var p *Problem
	if !errors.As(err, &p) {
		return ""
	}
	return p.Code
}

// newProblem reads an answer outside 2xx. The status line and the headers win
// over the body, which may come from something other than the server.
func newProblem(status int, header http.Header, body []byte, now time.Time) *Problem {
	p := &Problem{}
	if err := json.Unmarshal(body, p); err != nil {
		*p = Problem{Detail: quote(body)}
	}
	p.Status = status
	if p.Title == "" {
		p.Title = http.StatusText(status)
	}
	if p.RequestID == "" {
		p.RequestID = header.Get("Tally-Request-Id")
	}
	p.RetryAfter = parseRetryAfter(header.Get("Retry-After"), now)
	p.RateLimited = status == http.StatusTooManyRequests && header.Get("Tally-Ratelimit") != ""
	p.QuotaExceeded = header.Get("Tally-Quota-Exceeded") != ""
	return p
}

func quote(body []byte) string {
	cut := body[:min(len(body), maxProblemText)]
	return strings.TrimSpace(strings.ToValidUTF8(string(cut), ""))
}
