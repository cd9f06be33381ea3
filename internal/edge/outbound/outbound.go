// Package outbound is the one way out to hosts that tenants name. It looks a name up, checks every address, and dials
// one of those that it checked: there is no second lookup whose answer could be another (DNS rebinding). Addresses of
// this machine, of private networks and of clouds' metadata are refused unless the operator allows them.
//
// A name that leads to a public address and to a private one as well is refused whole. Who publishes such a name
// either made a mistake or tries which one is taken.
//
// What errors say may be shown to the tenant: they name nothing but what the tenant wrote. Not the address that a name
// leads to, nor the server that looked it up, because both describe the operator's network.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

const (
	// lookupTimeout bounds one lookup, dialTimeout one attempt to connect, and connectTimeout all of it: callers'
	// contexts may have no end, as those of connection pools do not.
	lookupTimeout  = 5 * time.Second
	dialTimeout    = 3 * time.Second
	connectTimeout = 12 * time.Second
	// maxAddresses is how many addresses of one name are looked at. A name with more is refused: an answer of the DNS
	// may hold thousands.
	maxAddresses = 64
)

// Resolver looks names up. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dial connects to an address and port. (*net.Dialer).DialContext is one.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Options of a Dialer.
type Options struct {
	// AllowPrivate lets tenants reach addresses that are not public. Even then none is dialed that cannot be a
	// receiver's: unspecified, multicast and broadcast ones, and those with a zone.
	AllowPrivate bool
	Resolver     Resolver // default: net.DefaultResolver
	Dial         Dial     // default: a net.Dialer's
}

// Dialer connects to hosts that tenants name. It is safe for concurrent use.
type Dialer struct {
	private  bool
	resolver Resolver
	dial     Dial
}

// New makes a Dialer.
func New(o Options) *Dialer {
	d := &Dialer{private: o.AllowPrivate, resolver: o.Resolver, dial: o.Dial}
	if d.resolver == nil {
		d.resolver = net.DefaultResolver
	}
	if d.dial == nil {
		d.dial = (&net.Dialer{}).DialContext
	}
	return d
}

// Error is why a host was not reached, in words for whoever named it.
type Error struct {
	// Refused: the host or its address may not be used. Otherwise it could not be reached, which may pass.
	Refused bool
	says    string
	cause   error
}

func (e *Error) Error() string { return e.says }

// Unwrap returns the cause, which is not for tenants.
func (e *Error) Unwrap() error { return e.cause }

func refuse(format string, args ...any) *Error {
	return &Error{Refused: true, says: fmt.Sprintf(format, args...)}
}

func unreached(cause error, format string, args ...any) *Error {
	return &Error{says: fmt.Sprintf(format, args...), cause: cause}
}

// Check says whether a host (a name, or an address without brackets) may be reached as things are now. Errors: *Error.
func (d *Dialer) Check(ctx context.Context, host string) error {
	_, err := d.addresses(ctx, host)
	return err
}

// DialContext connects to host:port over tcp. Errors: *Error.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, refuse("connections are made over tcp alone")
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, refuse("the address is not of the form host:port")
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return nil, refuse("the port is no number between 1 and 65535")
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	addresses, err := d.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	return d.connect(ctx, network, addresses, uint16(port))
}

// connect tries checked addresses one after the other, each as the number that was checked.
func (d *Dialer) connect(ctx context.Context, network string, to []netip.Addr, port uint16) (net.Conn, error) {
	var last error
	for _, a := range to {
		if ctx.Err() != nil {
			break
		}
		one, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err := d.dial(one, network, netip.AddrPortFrom(a, port).String())
		cancel()
		if err == nil {
			return conn, nil
		}
		last = err
	}
	if err := ctx.Err(); err != nil {
		return nil, unreached(err, "the host was not reached in time")
	}
	var timeout net.Error
	switch {
	case errors.Is(last, syscall.ECONNREFUSED):
		return nil, unreached(last, "the host refused the connection on port %d", port)
	case errors.As(last, &timeout) && timeout.Timeout():
		return nil, unreached(last, "the host did not answer on port %d in time", port)
	}
	return nil, unreached(last, "the host could not be reached on port %d", port)
}

// addresses returns what a host leads to, every one of them checked.
func (d *Dialer) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	a, err := parseHost(host)
	if err != nil {
		return nil, err
	}
	if a.IsValid() {
		if c := classify(a); !d.allows(c) {
			return nil, refusal(c, "the host is "+c.what)
		}
		return []netip.Addr{a}, nil
	}
	found, err := d.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, a := range found {
		if c := classify(a); !d.allows(c) {
			return nil, refusal(c, "the host leads to "+c.what)
		}
		found[i] = a.Unmap()
	}
	return found, nil
}

func (d *Dialer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := d.resolver.LookupNetIP(ctx, "ip", host)
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound, err == nil && len(found) == 0:
		return nil, unreached(err, "the host's name does not resolve: check its spelling and the DNS")
	case err != nil:
		return nil, unreached(err, "the host's name could not be looked up now: try again")
	case len(found) > maxAddresses:
		return nil, refuse("the host has more than %d addresses", maxAddresses)
	}
	return append([]netip.Addr(nil), found...), nil
}

func (d *Dialer) allows(c class) bool { return c == public || d.private && !c.never }

func refusal(c class, what string) *Error {
	if c.never {
		return refuse("%s, where no receiver can be", what)
	}
	return refuse("%s, which may not be reached from here: use a public one; the operator can allow others "+
		"(sinks.allow_private_addresses)", what)
}
