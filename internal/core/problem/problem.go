// Package problem is the one coded error of the system. Every refusal that a caller can act on
// carries a code, a sentence for a person and, where it helps, the fields at fault. It knows nothing
// of HTTP: the edges map codes to their own statuses, each in one place.
package problem

import (
	"errors"
	"fmt"
	"time"
)

// Code names a kind of refusal. Codes are part of the published contract: they are added, never renamed.
type Code string

// Refusals of one usage event.
const (
	UnknownMeter            Code = "unknown_meter"
	Invalid                 Code = "invalid"
	Future                  Code = "future"
	Late                    Code = "late"
	BeyondHorizon           Code = "beyond_horizon"
	QuotaExceeded           Code = "quota_exceeded"
	Conflict                Code = "conflict"
	UnknownCorrectionTarget Code = "unknown_correction_target"
	Overflow                Code = "overflow"
)

// Refusals of a whole request.
const (
	Malformed        Code = "malformed"          // the bytes are not what the content type says
	BatchRefused     Code = "batch_refused"      // an event of an atomic batch was refused
	Unauthorized     Code = "unauthorized"       // no key, or a bad one
	Forbidden        Code = "forbidden"          // the key may not do this
	NotFound         Code = "not_found"          // not there, or not yours
	Archived         Code = "archived"           // it was there, and is in the archive now
	MethodNotAllowed Code = "method_not_allowed" // the path exists, the method does not
	NotAcceptable    Code = "not_acceptable"
	TooLarge         Code = "too_large"
	UnsupportedMedia Code = "unsupported_media_type"

	HeaderTooLarge      Code = "header_too_large"
	ExpectationFailed   Code = "expectation_failed"
	NotImplemented      Code = "not_implemented"       // of the protocol: a transfer encoding
	VersionNotSupported Code = "version_not_supported" // of HTTP

	TenantClosed  Code = "tenant_closed"
	Moved         Code = "moved" // the ledger is kept in another store now
	Fixed         Code = "fixed_after_first_event"
	PeriodNotOver Code = "period_not_over" // and closing it was not confirmed
	PeriodClosed  Code = "period_closed"   // and what is asked for would change it
	Exists        Code = "already_exists"
	KeyReused     Code = "idempotency_key_reused" // by another request
	KeyInUse      Code = "idempotency_key_in_use" // the first is still running
	RateLimited   Code = "rate_limited"
	Busy          Code = "busy"        // queues are full: try again
	Unavailable   Code = "unavailable" // the store cannot commit now
	Timeout       Code = "timeout"
	Internal      Code = "internal"
)

// Field points at one wrong part of a request.
type Field struct {
	Path    string // as the caller wrote it: "quantity", "properties.tokens", "key_fields[2]"
	Message string
}

// Error is a refusal. It is immutable once returned.
type Error struct {
	Code       Code
	Detail     string
	Fields     []Field
	RetryAfter time.Duration // zero when trying again does not help
	ResetsAt   time.Time     // of a quota whose period is not over: when it ends; zero for every other refusal
	// the detail for callers who may not read what the detail says; empty: the detail says nothing of the kind
	discreet string
	cause    error
}

// New makes a refusal whose detail is formatted.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// At makes an invalid-field refusal: the detail is the message with its path.
func At(path, format string, args ...any) *Error {
	msg := fmt.Sprintf(format, args...)
	return &Error{Code: Invalid, Detail: path + ": " + msg, Fields: []Field{{Path: path, Message: msg}}}
}

// Wrap makes a refusal that keeps its cause for logs and errors.Is; the detail is what the caller reads.
func Wrap(code Code, cause error, format string, args ...any) *Error {
	e := New(code, format, args...)
	e.cause = cause
	return e
}

// Retry returns a copy that says when to come back.
func (e *Error) Retry(after time.Duration) *Error {
	c := *e
	c.RetryAfter = after
	return &c
}

// Resets returns a copy that says when the quota's period ends, and to come back then.
func (e *Error) Resets(at time.Time, after time.Duration) *Error {
	c := *e
	c.ResetsAt, c.RetryAfter = at, after
	return &c
}

// Discreetly returns a copy with a second detail, for callers who may send but not read: it says nothing of totals,
// times of other events or plans.
func (e *Error) Discreetly(detail string) *Error {
	c := *e
	c.discreet = detail
	return &c
}

// Discreet is what a caller may see who may send but not read.
func (e *Error) Discreet() *Error {
	if e.discreet == "" {
		return e
	}
	c := *e
	c.Detail, c.discreet = e.discreet, ""
	return &c
}

func (e *Error) Error() string {
	if e.cause != nil {
		return string(e.Code) + ": " + e.Detail + ": " + e.cause.Error()
	}
	return string(e.Code) + ": " + e.Detail
}

func (e *Error) Unwrap() error { return e.cause }

// CodeOf returns the code of the first coded error in err's chain, or "" if there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool { return CodeOf(err) == code }
