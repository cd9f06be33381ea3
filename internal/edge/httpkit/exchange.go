package httpkit

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/service/gate"
)

// Exchange is one request and what was answered so far. It belongs to the goroutine that serves the request.
type Exchange struct {
	// Caller is who was let in, and passes facts on. On a route for anyone it is nobody.
	Caller gate.Visit

	handler   *Handler
	w         http.ResponseWriter
	r         *http.Request
	began     time.Time
	id        string
	variables []string // of the path, unescaped, in the order of the pattern
	route     *Route   // never nil: what is for no route has one that only says how problems are written
	media     string   // what a read is answered with
	charge    int64    // bytes taken from the budget
	body      []byte   // of a request that is handled under a key; nil: not read yet
	public    []byte   // the answer without the secret that is shown once
	status    int      // zero: nothing answered yet
	err       error    // what the answer says, for the log
}

// Request is the request, whose body is read with Body or ReadBody alone.
func (x *Exchange) Request() *http.Request { return x.r }

// Context ends when the caller is gone or the answer is of no more use. Under an Idempotency-Key it carries the
// transaction.
func (x *Exchange) Context() context.Context { return x.r.Context() }

// Header is that of the answer.
func (x *Exchange) Header() http.Header { return x.w.Header() }

// Media is the media type that the caller prefers among those of the route.
func (x *Exchange) Media() string { return x.media }

// Path is the value of a variable of the route's pattern, unescaped. It panics on one that the pattern does not have.
func (x *Exchange) Path(name string) string {
	return x.variables[slices.Index(x.route.variables, name)]
}

func (x *Exchange) setRequestID() {
	buf := make([]byte, 0, 32)
	buf = append(buf, x.handler.idPrefix...)
	buf = strconv.AppendUint(buf, x.handler.requests.Add(1), 36)
	x.id = string(buf)
	x.w.Header()["Tally-Request-Id"] = []string{x.id}
}

// finish answers with the error, if there is one.
func (x *Exchange) finish(err error) {
	if err != nil {
		x.refuse(err)
	}
}

// end gives back what the request held, turns a panic into a 500, and writes the log line.
func (x *Exchange) end() {
	x.handler.budget.give(x.charge)
	if cause := recover(); cause != nil {
		x.recovered(cause)
	}
	x.observe()
	x.logLine()
}

func (x *Exchange) observe() {
	if x.handler.options.Observe == nil {
		return
	}
	// Only what is served names a series: a caller cannot make up new ones.
	x.handler.options.Observe(x.route.Method, x.route.Pattern, x.status, time.Since(x.began))
}

// recovered answers a panic. An answer that has begun cannot be taken back: the connection is cut instead, so that the
// caller does not take a torn answer for a whole one.
func (x *Exchange) recovered(cause any) {
	if cause == http.ErrAbortHandler { //nolint:errorlint // a sentinel that is panicked with, never wrapped
		panic(cause)
	}
	x.handler.log.Error("panic while serving a request", "request_id", x.id, "method", x.r.Method,
		"path", x.r.URL.Path, "panic", cause, "stack", string(debug.Stack()))
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	x.refuse(problem.New(problem.Internal, "an unexpected error; the server's log has it under this request_id"))
}

// failed reports whether the server is at fault. A stream that has begun says so in its last line, behind the status of
// a success.
func (x *Exchange) failed() bool {
	if x.err != nil && x.status == http.StatusOK {
		return StatusOf(x.problemOf(x.err).Code) >= http.StatusInternalServerError
	}
	return x.status >= http.StatusInternalServerError
}

func (x *Exchange) logLine() {
	level, failed := slog.LevelDebug, x.failed()
	if failed && x.r.Context().Err() == nil {
		level = slog.LevelWarn
	}
	ctx := context.Background()
	if !x.handler.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", x.id), slog.String("method", x.r.Method), slog.String("path", x.r.URL.EscapedPath()),
		slog.Int("status", x.status), slog.Duration("took", time.Since(x.began)),
	}
	if actor := x.Caller.Actor(); actor != "" {
		attrs = append(attrs, slog.String("tenant", x.Caller.Tenant), slog.String("actor", actor))
	}
	if code := problem.CodeOf(x.err); code != "" {
		attrs = append(attrs, slog.String("code", string(code)))
	}
	if x.err != nil && failed {
		// What a caller did wrong is answered to the caller; its words often quote the body.
		attrs = append(attrs, slog.String("error", x.err.Error()))
	}
	x.handler.log.LogAttrs(ctx, level, "request", attrs...)
}

// Header values that never change are shared: an answer sets them without allocating.
var (
	one      = []string{"1"}
	closing  = []string{"close"}
	jsonType = []string{MediaJSON}
)

// Write sends the whole answer.
func (x *Exchange) Write(status int, body []byte) {
	x.status = status
	x.w.WriteHeader(status)
	if len(body) > 0 {
		_, _ = x.w.Write(body) // a caller that is gone cannot be answered
	}
}

// Answer sends a JSON document.
func (x *Exchange) Answer(status int, body []byte) error {
	x.w.Header()["Content-Type"] = jsonType
	x.Write(status, body)
	return nil
}

// Created answers 201 with the object and where it is found.
func (x *Exchange) Created(location string, object []byte) error {
	x.w.Header()["Location"] = []string{location}
	return x.Answer(http.StatusCreated, append(object, '\n'))
}

// CreatedWithSecret answers 201 with the object and, this once, the secret that belongs to it. What is kept under an
// Idempotency-Key is the answer without it.
func (x *Exchange) CreatedWithSecret(location string, object []byte, name, secret string) error {
	return x.Created(location, x.withSecret(object, name, secret))
}

// AnswerWithSecret answers 200 with the object and, this once, a secret, as CreatedWithSecret does.
func (x *Exchange) AnswerWithSecret(object []byte, name, secret string) error {
	return x.Answer(http.StatusOK, append(x.withSecret(object, name, secret), '\n'))
}

func (x *Exchange) withSecret(object []byte, name, secret string) []byte {
	x.w.Header()["Cache-Control"] = []string{"no-store"}
	x.public = append(slices.Clone(object), '\n')
	return append(render.String(object[:len(object)-1], name, secret), '}')
}

// Delegate lets another handler answer.
func (x *Exchange) Delegate(to http.Handler) {
	to.ServeHTTP(&statusWriter{ResponseWriter: x.w, status: &x.status}, x.r)
}

// statusWriter notes the status that a foreign handler answers.
type statusWriter struct {
	http.ResponseWriter
	status *int
}

func (w *statusWriter) WriteHeader(status int) {
	*w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if *w.status == 0 {
		*w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Begin sends the status of an answer whose body follows, piece by piece.
func (x *Exchange) Begin(status int) {
	x.prolong()
	x.status = status
	x.w.WriteHeader(status)
}

// Send writes a piece of the body. It reports false when the caller is gone, who cannot be answered.
func (x *Exchange) Send(b []byte) bool {
	x.prolong()
	_, err := x.w.Write(b)
	return err == nil
}

// prolong gives what is sent next the whole time that an answer has: folding may have used up what there was.
func (x *Exchange) prolong() {
	// A connection without deadlines needs none prolonged.
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(x.handler.options.WriteTimeout))
}
