package webhook

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/internal/edge/outbound"
	"github.com/tallystick/tallystick/internal/service/secrets"
	"github.com/tallystick/tallystick/internal/service/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is the timeout of attempts that are meant to fail by it. Those that are meant to succeed have a minute, so that
// a busy machine changes no outcome.
const (
	soon   = 50 * time.Millisecond
	plenty = time.Minute
)

func newSecret(t testing.TB) secrets.Signing {
	t.Helper()
	s, err := secrets.NewSigning(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func options(timeout time.Duration) Options {
	return Options{
		Dial:    outbound.New(outbound.Options{AllowPrivate: true}).DialContext,
		Timeout: timeout,
		Version: "1.2.3",
	}
}

func carrier(t testing.TB, o Options, url string, with ...secrets.Validity) *Carrier {
	t.Helper()
	if with == nil {
		with = []secrets.Validity{{Secret: newSecret(t)}}
	}
	c, err := New(o).Carrier(Target{URL: url, Secrets: with})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func delivery() *sinks.Delivery {
	return &sinks.Delivery{ID: "dlv_1", Tenant: "acme", Sink: "snk_1", Epoch: 1, From: 7, To: 9, Rows: []sinks.Row{
		{Seq: 7, Type: "usage.recorded", Body: []byte(`{"seq":7,"type":"usage.recorded","quantity":"3"}`)},
		{Seq: 9, Type: "meter.created", Body: []byte(`{"seq":9,"type":"meter.created","slug":"é \" <b>"}`)},
	}}
}

// got is a request as it arrived.
type got struct {
	header http.Header
	body   []byte
	method string
	uri    string
	proto  int
}

// receiver is an HTTP server on loopback that keeps what arrives and answers with the status that answer returns.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	got     []got
	connect int // connections that were opened
}

func (r *receiver) requests() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]got(nil), r.got...)
}

func (r *receiver) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connect
}

type kind int

const (
	plainHTTP kind = iota
	tlsHTTP1
	tlsHTTP2
)

func receive(t testing.TB, k kind, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Errorf("read a delivery: %v", err)
		}
		r.mu.Lock()
		r.got = append(r.got, got{q.Header.Clone(), body, q.Method, q.RequestURI, q.ProtoMajor})
		r.mu.Unlock()
		if answer != nil {
			answer(w, q)
		}
	}))
	r.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			r.mu.Lock()
			r.connect++
			r.mu.Unlock()
		}
	}
	r.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are meant to fail
	switch k {
	case plainHTTP:
		r.Start()
	case tlsHTTP1:
		r.StartTLS()
	case tlsHTTP2:
		r.EnableHTTP2 = true
		r.StartTLS()
	}
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(r.Certificate())
	return pool
}

// script is a receiver below HTTP: it does with a connection what serve says, then closes it.
func script(t testing.TB, serve func(conn net.Conn)) (url string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // ends Accept
		all.Wait()
	})
	return "http://" + l.Addr().String() + "/hook"
}
