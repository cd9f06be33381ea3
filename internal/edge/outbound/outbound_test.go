package outbound

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// scripted is a resolver that gives its answers one after the other, and the last one for ever.
type scripted struct {
	mu      sync.Mutex
	answers []string // addresses with spaces between them; empty: there is no such name
	asked   int
}

func (s *scripted) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.answers[min(s.asked, len(s.answers)-1)]
	s.asked++
	if answer == "" {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.9.9.9:53", IsNotFound: true}
	}
	var out []netip.Addr
	for _, a := range words(answer) {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

// dials records where connections were asked for, and makes none to those that fail names.
type dials struct {
	mu   sync.Mutex
	to   []string
	fail map[string]error
}

func (d *dials) dial(_ context.Context, _, address string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = append(d.to, address)
	if err := d.fail[address]; err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	return near, far.Close()
}

func TestTheCheckedAddressIsTheOneDialed(t *testing.T) {
	resolver, dialed := &scripted{answers: []string{"93.184.216.34", "127.0.0.1", "169.254.169.254"}}, &dials{}
	d := New(Options{Resolver: resolver, Dial: dialed.dial})
	conn, err := d.DialContext(t.Context(), "tcp", "rebind.example:443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if resolver.asked != 1 || !slices.Equal(dialed.to, []string{"93.184.216.34:443"}) {
		t.Fatalf("%d lookups, dialed %v", resolver.asked, dialed.to)
	}
	for range 2 {
		if _, err := d.DialContext(t.Context(), "tcp", "rebind.example:443"); !refused(err) {
			t.Errorf("the name now leads to this machine, and the answer is %v", err)
		}
	}
	if len(dialed.to) != 1 {
		t.Errorf("dialed %v", dialed.to)
	}
}

func TestWhatWasCheckedAtCreationIsCheckedAgain(t *testing.T) {
	resolver, dialed := &scripted{answers: []string{"93.184.216.34", "10.0.0.1"}}, &dials{}
	d := New(Options{Resolver: resolver, Dial: dialed.dial})
	if err := d.Check(t.Context(), "rebind.example"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.DialContext(t.Context(), "tcp", "rebind.example:80"); !refused(err) || len(dialed.to) != 0 {
		t.Errorf("%v, dialed %v", err, dialed.to)
	}
}

func TestOnePrivateAddressRefusesTheName(t *testing.T) {
	for _, answer := range []string{"8.8.8.8 10.0.0.1", "10.0.0.1 8.8.8.8", "2606:4700::1111 fd00::1", "8.8.8.8 ::1",
		"8.8.8.8 ::ffff:127.0.0.1", "8.8.8.8 64:ff9b::7f00:1", "8.8.8.8 fe80::1%eth0"} {
		dialed := &dials{}
		d := New(Options{Resolver: &scripted{answers: []string{answer}}, Dial: dialed.dial})
		if _, err := d.DialContext(t.Context(), "tcp", "mixed.example:80"); !refused(err) || len(dialed.to) != 0 {
			t.Errorf("%s: %v, dialed %v", answer, err, dialed.to)
		}
	}
}

func TestAllowedPrivateAddresses(t *testing.T) {
	d := New(Options{AllowPrivate: true})
	for _, host := range words("127.0.0.1 10.0.0.1 ::1 fd00::1 169.254.1.1 100.64.0.1 192.0.2.1 240.0.0.1 " +
		"2002:7f00:1::") {
		if err := d.Check(t.Context(), host); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range words("0.0.0.0 0.1.2.3 :: 224.0.0.1 ff02::1 255.255.255.255 fe80::1%lo ::ffff:127.0.0.1 " +
		"127.1 2130706433 0177.0.0.1 127.0.0.1.") {
		if err := d.Check(t.Context(), host); !refused(err) {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestAddressesAreTriedInOrderAndPlainly(t *testing.T) {
	dialed := &dials{fail: map[string]error{"8.8.8.8:80": errors.New("no route to host 8.8.8.8")}}
	d := New(Options{Resolver: &scripted{answers: []string{"8.8.8.8 ::ffff:9.9.9.9 2606:4700::1111"}},
		Dial: dialed.dial})
	conn, err := d.DialContext(t.Context(), "tcp", "several.example:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !slices.Equal(dialed.to, []string{"8.8.8.8:80", "9.9.9.9:80"}) {
		t.Errorf("dialed %v", dialed.to)
	}
}

// Errors are shown to tenants: the operator's network is none of their business.
func TestErrorsNameNoAddress(t *testing.T) {
	many := strings.Repeat("8.8.8.8 ", maxAddresses+1)
	for _, c := range []struct{ answer, says string }{
		{"", "does not resolve"},
		{"10.1.2.3", "leads to a private address"},
		{"fd00:ec2::254", "leads to a cloud's metadata address"},
		{"9.9.9.9", "could not be reached on port 80"},
		{"9.9.9.10", "refused the connection on port 80"},
		{"9.9.9.11", "did not answer on port 80 in time"},
		{many, "more than 64 addresses"},
	} {
		dialed := &dials{fail: map[string]error{
			"9.9.9.9:80":  &net.OpError{Op: "dial", Err: errors.New("9.9.9.9 is away")},
			"9.9.9.10:80": &net.OpError{Op: "dial 9.9.9.10", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
			"9.9.9.11:80": &net.OpError{Op: "dial 9.9.9.11", Err: os.ErrDeadlineExceeded},
		}}
		d := New(Options{Resolver: &scripted{answers: []string{c.answer}}, Dial: dialed.dial})
		_, err := d.DialContext(t.Context(), "tcp", "internal.example:80")
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Fatalf("%q: %v", c.answer, err)
		}
		for _, secret := range append(words(c.answer), "10.9.9.9", "9.9.9.9") {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q is in %q", secret, err)
			}
		}
	}
}

func TestALookupThatFailsIsNoVerdict(t *testing.T) {
	d := New(Options{Resolver: failing{}})
	err := d.Check(t.Context(), "example.com")
	if err == nil || refused(err) || !strings.Contains(err.Error(), "try again") ||
		strings.Contains(err.Error(), "10.9.9.9") {
		t.Error(err)
	}
}

type failing struct{}

func (failing) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: "server misbehaving", Name: host, Server: "10.9.9.9:53", IsTemporary: true}
}

func TestAnEmptyAnswerDoesNotResolve(t *testing.T) {
	d := New(Options{Resolver: nothing{}})
	if err := d.Check(t.Context(), "example.com"); err == nil || !strings.Contains(err.Error(), "does not resolve") {
		t.Error(err)
	}
}

type nothing struct{}

func (nothing) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) { return nil, nil }

func TestBadAddressesAreNotDialed(t *testing.T) {
	dialed := &dials{}
	d := New(Options{AllowPrivate: true, Dial: dialed.dial})
	for _, c := range []struct{ network, address string }{
		{"udp", "8.8.8.8:53"}, {"unix", "/run/docker.sock"}, {"ip4:icmp", "8.8.8.8"}, {"tcp", "8.8.8.8"}, {"tcp",
			"8.8.8.8:"},
		{"tcp", "8.8.8.8:0"}, {"tcp", "8.8.8.8:65536"}, {"tcp", "8.8.8.8:http"}, {"tcp", ":80"}, {"tcp", "[::1%lo]:80"},
		{"tcp", "8.8.8.8:-1"}, {"tcp", "8.8.8.8:+80"},
	} {
		if _, err := d.DialContext(t.Context(), c.network, c.address); !refused(err) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if len(dialed.to) != 0 {
		t.Errorf("dialed %v", dialed.to)
	}
}

func TestACanceledDialEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dialed := &dials{fail: map[string]error{"8.8.8.8:80": context.Canceled}}
	stopped := func(c context.Context, network, address string) (net.Conn, error) {
		cancel()
		return dialed.dial(c, network, address)
	}
	d := New(Options{Resolver: &scripted{answers: []string{"8.8.8.8 9.9.9.9"}}, Dial: stopped})
	if _, err := d.DialContext(ctx, "tcp", "several.example:80"); !errors.Is(err, context.Canceled) || refused(err) {
		t.Error(err)
	}
	if len(dialed.to) != 1 {
		t.Errorf("dialed %v after the end", dialed.to)
	}
}

// Over real sockets: what is allowed is reached, what is not sees no connection at all.
func TestRealConnections(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := New(Options{}).DialContext(t.Context(), "tcp", l.Addr().String()); !refused(err) {
		t.Errorf("this machine was reached: %v", err)
	}
	open := New(Options{AllowPrivate: true})
	conn, err := open.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if conn.RemoteAddr().String() != l.Addr().String() {
		t.Errorf("connected to %s", conn.RemoteAddr())
	}
	defer conn.Close()
}

func refused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Refused
}
