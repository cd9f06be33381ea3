package webhook

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/edge/outbound"
)

// Receivers that do everything but what they should. None of them takes longer than an attempt may, and what Deliver
// says of them never shows what they sent.

const marker = "from-the-receiver"

// readRequest takes one whole request from a connection.
func readRequest(conn net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// untilClosed waits for the other side to leave.
func untilClosed(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// endless repeats a text until the other side leaves.
func endless(conn net.Conn, text string) {
	block := []byte(strings.Repeat(text, 100))
	for {
		if _, err := conn.Write(block); err != nil {
			return
		}
	}
}

// trickle sends a text slowly, again and again, until the other side leaves.
func trickle(conn net.Conn, text string) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		<-tick.C
		if _, err := conn.Write([]byte{text[i%len(text)]}); err != nil {
			return
		}
	}
}

func TestReceiversThatBreakHTTP(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, c := range []struct {
		name    string
		timeout time.Duration
		serve   func(conn net.Conn)
		says    string // empty: it is delivered
	}{
		{"hangs before reading", soon, func(conn net.Conn) { untilClosed(conn) }, "did not answer within 50ms"},
		{"hangs after reading", soon, func(conn net.Conn) { readRequest(conn); untilClosed(conn) }, "did not " +
			"answer within"},
		{"stops inside the status", soon, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, "HTTP/1.1 20")
			untilClosed(conn)
		}, "did not answer within"},
		{"stops inside the head", soon, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, ok+"X-Note: "+marker)
			untilClosed(conn)
		}, "did not answer within"},
		{"trickles the head", soon, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, ok)
			trickle(conn, "X: "+marker+"\r\n")
		}, "did not answer within"},
		{"cuts at once", plenty, func(net.Conn) {}, "closed the connection"},
		{"cuts after reading", plenty, readRequest, "closed the connection"},
		{"cuts inside the status", plenty, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 O")
		}, "closed the connection"},
		{"cuts inside the head", plenty, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, ok+"Content-Length: 5\r\n")
		}, "closed the connection"},
		{"cuts inside the body", plenty, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, ok+"Content-Length: 1000000000\r\n\r\n"+marker)
		}, ""},
		{"answers as HTTP/1.0", plenty, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\n\r\n")
		}, ""},
		{"hints first", plenty, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\n\r\n"+ok+"Content-Length: 0\r\n\r\n")
		}, ""},
		{"switches protocols", plenty, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
			untilClosed(conn)
		}, "answered 101"},
		{"has an endless body", plenty, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, ok+"\r\n")
			endless(conn, marker)
		}, ""},
		{"has an endless body in chunks", plenty, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, ok+"Transfer-Encoding: chunked\r\n\r\n")
			endless(conn, "4\r\nabcd\r\n")
		}, ""},
		{"has endless headers", plenty, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, ok)
			endless(conn, "X-Note: "+marker+"\r\n")
		}, "a bound on its head"},
		{"has one endless header", plenty, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, ok+"X-Note: ")
			endless(conn, marker)
		}, "a bound on its head"},
		{"has an endless status", plenty, func(conn net.Conn) {
			readRequest(conn)
			endless(conn, marker)
		}, "a bound on its head"},
		{"hints without end", plenty, func(conn net.Conn) {
			readRequest(conn)
			endless(conn, "HTTP/1.1 103 Early Hints\r\n\r\n")
		}, "a bound on its head"},
		{"answers before it was asked", plenty, func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 500 "+marker+"\r\nContent-Length: 0\r\n\r\n")
			untilClosed(conn)
		}, "the receiver"},
		{"speaks another language", plenty, func(conn net.Conn) {
			_, _ = io.WriteString(conn, "SSH-2.0-"+marker+"\r\n")
			untilClosed(conn)
		}, "breaks HTTP"},
		{"has a status that is none", plenty, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, "HTTP/1.1 2000 "+marker+"\r\n\r\n")
		}, "breaks HTTP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := script(t, c.serve)
			err := carrier(t, options(c.timeout), url).Deliver(t.Context(), delivery())
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%v, want %q", err, c.says)
			case err != nil && (strings.Contains(err.Error(), marker) || strings.Contains(err.Error(), "127.0.0.1")):
				t.Errorf("the error shows too much: %v", err)
			}
		})
	}
}

// A receiver that sends its body slowly, or never, has the delivery once its status has arrived.
func TestAReceiptStandsWhateverItsBodyDoes(t *testing.T) {
	url := script(t, func(conn net.Conn) {
		readRequest(conn)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx")
		untilClosed(conn)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := options(plenty)
	dial := o.Dial
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		// The head comes with the first read, so who reads again waits for the body. Then time is up.
		return &watched{Conn: conn, again: cancel}, err
	}
	if err := carrier(t, o, url).Deliver(ctx, delivery()); err != nil || ctx.Err() == nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}

// watched calls again when it is read for the second time.
type watched struct {
	net.Conn
	reads atomic.Int32
	again func()
}

func (w *watched) Read(b []byte) (int, error) {
	if w.reads.Add(1) == 2 {
		w.again()
	}
	return w.Conn.Read(b)
}

// The second of two answers is no receipt for the delivery after it.
func TestAnAnswerTooManyConfirmsNothing(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	url := script(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			answer := ok + ok
			if r.Header.Get("Webhook-Id") == "refused" {
				answer = "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
			}
			if _, err := io.WriteString(conn, answer); err != nil {
				return
			}
		}
	})
	c := carrier(t, options(plenty), url)
	for range 50 {
		if err := c.Deliver(t.Context(), delivery()); err != nil {
			t.Fatal(err)
		}
		d := delivery()
		d.ID = "refused"
		if err := c.Deliver(t.Context(), d); err == nil || !strings.Contains(err.Error(), "500") {
			t.Fatalf("what the receiver refused is delivered: %v", err)
		}
	}
}

func TestALateAnswerIsNone(t *testing.T) {
	for name, k := range map[string]kind{"http": plainHTTP, "http2": tlsHTTP2} {
		t.Run(name, func(t *testing.T) {
			r := receive(t, k, func(w http.ResponseWriter, q *http.Request) {
				<-q.Context().Done() // the sender is gone
				w.WriteHeader(http.StatusOK)
			})
			o := options(soon)
			if k != plainHTTP {
				o.Roots = r.roots()
			}
			err := carrier(t, o, r.URL).Deliver(t.Context(), delivery())
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not answer within 50ms") {
				t.Error(err)
			}
		})
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	private := receive(t, plainHTTP, nil)
	r := receive(t, plainHTTP, func(w http.ResponseWriter, q *http.Request) {
		http.Redirect(w, q, private.URL, http.StatusTemporaryRedirect)
	})
	err := carrier(t, options(plenty), r.URL).Deliver(t.Context(), delivery())
	if err == nil || !strings.Contains(err.Error(), "answered 307: redirects are not followed") {
		t.Error(err)
	}
	if n := private.connections(); n != 0 {
		t.Errorf("%d connections to where the redirect leads", n)
	}
}

// A connection of HTTP/2 on which an attempt failed is not used again: it may be dead.
func TestAfterAFailureTheNextAttemptConnectsAnew(t *testing.T) {
	var hang atomic.Bool
	r := receive(t, tlsHTTP2, func(_ http.ResponseWriter, q *http.Request) {
		if hang.Load() {
			<-q.Context().Done()
		}
	})
	// The timeout must let good attempts through on the busiest machine, so the one that hangs is stopped by hand.
	o := options(plenty)
	o.Roots = r.roots()
	c := carrier(t, o, r.URL)
	deliver := func(want int) {
		t.Helper()
		if err := c.Deliver(t.Context(), delivery()); err != nil {
			t.Fatal(err)
		}
		if got := r.connections(); got != want {
			t.Errorf("%d connections, want %d", got, want)
		}
	}
	deliver(1)
	deliver(2)
	deliver(2)
	hang.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := c.Deliver(ctx, delivery()); err == nil {
		t.Fatal("a receiver that hangs has it")
	}
	hang.Store(false)
	deliver(3)
}

func TestTheOwnerOfADeliveryCanStopIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := receive(t, plainHTTP, func(_ http.ResponseWriter, q *http.Request) {
		cancel()
		<-q.Context().Done()
	})
	err := carrier(t, options(plenty), r.URL).Deliver(ctx, delivery())
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stopped") {
		t.Error(err)
	}
}

func TestCertificatesAreVerified(t *testing.T) {
	r := receive(t, tlsHTTP1, nil)
	_, port, err := net.SplitHostPort(r.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := options(plenty)
	elsewhere.Roots = r.roots()
	elsewhere.Dial = outbound.New(outbound.Options{AllowPrivate: true, Resolver: here{}}).DialContext
	untrusted := options(plenty)
	untrusted.Roots = x509.NewCertPool()
	for _, c := range []struct {
		o         Options
		url, says string
	}{
		{untrusted, r.URL, "signed by no authority that is trusted here"},
		{options(plenty), r.URL, "signed by no authority"},
		{elsewhere, "https://other.test:" + port, "for another name"},
		{options(plenty), strings.Replace(r.URL, "https:", "http:", 1), "answered 400"},
		{options(plenty), strings.Replace(receive(t, plainHTTP, nil).URL, "http:", "https:", 1), "does not speak TLS"},
	} {
		err := carrier(t, c.o, c.url).Deliver(t.Context(), delivery())
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.url, err, c.says)
		}
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("%d deliveries arrived", n)
	}
}

// here is a resolver that finds every name on this machine.
type here struct{}

func (here) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

func TestPrivateAddressesAreNotReached(t *testing.T) {
	r := receive(t, plainHTTP, nil)
	for _, resolver := range []outbound.Resolver{nil, here{}} {
		o := options(plenty)
		o.Dial = outbound.New(outbound.Options{Resolver: resolver}).DialContext
		url := r.URL
		if resolver != nil {
			url = strings.Replace(url, "127.0.0.1", "rebound.example", 1)
		}
		err := carrier(t, o, url).Deliver(t.Context(), delivery())
		if err == nil || !strings.Contains(err.Error(), "a loopback address") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if n := r.connections(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// The transport may let a dial go on for others who come; here nobody does.
func TestADialEndsWithItsAttempt(t *testing.T) {
	ended := make(chan struct{})
	o := options(soon)
	o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}
	err := carrier(t, o, "http://192.0.2.1/").Deliver(t.Context(), delivery())
	if err == nil || !strings.Contains(err.Error(), "did not answer within") {
		t.Error(err)
	}
	<-ended
}

func TestFailuresHaveNames(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		err  error
		says string
	}{
		{x509.CertificateInvalidError{Reason: x509.Expired}, "has expired"},
		{x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}, "certificate is not valid"},
		{&net.OpError{Op: "read", Err: errors.New(marker)}, "the connection to the receiver failed"},
		{fmt.Errorf("wrapped: %w", io.ErrUnexpectedEOF), "closed the connection"},
		{errors.New(marker), "breaks HTTP"},
	} {
		err := failure(ctx, ctx, c.err, time.Second)
		if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), marker) || !errors.Is(err, c.err) {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}
