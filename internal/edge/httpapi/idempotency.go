package httpapi

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/idempotency"
)

// handle lets a route answer: under a request key inside one transaction that also keeps the answer, else by itself.
// Facts have keys of their own.
func (x *exchange) handle(rt *route) error {
	if rt.method == http.MethodGet || rt.pattern == eventsPath {
		return rt.handle(x)
	}
	if rt.pattern == postReplay.pattern && x.r.Header["Idempotency-Key"] != nil {
		return problem.New(problem.Malformed, "a replay takes no Idempotency-Key: applying the same settings again changes nothing")
	}
	key, err := x.requestKey(request.MaxKey)
	if err != nil {
		return err
	}
	if key == "" {
		return rt.handle(x)
	}
	body, err := x.setupBody()
	if err != nil {
		return err
	}
	x.body, x.bodyRead = body, true
	c := idempotency.Call{Key: key, Actor: x.caller.Actor(), Fingerprint: request.Fingerprint(rt.method, x.r.URL.EscapedPath(), x.r.URL.RawQuery,
		strings.Join(x.r.Header["Content-Type"], ","), body)}
	var ok bool
	if c.Tenant, c.Effect, ok = x.ledgers(rt); !ok {
		return rt.handle(x) // it names no tenant that can be, and will be refused
	}
	ctx := x.r.Context()
	if c.Effect != c.Tenant {
		if ctx, err = x.s.options.Registry.Foresee(ctx); err != nil {
			return err
		}
	}
	var first recorder
	a, replayed, err := x.s.options.Requests.Do(ctx, c, func(ctx context.Context) idempotency.Made { return x.attempt(ctx, rt, &first) })
	if err != nil {
		return err
	}
	x.giveAnswer(&a, replayed, &first)
	return nil
}

// ledgers are that of the key and that of the effect.
func (x *exchange) ledgers(rt *route) (of, effect string, ok bool) {
	switch {
	case rt.who == ofTenant:
		return x.caller.Tenant, x.caller.Tenant, true
	case x.param != "":
		return x.param, x.param, tenant.CheckID("id", x.param, tenant.MaxID) == nil
	}
	var named struct{ ID string }
	if json.Unmarshal(x.body, &named) != nil {
		return "", "", false
	}
	return tenant.Operator, named.ID, tenant.CheckID("id", named.ID, tenant.MaxID) == nil
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
func (x *exchange) attempt(ctx context.Context, rt *route, into *recorder) idempotency.Made {
	*into = recorder{header: http.Header{}}
	inner := *x
	inner.w, inner.r, inner.charge = into, x.r.WithContext(ctx), 0
	err := rt.handle(&inner)
	inner.finish(err)
	into.public, into.err = inner.public, inner.err
	h := into.header
	return idempotency.Made{Public: into.public, Refusal: err,
		Answer: request.Answer{Status: into.status, ContentType: h.Get("Content-Type"), Location: h.Get("Location"), Body: into.body}}
}

var isReplayed = []string{"true"}

// giveAnswer sends what was recorded now, with all its headers, or what was kept.
func (x *exchange) giveAnswer(a *request.Answer, replayed bool, first *recorder) {
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
	x.write(a.Status, a.Body)
}
