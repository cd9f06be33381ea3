package tenant

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// at is the path of the one field that a refusal points at, or "" when there is no refusal.
func at(t *testing.T, p *problem.Error) string {
	t.Helper()
	if p == nil {
		return ""
	}
	if p.Code != problem.Invalid || len(p.Fields) != 1 || p.Fields[0].Message == "" {
		t.Fatalf("want one invalid field with a message, have %+v", p)
	}
	return p.Fields[0].Path
}

func TestCheckID(t *testing.T) {
	good := []string{"a", "Z", "0", "acme", "acme-corp.eu_1", "a.", "a_", "a-", "a..b", strings.Repeat("x", MaxID)}
	bad := []string{"", "_a", "-a", ".a", "..", Operator, "a b", "a/b", "a\x00", "a\n", "ä", "aä", "a%2f", "a:b",
		strings.Repeat("x", MaxID+1)}
	for _, id := range good {
		if p := CheckID("slug", id, MaxID); p != nil {
			t.Errorf("%q: %v", id, p)
		}
	}
	for _, id := range bad {
		if got := at(t, CheckID("slug", id, MaxID)); got != "slug" {
			t.Errorf("%q was not refused at its path", id)
		}
	}
}

func TestTenantCheck(t *testing.T) {
	for _, c := range []struct {
		name string
		give Tenant
		want string
	}{
		{"the least", Tenant{ID: "acme"}, ""},
		{"no id", Tenant{}, "id"},
		{"the operator's own", Tenant{ID: Operator}, "id"},
		{"longest name", Tenant{ID: "a", Name: strings.Repeat("n", MaxName)}, ""},
		{"name too long", Tenant{ID: "a", Name: strings.Repeat("n", MaxName+1)}, "name"},
		{"most origins", Tenant{ID: "a", AllowedOrigins: origins(MaxOrigins)}, ""},
		{"too many origins", Tenant{ID: "a", AllowedOrigins: origins(MaxOrigins + 1)}, "allowed_origins"},
		{"one bad origin among good ones", Tenant{ID: "a", AllowedOrigins: append(origins(2), "app.example.com")},
			"allowed_origins"},
	} {
		if got := at(t, c.give.Check()); got != c.want {
			t.Errorf("%s: refused at %q, want %q", c.name, got, c.want)
		}
	}
	// What can change is judged without the id.
	if p := (&Tenant{Name: "Acme"}).CheckDetails(); p != nil {
		t.Error(p)
	}
}

func origins(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "https://app.example.com"
	}
	return out
}

func TestParseScopes(t *testing.T) {
	for _, c := range []struct {
		give []string
		want Scope
	}{
		{[]string{"ingest"}, Ingest}, {[]string{"read"}, Read}, {[]string{"audit"}, Audit},
		{[]string{"billing"}, Billing}, {[]string{"admin"}, Admin},
		{[]string{"billing", "ingest"}, Ingest | Billing},
		{[]string{"admin", "billing", "audit", "read", "ingest"}, Ingest | Read | Audit | Billing | Admin},
	} {
		if got, p := ParseScopes(c.give); p != nil || got != c.want {
			t.Errorf("%q: %b, %v", c.give, got, p)
		}
	}
	for _, bad := range [][]string{nil, {}, {""}, {"write"}, {"Ingest"}, {"ingest "}, {"ingest", "nothing"},
		{"read", "read"}} {
		if got, p := ParseScopes(bad); got != 0 || at(t, p) != "scopes" {
			t.Errorf("%q was read as %b", bad, got)
		}
	}
}

func TestScopeNamesAreInFixedOrder(t *testing.T) {
	for s := Scope(1); s < 1<<5; s++ {
		back, p := ParseScopes(s.Names())
		if p != nil || back != s {
			t.Errorf("%b is named %q and read as %b, %v", s, s.Names(), back, p)
		}
	}
	all, _ := ParseScopes([]string{"admin", "ingest", "billing", "read", "audit"})
	if d := cmp.Diff([]string{"ingest", "read", "audit", "billing", "admin"}, all.Names()); d != "" {
		t.Error(d)
	}
}

func TestAllows(t *testing.T) {
	each := []Scope{Ingest, Read, Audit, Billing, Admin}
	for _, have := range each {
		for _, need := range each {
			if got, want := have.Allows(need), have == need || have == Admin; got != want {
				t.Errorf("%q allows %q: %v", have.Names(), need.Names(), got)
			}
		}
	}
	if (Ingest | Audit).Allows(Ingest | Read) {
		t.Error("half of what is needed is not enough")
	}
	if !(Ingest | Read | Audit).Allows(Ingest | Read) {
		t.Error("more than what is needed is enough")
	}
}

func TestAPIKeyCheck(t *testing.T) {
	const now = 1000
	for _, c := range []struct {
		name string
		give APIKey
		want string
	}{
		{"never expires", APIKey{}, ""},
		{"expires next", APIKey{ExpiresAt: now + 1}, ""},
		{"expires now", APIKey{ExpiresAt: now}, "expires_at"},
		{"expired", APIKey{ExpiresAt: now - 1}, "expires_at"},
		{"longest name", APIKey{Name: strings.Repeat("n", MaxName)}, ""},
		{"name too long", APIKey{Name: strings.Repeat("n", MaxName+1)}, "name"},
		{"limited", APIKey{RateLimit: RateLimit{1, 2, 3}}, ""},
		{"negative requests", APIKey{RateLimit: RateLimit{RequestsPerSecond: -1}}, "rate_limit"},
		{"negative events", APIKey{RateLimit: RateLimit{EventsPerSecond: -1}}, "rate_limit"},
		{"negative bytes", APIKey{RateLimit: RateLimit{BytesPerSecond: -1}}, "rate_limit"},
	} {
		if got := at(t, c.give.Check(now)); got != c.want {
			t.Errorf("%s: refused at %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAdmits(t *testing.T) {
	token := Token(NewKeyID("acme", [10]byte{1}), [32]byte{2})
	wrongSecret := Token(NewKeyID("acme", [10]byte{1}), [32]byte{3})
	otherKey := Token(NewKeyID("acme", [10]byte{4}), [32]byte{2})
	otherTenant := Token(NewKeyID("acne", [10]byte{1}), [32]byte{2})
	const now = 1000
	for _, c := range []struct {
		name             string
		token            string
		expires, revoked int
		want             bool
	}{
		{"in force", token, 0, 0, true},
		{"wrong secret", wrongSecret, 0, 0, false},
		{"the secret under another id", otherKey, 0, 0, false},
		{"the secret under another tenant", otherTenant, 0, 0, false},
		{"nothing", "", 0, 0, false},
		{"cut short", token[:len(token)-1], 0, 0, false},
		{"in upper case", strings.ToUpper(token), 0, 0, false},
		{"last moment", token, now + 1, 0, true},
		{"expires now", token, now, 0, false},
		{"expired", token, now - 1, 0, false},
		{"revoked", token, 0, now, false},
		{"revoked before it would expire", token, now + 1, 1, false},
		{"wrong secret of an expired key", wrongSecret, now - 1, 0, false},
	} {
		k := APIKey{Hash: HashToken(token), ExpiresAt: micros(c.expires), RevokedAt: micros(c.revoked)}
		if got := k.Admits(c.token, now); got != c.want {
			t.Errorf("%s: admitted %v, want %v", c.name, got, c.want)
		}
	}
	if (&APIKey{}).Admits("", now) {
		t.Error("a key without a hash admits the empty token")
	}
}
