package tenant

import (
	"strings"
	"testing"
)

func TestOrigins(t *testing.T) {
	good := []string{
		"https://app.example.com", "http://localhost:3000", "https://example.com:8443", "http://127.0.0.1",
		"https://[::1]:8080", "https://[2001:db8::1]",
		"https://xn--bcher-kva.example", "http://my_host", "http://example.com:443", "https://example.com:65535",
	}
	bad := []string{
		"", "null", "*", "https://", "http://", "app.example.com", "//app.example.com", "ftp://example.com",
		"https:example.com",
		"https://*.example.com", "https://example.com/", "https://example.com/path", "https://example.com?q",
		"https://example.com#f",
		"https://user@example.com", "https://Example.com", "HTTPS://example.com", "https://a b", "https://a\n",
		`https://a"b`, `https://a\b`,
		"https://bücher.example", "https://a..b", "https://.a", "https://a,https://b", "https://a\x00",
		"https://example.com:443", "http://example.com:80", "https://example.com:", "https://:8080", "https://a:0",
		"https://a:65536", "https://a:08080", "https://a:+1", "https://a:x",
		"https://[::1", "https://::1", "https://[127.0.0.1]", "https://[0:0::1]", "https://[::1]x", "https://[]",
		"https://" + strings.Repeat("a", 300),
	}
	for _, o := range good {
		if p := (&Tenant{ID: "a", AllowedOrigins: []string{o}}).Check(); p != nil {
			t.Errorf("%q: %v", o, p)
		}
	}
	for _, o := range bad {
		if got := at(t, (&Tenant{ID: "a", AllowedOrigins: []string{o}}).Check()); got != "allowed_origins" {
			t.Errorf("%q was taken for an origin", o)
		}
	}
}

func TestAllowsOrigin(t *testing.T) {
	acme := Tenant{AllowedOrigins: []string{"https://app.example.com", "http://localhost:3000"}}
	for origin, want := range map[string]bool{
		"https://app.example.com": true, "http://localhost:3000": true, "HTTPS://App.Example.com": true,
		"": false, "null": false, "http://app.example.com": false, "https://app.example.com:8443": false,
		"https://example.com":               false,
		"https://app.example.com.evil.test": false, "https://evil.test/https://app.example.com": false,
		"http://localhost": false,
		"https://app.example.com,http://localhost:3000": false, "https://app.example.com ": false,
	} {
		if acme.AllowsOrigin(origin) != want {
			t.Errorf("%q allowed: %v", origin, !want)
		}
	}
	if (&Tenant{}).AllowsOrigin("https://app.example.com") {
		t.Error("who allows none allows one")
	}
}
