// Package httpkit is what all HTTP edges share: it takes a request through the gate to the route of the edge that it
// is for, and writes what the route answers.
//
// It owns the matching of paths, the reading of API keys, bodies (bounded, decompressed, charged to one budget),
// forms, query parameters, cursors, Accept, web pages, the Idempotency-Key, streamed answers, request ids, the log
// line, and the one table in which codes of problems become statuses.
//
// It never decides and names no resource: routes and shapes belong to the edges, which are values of type Edge and do
// not know one another. Which problem a request has is found here; how it is written is the edge's (Shape), because a
// peer's client reads errors in the peer's form. It knows nothing of listeners: what one wants to know of a request it
// puts into the context (Connection). It logs neither keys nor bodies.
package httpkit

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/idempotency"
)

// Options is what a Handler is made of. All but Logger and Observe are required.
type Options struct {
	Gate *gate.Gate
	// Requests answers writes under an Idempotency-Key. The services of the edges must work on its Store.
	Requests *idempotency.Requests
	// Logger gets a line for every request. Default: nothing is logged.
	Logger *slog.Logger
	// Observe gets every answer: the route's pattern ("" where there is none), the status and the time taken. Default:
	// nothing is observed.
	Observe func(method, pattern string, status int, took time.Duration)
	// BodyBudget bounds the bytes of all request bodies held at once; a request that finds none left is answered 503
	// busy.
	BodyBudget int64
	// ReadTimeout is how long a request may take to arrive. The listener enforces it; refusals name it.
	ReadTimeout time.Duration
	// WriteTimeout is how long a caller may take for an answer, or for each part of one that is sent piece by piece.
	WriteTimeout time.Duration
}

// Handler answers the requests of all edges. It is safe for concurrent use.
type Handler struct {
	options  Options
	log      *slog.Logger
	table    table
	budget   budget
	idPrefix string
	requests atomic.Uint64
	draining atomic.Bool
	streams  streams
}

// New makes the handler of some edges. It panics when two routes are for the same requests, or a route is outside its
// edge's prefix: no such build should start.
func New(o Options, edges ...Edge) *Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{options: o, log: o.Logger, table: newTable(edges), idPrefix: requestIDPrefix()}
	h.budget.free.Store(o.BodyBudget)
	h.streams.drained = make(chan struct{})
	return h
}

// requestIDPrefix keeps the ids of two processes apart in one log.
func requestIDPrefix() string {
	var random [5]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	return "req_" + hex.EncodeToString(random[:]) + "_"
}

// Drain announces that the server is about to stop. Requests are still answered; answers that are streamed end, since
// they may take hours.
func (h *Handler) Drain() {
	if h.draining.CompareAndSwap(false, true) {
		close(h.streams.drained)
	}
}

// Draining reports whether the server is about to stop.
func (h *Handler) Draining() bool { return h.draining.Load() }

// BodyBytesFree is how many bytes of the budget no body holds now.
func (h *Handler) BodyBytesFree() int64 { return h.budget.free.Load() }

// Route returns a route, so that a server can know its busiest one without a search. It panics when there is none.
func (h *Handler) Route(method, pattern string) *Route {
	for _, r := range h.table.resources {
		if rt := r.methods[method]; rt != nil && r.pattern == pattern {
			return rt
		}
	}
	panic("httpkit: no route " + method + " " + pattern)
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := h.begin(w, r)
	defer x.end()
	x.finish(h.dispatch(x))
}

// Serve answers a request that is known to be for a route without variables.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, rt *Route) {
	x := h.begin(w, r)
	defer x.end()
	x.finish(x.serve(rt))
}

// Refuse answers what never became a request.
func (h *Handler) Refuse(w http.ResponseWriter, err error) {
	x := h.begin(w, &http.Request{URL: &url.URL{}})
	x.refuse(err)
	x.observe()
	x.logLine()
}

// nowhere is the route of what never became a request.
var nowhere = Route{shape: &ProblemJSON}

func (h *Handler) begin(w http.ResponseWriter, r *http.Request) *Exchange {
	x := &Exchange{handler: h, w: w, r: r, began: time.Now(), route: &nowhere}
	x.setRequestID()
	return x
}
