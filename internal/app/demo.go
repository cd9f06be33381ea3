package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/heap"

	"github.com/tallystick/tallystick/client"
)

// demoSegment is small, so that the demo starts at once and takes little of the disk.
const demoSegment = 4 << 20

func newDemoCommand() *cobra.Command {
	var o demoOptions
	c := &cobra.Command{
		Use:   "demo",
		Short: "See it work: sample tenants, a story of good and bad events, a running server",
		Long: `Starts a server with its store in a temporary directory, plays a short story of events
that are counted, repeated, contradicted, late, early, wrong and corrected, checks every
answer, and then serves a slow stream of events until Ctrl-C.`,
		Example: `  tallystick demo
  tallystick demo --once        exit after the story: 0 when every answer was as expected`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return demo(c, o) },
	}
	f := c.Flags()
	f.StringVar(&o.data, "data", "", "an empty directory for the store, which is kept; default: a temporary one")
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "address of the API; port 0 takes a free one")
	f.BoolVar(&o.once, "once", false, "exit after the story")
	f.BoolVar(&o.json, "json", false, "print each step as a line of JSON")
	return c
}

type demoOptions struct {
	data, listen string
	once, json   bool
}

func demo(c *cobra.Command, o demoOptions) (err error) {
	heap.Tune()
	settings := defaultSettings()
	settings.Data, settings.Listen, settings.Log.Level, settings.Engine.SegmentBytes = o.data, o.listen, "warn",
		demoSegment
	if o.data == "" {
		if settings.Data, err = os.MkdirTemp("", "tallystick-demo-"); err != nil {
			return fmt.Errorf("make a temporary directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(settings.Data)) }()
	} else if names, err := os.ReadDir(o.data); err == nil && len(names) > 0 {
		return wrongUse("%s is not empty: the demo makes a store of its own, in a new directory", o.data)
	}
	settings.RootKey = "demo-" + rand.Text()
	if err := settings.check(); err != nil {
		return &usageError{err}
	}
	s, err := Start(c.Context(), ServerOptions{Settings: settings, Logger: newLogger(c.ErrOrStderr(), settings.Log)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Shutdown()) }()
	shown := &story{ctx: c.Context(), out: c.OutOrStdout(), json: o.json, url: s.URL(), rootKey: settings.RootKey}
	if err := shown.play(); err != nil {
		return err
	}
	if o.once {
		return nil
	}
	if !o.json {
		shown.whereToLook()
	}
	return shown.stream(s.Wait)
}

// whereToLook prints what a person can paste.
func (s *story) whereToLook() {
	fmt.Fprintf(s.out, `
Where to look (this server runs until Ctrl-C, with a few events a second):

    export KEY=%s

    curl -s %[2]s/v1/counters -H "Authorization: Bearer $KEY"
    curl -s %[2]s/v1/events/req_8f2 -H "Authorization: Bearer $KEY"
    curl -s '%[2]s/v1/adjustments?limit=5' -H "Authorization: Bearer $KEY"
    curl -s %[2]s/v1/events -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \
      -d '{"id":"mine_1","meter":"api_calls","customer":"cus_42","quantity":"3"}'

    curl -s %[2]s/v1/tenants -H "Authorization: Bearer %[3]s"     (the operator's key)
    curl -s %[2]s/metrics -H "Authorization: Bearer %[3]s"

`, s.tenantKey, s.url, s.rootKey)
}

// newStreamID makes the ids of the stream unlike those of any stream before it in the same directory.
func newStreamID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return "stream_" + hex.EncodeToString(b[:])
}

// connect makes a client of one attempt: the story is of the server, not of retries.
func (s *story) connect(key string) (*client.Client, error) {
	c, err := client.New(s.url, key, client.WithRetry(client.RetryPolicy{MaxAttempts: 1}))
	if err != nil {
		return nil, err
	}
	s.clients = append(s.clients, c)
	return c, nil
}

// story is the demo under way.
type story struct {
	ctx       context.Context
	out       io.Writer
	json      bool
	url       string
	rootKey   string
	tenantKey string
	tenant    *client.Client // acme, who most of the story is about
	other     *client.Client // globex
	clients   []*client.Client
	steps     int
	wrong     int
}
