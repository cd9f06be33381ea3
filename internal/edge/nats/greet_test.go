package nats

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallystick/tallystick/internal/loopback"
	"github.com/tallystick/tallystick/internal/natstest"
)

const plainInfo = `INFO {"server_id":"x","version":"2.15.2","max_payload":1048576,"headers":true}` + "\r\n"

// hostile is a server that greets, answers the first ping if it comes and then sends what it is given.
func hostile(t *testing.T, greeting, then string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", loopback.Address())
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				_, _ = io.WriteString(c, greeting)
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if lines.Text() == "PING" {
						_, _ = io.WriteString(c, "PONG\r\n"+then)
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return "nats://" + l.Addr().String()
}

// Given a server that claims sizes that nobody has memory for, or never ends a line, when a delivery meets it, then the
// delivery fails, and nothing else does.
func TestAServerThatIsHostile(t *testing.T) {
	endless := strings.Repeat("x", 2*maxLineBytes)
	for name, sends := range map[string]struct{ greeting, then string }{
		"a message of petabytes":         {plainInfo, "MSG a 1 9000000000000000\r\nx"},
		"headers of petabytes":           {plainInfo, "HMSG a 1 12 9000000000000000\r\nx"},
		"a size that overflows":          {plainInfo, "MSG a 1 99999999999999999999999\r\nx"},
		"an error without an end":        {plainInfo, "-ERR '" + endless},
		"news without an end":            {plainInfo, "INFO {" + endless},
		"a greeting without an end":      {"INFO {" + endless, ""},
		"a greeting that is not JSON":    {"INFO hello\r\n", ""},
		"another protocol":               {"HTTP/1.1 400 Bad Request\r\n\r\n", ""},
		"a message longer than it says":  {plainInfo, "MSG a 1 2\r\nxMSG a 1 9000000000000000\r\nx"},
		"a size that the client reads":   {plainInfo, "MSG\ta 1 9000000000000000\r\nx"},
		"a size in small letters":        {plainInfo, "msg a 1 9000000000000000\r\nx"},
		"a message behind spaces":        {plainInfo, "PING\r\n MSG a 1 9000000000000000\r\nx"},
		"a size behind a carriage":       {plainInfo, "MSG a 1\r9000000000000000\r\nx"},
		"a message without a line's end": {plainInfo, "MSG a 1 1\r\nxx\nMSG a 1 9000000000000000\r\nx"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sink(t, Options{Servers: []string{hostile(t, sends.greeting, sends.then)}, Timeout: time.Minute})
			if err := s.Deliver(t.Context(), delivery("acme", 1, 3, 10)); err == nil || errors.Is(err, errTimeout) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// FuzzGuard cuts bytes of a server in two: the verdict is that of the whole, and little is kept.
func FuzzGuard(f *testing.F) {
	f.Add([]byte("PING\r\nMSG a 1 5\r\nhello\r\nHMSG a 1 r 2 4\r\nabcd\r\n+OK\r\n"), 9)
	f.Add([]byte("MSG a 1 0\r\n\r\n-ERR 'no'\r\nINFO {}\r\n"), 12)
	f.Add([]byte("MSG a 1 70000\r\n"), 3)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		whole, cut := &guarded{}, &guarded{}
		want := whole.check(b)
		at = min(max(at, 0), len(b))
		got := cut.check(b[:at])
		if got == nil {
			got = cut.check(b[at:])
		}
		if (want == nil) != (got == nil) {
			t.Fatalf("in one piece %v, in two %v", want, got)
		}
		if want == nil && (!bytes.Equal(whole.line, cut.line) || whole.message != cut.message) {
			t.Fatalf("in one piece %q and %d, in two %q and %d", whole.line, whole.message, cut.line, cut.message)
		}
		if len(cut.line) > maxLineBytes || cut.message > maxMessageBytes+2 {
			t.Fatalf("%d bytes of a line and %d of a message are waited for", len(cut.line), cut.message)
		}
	})
}

// certificate is one for a host, and the roots that trust it.
func certificate(t *testing.T, host string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.ParseIP(host)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// Given a server that offers TLS or insists on it, when rows are delivered with a password, then the password is not
// on the wire; and a server whose certificate is not trusted gets none.
func TestTLS(t *testing.T) {
	for name, offered := range map[string]bool{"it is required": false, "it is offered": true} {
		t.Run(name, func(t *testing.T) {
			var roots *x509.CertPool
			broker := natstest.Start(t, func(o *server.Options) {
				var c tls.Certificate
				c, roots = certificate(t, o.Host)
				o.TLS, o.AllowNonTLS, o.TLSTimeout = true, offered, 60
				o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12}
				o.Username, o.Password = "ada", "right"
			})
			wire := &recorded{}
			url := "tls://ada:right@" + broker.Address()
			trusting := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
			s := sink(t, Options{Servers: []string{url}, TLS: trusting, Dial: wire.dial})
			// It has no stream: the answer shows that all else went well.
			err := s.Deliver(t.Context(), delivery("acme", 1, 3, 10))
			if err == nil || !strings.Contains(err.Error(), "no stream takes this subject") {
				t.Errorf("the error is %v", err)
			}
			if wire.has("right") || !wire.has("\x16\x03") {
				t.Error("the password can be read on the wire")
			}
			var untrusted x509.UnknownAuthorityError
			s = sink(t, Options{Servers: []string{url}, Dial: wire.dial})
			if err := s.Deliver(t.Context(), delivery("acme", 1, 3, 10)); !errors.As(err, &untrusted) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	plain := natstest.Start(t)
	s := sink(t, Options{Servers: []string{"tls://ada:right@" + plain.Address()}})
	if err := s.Deliver(t.Context(), delivery("acme", 1, 3, 10)); err == nil ||
		!strings.Contains(err.Error(), "has no TLS") {
		t.Errorf("a server without TLS: %v", err)
	}
}

// recorded dials connections and keeps what is written to them.
type recorded struct {
	mu    sync.Mutex // guards bytes
	bytes []byte
}

func (r *recorded) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	return &recordedConn{Conn: c, by: r}, err
}

func (r *recorded) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Contains(r.bytes, []byte(text))
}

type recordedConn struct {
	net.Conn
	by *recorded
}

func (c *recordedConn) Write(b []byte) (int, error) {
	c.by.mu.Lock()
	c.by.bytes = append(c.by.bytes, b...)
	c.by.mu.Unlock()
	return c.Conn.Write(b)
}
