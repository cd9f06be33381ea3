package app

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// writeCertificate makes a certificate of its own authority for this machine and returns who trusts it.
func writeCertificate(t *testing.T, files TLSSettings, name string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	write(t, files.Cert, cert)
	write(t, files.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	return pool
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// nameShown is the name in the certificate that a new connection is shown, checked against who is trusted.
func nameShown(t *testing.T, addr string, trusted *x509.CertPool) string {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: trusted})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// secured is an answer over TLS.
type secured struct {
	status, version int // of HTTP, the first or the second
	id, text        string
}

// ask sends a request over TLS, with HTTP/2 or without.
func ask(t *testing.T, trusted *x509.CertPool, method, url, key, body string, second bool) secured {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: second}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return secured{resp.StatusCode, resp.ProtoMajor, resp.Header.Get("Tally-Request-Id"), string(text)}
}

// lockedLog can be read while it is written.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func tlsSettings(t *testing.T) Settings {
	t.Helper()
	s := testSettings(t)
	dir := t.TempDir()
	s.TLS = TLSSettings{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	s.MetricsListen = "127.0.0.1:0"
	return s
}

// With a certificate the server speaks TLS and nothing else, HTTP/1.1 and HTTP/2, with and without the express lane.
func TestServerSpeaksTLS(t *testing.T) {
	for _, express := range []bool{true, false} {
		leaves(t)
		settings := tlsSettings(t)
		settings.HTTP.Express = express
		trusted := writeCertificate(t, settings.TLS, "first")
		s := mustStart(t, settings)
		if !strings.HasPrefix(s.URL(), "https://") {
			t.Errorf("the address is %s", s.URL())
		}
		for i, second := range []bool{false, true} {
			tenant := fmt.Sprint("acme", i)
			made := ask(t, trusted, "POST", s.URL()+"/v1/tenants", testRootKey, `{"id":"`+tenant+`"}`, second)
			if made.status != http.StatusCreated || made.version != 1+i {
				t.Fatalf("answered %+v", made)
			}
			_, key, _ := strings.Cut(made.text, `"api_key":"`)
			key, _, _ = strings.Cut(key, `"`)
			ask(t, trusted, "POST", s.URL()+"/v1/meters", key, `{"slug":"calls","aggregation":"sum"}`, second)
			a := ask(t, trusted, "POST", s.URL()+"/v1/events", key, `{"id":"e","meter":"calls","customer":"c"}`, second)
			if a.status != http.StatusOK || a.id == "" {
				t.Errorf("answered %+v", a)
			}
		}
		if a := ask(t, trusted, "GET", "https://"+s.MetricsAddr()+"/metrics", "", "",
			true); !strings.Contains(a.text, "tallystick_http_connections ") {
			t.Errorf("metrics: %d", a.status)
		}
		checkPlainIsRefused(t, s.Addr())
		old := &tls.Config{RootCAs: trusted}
		old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 // to be refused
		if _, err := tls.Dial("tcp", s.Addr(), old); err == nil {
			t.Error("an old version of TLS is spoken")
		}
		mustStop(t, s)
	}
}

// checkPlainIsRefused sends HTTP where TLS is spoken.
func checkPlainIsRefused(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadRequest || resp.Header.Get("Tally-Request-Id") == "" ||
		!strings.Contains(string(text), "https://") {
		t.Errorf("plain HTTP is answered %s %s", resp.Status, text)
	}
}

// A new certificate is in force with the next handshake. Files that hold no pair change nothing and are reported once.
func TestCertificatesAreReadAgain(t *testing.T) {
	leaves(t)
	settings := tlsSettings(t)
	trusted := writeCertificate(t, settings.TLS, "first")
	var log lockedLog
	s, err := Start(context.Background(),
		ServerOptions{Settings: settings, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	shows := func(name string) {
		t.Helper()
		for _, addr := range []string{s.Addr(), s.MetricsAddr()} {
			if got := nameShown(t, addr, trusted); got != name {
				t.Errorf("%s shows %q, want %q", addr, got, name)
			}
		}
	}
	shows("first")
	trusted = writeCertificate(t, settings.TLS, "second")
	shows("second")

	good, err := os.ReadFile(settings.TLS.Cert)
	if err != nil {
		t.Fatal(err)
	}
	write(t, settings.TLS.Cert, []byte("no certificate"))
	shows("second")
	shows("second")
	if got := strings.Count(log.String(), "the new TLS certificate is not used"); got != 1 {
		t.Errorf("a bad certificate is reported %d times:\n%s", got, log.String())
	}
	if err := os.Remove(settings.TLS.Cert); err != nil {
		t.Fatal(err)
	}
	shows("second")
	write(t, settings.TLS.Cert, good)
	shows("second")
	other := settings.TLS
	other.Key = filepath.Join(t.TempDir(), "other.key") // the certificate of another key
	writeCertificate(t, other, "torn")
	shows("second")
	if got := strings.Count(log.String(), "the new TLS certificate is not used"); got != 3 {
		t.Errorf("three bad pairs are reported %d times:\n%s", got, log.String())
	}
	trusted = writeCertificate(t, settings.TLS, "third")
	shows("third")
	mustStop(t, s)
}

// A start without a certificate that can be used ends before it makes anything.
func TestStartNeedsACertificate(t *testing.T) {
	leaves(t)
	settings := tlsSettings(t)
	refused := func(name, want string) {
		t.Helper()
		_, err := Start(context.Background(), ServerOptions{Settings: settings, Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if entries, err := os.ReadDir(settings.Data); err != nil || len(entries) > 0 {
			t.Errorf("%s: left %v, %v", name, entries, err)
		}
	}
	refused("missing", "read certificate")
	write(t, settings.TLS.Cert, []byte("x"))
	write(t, settings.TLS.Key, []byte("x"))
	refused("bad", "certificate")
}

// The bound on connections leaves descriptors for the store.
func TestConnectionsLeaveDescriptorsForTheStore(t *testing.T) {
	for _, tc := range []struct {
		limit uint64
		asked int
		want  int
		warns bool
	}{
		{64, 0, 32, false}, {1024, 0, 512, false}, {4096, 0, 2048, false},
		{20000, 0, 20000 - reservedDescriptors, false}, {1 << 62, 0, 1<<30 - reservedDescriptors, false},
		{1024, 100, 100, false}, {1024, 512, 512, false}, {1024, 1024, 512, true},
		{20000, 19999, 20000 - reservedDescriptors, true},
	} {
		var log lockedLog
		h := HTTPSettings{MaxConnections: tc.asked}
		if got := h.maxConnections(tc.limit, slog.New(slog.NewTextHandler(&log, nil))); got != tc.want ||
			(log.String() != "") != tc.warns {
			t.Errorf("of %d, %d asked for: %d, want %d; logged %q", tc.limit, tc.asked, got, tc.want, log.String())
		}
	}
	if openFiles() == 0 {
		t.Error("no descriptors")
	}
}
