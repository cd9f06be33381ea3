package gate

import (
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
)

// Who may do something.
type Who uint8

// The kinds of callers.
const (
	Anyone     Who = iota // no key is looked at
	OfTenant              // a key of the tenant with the needed scope, or the operator's key and a named tenant
	OfOperator            // the operator's key
	OfNamed               // the operator's key, or an admin key of the very tenant that the request is about
	// OfAll is the operator's key, for all tenants or one that it names, or a key of a tenant with the needed scope,
	// for its own.
	OfAll
)

// Right is what a request needs.
type Right struct {
	Who   Who
	Scope tenant.Scope // of a key, when Who is OfTenant or OfAll
	Named string       // the tenant that the request is about, when Who is OfNamed
}

// TenantHeader is where the operator's key names the tenant that it speaks for.
const TenantHeader = "Tally-Tenant"

// check refuses who lacks the right.
func (r *Right) check(c *Caller) error {
	switch {
	case c.Operator && r.Who == OfTenant && c.Tenant == "":
		p := problem.New(problem.Malformed, "the operator's key names the tenant: send the header Tally-Tenant: <id>")
		p.Fields = []problem.Field{{Path: TenantHeader, Message: "required with the operator's key"}}
		return p
	case c.Operator:
		return nil
	case r.Who == OfTenant || r.Who == OfAll:
		return lacks(c, r.Scope)
	case r.Who == OfNamed:
		if err := lacks(c, tenant.Admin); err != nil {
			return err
		}
		if c.Tenant != r.Named {
			return problem.New(problem.NotFound, "no such tenant")
		}
		return nil
	}
	return problem.New(problem.Forbidden, "only the operator's key may do this")
}

func lacks(c *Caller, need tenant.Scope) error {
	if c.Scopes.Allows(need) {
		return nil
	}
	return problem.New(problem.Forbidden, "this API key lacks the scope %s", strings.Join(need.Names(), ", "))
}
