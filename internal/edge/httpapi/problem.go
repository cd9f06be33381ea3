package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
)

// kind is how HTTP shows a problem.
type kind struct {
	status int
	title  string
	retry  time.Duration // sent when the problem itself does not say; zero: none
}

// kinds is the one place where codes become statuses. A code that is not here refuses one event: 422.
var kinds = map[problem.Code]kind{
	problem.Malformed:           {http.StatusBadRequest, "The request is malformed", 0},
	problem.Unauthorized:        {http.StatusUnauthorized, "No API key, or not a valid one", 0},
	problem.Forbidden:           {http.StatusForbidden, "The API key may not do this", 0},
	problem.NotFound:            {http.StatusNotFound, "Not found", 0},
	problem.Archived:            {http.StatusGone, "Archived", 0},
	problem.MethodNotAllowed:    {http.StatusMethodNotAllowed, "The method is not allowed here", 0},
	problem.NotAcceptable:       {http.StatusNotAcceptable, "No acceptable representation", 0},
	problem.Conflict:            {http.StatusConflict, "In conflict with what is there", 0},
	problem.PeriodNotOver:       {http.StatusConflict, "The period is not over", 0},
	problem.Exists:              {http.StatusConflict, "Already there", 0},
	problem.Fixed:               {http.StatusConflict, "Fixed after the first event", 0},
	problem.TenantClosed:        {http.StatusConflict, "The tenant is closed", 0},
	problem.Moved:               {http.StatusServiceUnavailable, "The ledger was moved to another store", time.Minute},
	problem.TooLarge:            {http.StatusRequestEntityTooLarge, "Too large", 0},
	problem.HeaderTooLarge:      {http.StatusRequestHeaderFieldsTooLarge, "The header is too large", 0},
	problem.ExpectationFailed:   {http.StatusExpectationFailed, "An expectation that is not met", 0},
	problem.NotImplemented:      {http.StatusNotImplemented, "Not implemented", 0},
	problem.VersionNotSupported: {http.StatusHTTPVersionNotSupported, "This version of HTTP is not spoken", 0},
	problem.UnsupportedMedia:    {http.StatusUnsupportedMediaType, "Unsupported media type", 0},
	problem.KeyReused:           {http.StatusUnprocessableEntity, "The Idempotency-Key belongs to another request", 0},
	problem.KeyInUse:            {http.StatusConflict, "The Idempotency-Key is in use", time.Second},
	problem.RateLimited:         {http.StatusTooManyRequests, "Too many requests", time.Second},
	problem.QuotaExceeded:       {http.StatusTooManyRequests, "Quota exceeded", time.Second},
	problem.Busy:                {http.StatusServiceUnavailable, "Busy", time.Second},
	problem.Unavailable:         {http.StatusServiceUnavailable, "Unavailable", 5 * time.Second},
	problem.Timeout:             {http.StatusServiceUnavailable, "Not done in time", time.Second},
	problem.Internal:            {http.StatusInternalServerError, "Internal error", 0},
	problem.Invalid:             {http.StatusUnprocessableEntity, "Invalid", 0},
}

func kindOf(code problem.Code) kind {
	if k, ok := kinds[code]; ok {
		return k
	}
	return kind{http.StatusUnprocessableEntity, "Refused", 0}
}

// problemOf codes an error that no one below has coded.
func (x *exchange) problemOf(err error) *problem.Error {
	var p *problem.Error
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return problem.Wrap(problem.Timeout, err, "not done in time, and it may still take effect; %s", x.retryAdvice())
	}
	return problem.Wrap(problem.Internal, err, "an unexpected error; the server's log has it under this request_id")
}

// retryAdvice says whether the same request may be sent again when its outcome is unknown.
func (x *exchange) retryAdvice() string {
	switch {
	case x.r.Method == http.MethodGet || x.r.Method == http.MethodHead:
		return "trying again is safe"
	case x.r.URL.Path == eventsPath:
		return "sending the same events again is safe: those already recorded are answered duplicate"
	}
	return "look whether it did before trying again"
}

// refuse answers with a problem.
func (x *exchange) refuse(err error) {
	x.err = err
	p := x.problemOf(err)
	k := kindOf(p.Code)
	h := x.w.Header()
	switch p.Code {
	case problem.Unauthorized:
		h["Www-Authenticate"] = []string{"Bearer"}
	case problem.RateLimited:
		h["Tally-Ratelimit"] = one
	case problem.QuotaExceeded:
		h["Tally-Quota-Exceeded"] = one
	}
	wait := p.RetryAfter
	if wait == 0 {
		wait = k.retry
	}
	if wait > 0 {
		h["Retry-After"] = []string{retryAfter(wait)}
	}
	b := append(x.appendProblem(make([]byte, 0, 512), p), '\n')
	h["Content-Type"] = problemType
	x.write(k.status, b)
}

// appendProblem writes the document of a problem.
func (x *exchange) appendProblem(b []byte, p *problem.Error) []byte {
	k := kindOf(p.Code)
	b = append(b, `{"type":"/problems/`...)
	b = append(b, p.Code...)
	b = append(b, `","title":`...)
	b = appendText(b, k.title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(k.status), 10)
	b = append(b, `,"code":`...)
	b = appendText(b, string(p.Code))
	b = append(b, `,"detail":`...)
	b = appendText(b, p.Detail)
	b = append(b, `,"request_id":`...)
	b = appendText(b, x.id)
	b = appendResets(b, p)
	b = appendFields(b, p.Fields)
	return append(b, '}')
}

// refusal is a whole answer, the last of its connection, to what never became a request.
func (s *Server) refusal(err error) []byte {
	var a plainAnswer
	a.begin()
	x := &exchange{s: s, w: &a, r: &http.Request{URL: &url.URL{}}, began: time.Now()}
	x.setRequestID()
	x.refuse(err)
	x.observe()
	x.logLine()
	return a.bytes(time.Now(), true)
}

// appendResets writes ,"resets_at":… of a quota.
func appendResets(b []byte, p *problem.Error) []byte {
	if p.ResetsAt.IsZero() {
		return b
	}
	return appendMoment(b, "resets_at", calendar.FromTime(p.ResetsAt))
}

// appendFields writes ,"errors":[…] when there are any.
func appendFields(b []byte, fields []problem.Field) []byte {
	if len(fields) == 0 {
		return b
	}
	b = append(b, `,"errors":[`...)
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"path":`...)
		b = appendText(b, f.Path)
		b = append(b, `,"message":`...)
		b = appendText(b, f.Message)
		b = append(b, '}')
	}
	return append(b, ']')
}

// retryAfter is at least a second.
func retryAfter(d time.Duration) string { return wholeSeconds(max(d, time.Second)) }

// wholeSeconds rounds up: who comes back earlier is refused again.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// appendText writes a JSON string. Details quote what callers sent, which need not be UTF-8.
func appendText(b []byte, s string) []byte {
	return properties.AppendString(b, strings.ToValidUTF8(s, "\uFFFD"))
}

// Header values that never change are shared: an answer sets them without allocating.
var (
	one         = []string{"1"}
	yes         = []string{"true"}
	closing     = []string{"close"}
	jsonType    = []string{"application/json"}
	problemType = []string{"application/problem+json"}
)

// write sends the answer.
func (x *exchange) write(status int, body []byte) {
	x.status = status
	x.w.WriteHeader(status)
	if len(body) > 0 {
		_, _ = x.w.Write(body) // a caller that is gone cannot be told
	}
}

// answer sends a JSON document.
func (x *exchange) answer(status int, body []byte) error {
	x.w.Header()["Content-Type"] = jsonType
	x.write(status, body)
	return nil
}
