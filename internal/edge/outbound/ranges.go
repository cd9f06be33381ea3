package outbound

import (
	"encoding/binary"
	"net/netip"
)

// class is what an address is to those who may not choose freely where the server connects to.
type class struct {
	// what completes "it is …"; empty for an address that anyone may be sent to.
	what string
	// never: no receiver can be there, whatever the operator allows.
	never bool
}

// public is the class of the addresses that anyone may be sent to.
var public = class{}

type span struct {
	prefix netip.Prefix
	class  class
}

func spanOf(prefix, what string) span { return span{netip.MustParsePrefix(prefix), class{what: what}} }

func neverOf(prefix, what string) span {
	return span{netip.MustParsePrefix(prefix), class{what: what, never: true}}
}

// spans4 are the IPv4 ranges that are not public: IANA's registry of special addresses, and those at which clouds keep
// the credentials of a machine. The first that holds an address names it.
var spans4 = []span{
	neverOf("0.0.0.0/8", "an unspecified address"),
	spanOf("127.0.0.0/8", "a loopback address"),
	spanOf("10.0.0.0/8", "a private address"),
	spanOf("172.16.0.0/12", "a private address"),
	spanOf("192.168.0.0/16", "a private address"),
	spanOf("169.254.169.254/32", "a cloud's metadata address"),
	spanOf("169.254.170.0/24", "a cloud's metadata address"), // credentials of containers
	spanOf("169.254.0.0/16", "a link-local address"),
	spanOf("100.100.100.200/32", "a cloud's metadata address"),
	spanOf("100.64.0.0/10", "an address shared behind a carrier's NAT"),
	spanOf("168.63.129.16/32", "a cloud's metadata address"), // looks public; every machine of that cloud reaches it
	spanOf("192.0.0.192/32", "a cloud's metadata address"),
	spanOf("192.0.0.0/24", "a reserved address"),
	spanOf("192.0.2.0/24", "an address for documentation"),
	spanOf("198.51.100.0/24", "an address for documentation"),
	spanOf("203.0.113.0/24", "an address for documentation"),
	spanOf("198.18.0.0/15", "an address for benchmarks"),
	spanOf("192.88.99.0/24", "a reserved address"), // relays of 6to4
	neverOf("224.0.0.0/4", "a multicast address"),
	neverOf("255.255.255.255/32", "a broadcast address"),
	spanOf("240.0.0.0/4", "a reserved address"),
}

// spans6 are the IPv6 ranges that have a name of their own. What is in none of them and outside global6 is reserved.
var spans6 = []span{
	neverOf("::/128", "an unspecified address"),
	spanOf("::1/128", "a loopback address"),
	spanOf("::/96", "an IPv4 address in an obsolete form"),
	spanOf("::ffff:0:0:0/96", "an IPv4 address in translated form"),
	spanOf("64:ff9b:1::/48", "a private address"), // NAT64 of a local network
	spanOf("100::/64", "a reserved address"),      // what is sent there is dropped
	spanOf("fd00:ec2::254/128", "a cloud's metadata address"),
	spanOf("fd00:ec2::23/128", "a cloud's metadata address"),
	spanOf("fd20:ce::254/128", "a cloud's metadata address"),
	spanOf("fc00::/7", "a unique local address"),
	spanOf("fe80::/10", "a link-local address"),
	spanOf("fec0::/10", "a site-local address"),
	neverOf("ff00::/8", "a multicast address"),
	spanOf("2001::/32", "an IPv4 address in a tunnel (Teredo)"),
	spanOf("2001:2::/48", "an address for benchmarks"),
	spanOf("2001::/23", "a reserved address"),
	spanOf("2001:db8::/32", "an address for documentation"),
	spanOf("3fff::/20", "an address for documentation"),
	spanOf("2002::/16", "an IPv4 address in a tunnel (6to4)"),
}

var (
	// global6 is all that IANA has given out of IPv6 for the internet. What it gives out one day is refused until then:
	// a list of what is bad would let it in unseen.
	global6 = netip.MustParsePrefix("2000::/3")
	// nat64 is how a network without IPv4 reaches it: such an address is as good as the one inside.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
	// isatap are the middle words of an interface id that holds an IPv4 address.
	isatap = [2]uint32{0x00005efe, 0x02005efe}
)

// classify says what an address is. A zone makes it one of this machine's own links.
func classify(a netip.Addr) class {
	switch {
	case !a.IsValid():
		return class{what: "no address", never: true}
	case a.Zone() != "":
		return class{what: "an address with a zone", never: true}
	case a.Is4() || a.Is4In6():
		return find(spans4, a.Unmap(), public)
	case nat64.Contains(a):
		return find(spans4, inside(a), public)
	}
	if c := find(spans6, a, public); c != public {
		return c
	}
	if !global6.Contains(a) {
		return class{what: "a reserved address"}
	}
	b := a.As16()
	if id := binary.BigEndian.Uint32(b[8:12]); id == isatap[0] || id == isatap[1] {
		return find(spans4, inside(a), public)
	}
	return public
}

func find(in []span, a netip.Addr, otherwise class) class {
	for _, s := range in {
		if s.prefix.Contains(a) {
			return s.class
		}
	}
	return otherwise
}

// inside is the IPv4 address in the last four bytes.
func inside(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}
