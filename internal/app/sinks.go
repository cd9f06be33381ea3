package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/edge/httpapi"
	"github.com/tallystick/tallystick/internal/edge/kafka"
	"github.com/tallystick/tallystick/internal/edge/nats"
	"github.com/tallystick/tallystick/internal/edge/outbound"
	"github.com/tallystick/tallystick/internal/edge/webhook"
	"github.com/tallystick/tallystick/internal/service/secrets"
	"github.com/tallystick/tallystick/internal/service/sinks"
	"github.com/tallystick/tallystick/internal/store"
)

// SinkSettings say how rows are carried to receivers.
type SinkSettings struct {
	// AllowPrivateAddresses lets tenants name receivers at addresses that are not public, this machine's own among
	// them. Default false.
	AllowPrivateAddresses bool `yaml:"allow_private_addresses"`
	// KeyFile holds the keys that secrets of webhooks are encrypted with. Default "": sinks.key in the data directory
	// of the embedded store, which is made when it is needed; of a PostgreSQL store there are then no webhooks.
	KeyFile string `yaml:"key_file"`
	// Timeout bounds an attempt to deliver. Default 15s.
	Timeout time.Duration `yaml:"timeout"`
	// Retries are the pauses after failed attempts; after one more failure a delivery is FAILED. Default 1s, 5s, 30s,
	// 2m, 10m, 1h, 6h, 16h.
	Retries []time.Duration `yaml:"retries"`
	// SecretOverlap is how long a webhook's secret stays valid when another replaces it. Default 24h.
	SecretOverlap time.Duration `yaml:"secret_overlap"`
}

func defaultSinks() SinkSettings {
	return SinkSettings{Timeout: webhook.DefaultTimeout, Retries: sinks.DefaultRetries(),
		SecretOverlap: secrets.Overlap}
}

// maxRetries bounds the attempts to deliver.
const maxRetries = 100

func (s *SinkSettings) check() error {
	if s.Timeout <= 0 {
		return errors.New("sinks.timeout: must be more than 0, for example 15s")
	}
	if s.SecretOverlap < 0 {
		return errors.New("sinks.secret_overlap: must not be negative")
	}
	if len(s.Retries) == 0 || len(s.Retries) > maxRetries {
		return fmt.Errorf("sinks.retries: from 1 to %s", counted(maxRetries, "pause"))
	}
	for i, d := range s.Retries {
		if d <= 0 {
			return fmt.Errorf("sinks.retries[%d]: must be more than 0, for example 5s", i)
		}
	}
	return nil
}

// keyFileName is that of the embedded store.
const keyFileName = "sinks.key"

// vault opens the key file when it is first needed, so that a server without webhooks makes none.
type vault struct {
	path   string // "": there is none
	create bool
	open   sync.Mutex // guards ring
	ring   *secrets.Keyring
}

func (s *Settings) vault() *vault {
	v := &vault{path: s.Sinks.KeyFile}
	if v.path == "" && s.Store == embedded {
		v.path, v.create = filepath.Join(s.Data, keyFileName), true
	}
	return v
}

func (v *vault) keyring() (*secrets.Keyring, error) {
	v.open.Lock()
	defer v.open.Unlock()
	if v.ring != nil {
		return v.ring, nil
	}
	if v.path == "" {
		return nil, problem.New(problem.Conflict, "webhooks need a key file for their secrets: have the operator set "+
			"sinks.key_file")
	}
	ring, err := secrets.Load(v.path, v.create)
	if err != nil {
		return nil, problem.Wrap(problem.Unavailable, err,
			"the key file of the sinks cannot be read: have the operator "+
				"look at the log")
	}
	v.ring = ring
	return ring, nil
}

// Seal implements sinks.Vault.
func (v *vault) Seal(plain []byte, of secrets.Owner) ([]byte, error) {
	ring, err := v.keyring()
	if err != nil {
		return nil, err
	}
	return ring.Seal(plain, of)
}

// Open implements sinks.Vault.
func (v *vault) Open(sealed []byte, of secrets.Owner) ([]byte, error) {
	ring, err := v.keyring()
	if err != nil {
		return nil, err
	}
	return ring.Open(sealed, of)
}

// carriers makes carriers, and judges where they would go.
type carriers struct {
	timeout time.Duration
	dialer  *outbound.Dialer
	sender  *webhook.Sender
	vault   *vault
}

func (s *Settings) carriers(v *vault) *carriers {
	dialer := outbound.New(outbound.Options{AllowPrivate: s.Sinks.AllowPrivateAddresses})
	return &carriers{timeout: s.Sinks.Timeout, dialer: dialer, vault: v,
		sender: webhook.New(webhook.Options{Dial: dialer.DialContext, Timeout: s.Sinks.Timeout,
			Version: thisBuild().Version})}
}

// Carrier implements sinks.Carriers.
func (c *carriers) Carrier(tenantID string, s *sink.Sink) (sinks.Carrier, error) {
	switch s.Way {
	case sink.Kafka:
		return kafka.New(kafka.Options{Brokers: s.Servers, Topic: s.Topic, Dial: c.dialer.DialContext,
			Timeout: c.timeout})
	case sink.NATS:
		return nats.New(nats.Options{Servers: s.Servers, Subject: s.Topic, Dial: c.dialer.DialContext,
			Timeout: c.timeout})
	}
	all, err := sinks.SecretsOf(c.vault, tenantID, s)
	if err != nil {
		return nil, err
	}
	return c.sender.Carrier(webhook.Target{URL: s.URL, Secrets: all})
}

// check refuses a sink whose receiver may not be reached. Errors: Invalid.
func (c *carriers) check(ctx context.Context, s *sink.Sink) error {
	if s.Way == sink.Webhook {
		_, err := webhook.CheckURL(ctx, s.URL, c.dialer.Check)
		return err
	}
	made, err := c.Carrier("", s) // it judges the addresses' form, and connects to nothing
	if err != nil {
		return problem.At(serversOf(s.Way), "%s", err)
	}
	if err := made.Close(); err != nil {
		return err
	}
	for i, address := range s.Servers {
		if err := c.dialer.Check(ctx, hostOf(address)); err != nil {
			return problem.At(fmt.Sprintf("%s[%d]", serversOf(s.Way), i), "%s", err)
		}
	}
	return nil
}

func serversOf(w sink.Way) string {
	if w == sink.Kafka {
		return "brokers"
	}
	return "servers"
}

// hostOf is the host of host:port or of a URL.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Hostname() != "" {
		return u.Hostname()
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// sinkRunner delivers rows to the sinks of all tenants.
func (s *Server) sinkRunner(st store.Store, c *carriers, m *metrics) *sinks.Runner {
	return sinks.NewRunner(st, c, sinks.RunnerOptions{
		Render: httpapi.RowRenderer, Retries: s.settings.Sinks.Retries, AttemptTime: 2 * s.settings.Sinks.Timeout,
		Metrics: m.registry,
		Failed: func(tenantID, sinkID string, err error) {
			s.log.Warn("delivering rows failed; it is tried again", "tenant", tenantID, "sink", sinkID, "error", err)
		},
	})
}
