// Package gate is the way in: it tells who is calling from the token they present, and passes their facts to the store.
//
// What it answers to a bad token is the same for every kind of badness, so that nobody learns from it which tenants and
// keys exist. It keeps no cache: a revoked key stops as soon as its revocation is committed. Scopes, origins and rates are
// the edge's to check, on what it is told here.
package gate

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strconv"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Caller is who presented a token, and the tenant that they act on.
type Caller struct {
	Tenant   string // empty only for the operator who named none
	KeyID    string // empty for the operator's root key
	Operator bool
	Scopes   tenant.Scope
}

// operatorActor is the operator's name in audit events: their key changes with the configuration, their role does not.
const operatorActor = "operator"

// Actor is who audit events name.
func (c Caller) Actor() string {
	if c.Operator {
		return operatorActor
	}
	return c.KeyID
}

// Options configure a gate.
type Options struct {
	// RootKey, when set, is the operator's token; the stored one is then not accepted. Default: none.
	RootKey string
	// Now tells when keys expire. Default: time.Now.
	Now func() time.Time
	// Observe is told the verdicts of every batch that was judged. Default: nobody is.
	Observe func([]usage.Verdict)
}

// Gate authenticates callers and records their facts. It is safe for concurrent use.
type Gate struct {
	store     store.Store
	now       func() time.Time
	observe   func([]usage.Verdict)
	hasRoot   bool
	rootHash  [sha256.Size]byte
	rootClaim claim
}

// New opens a gate to the store.
func New(s store.Store, o Options) *Gate {
	g := &Gate{store: s, now: o.Now, observe: o.Observe}
	if g.now == nil {
		g.now = time.Now
	}
	if o.RootKey != "" {
		g.hasRoot, g.rootHash, g.rootClaim = true, tenant.HashToken(o.RootKey), claimOf(o.RootKey)
	}
	return g
}

// errBadKey is the one answer to every token that admits nobody.
var errBadKey = problem.New(problem.Unauthorized, "no valid API key: send Authorization: Bearer tk_…")

// Authenticate tells who presents the token; tenantHeader is the Tally-Tenant header, empty when absent. It costs one hash and
// one look at the store. Errors: Unauthorized (no key, or a bad, expired or revoked one), NotFound (the operator named a tenant
// that is not there), Forbidden (a tenant's key named another tenant, whether it exists or not).
func (g *Gate) Authenticate(ctx context.Context, token, tenantHeader string) (Caller, error) {
	c := claimOf(token)
	if g.isRoot(token, c) {
		return g.operator(ctx, Caller{Operator: true, Scopes: tenant.Admin}, tenantHeader)
	}
	if c.keyID == "" || g.hasRoot && c.tenantID == tenant.Operator {
		return Caller{}, errBadKey
	}
	_, key, err := g.store.Access(ctx, c.tenantID, c.keyID)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return Caller{}, err
	}
	// An unknown key is compared too, with the hash of no token: the answer takes as long as for a wrong secret.
	if !key.Admits(token, calendar.FromTime(g.now())) || err != nil {
		return Caller{}, errBadKey
	}
	if c.tenantID == tenant.Operator {
		return g.operator(ctx, Caller{KeyID: key.ID, Operator: true, Scopes: key.Scopes}, tenantHeader)
	}
	if tenantHeader != "" && tenantHeader != c.tenantID {
		return Caller{}, problem.New(problem.Forbidden, "this API key speaks for one tenant, and Tally-Tenant names another: leave the header out")
	}
	return Caller{Tenant: c.tenantID, KeyID: key.ID, Scopes: key.Scopes}, nil
}

// isRoot compares hashes in constant time. Only a token that claims to be what the root key claims to be is hashed here, so
// that everyone else's is hashed once; what a token claims is no secret.
func (g *Gate) isRoot(token string, c claim) bool {
	if !g.hasRoot || token == "" || c != g.rootClaim {
		return false
	}
	h := tenant.HashToken(token)
	return subtle.ConstantTimeCompare(h[:], g.rootHash[:]) == 1
}

// operator adds the tenant that the operator named.
func (g *Gate) operator(ctx context.Context, c Caller, tenantHeader string) (Caller, error) {
	if tenantHeader == "" {
		return c, nil
	}
	missing := problem.New(problem.NotFound, "Tally-Tenant names no tenant of this deployment")
	if tenant.CheckID("Tally-Tenant", tenantHeader, tenant.MaxID) != nil {
		return Caller{}, missing
	}
	err := g.store.View(ctx, tenantHeader, func(v store.View) error {
		_, err := v.Tenant()
		return err
	})
	if problem.Is(err, problem.NotFound) {
		return Caller{}, missing
	}
	if err != nil {
		return Caller{}, err
	}
	c.Tenant = tenantHeader
	return c, nil
}

// claim is the key that a token says it is; zero when it has not the form of one.
type claim struct{ tenantID, keyID string }

// maxKeyName is far above the length of a key id's random part.
const maxKeyName = 64

// claimOf also refuses ids that cannot exist, so that no store is asked for arbitrary bytes.
func claimOf(token string) claim {
	tenantID, keyID, ok := tenant.SplitToken(token)
	if !ok {
		return claim{}
	}
	if tenantID != tenant.Operator && tenant.CheckID("", tenantID, tenant.MaxID) != nil {
		return claim{}
	}
	if tenant.CheckID("", keyID[len(tenantID)+1:], maxKeyName) != nil {
		return claim{}
	}
	return claim{tenantID, keyID}
}

// Record passes a request's facts to the store, in the caller's tenant. With a request key, a fact without an id takes
// "<key>#<index>", so that a retry of the request finds each of its facts recorded. Errors: Invalid (no tenant named),
// TenantClosed, TooLarge, and those of any store.
func (g *Gate) Record(ctx context.Context, c Caller, events []usage.Event, requestKey string) ([]usage.Verdict, error) {
	if c.Tenant == "" {
		return nil, problem.New(problem.Invalid, "the operator's key belongs to no tenant: name one with Tally-Tenant")
	}
	if requestKey != "" {
		for i := range events {
			if events[i].ID == "" {
				events[i].ID = requestKey + "#" + strconv.Itoa(i)
			}
		}
	}
	verdicts, err := g.store.Record(ctx, store.Batch{Tenant: c.Tenant, Events: events})
	if err == nil && g.observe != nil {
		g.observe(verdicts)
	}
	return verdicts, err
}
