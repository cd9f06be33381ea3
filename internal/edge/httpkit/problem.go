package httpkit

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
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
	problem.PeriodClosed:        {http.StatusConflict, "The period is closed", 0},
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
	problem.BatchRefused:        {http.StatusUnprocessableEntity, "The batch is refused", 0},
	problem.Invalid:             {http.StatusUnprocessableEntity, "Invalid", 0},
}

func kindOf(code problem.Code) kind {
	if k, ok := kinds[code]; ok {
		return k
	}
	return kind{http.StatusUnprocessableEntity, "Refused", 0}
}

// StatusOf is the status that a problem is answered with, unless its edge has another.
func StatusOf(code problem.Code) int { return kindOf(code).status }

// problemOf codes an error that no one below has coded.
func (x *Exchange) problemOf(err error) *problem.Error {
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
func (x *Exchange) retryAdvice() string {
	switch {
	case x.r.Method == http.MethodGet || x.r.Method == http.MethodHead:
		return "trying again is safe"
	case x.route.Facts:
		return "sending the same events again is safe: those already recorded are answered duplicate"
	}
	return "look whether it did before trying again"
}

// Refusal is a problem as HTTP answers it.
type Refusal struct {
	*problem.Error
	Status    int
	Title     string // of all problems with this code
	RequestID string
	// Members are more members of a document of JSON, from a comma on, for a shape that has room for them.
	Members []byte
}

// Shape is how an edge writes a problem.
type Shape struct {
	// Media is the content type of the document.
	Media string
	// Append appends the document to b. It may change the status first, if the edge's callers expect another than the
	// table says.
	Append func(b []byte, r *Refusal) []byte
}

// ProblemJSON is the shape of RFC 9457, with the members code, request_id, resets_at of a quota, and errors by path.
var ProblemJSON = Shape{Media: mediaProblem, Append: appendProblem}

func (x *Exchange) refusal(p *problem.Error) *Refusal {
	k := kindOf(p.Code)
	return &Refusal{Error: p, Status: k.status, Title: k.title, RequestID: x.id}
}

// refuse answers with a problem. What its headers say does not depend on the shape.
func (x *Exchange) refuse(err error) {
	x.err = err
	p := x.problemOf(err)
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
		wait = kindOf(p.Code).retry
	}
	if wait > 0 {
		h["Retry-After"] = []string{retryAfter(wait)}
	}
	x.writeRefusal(x.refusal(p))
}

// RefuseWith answers with a problem that has more members, from a comma on.
func (x *Exchange) RefuseWith(p *problem.Error, members []byte) error {
	x.err = p
	r := x.refusal(p)
	r.Members = members
	x.writeRefusal(r)
	return nil
}

func (x *Exchange) writeRefusal(r *Refusal) {
	b := append(x.route.shape.Append(make([]byte, 0, 512+len(r.Members)), r), '\n')
	x.w.Header()["Content-Type"] = []string{x.route.shape.Media}
	x.Write(r.Status, b)
}

func appendProblem(b []byte, r *Refusal) []byte {
	b = append(b, `{"type":"/problems/`...)
	b = append(b, r.Code...)
	b = append(b, `","title":`...)
	b = render.Text(b, r.Title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = append(b, `,"code":`...)
	b = render.Text(b, string(r.Code))
	b = append(b, `,"detail":`...)
	b = render.Text(b, r.Detail)
	b = append(b, `,"request_id":`...)
	b = render.Text(b, r.RequestID)
	b = append(AppendReasons(b, r.Error), r.Members...)
	return append(b, '}')
}

// AppendReasons appends what a problem says in members: resets_at of a quota, and errors by path.
func AppendReasons(b []byte, p *problem.Error) []byte {
	if !p.ResetsAt.IsZero() {
		b = render.Moment(b, "resets_at", calendar.FromTime(p.ResetsAt))
	}
	return appendFields(b, p.Fields)
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
		b = render.Text(b, f.Path)
		b = append(b, `,"message":`...)
		b = render.Text(b, f.Message)
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
