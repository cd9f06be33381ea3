package outbound

import (
	"net/netip"
	"testing"
)

// Every range by its first and last address, and the neighbors on both sides, which belong to somebody else.
func TestAddressesHaveAClass(t *testing.T) {
	for _, c := range []struct{ what, addresses string }{
		{"an unspecified address", "0.0.0.0 0.0.0.1 0.255.255.255 :: ::ffff:0.0.0.0"},
		{"a loopback address", "127.0.0.0 127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 64:ff9b::127.0.0.1"},
		{"a private address", "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 " +
			"::ffff:10.0.0.1 64:ff9b::192.168.1.1 64:ff9b:1::1 64:ff9b:1:ffff::8.8.8.8 2a00::5efe:10.0.0.1 " +
			"2a00::200:5efe:172.16.0.1"},
		{"a cloud's metadata address", "169.254.169.254 ::ffff:169.254.169.254 64:ff9b::169.254.169.254 " +
			"169.254.170.2 169.254.170.23 100.100.100.200 168.63.129.16 192.0.0.192 fd00:ec2::254 fd00:ec2::23 " +
			"fd20:ce::254 " +
			"2a00::5efe:169.254.169.254"},
		{"a link-local address", "169.254.0.0 169.254.169.253 169.254.169.255 169.254.255.255 fe80:: fe80::1 " +
			"febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff ::ffff:169.254.1.1"},
		{"an address shared behind a carrier's NAT", "100.64.0.0 100.127.255.255 ::ffff:100.64.0.1"},
		{"a reserved address", "192.0.0.0 192.0.0.1 192.0.0.255 192.88.99.1 240.0.0.0 255.255.255.254 100::1 " +
			"2001:1::1 2001:4:112::1 2001:10::1 2001:20::1 2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff 4000::1 5f00::1 " +
			"200::1 400::1 64:ff9c::1 e000::1 1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff fe00::1 fe7f::1 ::1:0:0:0"},
		{"an address for documentation", "192.0.2.0 192.0.2.255 " +
			"198.51.100.7 203.0.113.7 2001:db8::1 3fff::1 3fff:fff::1"},
		{"an address for benchmarks", "198.18.0.0 198.19.255.255 2001:2::1 64:ff9b::198.18.0.1"},
		{"a multicast address", "224.0.0.0 239.255.255.255 ff00:: ff02::1 ::ffff:224.0.0.1"},
		{"a unique local address", "fc00:: fd00:ec2::253 fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{"a site-local address", "fec0::1 feff::1"},
		{"an IPv4 address in an obsolete form", "::2 ::127.0.0.1 ::8.8.8.8 ::ffff:ffff"},
		{"an IPv4 address in translated form", "::ffff:0:127.0.0.1 ::ffff:0:8.8.8.8"},
		{"an IPv4 address in a tunnel (6to4)", "2002:: 2002:7f00:1:: 2002:a9fe:a9fe::1 2002:808:808::"},
		{"an IPv4 address in a tunnel (Teredo)", "2001:: 2001:0:7f00:1::1 2001:0:4136:e378:8000:63bf:3fff:fdd2"},
		{"an address with a zone", "fe80::1%eth0 2a00::1%eth0 ::1%lo"},
		{"", "1.0.0.0 1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 " +
			"169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0 192.88.98.255 " +
			"192.88.100.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 " +
			"203.0.112.255 203.0.114.0 223.255.255.255 168.63.129.15 168.63.129.17 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 " +
			"2000::1 " +
			"2001:200::1 2001:db7::1 2001:db9::1 2003::1 2606:4700::1111 3ffe::1 3fff:1000::1 2a00::5efe:8.8.8.8"},
	} {
		for _, text := range words(c.addresses) {
			if got := classify(netip.MustParseAddr(text)).what; got != c.what {
				t.Errorf("%s is %q, want %q", text, got, c.what)
			}
		}
	}
	if got := classify(netip.MustParseAddr("255.255.255.255")); got.what == "" || !got.never {
		t.Errorf("the broadcast address is %+v", got)
	}
	if classify(netip.Addr{}) == public {
		t.Error("no address at all is public")
	}
}

// The standard library's words for addresses and ours must never disagree on the dangerous side, and an IPv4 address
// is the same in whatever form it comes.
func FuzzClassify(f *testing.F) {
	for _, text := range words("127.0.0.1 ::1 10.1.2.3 169.254.169.254 fd00:ec2::254 64:ff9b::7f00:1 2002:7f00:1:: " +
		"2a00::5efe:10.0.0.1 8.8.8.8 2606:4700::1111 ff02::1") {
		b := netip.MustParseAddr(text).As16()
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 16 {
			return
		}
		a := netip.AddrFrom16([16]byte(b[:16]))
		if classify(a) == public {
			plain := a.Unmap()
			if plain.IsPrivate() || plain.IsLoopback() || plain.IsMulticast() || plain.IsUnspecified() ||
				plain.IsLinkLocalUnicast() || plain.IsInterfaceLocalMulticast() || !plain.IsGlobalUnicast() {
				t.Errorf("%s is public", a)
			}
			if plain.Is6() && !global6.Contains(plain) && !nat64.Contains(plain) {
				t.Errorf("%s is public and outside of what IANA gave out", a)
			}
		}
		four := netip.AddrFrom4([4]byte(b[:4]))
		want := classify(four)
		translated := nat64.Addr().As16()
		copy(translated[12:], b[:4])
		for _, form := range []netip.Addr{netip.AddrFrom16(four.As16()), netip.AddrFrom16(translated)} {
			if got := classify(form); got != want {
				t.Errorf("%s is %+v, but %s is %+v", form, got, four, want)
			}
		}
		for _, prefix := range [][]byte{{0x20, 0x02}, {}} { // 6to4 and IPv4-compatible: refused whatever they hold
			var in [16]byte
			copy(in[copy(in[:], prefix):], b[:4])
			if len(prefix) == 0 {
				in = [16]byte{}
				copy(in[12:], b[:4])
			}
			if a := netip.AddrFrom16(in); classify(a) == public {
				t.Errorf("%s is public", a)
			}
		}
		if classify(a.Unmap()) != classify(a) {
			t.Errorf("%s is another class than %s", a, a.Unmap())
		}
	})
}
