// Package httpapi is the product's own HTTP edge: it turns requests into calls of the services and their answers into
// JSON, exactly as api/openapi.yaml publishes it, and it listens, for other HTTP edges too.
//
// It owns the routes and shapes of /v1, the listener with its bounds, and the express lane of small requests for
// events. What every HTTP edge needs is httpkit's. It never decides: who a caller is and what becomes of an event is
// the gate's word, and every refusal is a problem.
package httpapi

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/service/billing"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/idempotency"
	"github.com/tallystick/tallystick/internal/service/plans"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/service/sinks"
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
	Sinks    *sinks.Service
	// Verify examines a tenant's ledger beside everything else, or all ledgers and files when the tenant is empty, and
	// reports how far it has come in each stage.
	Verify func(
		ctx context.Context, tenantID string, progress func(stage string, done, total uint64),
	) (verify.Report, error)

	// Fallback reports whether a sink of a tenant is behind because it fails; answers to events then say so. Default:
	// none is.
	Fallback func(tenantID string) bool

	// Edges are the other APIs that are served on the same connections. Default: none.
	Edges []httpkit.Edge

	Logger  *slog.Logger // default: nothing is logged
	Metrics http.Handler // served at /metrics to the operator's key; default: 404
	Version string       // shown by /healthz

	// Observe gets every answer: the route's pattern ("" where there is none), the status and the time taken.
	// Default: nothing is observed.
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

	// Streams bounds the streams of rows.
	Streams StreamOptions

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

// Server answers the HTTP API, and those of other edges.
type Server struct {
	options    Options
	log        *slog.Logger
	kit        *httpkit.Handler
	postEvents *httpkit.Route // the hot route, which ServeHTTP knows by itself

	connections connectionCounts
	tails       tails
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
	o.Streams.setDefaults()
	s := &Server{options: o, log: o.Logger, tails: tails{store: o.Store, options: o.Streams}}
	s.kit = httpkit.New(httpkit.Options{
		Gate: o.Gate, Requests: o.Requests, Logger: o.Logger, Observe: o.Observe,
		BodyBudget: o.BodyBudget, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
	}, append([]httpkit.Edge{s.edge()}, o.Edges...)...)
	s.postEvents = s.kit.Route(http.MethodPost, eventsPath)
	return s
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
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
func (s *Server) Drain() { s.kit.Drain() }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The one hot route is recognized before any table is looked at.
	if r.Method == http.MethodPost && r.URL.Path == eventsPath && r.URL.RawPath == "" {
		s.kit.Serve(w, r, s.postEvents)
		return
	}
	s.kit.ServeHTTP(w, r)
}

// refusal is a whole answer, the last of its connection, to what never became a request.
func (s *Server) refusal(err error) []byte {
	var a plainAnswer
	a.begin()
	s.kit.Refuse(&a, err)
	return a.bytes(time.Now(), true)
}
