package gate

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/limit"
)

// Request is what is known of a request before anybody looks into it.
type Request struct {
	Token  string // the API key
	Tenant string // that the caller names; empty: none
	Origin string // of the web page that it comes from; empty: from none, or from the server's own
	Right  Right  // that it needs
}

// Visit is a request that was let in, as far as it came.
type Visit struct {
	Caller
	Origin   string         // of the page, once it is known to be allowed; empty for none
	Standing limit.Standing // after what was taken last; zero when nothing limits the caller
	gate     *Gate
}

// Enter lets a request in, or says why not. What is known of the caller is returned either way. Errors, in the order in
// which they are looked for: Unauthorized, NotFound and Forbidden for a tenant that is not the caller's; Forbidden,
// NotFound or Malformed for a right that they lack; Forbidden for the page; RateLimited.
func (g *Gate) Enter(ctx context.Context, r *Request) (v Visit, err error) {
	v.gate = g
	if r.Right.Who == Anyone {
		return v, nil
	}
	if _, err := g.admit(ctx, r, &v); err != nil {
		return v, err
	}
	if v.Rate.IsZero() && !v.Operator {
		v.Rate = g.keyRate
	}
	return v, v.take(ctx, limit.Cost{Requests: 1})
}

// admit judges all but how much is sent. What is found of the caller is noted in v.
func (g *Gate) admit(ctx context.Context, r *Request, v *Visit) (of tenant.Tenant, err error) {
	caller, of, err := g.authenticate(ctx, r.Token, r.Tenant)
	if err != nil {
		return of, err
	}
	v.Caller = caller
	if err := r.Right.check(&v.Caller); err != nil {
		return of, err
	}
	if r.Origin != "" {
		if !of.AllowsOrigin(r.Origin) {
			return of, problem.New(problem.Forbidden,
				"the tenant does not allow requests from the origin of this page: add it to its allowed_origins")
		}
		v.Origin = r.Origin
	}
	return of, nil
}

// Still reports whether a request that was let in would be let in again, for answers that go on for long. Nothing is
// counted. Errors: those of Enter but RateLimited, and TenantClosed.
func (g *Gate) Still(ctx context.Context, r *Request) error {
	of, err := g.admit(ctx, r, &Visit{})
	if err == nil && of.Closed {
		err = problem.New(problem.TenantClosed, "the tenant was closed: nothing will be added to its ledger")
	}
	return err
}

// TakeBytes counts the bytes of a body. Errors: RateLimited.
func (v *Visit) TakeBytes(ctx context.Context, n int) error {
	return v.take(ctx, limit.Cost{Bytes: int64(n)})
}

// take takes a cost from the key's bucket and the tenant's, or from neither. Who is limited in nothing is not looked
// up, and a cost that is not limited is only taken for a request, so that every answer to a limited caller says how
// they stand.
func (v *Visit) take(ctx context.Context, c limit.Cost) error {
	g := v.gate
	if v.Operator || v.Rate.IsZero() && g.tenantRate.IsZero() ||
		c.Requests == 0 && !c.Concerns(v.Rate) && !c.Concerns(g.tenantRate) {
		return nil
	}
	from := make([]limit.Bucket, 0, 2)
	if !v.Rate.IsZero() {
		from = append(from, limit.Bucket{By: limit.APIKey, Name: v.KeyID, Rate: v.Rate})
	}
	if !g.tenantRate.IsZero() {
		from = append(from, limit.Bucket{By: limit.Tenant, Name: v.Tenant, Rate: g.tenantRate})
	}
	o := g.limiter.Take(ctx, c, from...)
	v.Standing = o.Standing
	if o.OK() {
		return nil
	}
	return refusal(&o, from)
}

func refusal(o *limit.Outcome, from []limit.Bucket) error {
	who := "this API key"
	if o.By == limit.Tenant {
		who = "this tenant"
	}
	rate := int64(0)
	for _, b := range from {
		if b.By == o.By {
			rate = [...]int64{b.Rate.Requests, b.Rate.Events, b.Rate.Bytes}[o.Of]
		}
	}
	return problem.New(problem.RateLimited, "too many %s: %s may send %d a second; nothing of this was kept, try "+
		"again later", o.Of, who, rate).Retry(o.Wait)
}
