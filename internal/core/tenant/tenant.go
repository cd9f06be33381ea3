// Package tenant holds the rules of tenants and of the API keys that speak for them: ids, scopes, secrets, expiry.
// It never sees a secret after its hash was taken, and it draws no randomness itself.
package tenant

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tree"
)

// Operator is the reserved tenant of the deployment itself. Its ledger holds the operator's key and what the
// operator changed for all tenants. No caller can create, name or read it: ids start with a letter or a digit.
const Operator = "_operator"

// Bounds of what describes a tenant.
const (
	MaxID      = 63
	MaxName    = 200
	MaxOrigins = 100
	MaxKeys    = 1000 // API keys a tenant may have at once, revoked ones not counted
	MaxMeters  = 1000
)

// Tenant is one wall-to-wall separated customer of the deployment.
type Tenant struct {
	ID             string
	Name           string
	AllowedOrigins []string
	Salt           [32]byte   // of derived keys; never changes, never shown
	TreeKeys       []tree.Key // of the ledger's tree; never shown
	Epochs         []Epoch    // after the first
	Closed         bool       // refuses writes, stays readable
	CreatedAt      calendar.Micros
	ClosedAt       calendar.Micros
	MovedTo        string // the store that the ledger was moved to; "": it is kept here
	MovedAt        calendar.Micros
}

// CheckKeptHere refuses every write to a ledger that was moved to another store: one more row here would be missing
// there. Errors: Moved.
func (t *Tenant) CheckKeptHere() error {
	if t == nil || t.MovedTo == "" {
		return nil
	}
	return problem.New(problem.Moved, "the ledger of %s was moved to %s at %s: send writes there; this copy is only "+
		"read",
		t.ID, t.MovedTo, t.MovedAt)
}

// Check judges what a caller chose.
func (t *Tenant) Check() *problem.Error {
	if p := CheckID("id", t.ID, MaxID); p != nil {
		return p
	}
	return t.CheckDetails()
}

// CheckDetails judges the parts that can change.
func (t *Tenant) CheckDetails() *problem.Error {
	if p := CheckName("name", t.Name, MaxName); p != nil {
		return p
	}
	if len(t.AllowedOrigins) > MaxOrigins {
		return problem.At("allowed_origins", "at most %d origins", MaxOrigins)
	}
	for _, o := range t.AllowedOrigins {
		if !validOrigin(o) {
			return problem.At("allowed_origins", "%q is not an origin like https://app.example.com", o)
		}
	}
	return nil
}

// CheckID accepts 1 to limit letters, digits, '_', '-' and '.', starting with a letter or digit: safe in a path, a file
// and a key.
func CheckID(path, id string, limit int) *problem.Error {
	if id == "" {
		return problem.At(path, "required")
	}
	if len(id) > limit {
		return problem.At(path, "at most %d characters", limit)
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if alnum || i > 0 && (c == '_' || c == '-' || c == '.') {
			continue
		}
		return problem.At(path, "letters, digits, '_', '-' and '.' only, starting with a letter or digit")
	}
	return nil
}

// CheckName accepts up to limit bytes of UTF-8 without NUL, which SQL text cannot hold.
func CheckName(path, name string, limit int) *problem.Error {
	if len(name) > limit || !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0 {
		return problem.At(path, "at most %d bytes of UTF-8 without NUL", limit)
	}
	return nil
}

// Scope is one right of an API key.
type Scope uint8

// The scopes. Admin includes all others.
const (
	Ingest Scope = 1 << iota
	Read
	Audit
	Billing
	Admin
)

var scopeNames = []struct {
	scope Scope
	name  string
}{{Ingest, "ingest"}, {Read, "read"}, {Audit, "audit"}, {Billing, "billing"}, {Admin, "admin"}}

// ParseScopes reads scope names; an unknown or repeated one is refused.
func ParseScopes(names []string) (Scope, *problem.Error) {
	var all Scope
	for _, n := range names {
		one := Scope(0)
		for _, s := range scopeNames {
			if s.name == n {
				one = s.scope
			}
		}
		if one == 0 {
			return 0, problem.At("scopes", "%q is not one of ingest, read, audit, billing, admin", n)
		}
		if all&one != 0 {
			return 0, problem.At("scopes", "%q stands twice", n)
		}
		all |= one
	}
	if all == 0 {
		return 0, problem.At("scopes", "at least one of ingest, read, audit, billing, admin")
	}
	return all, nil
}

// Names lists the scopes in their fixed order.
func (s Scope) Names() []string {
	var out []string
	for _, n := range scopeNames {
		if s&n.scope != 0 {
			out = append(out, n.name)
		}
	}
	return out
}

// Allows reports whether the scopes include what is needed.
func (s Scope) Allows(need Scope) bool { return s&Admin != 0 || s&need == need }

// RateLimit bounds what one key may send; zero fields are unlimited.
type RateLimit struct {
	RequestsPerSecond int64
	EventsPerSecond   int64
	BytesPerSecond    int64
}

// APIKey is what the ledger keeps of a key: never the secret.
type APIKey struct {
	ID        string // "<tenant>.<random>"
	Name      string
	Scopes    Scope
	Hash      [sha256.Size]byte // of the whole token
	RateLimit RateLimit
	CreatedAt calendar.Micros
	ExpiresAt calendar.Micros // zero: never
	RevokedAt calendar.Micros // zero: in force
}

// Check judges what a caller chose.
func (k *APIKey) Check(now calendar.Micros) *problem.Error {
	if p := CheckName("name", k.Name, MaxName); p != nil {
		return p
	}
	if k.ExpiresAt != 0 && k.ExpiresAt <= now {
		return problem.At("expires_at", "must lie in the future")
	}
	if k.RateLimit.RequestsPerSecond < 0 || k.RateLimit.EventsPerSecond < 0 || k.RateLimit.BytesPerSecond < 0 {
		return problem.At("rate_limit", "must not be negative")
	}
	return nil
}

// Admits reports whether the token is this key's and the key is in force. The comparison takes constant time.
func (k *APIKey) Admits(token string, now calendar.Micros) bool {
	h := HashToken(token)
	same := subtle.ConstantTimeCompare(h[:], k.Hash[:]) == 1
	return same && k.RevokedAt == 0 && (k.ExpiresAt == 0 || now < k.ExpiresAt)
}

const tokenPrefix = "tk_"

// HashToken is what is stored of a token.
func HashToken(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// NewKeyID names a key of a tenant; the random part keeps ids unique.
func NewKeyID(tenantID string, random [10]byte) string {
	return tenantID + "." + hex.EncodeToString(random[:])
}

// Token is the string a caller presents: tk_<id>_<secret>.
func Token(keyID string, secret [32]byte) string {
	return tokenPrefix + keyID + "_" + hex.EncodeToString(secret[:])
}

// SplitToken returns the key id and the tenant that a token claims. It proves nothing.
func SplitToken(token string) (tenantID, keyID string, ok bool) {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || len(rest) > MaxID+100 {
		return "", "", false
	}
	end := strings.LastIndexByte(rest, '_')
	if end <= 0 || len(rest)-end-1 != 64 {
		return "", "", false
	}
	keyID = rest[:end]
	dot := strings.LastIndexByte(keyID, '.')
	if dot <= 0 {
		return "", "", false
	}
	return keyID[:dot], keyID, true
}
