package tenant

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/calendar"
)

func micros(n int) calendar.Micros { return calendar.Micros(n) }

// ids draws every kind of legal tenant id, above all those that contain what a token is split at.
func ids() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_.-]{0,62}`),
		rapid.StringMatching(`[a-z0-9][_.-]{0,62}`),
		rapid.StringMatching(`tk_[a-f0-9]{20}_[a-f0-9]{20}`),
	)
}

func TestTokenForm(t *testing.T) {
	id := NewKeyID("acme", [10]byte{0xab, 9: 0xcd})
	if id != "acme.ab0000000000000000cd" {
		t.Errorf("key id %q", id)
	}
	want := "tk_" + id + "_" + "01" + strings.Repeat("0", 60) + "ff"
	if got := Token(id, [32]byte{1, 31: 0xff}); got != want {
		t.Errorf("token %q, want %q", got, want)
	}
}

func TestTokenRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ids().Draw(t, "tenant")
		if p := CheckID("id", id, MaxID); p != nil {
			t.Fatalf("%q is no legal id: %v", id, p)
		}
		var random [10]byte
		var secret [32]byte
		copy(random[:], rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, "random"))
		copy(secret[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "secret"))
		keyID := NewKeyID(id, random)
		gotTenant, gotKey, ok := SplitToken(Token(keyID, secret))
		if !ok || gotTenant != id || gotKey != keyID {
			t.Fatalf("tenant %q, key %q came back as %q, %q, %v", id, keyID, gotTenant, gotKey, ok)
		}
	})
}

func TestTheOperatorHasATokenToo(t *testing.T) {
	keyID := NewKeyID(Operator, [10]byte{7})
	if id, k, ok := SplitToken(Token(keyID, [32]byte{})); !ok || id != Operator || k != keyID {
		t.Errorf("%q, %q, %v", id, k, ok)
	}
}

func TestSplitTokenRefuses(t *testing.T) {
	secret := strings.Repeat("0", 64)
	for _, bad := range []string{
		"", "tk_", "tk", "acme", "tk_acme.ab", "tk__" + secret, "tk_acme_" + secret, "tk_.ab_" + secret,
		"tk_acme.ab_" + secret[1:], "tk_acme.ab_" + secret + "0", "TK_acme.ab_" + secret, " tk_acme.ab_" + secret,
		"Bearer tk_acme.ab_" + secret, "tk_acme.ab" + secret, "tk_" + strings.Repeat("a", 1000) + ".ab_" + secret,
	} {
		if id, k, ok := SplitToken(bad); ok || id != "" || k != "" {
			t.Errorf("%q was split into %q, %q", bad, id, k)
		}
	}
}

// A token comes from anyone. Whatever it is, splitting it never panics, and what it yields are parts of it.
func FuzzSplitToken(f *testing.F) {
	f.Add("tk_acme.ab_" + strings.Repeat("0", 64))
	f.Add("tk_" + strings.Repeat("_", 66))
	f.Add("tk_a.b.c_d_" + strings.Repeat("f", 64))
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		id, key, ok := SplitToken(token)
		if !ok {
			if id != "" || key != "" {
				t.Fatalf("refused, but yields %q, %q", id, key)
			}
			return
		}
		random, named := strings.CutPrefix(key, id+".")
		secret, framed := strings.CutPrefix(token, tokenPrefix+key+"_")
		if id == "" || !named || strings.Contains(random, ".") || !framed || len(secret) != 64 {
			t.Fatalf("%q was split into %q, %q", token, id, key)
		}
	})
}
