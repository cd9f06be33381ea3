package webhook

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/outbound"
)

// known is a resolver of a few names.
type known map[string]string

func (k known) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if a, found := k[host]; found {
		return []netip.Addr{netip.MustParseAddr(a)}, nil
	}
	return nil, errors.New("lookup failed")
}

var names = known{"example.com": "93.184.216.34", "inside.example": "10.0.0.1", "six.example": "fd00:ec2::254"}

func TestURLs(t *testing.T) {
	check := outbound.New(outbound.Options{Resolver: names}).Check
	for raw, want := range map[string]string{
		"https://example.com":                       "https://example.com/",
		"HTTPS://Example.COM/Hook":                  "https://example.com/Hook",
		"http://example.com:8080/a/b?token=x%20y&z": "http://example.com:8080/a/b?token=x%20y&z",
		"https://example.com/a%2Fb/../c":            "https://example.com/a%2Fb/../c",
		"https://[2606:4700::1111]:443/":            "https://[2606:4700::1111]:443/",
		"https://1.1.1.1/hook":                      "https://1.1.1.1/hook",
		"https://example.com/@user:x":               "https://example.com/@user:x",
	} {
		if u, err := CheckURL(t.Context(), raw, check); err != nil || u.String() != want {
			t.Errorf("%s: %v, %v", raw, u, err)
		}
	}
	for _, c := range []struct{ urls, says string }{
		{"ftp://example.com gopher://example.com file:///etc/passwd javascript:alert(1) //example.com example.com " +
			"/path " +
			"unix:///run/x.sock ws://example.com httpss://example.com", "must begin with https:// or http://"},
		{"https: https:/example.com https:// https:///path https:example.com http://:80/ https://?x", "names no host"},
		{"https://user@example.com https://user:pw@example.com https://@example.com https://example.com@127.0.0.1/",
			"a user or password"},
		{"https://example.com/# https://example.com/#x https://example.com#@127.0.0.1/", "a fragment"},
		{"https://%31%32%37.0.0.1/ https://example%2ecom/ https://127%2e0.0.1/", ""},
		{"https://[::1%25lo]/ https://[fe80::1%25eth0]/", "a percent sign in its host"},
		{"https://example.com:0/ https://example.com:65536/ https://example.com:0443/", "a port"},
		{"https://example.com:/ https://[2606:4700::1111]:/", "a colon without a port"},
		{"https://example.com:http/ https://example.com:443:80/ https://::1/ https://[::1/ " +
			"https://example.com:-1/", ""},
		{"https://exam\\ple.com https://exämple.com https://example.com/ü https://①27.0.0.1/ " +
			"https://example.com/\x00 " +
			"https://example.com\\@127.0.0.1/", "a backslash"},
		{"http://127.0.0.1/ http://127.255.0.1:8080 http://[::1]/ http://localhost.:80/", ""},
		{"http://127.0.0.1/ http://[::1]:80/", "a loopback address"},
		{"http://169.254.169.254/latest/meta-data/ http://[fd00:ec2::254]/ http://six.example/", "a cloud's metadata"},
		{"http://inside.example/ http://10.0.0.1", "a private address"},
		{"http://2130706433/ http://0x7f.1/ http://0177.0.0.1/ http://127.1/ http://0x7f000001/ http://1.2.3/",
			"a number in an unusual form"},
		{"http://[::ffff:127.0.0.1]/ http://[::ffff:7f00:1]/", "an IPv4 address in IPv6 form"},
		{"http://[64:ff9b::7f00:1]/", "a loopback address"},
		{"http://[2002:7f00:1::]/", "6to4"},
		{"http://example.com./ http://127.0.0.1./", "ends in a dot"},
		{"http://nowhere.example/", "could not be looked up"},
		{"https://example.com/" + strings.Repeat("a", maxURL), "longer than 2048"},
	} {
		for _, raw := range strings.Split(c.urls, " ") {
			u, err := CheckURL(t.Context(), raw, check)
			var p *problem.Error
			switch {
			case !errors.As(err, &p):
				t.Errorf("%s: %v, %v", raw, u, err)
			case p.Code != problem.Invalid || len(p.Fields) != 1 || p.Fields[0].Path != "url":
				t.Errorf("%s: %+v", raw, p)
			case !strings.Contains(p.Detail, c.says):
				t.Errorf("%s: %s, want %q", raw, p.Detail, c.says)
			}
		}
	}
	if _, err := New(options(0)).Carrier(Target{URL: "http://user@example.com/"}); !problem.Is(err, problem.Invalid) {
		t.Errorf("a carrier takes what is refused at creation: %v", err)
	}
}

// A URL that is taken is the same to whoever reads it again, and its host is the one that was judged.
func FuzzURL(f *testing.F) {
	for _, raw := range []string{"https://example.com/a?b", "http://[::1]:80/", "http://a@b", "http://127.1",
		"https://a%2f",
		"http://a:80:90", "HTTP://A.b", "http://a/%zz", "http://a\\b", "http:////a"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		judged := ""
		u, err := CheckURL(context.Background(), raw, func(_ context.Context, host string) error {
			judged = host
			return nil
		})
		if err != nil {
			return
		}
		again, err := url.Parse(u.String())
		if err != nil || again.Host != u.Host || again.String() != u.String() || again.Hostname() != judged {
			t.Fatalf("%q is kept as %q (%v), judged as %q", raw, u, err, judged)
		}
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, u.String(), http.NoBody)
		if err != nil || r.URL.Hostname() != judged || r.URL.User != nil || r.URL.Fragment != "" {
			t.Fatalf("%q is sent to %v (%v)", raw, r, err)
		}
	})
}
