package httpkit

import (
	"context"
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/gate"
)

// Edge is the routes of one API below one prefix.
type Edge struct {
	// Prefix begins the patterns of all routes: "" or whole segments, such as "/openmeter". A path that no route is for
	// is refused in the shape of the edge with the longest prefix that it begins with.
	Prefix string
	Routes []Route
	// Problems is how problems are written. Default: ProblemJSON.
	Problems *Shape
	// Lists names where a caller finds what there is, for those who ask for what there is not. Default: nothing.
	Lists string
}

// Route is one method of one path. The fields up to Handle are required.
type Route struct {
	// Method is not HEAD, which is a GET whose answer is cut off.
	Method string
	// Pattern is segments between slashes. A segment in braces is a variable, which matches any that could be a name;
	// {name...} at the end matches all that is left of the path. Of two patterns that match, the one that is literal
	// in the first segment in which they differ is meant.
	Pattern string
	// Who may call. With gate.OfNamed the first variable names the tenant, and so it does in a write of the operator.
	Who gate.Who
	// Need is the scope of a key, with gate.OfTenant and gate.OfAll.
	Need   tenant.Scope
	Handle func(x *Exchange) error

	// Media are the types that a read can be answered with, the first being what a caller without a wish gets.
	// Default: JSON alone.
	Media []string
	// AnyMedia answers whatever is accepted: an odd header of a balancer's probe must not take a node out of service.
	AnyMedia bool
	// Bodies are the types of a write's body that Body takes. Default: JSON alone.
	Bodies []string
	// MaxBody bounds what Body takes. Default 1 MiB.
	MaxBody int64
	// Parameters lets a write have query parameters, which its handler reads.
	Parameters bool

	// Facts says that the body is facts with keys of their own: the handler reads the Idempotency-Key, and no answer
	// is kept under it.
	Facts bool
	// NoKey says why the route takes no Idempotency-Key. Default: it takes one.
	NoKey string
	// Founds is for a route of the operator that makes the tenant which its body names: it returns that name, "" for
	// none that can be, and the context for a transaction that makes it.
	Founds func(ctx context.Context, body []byte) (tenantID string, in context.Context, err error)

	variables []string // names, in the order of the pattern
	shape     *Shape
}

// serve passes the gate before anything else of the request is looked at.
func (x *Exchange) serve(rt *Route) error {
	x.route = rt
	if rt.Who != gate.Anyone {
		if err := x.enter(rt); err != nil {
			if !problem.Is(err, problem.RateLimited) { // who has a key comes back on the same connection
				x.hangUp()
			}
			return err
		}
	}
	if err := x.choose(rt); err != nil {
		return err
	}
	return x.ofQuery(x.handle(rt))
}

// enter passes on to the gate what the header says.
func (x *Exchange) enter(rt *Route) error {
	r, err := x.asked(rt)
	if err != nil {
		return err
	}
	x.Caller, err = x.handler.options.Gate.Enter(x.r.Context(), &r)
	x.allowPage()
	x.ShowStanding()
	if err == nil {
		x.showedKey()
	}
	return err
}

// asked is the request as the gate sees it.
func (x *Exchange) asked(rt *Route) (r gate.Request, err error) {
	token, err := x.token()
	if err != nil {
		return r, err
	}
	r = gate.Request{Token: token, Origin: x.origin(), Right: gate.Right{Who: rt.Who, Scope: rt.Need}}
	if len(x.variables) > 0 {
		r.Right.Named = x.variables[0]
	}
	if h := x.r.Header[gate.TenantHeader]; len(h) > 0 {
		r.Tenant = strings.Join(h, ",") // two tenants name none
	}
	return r, nil
}

// Still reports whether the caller would be let in again. Errors: see gate.Still.
func (x *Exchange) Still(ctx context.Context) error {
	r, err := x.asked(x.route)
	if err != nil {
		return err
	}
	return x.handler.options.Gate.Still(ctx, &r)
}

func (x *Exchange) token() (string, error) {
	header := x.r.Header["Authorization"]
	if len(header) == 0 {
		return "", problem.New(problem.Unauthorized, "no API key: send the header Authorization: Bearer tk_…")
	}
	scheme, token, ok := strings.Cut(header[0], " ")
	if len(header) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", problem.New(problem.Unauthorized, "the header Authorization must be: Bearer tk_…")
	}
	return strings.TrimSpace(token), nil
}
