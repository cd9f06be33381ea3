package outbound

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func words(text string) []string { return strings.Fields(text) }

func TestHostsAreWrittenInOneForm(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, c := range []struct{ hosts, says string }{
		{"2130706433 0x7f000001 0X7F000001 017700000001 127.1 127.0.1 0177.0.0.1 0177.1 0x7f.1 0x7f.0.0.1 " +
			"127.0.0.0x1 " +
			"127.0.0.01 00.0.0.0 1.2.3 1.2.3.4.5 256.1.1.1 1.2.3.256 example.0x7f example.1 0x 0 1 08.8.8.8 " +
			"8.8.8.08 4294967295 99999999999999999999 0x.0x.0x.0x", "a number in an unusual form"},
		{"127.0.0.1. example.com. localhost.", "ends in a dot"},
		{"example..com .example.com a.. .", "an empty part"},
		{"127%2e0.0.1 %31%32%37.0.0.1 example%00.com 127.0.0.1%25", "a percent sign"},
		{"fe80::1%eth0 ::1%25lo fe80::1%25", "a zone or a percent sign"},
		{"１２７.0.0.1 ①②⑦.⓪.⓪.① ٠.0.0.1 exämple.com ｅxample.com 127。0。0。1 127．0．0．1 ⅼocalhost",
			"beyond ASCII"},
		{"::ffff:127.0.0.1 ::ffff:7f00:1 ::FFFF:8.8.8.8 0:0:0:0:0:ffff:7f00:1", "an IPv4 address in IPv6 form"},
		{"0:0:0:0:0:0:0:1 0::1 2001:0db8::1 2606:4700:0:0:0:0:0:1111 64:ff9b::8.8.8.8 ::127.0.0.1",
			"an IPv6 address in an unusual form"},
		{"::: 1:2 example.com:80 12345::1 ::g [::1]:80", "no IPv6 address"},
		{"exa$mple.com exam/ple.com exam@ple.com exa\\mple [1] a,b a*b (a) a'b exa\x7fmple exa\x00mple",
			"a character that no name has"},
		{"-a.com a-.com a.-b", "a hyphen"},
		{long + ".com", "longer than 63"},
		{strings.Repeat("abcdefghi.", 26), "longer than 253"},
	} {
		for _, host := range words(c.hosts) {
			switch a, err := parseHost(host); {
			case err == nil:
				t.Errorf("%q is taken as %v", host, a)
			case !strings.Contains(err.Error(), c.says):
				t.Errorf("%q: %v; want %q", host, err, c.says)
			}
		}
	}
	if _, err := parseHost(""); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("no host: %v", err)
	}
	for _, host := range words("127.0.0.1 8.8.8.8 255.255.255.255 0.0.0.0 ::1 2606:4700::1111 2606:4700::ABCD " +
		"fe80::1") {
		if a, err := parseHost(host); err != nil || a != netip.MustParseAddr(host) {
			t.Errorf("%q: %v, %v", host, a, err)
		}
	}
	for _, host := range words("localhost example.com Example.COM a_b.internal xn--exmple-cua.com 1.example " +
		"0x7f.example " +
		"127.0.0.1.nip.io 1a 0xg a.b.c.d " + long[:63] + ".com") {
		if a, err := parseHost(host); err != nil || a.IsValid() {
			t.Errorf("%q: %v, %v", host, a, err)
		}
	}
}

// A host is either exactly one address in its one form, or a name that nobody takes for a number.
func FuzzHost(f *testing.F) {
	for _, host := range words("127.0.0.1 0x7f.1 ::1 ::ffff:1.2.3.4 example.com a.b. １.1.1.1 fe80::1%lo %31") {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		a, err := parseHost(host)
		if err != nil {
			return
		}
		if a.IsValid() {
			if a.String() != strings.ToLower(host) || a.Zone() != "" || a.Is4In6() {
				t.Errorf("%q is taken as %s", host, a)
			}
			return
		}
		if _, err := netip.ParseAddr(host); err == nil {
			t.Errorf("the address %q is taken as a name", host)
		}
		u, err := url.Parse("http://" + host + ":80/")
		if err != nil || u.Hostname() != host {
			t.Errorf("%q is another host in a URL: %v, %v", host, u, err)
		}
	})
}
