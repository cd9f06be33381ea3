// Package httpapi is the HTTP edge: it turns requests into calls of the services and their answers into JSON, exactly
// as api/openapi.yaml publishes it.
//
// It owns routes, bodies, cursors, headers and statuses. It never decides: who a caller is and what becomes of an event
// is the gate's word, and every refusal is a problem whose status is looked up in one place. It logs neither keys nor
// bodies.
package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/service/billing"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/idempotency"
	"github.com/tallystick/tallystick/internal/service/plans"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/service/windows"
	"github.com/tallystick/tallystick/internal/store"
)

// Defaults of Options.
const (
	DefaultBodyBudget        = 256 << 20
	DefaultReadHeaderTimeout = 10 * time.Second
	DefaultReadTimeout       = 30 * time.Second
	DefaultWriteTimeout      = 60 * time.Second
	DefaultIdleTimeout       = 2 * time.Minute
	DefaultDrainTimeout      = 30 * time.Second
	DefaultDrainReceive      = time.Second
	DefaultMaxHeaderBytes    = 32 << 10
)

// readyTimeout bounds the question whether the store can commit: a probe that hangs says less than one that fails.
const readyTimeout = 2 * time.Second

// Options is what a Server is made of. Store, Gate, the services and Verify are required.
type Options struct {
	Store    store.Store
	Gate     *gate.Gate
	Registry *registry.Service
	Billing  *billing.Service
	// Requests answers writes under an Idempotency-Key. The services above must work on its Store.
	Requests *idempotency.Requests
	Plans    *plans.Service
	Windows  *windows.Service
	// Verify examines a tenant's ledger beside everything else, or all ledgers and files when the tenant is empty, and
	// reports how far it has come in each stage.
	Verify func(ctx context.Context, tenantID string, progress func(stage string, done, total uint64)) (verify.Report, error)

	Logger  *slog.Logger // default: nothing is logged
	Metrics http.Handler // served at /metrics to the operator's key; default: 404
	Version string       // told by /healthz

	// Observe is told of every answer: the route's pattern ("" where there is none), the status and the time taken.
	// Default: nobody is.
	Observe func(method, pattern string, status int, took time.Duration)

	// BodyBudget bounds the bytes of all request bodies held at once; a request that finds none left is answered 503
	// busy. Default 256 MiB. The smallest budget that makes sense is one body of 16 MiB, and its compressed form.
	BodyBudget int64

	// Bounds of a connection, for HTTPServer and Listen. Zero takes the default: 10 s for the header, 30 s for header
	// and body, 60 s to answer, 2 min between requests, 32 KiB of header.
	ReadHeaderTimeout time.Duration
	ReadTimeout       time.Duration
	WriteTimeout      time.Duration
	IdleTimeout       time.Duration
	MaxHeaderBytes    int

	// MaxConnections bounds the connections of a Listener, MaxConnectionsPerAddress those of one address, or of one
	// IPv6 network of 64 bits. Default: no bound.
	MaxConnections           int
	MaxConnectionsPerAddress int

	// NoExpress makes a Listener hand all connections to net/http. Default: small, plain requests for events do not
	// pass through it.
	NoExpress bool
	// TLS makes a Listener speak it. Default: plain HTTP.
	TLS *tls.Config

	// DrainTimeout bounds how long requests in an express lane may still take once its listener closes. Default 30 s.
	DrainTimeout time.Duration
	// DrainReceive bounds how long a request that has begun may still take to arrive once the listener closes. Default
	// 1 s.
	DrainReceive time.Duration
}

// Server answers the HTTP API.
type Server struct {
	options  Options
	log      *slog.Logger
	table    []resource
	budget   budget
	idPrefix string
	requests atomic.Uint64
	draining atomic.Bool
	streams  streams

	connections connectionCounts
}

// New makes a Server.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&o.BodyBudget, DefaultBodyBudget)
	setDefault(&o.ReadHeaderTimeout, DefaultReadHeaderTimeout)
	setDefault(&o.ReadTimeout, DefaultReadTimeout)
	setDefault(&o.WriteTimeout, DefaultWriteTimeout)
	setDefault(&o.IdleTimeout, DefaultIdleTimeout)
	setDefault(&o.DrainTimeout, DefaultDrainTimeout)
	setDefault(&o.DrainReceive, DefaultDrainReceive)
	setDefault(&o.MaxHeaderBytes, DefaultMaxHeaderBytes)
	s := &Server{options: o, log: o.Logger, table: resources(), idPrefix: requestIDPrefix()}
	s.budget.free.Store(o.BodyBudget)
	s.streams.drained = make(chan struct{})
	return s
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// requestIDPrefix keeps the ids of two processes apart in one log.
func requestIDPrefix() string {
	var random [5]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	return "req_" + hex.EncodeToString(random[:]) + "_"
}

// HTTPServer makes the net/http server around s. It serves what Listen returns. The caller listens and shuts down.
func (s *Server) HTTPServer(addr string) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           http.HandlerFunc(s.handle),
		ConnContext:       withConnection,
		ConnState:         connState,
		ReadHeaderTimeout: s.options.ReadHeaderTimeout,
		ReadTimeout:       s.options.ReadTimeout,
		WriteTimeout:      s.options.WriteTimeout,
		IdleTimeout:       s.options.IdleTimeout,
		MaxHeaderBytes:    s.options.MaxHeaderBytes,
		// What the library would answer to OPTIONS * has no request id.
		DisableGeneralOptionsHandler: true,

		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// Drain makes /readyz say no, so that balancers look elsewhere before the listener closes. Requests are still answered.
// Answers that are streamed end, since they may take hours.
func (s *Server) Drain() {
	if s.draining.CompareAndSwap(false, true) {
		close(s.streams.drained)
	}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{s: s, w: w, r: r, began: time.Now()}
	x.setRequestID()
	defer x.end()
	// The one hot route is told apart before any table is looked at.
	if r.Method == http.MethodPost && r.URL.Path == eventsPath && r.URL.RawPath == "" {
		x.finish(x.serve(&postEvents))
		return
	}
	x.finish(s.dispatch(x))
}

// exchange is one request and what was answered so far. It belongs to the goroutine that serves the request.
type exchange struct {
	s        *Server
	w        http.ResponseWriter
	r        *http.Request
	began    time.Time
	id       string
	param    string // the path's variable segment, unescaped
	caller   gate.Visit
	route    *route
	media    string // what a read is answered with
	charge   int64  // bytes taken from the budget
	body     []byte // of a request that is handled under a key
	bodyRead bool
	public   []byte // the answer without the secret that is shown once
	status   int    // zero: nothing answered yet
	err      error  // what the answer says, for the log
}

func (x *exchange) setRequestID() {
	buf := make([]byte, 0, 32)
	buf = append(buf, x.s.idPrefix...)
	buf = strconv.AppendUint(buf, x.s.requests.Add(1), 36)
	x.id = string(buf)
	x.w.Header()["Tally-Request-Id"] = []string{x.id}
}

// finish answers with the error, if there is one.
func (x *exchange) finish(err error) {
	if err != nil {
		x.refuse(err)
	}
}

// end gives back what the request held, turns a panic into a 500, and writes the log line.
func (x *exchange) end() {
	x.s.budget.give(x.charge)
	if cause := recover(); cause != nil {
		x.recovered(cause)
	}
	x.observe()
	x.logLine()
}

func (x *exchange) observe() {
	if x.s.options.Observe == nil {
		return
	}
	method, pattern := "", ""
	if x.route != nil { // only what is served names a series: a caller cannot make up new ones
		method, pattern = x.route.method, x.route.pattern
	}
	x.s.options.Observe(method, pattern, x.status, time.Since(x.began))
}

// recovered answers a panic. An answer that has begun cannot be taken back: the connection is cut instead, so that the
// caller does not take a torn answer for a whole one.
func (x *exchange) recovered(cause any) {
	if cause == http.ErrAbortHandler { //nolint:errorlint // a sentinel that is panicked with, never wrapped
		panic(cause)
	}
	x.s.log.Error("panic while serving a request", "request_id", x.id, "method", x.r.Method, "path", x.r.URL.Path,
		"panic", cause, "stack", string(debug.Stack()))
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	x.refuse(problem.New(problem.Internal, "an unexpected error; the server's log has it under this request_id"))
}

// failed reports whether the server is at fault. A stream that has begun says so in its last line, behind the status of
// a success.
func (x *exchange) failed() bool {
	if x.err != nil && x.status == http.StatusOK {
		return kindOf(x.problemOf(x.err).Code).status >= http.StatusInternalServerError
	}
	return x.status >= http.StatusInternalServerError
}

func (x *exchange) logLine() {
	level, failed := slog.LevelDebug, x.failed()
	if failed && x.r.Context().Err() == nil {
		level = slog.LevelWarn
	}
	ctx := context.Background()
	if !x.s.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", x.id), slog.String("method", x.r.Method), slog.String("path", x.r.URL.EscapedPath()),
		slog.Int("status", x.status), slog.Duration("took", time.Since(x.began)),
	}
	if actor := x.caller.Actor(); actor != "" {
		attrs = append(attrs, slog.String("tenant", x.caller.Tenant), slog.String("actor", actor))
	}
	if code := problem.CodeOf(x.err); code != "" {
		attrs = append(attrs, slog.String("code", string(code)))
	}
	if x.err != nil && failed {
		// What a caller did wrong is told to the caller; its words often quote the body.
		attrs = append(attrs, slog.String("error", x.err.Error()))
	}
	x.s.log.LogAttrs(ctx, level, "request", attrs...)
}
