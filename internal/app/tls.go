package app

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// TLSSettings name the certificate of the API and of metrics_listen. Both or none.
type TLSSettings struct {
	// Cert is the file of the certificate and of those between it and its root, in PEM. Default "": plain HTTP.
	Cert string `yaml:"cert"`
	// Key is the file of its private key, in PEM. Default "".
	Key string `yaml:"key"`
}

func (s TLSSettings) on() bool { return s.Cert != "" }

func (s TLSSettings) check() error {
	if (s.Cert == "") != (s.Key == "") {
		return errors.New("tls: cert and key are set together, or neither")
	}
	return nil
}

// config loads the certificate; nil: TLS is off.
func (s TLSSettings) config(log *slog.Logger) (*tls.Config, error) {
	if !s.on() {
		return nil, nil
	}
	c := &certificate{files: s, log: log}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: c.current},
		nil
}

// certificate is the pair in the files. It looks at them at every handshake, which costs little beside one: what is
// there is in force at once, and no clock or sign of change need be trusted. While the files hold no pair, the last
// that they held stays.
type certificate struct {
	files TLSSettings
	log   *slog.Logger

	mu        sync.Mutex // guards all below
	cert, key []byte     // as last read, whatever they were
	good      *tls.Certificate
	failed    string // why the files hold no pair; "": they do
}

// current is tls.Config.GetCertificate.
func (c *certificate) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.failed
	err := c.load()
	switch {
	case err == nil:
		c.failed = ""
	case err.Error() != before:
		c.failed = err.Error()
		c.log.Error("the new TLS certificate is not used; the one before stays in force", "error", err)
	}
	return c.good, nil
}

// load reads the files and takes what is new in them. mu is held, or nobody else knows c.
func (c *certificate) load() error {
	cert, err := os.ReadFile(c.files.Cert)
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	key, err := os.ReadFile(c.files.Key)
	if err != nil {
		return fmt.Errorf("read key: %w", err)
	}
	if bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		if c.failed != "" {
			return errors.New(c.failed)
		}
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		c.cert, c.key = cert, key
		return fmt.Errorf("certificate %s and key %s: %w", c.files.Cert, c.files.Key, err)
	}
	if c.good != nil {
		c.log.Info("a new TLS certificate is in force", "certificate", c.files.Cert)
	}
	c.cert, c.key, c.good = cert, key, &pair
	return nil
}
