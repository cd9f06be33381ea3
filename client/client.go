package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// defaultGzipThreshold: below it, compressing costs more than the bytes saved.
	defaultGzipThreshold = 4 << 10
	// defaultMaxAnswer holds a full batch's verdicts and a full page of rows with
	// the largest properties, several times over.
	defaultMaxAnswer = 32 << 20
	// attemptTimeout ends an attempt at a server that accepts and never
	// answers, so that a context without a deadline is not a hang.
	attemptTimeout = 60 * time.Second
	// idlePerHost lets many goroutines share connections instead of reopening
	// them; net/http keeps 2 by default.
	idlePerHost = 64
)

// Client talks to one Tallystick server with one key. It is safe for concurrent
// use; make one and share it.
type Client struct {
	base          string
	apiKey        string
	tenant        string
	userAgent     string
	http          *http.Client
	retry         RetryPolicy
	clock         Clock
	gzipThreshold int
	maxAnswer     int64
	generateIDs   bool
}

// Option changes one default of New.
type Option func(*Client)

// WithHTTPClient replaces the HTTP client, its timeout and its redirect policy.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithTransport replaces the transport, keeping the default timeout and the
// refusal to follow redirects.
func WithTransport(t http.RoundTripper) Option {
	return func(c *Client) { c.http = newHTTPClient(t) }
}

// WithTenant names the tenant that the operator's key acts for.
func WithTenant(id string) Option { return func(c *Client) { c.tenant = id } }

// WithGzip compresses request bodies of at least threshold bytes (default 4096).
func WithGzip(threshold int) Option {
	return func(c *Client) { c.gzipThreshold = max(threshold, 0) }
}

// WithoutGzip sends bodies as they are.
func WithoutGzip() Option { return func(c *Client) { c.gzipThreshold = -1 } }

// WithRetry replaces the retry policy; fields left at zero keep their defaults.
func WithRetry(p RetryPolicy) Option {
	return func(c *Client) { c.retry = p.withDefaults() }
}

// WithUserAgent replaces the User-Agent, "tallystick-go".
func WithUserAgent(ua string) Option { return func(c *Client) { c.userAgent = ua } }

// WithClock replaces the clock that retries and Batchers wait by.
func WithClock(clock Clock) Option { return func(c *Client) { c.clock = clock } }

// WithMaxAnswer bounds how much of one answer is read, after decompression
// (default 32 MiB).
func WithMaxAnswer(bytes int64) Option { return func(c *Client) { c.maxAnswer = bytes } }

// WithoutGeneratedIDs sends events without an id as they are. The server then
// derives their key from their fields, which needs a time.
func WithoutGeneratedIDs() Option { return func(c *Client) { c.generateIDs = false } }

// New returns a client for the server at baseURL, such as
// "http://127.0.0.1:8080". It does not connect yet. The key may be empty for
// Health and Ready alone.
func New(baseURL, apiKey string, opts ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, errors.New("base URL: not a URL")
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("base URL: want http:// or https:// and a host, got scheme %q, host %q",
			u.Scheme, u.Host)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("base URL: user, query and fragment are not used; pass the key as apiKey")
	}
	c := &Client{
		base:          strings.TrimRight(u.String(), "/"),
		apiKey:        apiKey,
		userAgent:     "tallystick-go",
		retry:         RetryPolicy{}.withDefaults(),
		clock:         systemClock{},
		gzipThreshold: defaultGzipThreshold,
		maxAnswer:     defaultMaxAnswer,
		generateIDs:   true,
	}
	for _, opt := range opts {
		opt(c)
	}
	if c.http == nil {
		c.http = newHTTPClient(newTransport())
	}
	if c.clock == nil {
		return nil, errors.New("clock: nil")
	}
	if c.maxAnswer <= 0 {
		return nil, fmt.Errorf("largest answer: %d bytes is not a bound", c.maxAnswer)
	}
	// Checked here because net/http would refuse them at each attempt, which
	// looks like a network error. The values stay out of the message: one is a
	// secret.
	for name, value := range map[string]string{"API key": c.apiKey, "tenant": c.tenant, "user agent": c.userAgent} {
		if !headerSafe(value) {
			return nil, fmt.Errorf("%s: holds characters that a header cannot carry", name)
		}
	}
	return c, nil
}

// CloseIdleConnections closes connections kept for reuse. Call it when done
// with the client and its server.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   idlePerHost,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// newHTTPClient follows no redirects: usage and a key go where the caller said,
// or nowhere.
func newHTTPClient(t http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: t,
		Timeout:   attemptTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// headerSafe reports whether a value is printable ASCII, all that this API's
// headers hold.
func headerSafe(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
