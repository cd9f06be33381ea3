package client

import (
	"context"
	"net/http"
)

// Health returns nil when the server is alive. It is asked once, without a key.
func (c *Client) Health(ctx context.Context) error { return c.probe(ctx, "/healthz") }

// Ready returns nil when the server can commit now; otherwise the *Problem says
// why not. It is asked once, without a key.
func (c *Client) Ready(ctx context.Context) error { return c.probe(ctx, "/readyz") }

func (c *Client) probe(ctx context.Context, path string) error {
	_, err := c.do(ctx, call{method: http.MethodGet, path: path, probe: true})
	return err
}

// Metrics reads the server's metrics as Prometheus text; it needs the
// operator's key.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	a, err := c.do(ctx, call{method: http.MethodGet, path: "/metrics"})
	if err != nil {
		return "", err
	}
	return string(a.body), nil
}
