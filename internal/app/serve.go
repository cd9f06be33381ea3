package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/heap"
)

func newServeCommand() *cobra.Command {
	var file string
	var asJSON bool
	flags := defaultSettings()
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve a ledger over HTTP",
		Long: `Serves the API on one address. The first start makes the operator's key and prints it
once, unless TALLYSTICK_ROOT_KEY sets one. SIGTERM and SIGINT drain and stop.`,
		Example: `  tallystick serve --data ./data
  tallystick serve --store postgres://tallystick@db.internal/ledger
  tallystick serve --listen 0.0.0.0:8443 --tls-cert tls.crt --tls-key tls.key
  TALLYSTICK_ROOT_KEY=… tallystick serve --config tallystick.yaml --listen 0.0.0.0:8080`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			settings, err := settingsOf(c, file, &flags)
			if err != nil {
				return &usageError{err}
			}
			if asJSON {
				settings.Log.Format = "json"
			}
			return serve(c, settings, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&file, "config", "", "`FILE` of settings, see tallystick config example; flags win over it")
	f.StringVar(&flags.Data, "data", flags.Data, "directory of the embedded store")
	f.StringVar(&flags.Listen, "listen", flags.Listen, "address of the API; port 0 takes a free one")
	f.StringVar(&flags.Store, "store", flags.Store,
		"where the ledger is kept: embedded, or postgres://… (then --data is not needed)")
	f.StringVar(&flags.MetricsListen, "metrics-listen", flags.MetricsListen,
		"an address of its own for /metrics, without a key")
	f.StringVar(&flags.TLS.Cert, "tls-cert", flags.TLS.Cert,
		"`FILE` of the certificate, in PEM: the server speaks TLS; read again when it changes")
	f.StringVar(&flags.TLS.Key, "tls-key", flags.TLS.Key, "`FILE` of its private key, in PEM")
	f.StringVar(&flags.Log.Format, "log-format", flags.Log.Format, "text or json")
	f.StringVar(&flags.Log.Level, "log-level", flags.Log.Level, "debug (with every request), info, warn or error")
	f.BoolVar(&asJSON, "json", false, "print the address, and the operator's key when it was made, as a line of "+
		"JSON; log as JSON too")
	return c
}

// settingsOf reads the file, then the flags that were given, then the environment.
func settingsOf(c *cobra.Command, file string, flags *Settings) (Settings, error) {
	s, err := loadSettings(file)
	if err != nil {
		return s, err
	}
	for name, set := range map[string]func(){
		"data":           func() { s.Data = flags.Data },
		"listen":         func() { s.Listen = flags.Listen },
		"store":          func() { s.Store = flags.Store },
		"metrics-listen": func() { s.MetricsListen = flags.MetricsListen },
		"tls-cert":       func() { s.TLS.Cert = flags.TLS.Cert },
		"tls-key":        func() { s.TLS.Key = flags.TLS.Key },
		"log-format":     func() { s.Log.Format = flags.Log.Format },
		"log-level":      func() { s.Log.Level = flags.Log.Level },
	} {
		if c.Flags().Changed(name) {
			set()
		}
	}
	s.RootKey = os.Getenv(rootKeyVariable)
	return s, s.check()
}

func newLogger(w io.Writer, l LogSettings) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // the settings were checked
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

func serve(c *cobra.Command, settings Settings, asJSON bool) error {
	heap.Tune()
	log := newLogger(c.ErrOrStderr(), settings.Log)
	s, err := Start(c.Context(), ServerOptions{Settings: settings, Logger: log})
	if err != nil && c.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return nil // stopped before it had started
	}
	if err != nil {
		return err
	}
	if key := settings.RootKey; key != "" && len(key) < safeRootKey {
		log.Warn("the operator's key is short enough to be guessed: choose a longer one", "variable", rootKeyVariable,
			"characters", len(key))
	}
	if err := announce(c.OutOrStdout(), s, asJSON); err != nil {
		return errors.Join(err, s.Shutdown()) // a key that nobody saw is lost: the operator must know
	}
	log.Info("listening", "address", s.Addr(), "metrics", s.MetricsAddr(), "version", thisBuild().Version)
	failed := s.Wait(c.Context())
	if err := s.Shutdown(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return failed
}

// announce prints the operator's key if this start made it, which is the one time that it is seen.
func announce(out io.Writer, s *Server, asJSON bool) error {
	if asJSON {
		return printJSON(out, struct {
			URL         string `json:"url"`
			Metrics     string `json:"metrics,omitempty"`
			OperatorKey string `json:"operator_key,omitempty"`
			Version     string `json:"version"`
		}{s.URL(), s.MetricsAddr(), s.OperatorKey(), thisBuild().Version})
	}
	if key := s.OperatorKey(); key != "" {
		return showKey(out, s.URL(), key)
	}
	return nil
}

func showKey(out io.Writer, url, key string) error {
	_, err := fmt.Fprintf(out,
		`The operator's key was made. It is shown this once and kept only as a hash: store it safely.

    %s

Make a first tenant with it:

    curl -s %s/v1/tenants -H 'Content-Type: application/json' \
      -H 'Authorization: Bearer %s' -d '{"id":"acme","name":"Acme"}'

`, key, url, key)
	return err
}
