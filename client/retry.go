package client

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryPolicy says how often and how patiently a request is sent again. Network
// errors, 502, 503, 504, a rate limit's 429 and an idempotency key still in use
// are retried; a quota's 429, a ledger that was moved elsewhere and every other
// answer are not.
type RetryPolicy struct {
	// MaxAttempts counts the first attempt too. Default 4; 1 never retries.
	MaxAttempts int
	// BaseBackoff bounds the first wait, doubled for each one after it up to
	// MaxBackoff. The wait is drawn evenly from 0 to the bound (full jitter), so
	// that clients cut off together do not return together. Default 100ms, 5s.
	BaseBackoff, MaxBackoff time.Duration
	// MaxRetryAfter is the longest Retry-After that is waited for; a longer one
	// is the caller's to decide, and the Problem is returned at once.
	// Default 60s.
	MaxRetryAfter time.Duration
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.MaxAttempts <= 0 {
		p.MaxAttempts = 4
	}
	if p.BaseBackoff <= 0 {
		p.BaseBackoff = 100 * time.Millisecond
	}
	if p.MaxBackoff <= 0 {
		p.MaxBackoff = 5 * time.Second
	}
	if p.MaxRetryAfter <= 0 {
		p.MaxRetryAfter = time.Minute
	}
	return p
}

// bound is the longest backoff after the given attempt, counted from 1.
func (p RetryPolicy) bound(attempt int) time.Duration {
	d := p.BaseBackoff
	for i := 1; i < attempt; i++ {
		if d > p.MaxBackoff/2 {
			return p.MaxBackoff
		}
		d *= 2
	}
	return min(d, p.MaxBackoff)
}

// wait adds the jitter to the server's Retry-After instead of choosing between
// them: coming early is pointless, and coming all at the same instant is worse.
func (p RetryPolicy) wait(attempt int, retryAfter time.Duration) time.Duration {
	return retryAfter + rand.N(p.bound(attempt)) //nolint:gosec // spreads attempts over time, guards nothing
}

// retryable reports whether sending the same request again may succeed.
func (p *Problem) retryable() bool {
	switch p.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return p.Code != "moved"
	case http.StatusTooManyRequests:
		return p.RateLimited && !p.QuotaExceeded
	case http.StatusConflict:
		return p.Code == "idempotency_key_in_use"
	}
	return false
}

// maxRetryAfterSeconds keeps a nonsensical Retry-After from overflowing a
// Duration; a year is far beyond any policy's patience.
const maxRetryAfterSeconds = 365 * 24 * 60 * 60

func parseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 0), maxRetryAfterSeconds)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
