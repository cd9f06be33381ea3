package httpkit

import (
	"net/http"
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// Header values for web pages. What a page may read of an answer is what helps it to send again.
var (
	varyOrigin = []string{"Origin"}
	varyAsked  = []string{"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"}
	exposed    = []string{"Tally-Request-Id, Tally-Dedup, Tally-Overage, Tally-Fallback, Tally-Quota-Exceeded, " +
		"Tally-Ratelimit, Retry-After, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Idempotent-Replayed, " +
		"Location, Tally-As-Of, Tally-Next-Cursor"}
	sentByPages = []string{"Authorization, Content-Type, Content-Encoding, Idempotency-Key, Last-Event-ID, Prefer, " +
		"Tally-Tenant"}
	askAgain = []string{"600"} // seconds
)

// origin is that of the web page which sends the request; empty when no page does, or one of the server's own.
func (x *Exchange) origin() string {
	header := x.r.Header["Origin"]
	if len(header) == 0 {
		return ""
	}
	origin := strings.Join(header, ",") // two origins are none that can be allowed
	// The scheme is not compared: behind a proxy the server does not know its own. A page cannot choose its host.
	if _, host, ok := strings.Cut(origin, "://"); ok && strings.EqualFold(host, x.r.Host) {
		return ""
	}
	return origin
}

// allowPage lets the page read the answer, also one that refuses, once the gate knows it as one of the tenant's.
func (x *Exchange) allowPage() {
	if x.Caller.Origin == "" {
		return
	}
	h := x.w.Header()
	h["Access-Control-Allow-Origin"] = []string{x.Caller.Origin}
	h["Access-Control-Expose-Headers"] = exposed
	h["Vary"] = varyOrigin
}

// isPreflight reports whether a browser asks, before it sends a request for a page, if it may.
func (x *Exchange) isPreflight() bool {
	return x.r.Method == http.MethodOptions && len(x.r.Header["Origin"]) > 0 &&
		len(x.r.Header["Access-Control-Request-Method"]) > 0
}

// preflight answers a browser that asks. It has no key, so any tenant's origin will do: the request that follows is
// judged by its own.
func (x *Exchange) preflight(methods string) error {
	origin := strings.Join(x.r.Header["Origin"], ",")
	known, err := x.handler.options.Gate.KnowsOrigin(x.r.Context(), origin)
	if err != nil {
		return err
	}
	if !known {
		return problem.New(problem.Forbidden, "no tenant allows requests from the origin of this page")
	}
	h := x.w.Header()
	h["Access-Control-Allow-Origin"] = []string{origin}
	h["Access-Control-Allow-Methods"] = []string{methods}
	h["Access-Control-Allow-Headers"] = sentByPages
	h["Access-Control-Max-Age"] = askAgain
	h["Vary"] = varyAsked
	x.Write(http.StatusNoContent, nil)
	return nil
}
