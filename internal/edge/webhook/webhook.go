// Package webhook carries rows to receivers by HTTP: one POST a delivery, signed as Standard Webhooks says. It sends to
// whatever address a tenant named, so all of it is bounded: time, connections, what is read of an answer. It follows no
// redirect, and what it says of a failure shows nothing that came from the receiver but the status.
//
// Over HTTP/1.1 a connection serves one delivery. A receiver that answers twice would otherwise have its second answer
// taken for the next delivery's, and rows that never arrived would count as delivered. Over HTTP/2 an answer names its
// request, so connections are used again.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tallystick/tallystick/internal/edge/outbound"
	"github.com/tallystick/tallystick/internal/service/secrets"
	"github.com/tallystick/tallystick/internal/service/sinks"
)

const (
	// DefaultTimeout bounds an attempt, from the connection to the answer's head.
	DefaultTimeout = 15 * time.Second
	// maxAnswer is what is read of an answer's body, and dropped: a receiver whose answer is cut off may take its own
	// work back. maxHead bounds its head.
	maxAnswer = 64 << 10
	maxHead   = 32 << 10
	// perHost is how many deliveries are under way to one host, and perTenant how many of them are one tenant's: a
	// tenant with many sinks that hang does not keep others from a host that they share.
	perHost   = 64
	perTenant = 8
	// idleTimeout closes connections that had nothing to carry.
	idleTimeout = 30 * time.Second
	// A connection that is silent for pingAfter is asked for a sign of life, and closed without one after pingTimeout.
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
	// resumable TLS sessions make the next handshake with the receiver cheap.
	resumable = 4
)

// Options of a Sender.
type Options struct {
	// Dial connects to host:port: an outbound.Dialer's, because tenants choose the hosts.
	Dial    outbound.Dial
	Timeout time.Duration    // of an attempt; default DefaultTimeout
	Roots   *x509.CertPool   // who may sign receivers' certificates; default: the system's
	Version string           // of this build, for User-Agent
	Now     func() time.Time // default: time.Now
}

// Sender is what the webhooks of all sinks share: settings, and the bound on deliveries to one host.
type Sender struct {
	options Options
	tenants gate // by tenant and host
	hosts   gate
}

// New makes a Sender.
func New(o Options) *Sender {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Sender{options: o}
}

// Target is where a sink delivers to, and what it signs with.
type Target struct {
	URL     string
	Secrets []secrets.Validity
}

// Carrier takes deliveries to one receiver. It is safe for concurrent use.
type Carrier struct {
	sender  *Sender
	url     string
	host    string
	secrets []secrets.Validity
	http    atomic.Pointer[http.Transport]
	// reuse: the receiver spoke HTTP/2 last time.
	reuse atomic.Bool
}

var _ sinks.Carrier = (*Carrier)(nil)

// Carrier makes the carrier of one sink. Errors: an invalid-field problem, as of CheckURL.
func (s *Sender) Carrier(to Target) (*Carrier, error) {
	u, err := parseURL(to.URL)
	if err != nil {
		return nil, err
	}
	c := &Carrier{sender: s, url: u.String(), host: strings.ToLower(u.Hostname()), secrets: to.Secrets}
	c.http.Store(c.transport())
	return c, nil
}

func (c *Carrier) transport() *http.Transport {
	o := c.sender.options
	return &http.Transport{
		Proxy:                  nil, // the environment's would look the name up again, unchecked
		DialContext:            o.Dial,
		TLSClientConfig:        tlsConfig(o.Roots),
		TLSHandshakeTimeout:    o.Timeout,
		DisableCompression:     true,
		MaxConnsPerHost:        perTenant,
		MaxIdleConns:           1,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHead,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

func tlsConfig(roots *x509.CertPool) *tls.Config {
	return &tls.Config{
		RootCAs:            roots,
		MinVersion:         tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(resumable),
	}
}

// Deliver implements sinks.Carrier. An answer of 2xx in time is a receipt, whatever its body does after that.
func (c *Carrier) Deliver(ctx context.Context, d *sinks.Delivery) error {
	leave, err := c.enter(ctx, d.Tenant)
	if err != nil {
		return err
	}
	defer leave()
	timeout := c.sender.options.Timeout
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var used net.Conn
	r, err := c.request(httptrace.WithClientTrace(attempt, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { used = i.Conn },
	}), d)
	if err != nil {
		return err
	}
	answer, err := c.http.Load().RoundTrip(r)
	if err != nil {
		c.abandon(used)
		return failure(ctx, attempt, err, timeout)
	}
	c.drop(answer)
	return verdict(answer.StatusCode)
}

// enter waits for a place among the deliveries to the host. That time is not the receiver's, so it is not part of an
// attempt.
func (c *Carrier) enter(ctx context.Context, tenant string) (leave func(), err error) {
	own, err := c.sender.tenants.enter(ctx, tenant+" "+c.host, perTenant)
	if err != nil {
		return nil, err
	}
	all, err := c.sender.hosts.enter(ctx, c.host, perHost)
	if err != nil {
		own()
		return nil, err
	}
	return func() { all(); own() }, nil
}

func (c *Carrier) request(ctx context.Context, d *sinks.Delivery) (*http.Request, error) {
	body := appendBody(nil, d)
	now := c.sender.options.Now()
	signature, err := sign(secrets.Valid(c.secrets, now), d.ID, now, body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	r.Close = !c.reuse.Load()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "tallystick/"+c.sender.options.Version)
	r.Header.Set(standardwebhooks.HeaderWebhookID, d.ID)
	r.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	r.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	return r, nil
}

// sign returns a signature for every secret. A delivery that nobody could verify is not sent.
func sign(with []secrets.Validity, id string, at time.Time, body []byte) (string, error) {
	if len(with) == 0 {
		return "", errors.New("the sink has no valid secret: rotate it")
	}
	out := make([]string, len(with))
	for i, v := range with {
		key, err := standardwebhooks.NewWebhook(v.Secret.Reveal())
		if err != nil {
			// The cause quotes parts of the secret.
			return "", errors.New("a secret of the sink cannot be used: rotate it")
		}
		if out[i], err = key.Sign(id, at, body); err != nil {
			return "", fmt.Errorf("sign the delivery: %w", err)
		}
	}
	return strings.Join(out, " "), nil
}

// drop reads what there is to an answer, within bounds, and decides whether the connection serves again.
func (c *Carrier) drop(answer *http.Response) {
	// The body after 101 is the connection itself, which no timeout ends.
	if answer.StatusCode != http.StatusSwitchingProtocols {
		_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer) // its outcome changes nothing: the status has arrived
	}
	_ = answer.Body.Close()
	again := answer.ProtoMajor >= 2
	if c.reuse.Swap(again) && !again {
		c.http.Load().CloseIdleConnections() // this one was to be kept, and must not be
	}
}

// abandon makes the next attempt connect anew: the connection that failed may be one that only looks open. It ends at
// once, but the transport may not have noticed by then, so that is replaced too.
func (c *Carrier) abandon(used net.Conn) {
	c.reuse.Store(false)
	c.http.Swap(c.transport()).CloseIdleConnections()
	if encrypted, ok := used.(*tls.Conn); ok {
		used = encrypted.NetConn() // closing the outer one may wait for the receiver
	}
	if used != nil {
		_ = used.Close()
	}
}

// Close implements sinks.Carrier.
func (c *Carrier) Close() error {
	c.http.Load().CloseIdleConnections()
	return nil
}
