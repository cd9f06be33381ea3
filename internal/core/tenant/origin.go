package tenant

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxOrigin is longer than any host's name with its scheme and port.
const maxOrigin = 300

// AllowsOrigin reports whether a page of that origin may call with the tenant's keys. The names of hosts have no case.
func (t *Tenant) AllowsOrigin(origin string) bool {
	return len(origin) <= maxOrigin && slices.Contains(t.AllowedOrigins, strings.ToLower(origin))
}

// validOrigin accepts what a browser can send: scheme://host or scheme://host:port, in lower case, the host in ASCII,
// and no port that the scheme implies. Anything else would never match.
func validOrigin(o string) bool {
	scheme, rest, ok := strings.Cut(o, "://")
	if !ok || len(o) > maxOrigin || scheme != "https" && scheme != "http" {
		return false
	}
	host := rest
	if end := strings.LastIndexByte(rest, ':'); end >= 0 && !strings.HasSuffix(rest, "]") {
		host = rest[:end]
		if !validPort(scheme, rest[end+1:]) {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return err == nil && addr.Is6() && host == "["+addr.String()+"]"
	}
	return validHost(host)
}

func validPort(scheme, port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == port && (scheme != "https" || n != 443) &&
		(scheme != "http" || n != 80)
}

// validHost accepts labels of lower-case letters, digits, '-' and '_', divided by dots.
func validHost(host string) bool {
	for label := range strings.SplitSeq(host, ".") {
		odd := strings.IndexFunc(label, func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
		})
		if label == "" || odd >= 0 {
			return false
		}
	}
	return true
}
