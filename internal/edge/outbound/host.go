package outbound

import (
	"net/netip"
	"strings"
)

// Bounds of names in the DNS.
const (
	maxName  = 253
	maxLabel = 63
)

// parseHost returns the address that a host is, or none for a name that has to be looked up. It takes one spelling of
// each: what resolvers, libraries and people read differently (127.1, 0x7f000001, 0177.0.0.1, full-width digits) is
// refused, because a check is worth nothing when the one who dials reads another address.
func parseHost(host string) (netip.Addr, error) {
	switch {
	case host == "":
		return netip.Addr{}, refuse("the host is missing")
	case strings.Contains(host, ":"):
		return parseIPv6(host)
	case len(host) > maxName:
		return netip.Addr{}, refuse("the host is longer than %d characters", maxName)
	}
	labels := strings.Split(host, ".")
	for i, label := range labels {
		if err := checkLabel(label, i == len(labels)-1 && i > 0); err != nil {
			return netip.Addr{}, err
		}
	}
	if !numeric(labels[len(labels)-1]) {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, refuse("the host is a number in an unusual form: write an IPv4 address as four decimal " +
			"numbers without leading zeros, such as 192.0.2.1")
	}
	return a, nil
}

func parseIPv6(host string) (netip.Addr, error) {
	if strings.Contains(host, "%") {
		return netip.Addr{}, refuse("the host has a zone or a percent sign: write the address alone")
	}
	a, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return netip.Addr{}, refuse("the host is no IPv6 address")
	case a.Is4In6():
		return netip.Addr{}, refuse("the host is an IPv4 address in IPv6 form: write %s", a.Unmap())
	case a.String() != strings.ToLower(host):
		return netip.Addr{}, refuse("the host is an IPv6 address in an unusual form: write %s", a)
	}
	return a, nil
}

func checkLabel(label string, last bool) error {
	switch {
	case label == "" && last:
		return refuse("the host ends in a dot: leave it out")
	case label == "":
		return refuse("the host has an empty part between dots")
	case len(label) > maxLabel:
		return refuse("a part of the host is longer than %d characters", maxLabel)
	case strings.Contains(label, "%"):
		return refuse("the host has a percent sign: write its characters plainly")
	case label[0] == '-' || label[len(label)-1] == '-':
		return refuse("a part of the host begins or ends with a hyphen")
	}
	for _, c := range []byte(label) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		case c >= 0x80:
			return refuse("the host has characters beyond ASCII: write the name as the DNS has it (xn--…)")
		default:
			return refuse("the host has a character that no name has")
		}
	}
	return nil
}

// numeric reports whether a last label makes the whole host a number to somebody: digits, or 0x and hexadecimal ones.
func numeric(label string) bool {
	digits := "0123456789"
	if rest, hex := strings.CutPrefix(strings.ToLower(label), "0x"); hex {
		label, digits = rest, digits+"abcdef"
	}
	return strings.Trim(strings.ToLower(label), digits) == ""
}
