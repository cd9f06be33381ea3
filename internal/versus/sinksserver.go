package versus

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/app"
	"github.com/tallystick/tallystick/internal/load"
	"github.com/tallystick/tallystick/internal/loopback"
	"github.com/tallystick/tallystick/internal/service/secrets"
)

const sinksServerCommand = "sinks-server"

// sinksServerJob is the job of the process with the server: tallystick serve, as it is.
type sinksServerJob struct {
	Config  string `json:"config"`
	RootKey string `json:"root_key"`
}

func newSinksServerCommand() *cobra.Command {
	return newChildCommand(sinksServerCommand, "The server of sinks",
		func(ctx context.Context, job sinksServerJob, _ *bufio.Scanner, out io.Writer) error {
			if err := os.Setenv("TALLYSTICK_ROOT_KEY", job.RootKey); err != nil {
				return err
			}
			if code := app.Run(ctx, []string{"serve", "--config", job.Config}, out, os.Stderr); code != 0 {
				return fmt.Errorf("tallystick serve ended with %d", code)
			}
			return nil
		})
}

// sinksServer is a server in a process of its own on a new store with one tenant.
type sinksServer struct {
	posting
	dir     string
	process *childProcess[struct{}]
}

var _ subject = (*sinksServer)(nil)

// serverReady bounds a start on a busy machine.
const serverReady = time.Minute

// startSinksServer starts a server on a new store and makes the workload's tenant.
func startSinksServer(ctx context.Context, b *bench, store string) (_ *sinksServer, err error) {
	dir := b.folder()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for the server: %w", err)
	}
	s := &sinksServer{posting: posting{w: b.w}, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	address, rootKey := loopback.Address(), rand.Text()
	config, err := sinksConfig(ctx, b, dir, store, address)
	if err != nil {
		return nil, err
	}
	job := sinksServerJob{Config: config, RootKey: rootKey}
	if s.process, err = startChild[struct{}](ctx, sinksServerCommand, job); err != nil {
		return nil, err
	}
	s.to.URL = &url.URL{Scheme: "http", Host: address}
	return s, s.setUp(ctx, rootKey)
}

// sinksConfig writes the settings of a server: those of a new installation but for where it is, and receivers may be on
// this machine.
func sinksConfig(ctx context.Context, b *bench, dir, store, address string) (string, error) {
	key := filepath.Join(dir, "sinks.key")
	if _, err := secrets.Load(key, true); err != nil {
		return "", fmt.Errorf("make a key file: %w", err)
	}
	at := "embedded"
	if store == postgresStore {
		if err := anew(ctx, b.cluster.URL(adminDatabase), storeDatabase); err != nil {
			return "", err
		}
		at = b.cluster.URL(storeDatabase)
	}
	// JSON is YAML, too.
	text, err := json.Marshal(map[string]any{
		"data": filepath.Join(dir, "data"), "listen": address, "store": at, "log": map[string]string{"level": "warn"},
		"sinks": map[string]any{"allow_private_addresses": true, "key_file": key},
	})
	if err != nil {
		return "", fmt.Errorf("write settings: %w", err)
	}
	path := filepath.Join(dir, "config.yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// setUp waits for the server and makes the tenant.
func (s *sinksServer) setUp(ctx context.Context, rootKey string) error {
	operator, err := client.New(s.to.URL.String(), rootKey)
	if err != nil {
		return err
	}
	defer operator.CloseIdleConnections()
	ready, cancel := context.WithTimeout(ctx, serverReady)
	defer cancel()
	for err := operator.Ready(ready); err != nil; err = operator.Ready(ready) {
		if !sleep(ready, countEvery) {
			return fmt.Errorf("the server is not ready: %w", err)
		}
	}
	made, err := operator.CreateTenant(ctx, client.NewTenant{ID: tenantID(0), Name: tenantID(0)})
	if err != nil {
		return fmt.Errorf("make tenant: %w", err)
	}
	s.to.Keys = []string{made.APIKey}
	tenant, err := client.New(s.to.URL.String(), made.APIKey)
	if err != nil {
		return err
	}
	defer tenant.CloseIdleConnections()
	for _, slug := range s.w.Meters() {
		if _, err := tenant.CreateMeter(ctx, client.Meter{Slug: slug, Aggregation: "sum"}); err != nil {
			return fmt.Errorf("make meter: %w", err)
		}
	}
	return nil
}

// attach makes a sink of the tenant that delivers its events from the first one on.
func (s *sinksServer) attach(ctx context.Context, o outlet, place string, batch int) error {
	body, err := o.open(ctx, place)
	if err != nil {
		return fmt.Errorf("%s: %w", o.name(), err)
	}
	body["name"], body["start"], body["rows"], body["batch"] = o.name(), "beginning", []string{"event"}, batch
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.to.URL.String()+"/v1/sinks", bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+s.to.Keys[0])
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("make a sink: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	said, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("make a sink: answer %d %.300s: %w", answer.StatusCode, said, err)
	}
	return nil
}

func (s *sinksServer) submitter(ctx context.Context) (func(*load.Batch) error, error) {
	sender, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	return sender.Send, nil
}

// check has nothing to add: senders compare every verdict, and what sinks have is counted where it arrives.
func (s *sinksServer) check(context.Context, []*load.Stream, sample) error { return nil }

// close stops the server as an operator does, so that its connections to a database end with it.
func (s *sinksServer) close() error {
	s.disconnect()
	var err error
	if s.process != nil && !s.process.ended {
		if err = s.process.signal(syscall.SIGTERM); err == nil {
			err = s.process.wait()
		}
		err = errors.Join(err, s.process.kill())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// sleep waits, and returns false if the context ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
