package httpkit

import (
	"context"
	"maps"
	"net/http"
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/idempotency"
)

// RequestKey reads the Idempotency-Key; it is empty when there is none. It is for a handler of facts, whose keys are
// shorter: they get an index.
func (x *Exchange) RequestKey(longest int) (string, error) {
	header, given := x.r.Header["Idempotency-Key"]
	if !given {
		return "", nil
	}
	if len(header) > 1 {
		return "", problem.New(problem.Malformed, "Idempotency-Key stands twice")
	}
	key, p := request.ParseKey(header[0], longest)
	if p != nil {
		return "", p
	}
	return key, nil
}

// handle lets a route answer: under a request key inside one transaction that also keeps the answer, else by itself.
// Facts have keys of their own.
func (x *Exchange) handle(rt *Route) error {
	if rt.Method == http.MethodGet || rt.Facts {
		return rt.Handle(x)
	}
	if rt.NoKey != "" && x.r.Header["Idempotency-Key"] != nil {
		return problem.New(problem.Malformed, "%s", rt.NoKey)
	}
	key, err := x.RequestKey(request.MaxKey)
	if err != nil {
		return err
	}
	if key == "" {
		return rt.Handle(x)
	}
	body, err := x.Body()
	if err != nil {
		return err
	}
	if x.body = body; body == nil {
		x.body = []byte{} // it was read, and there is nothing
	}
	c, ctx, err := x.call(rt, key)
	if err != nil {
		return err
	}
	if c.Tenant == "" {
		return rt.Handle(x) // it names no tenant that can be, and will be refused
	}
	var first recorder
	a, replayed, err := x.handler.options.Requests.Do(ctx, c, func(ctx context.Context) idempotency.Made {
		return x.attempt(ctx, rt, &first)
	})
	if err != nil {
		return err
	}
	x.giveAnswer(&a, replayed, &first)
	return nil
}

// call is the request as its key knows it: whose key it is, and which ledger its effect is in.
func (x *Exchange) call(rt *Route, key string) (c idempotency.Call, ctx context.Context, err error) {
	ctx = x.r.Context()
	c = idempotency.Call{Key: key, Actor: x.Caller.Actor()}
	c.Fingerprint = request.Fingerprint(rt.Method, x.r.URL.EscapedPath(), x.r.URL.RawQuery,
		strings.Join(x.r.Header["Content-Type"], ","), x.body)
	switch {
	case rt.Who == gate.OfTenant:
		c.Tenant, c.Effect = x.Caller.Tenant, x.Caller.Tenant
	case rt.Founds != nil:
		c.Effect, ctx, err = rt.Founds(ctx, x.body)
		if c.Effect != "" {
			c.Tenant = tenant.Operator
		}
	case len(x.variables) > 0 && tenant.CheckID("id", x.variables[0], tenant.MaxID) == nil:
		c.Tenant, c.Effect = x.variables[0], x.variables[0]
	}
	return c, ctx, err
}

// recorder takes an answer down instead of sending it.
type recorder struct {
	header http.Header
	status int
	body   []byte
	public []byte // without the secret, if there is one
	err    error
}

func (r *recorder) Header() http.Header    { return r.header }
func (r *recorder) WriteHeader(status int) { r.status = status }
func (r *recorder) Write(b []byte) (int, error) {
	r.body = append(r.body, b...)
	return len(b), nil
}

// attempt runs the route with a body that was read and an answer that is recorded.
func (x *Exchange) attempt(ctx context.Context, rt *Route, into *recorder) idempotency.Made {
	*into = recorder{header: http.Header{}}
	inner := *x
	inner.w, inner.r, inner.charge = into, x.r.WithContext(ctx), 0
	err := rt.Handle(&inner)
	inner.finish(err)
	into.public, into.err = inner.public, inner.err
	h := into.header
	return idempotency.Made{Public: into.public, Refusal: err, Answer: request.Answer{
		Status: into.status, ContentType: h.Get("Content-Type"), Location: h.Get("Location"), Body: into.body,
	}}
}

var isReplayed = []string{"true"}

// giveAnswer sends what was recorded now, with all its headers, or what was kept.
func (x *Exchange) giveAnswer(a *request.Answer, replayed bool, first *recorder) {
	h := x.w.Header()
	if replayed {
		h["Idempotent-Replayed"] = isReplayed
		if a.ContentType != "" {
			h["Content-Type"] = []string{a.ContentType}
		}
		if a.Location != "" {
			h["Location"] = []string{a.Location}
		}
	} else {
		maps.Copy(h, first.header)
		x.err = first.err
	}
	x.Write(a.Status, a.Body)
}
