// Package gate is the way in, the same for every source: it judges who is calling, what for and how much, in one fixed
// order, and passes facts to the store, which goes on in the same order.
//
//	Enter         who is calling (401), what they may do (403), the page it comes from (403), how many requests (429)
//	TakeBytes     how many bytes (429), before anybody looks into them
//	Record        who may correct (403), how many events (429), then the store: validate, idempotency, lateness,
//	              quota, commit
//
// The first refusal is the answer, and what would have come after it is not touched.
//
// What the gate answers to a bad token is the same for every kind of badness, so that nobody learns from it which
// tenants and keys exist. It keeps no cache of keys: a revoked key stops as soon as the store shows it (see Access
// there).
package gate

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/fairness"
	"github.com/tallystick/tallystick/internal/service/limit"
	"github.com/tallystick/tallystick/internal/store"
)

// Caller is who presented a token, and the tenant that they act on.
type Caller struct {
	Tenant   string // empty only for the operator who named none
	KeyID    string // empty for the operator's root key
	Operator bool
	Scopes   tenant.Scope
	Rate     limit.Rate // of the key; zero: it has no limit of its own
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
	// Now decides when keys expire. Default: time.Now.
	Now func() time.Time
	// Limiter keeps the buckets of rate limits. Default: nothing is limited.
	Limiter *limit.Limiter
	// TenantRate is what all keys of a tenant may send together, and KeyRate what a key may send that has no limit of
	// its own. The operator is not limited. Default: no limit.
	TenantRate, KeyRate limit.Rate
	// Observe gets the verdicts of every batch that was judged. Default: nothing is called.
	Observe func([]usage.Verdict)
	// Waited gets how long a large batch waited for its turn. Default: nothing is called.
	Waited func(time.Duration)
}

// Gate lets callers in and records their facts. It is safe for concurrent use.
type Gate struct {
	store      store.Store
	now        func() time.Time
	observe    func([]usage.Verdict)
	limiter    *limit.Limiter
	tenantRate limit.Rate
	keyRate    limit.Rate
	origins    origins
	turns      fairness.Turns
	hasRoot    bool
	rootHash   [sha256.Size]byte
	rootClaim  claim
}

// New opens a gate to the store.
func New(s store.Store, o Options) *Gate {
	g := &Gate{store: s, now: o.Now, observe: o.Observe, limiter: o.Limiter, tenantRate: o.TenantRate,
		keyRate: o.KeyRate}
	g.turns.Waited = o.Waited
	if g.now == nil {
		g.now = time.Now
	}
	if g.limiter == nil {
		g.limiter = limit.New(limit.Options{Now: g.now})
	}
	if o.RootKey != "" {
		g.hasRoot, g.rootHash, g.rootClaim = true, tenant.HashToken(o.RootKey), claimOf(o.RootKey)
	}
	return g
}

// errBadKey is the one answer to every token that admits nobody.
var errBadKey = problem.New(problem.Unauthorized, "no valid API key: send Authorization: Bearer tk_…")

// authenticate says who presents the token, and the tenant that they act on; named is the tenant that they name, empty
// for none. It costs one hash and one look at the store. Errors: Unauthorized (no key, or a bad, expired or revoked
// one), NotFound (the operator named a tenant that is not there), Forbidden (a tenant's key named another tenant,
// whether it exists or not).
func (g *Gate) authenticate(ctx context.Context, token, named string) (Caller, tenant.Tenant, error) {
	c := claimOf(token)
	if g.isRoot(token, c) {
		return g.operator(ctx, Caller{Operator: true, Scopes: tenant.Admin}, named)
	}
	if c.keyID == "" || g.hasRoot && c.tenantID == tenant.Operator {
		return Caller{}, tenant.Tenant{}, errBadKey
	}
	access, err := g.store.Access(ctx, c.tenantID, c.keyID)
	key := access.Key
	if err != nil && !problem.Is(err, problem.NotFound) {
		return Caller{}, tenant.Tenant{}, err
	}
	// An unknown key is compared too, with the hash of no token: the answer takes as long as for a wrong secret.
	if !key.Admits(token, calendar.FromTime(g.now())) || err != nil {
		return Caller{}, tenant.Tenant{}, errBadKey
	}
	if c.tenantID == tenant.Operator {
		return g.operator(ctx, Caller{KeyID: key.ID, Operator: true, Scopes: key.Scopes}, named)
	}
	if named != "" && named != c.tenantID {
		return Caller{}, tenant.Tenant{}, problem.New(problem.Forbidden,
			"this API key speaks for one tenant, and Tally-Tenant names another: leave the header out")
	}
	return Caller{Tenant: c.tenantID, KeyID: key.ID, Scopes: key.Scopes, Rate: rateOf(key.RateLimit)},
		access.Tenant, nil
}

func rateOf(r tenant.RateLimit) limit.Rate {
	return limit.Rate{Requests: r.RequestsPerSecond, Events: r.EventsPerSecond, Bytes: r.BytesPerSecond}
}

// isRoot compares hashes in constant time. Only a token that claims to be what the root key claims to be is hashed
// here, so that everyone else's is hashed once; what a token claims is no secret.
func (g *Gate) isRoot(token string, c claim) bool {
	if !g.hasRoot || token == "" || c != g.rootClaim {
		return false
	}
	h := tenant.HashToken(token)
	return subtle.ConstantTimeCompare(h[:], g.rootHash[:]) == 1
}

// operator adds the tenant that the operator named.
func (g *Gate) operator(ctx context.Context, c Caller, named string) (_ Caller, of tenant.Tenant, err error) {
	if named == "" {
		return c, of, nil
	}
	missing := problem.New(problem.NotFound, "Tally-Tenant names no tenant of this deployment")
	if tenant.CheckID("Tally-Tenant", named, tenant.MaxID) != nil {
		return Caller{}, of, missing
	}
	err = g.store.View(ctx, named, func(v store.View) (err error) {
		of, err = store.Tenant(v)
		return err
	})
	if problem.Is(err, problem.NotFound) {
		return Caller{}, of, missing
	}
	if err != nil {
		return Caller{}, of, err
	}
	c.Tenant = named
	return c, of, nil
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
