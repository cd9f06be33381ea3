package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/pgtest"
)

// served is a server with two tenants that somebody keeps writing to.
// It sends them one after the other, and not for ever, so that the commands have a processor, too.
type served struct {
	*testing.T
	settings Settings
	server   *Server
	keys     map[string]string
	stop     func()
}

func newServed(t *testing.T, settings Settings) *served {
	t.Helper()
	ctx := context.Background()
	s := &served{T: t, settings: settings, server: mustStart(t, settings),
		keys: map[string]string{"operator": testRootKey}}
	var writers sync.WaitGroup
	done := make(chan struct{})
	for _, id := range []string{"acme", "bolt"} {
		made, err := connect(t, s.server, testRootKey).CreateTenant(ctx, client.NewTenant{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		s.keys[id] = made.APIKey
		c := connect(t, s.server, made.APIKey)
		if _, err := c.CreateMeter(ctx, client.Meter{Slug: "seats", Aggregation: "sum"}); err != nil {
			t.Fatal(err)
		}
		send := func(n int) {
			e := client.Event{ID: fmt.Sprint("e", n), Meter: "seats", Customer: fmt.Sprint("c", n%3),
				Quantity: client.Decimal(fmt.Sprint(1 + n%5))}
			if _, err := c.SendEvent(ctx, &e); err != nil {
				t.Errorf("beside the command: %v", err)
			}
		}
		for n := range 20 {
			send(n)
		}
		writers.Go(func() {
			for n := 21; n < 900; n += 3 { // of c0 alone: a counter that changes all the time cannot be replayed
				select {
				case <-done:
					return
				default:
					send(n)
				}
			}
		})
	}
	s.stop = sync.OnceFunc(func() { close(done); writers.Wait() })
	return s
}

// ask runs a command against the server with somebody's key.
func (s *served) ask(who string, code int, args ...string) string {
	s.Helper()
	s.Setenv(keyVariable, s.keys[who])
	return run(s.T, code, append(args, "--url", s.server.URL())...)
}

// Given a server that takes events, when it is asked to verify, export and replay, then it does so beside them: for all
// with the operator's key, for one's own with a tenant's; and what it gives is what the commands give of the store at
// rest.
func TestAServerIsAskedWhileItServes(t *testing.T) {
	for _, store := range []string{embedded, "postgres"} {
		t.Run(store, func(t *testing.T) {
			leaves(t)
			settings := testSettings(t)
			at := []string{"--data", settings.Data}
			if store != embedded {
				url, err := pgtest.Private(t).Create("")
				if err != nil {
					t.Fatal(err)
				}
				settings.Store, at = url, []string{"--store", url}
			}
			s := newServed(t, settings)
			s.verifies()
			s.replays()
			s.exports(at)
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

func (s *served) verifies() {
	s.Helper()
	for who, want := range map[string]string{"operator": "of 2 tenants and of the operator's own ledger",
		"acme": "of 1 tenant,"} {
		if out := s.ask(who, exitOK, "verify"); !strings.Contains(out, "ok: ") || !strings.Contains(out, want) {
			s.Errorf("%s: %s", who, out)
		}
	}
	if out := s.ask("operator", exitOK, "verify", "--tenant", "bolt", "--json"); !strings.Contains(out,
		`"ok":true,"tenants":1,"operator":false`) {
		s.Errorf("one tenant: %s", out)
	}
	if out := s.ask("acme", exitFailed, "verify", "--tenant", "bolt"); !strings.Contains(out, "forbidden") {
		s.Errorf("another's: %s", out)
	}
	if out := s.ask("operator", exitFailed, "verify", "--tenant", "nobody"); !strings.Contains(out, "not_found") {
		s.Errorf("nobody's: %s", out)
	}
}

func (s *served) replays() {
	s.Helper()
	month := time.Now().UTC().Format("2006-01")
	replay := []string{"replay", "--period", month, "--meter", "seats", "--aggregation", "max"}
	if out := s.ask("acme", exitOK, replay...); !strings.Contains(out, "nothing was changed") || !strings.Contains(out,
		"c2") {
		s.Errorf("a replay: %s", out)
	}
	apply := append(replay, "--apply", "--reason", "the peak", "--customer", "c1", "--json")
	if out := s.ask("operator", exitOK, append(apply, "--tenant", "bolt")...); !strings.Contains(out,
		`"total_after":"5"`) || !strings.Contains(out, `"adjustment":"adj_`) {
		s.Errorf("an applied replay: %s", out)
	}
	if out := s.ask("acme", exitFailed, append(apply, "--tenant", "bolt")...); !strings.Contains(out, "forbidden") {
		s.Errorf("another's: %s", out)
	}
	if out := s.ask("operator", exitUsage, apply...); !strings.Contains(out, "--tenant") {
		s.Errorf("the operator for nobody: %s", out)
	}
}

// exports takes a part of the rows while they come, and the rest when they have ended; together they are the store's at
// rest.
func (s *served) exports(at []string) {
	s.Helper()
	dir := s.TempDir()
	type one struct{ who, kind, format, tenant string }
	var all []one
	for kind, format := range map[string]string{"events": "csv", "changes": "ndjson"} {
		all = append(all, one{"operator", kind, format, ""}, one{"operator", kind, format, "bolt"}, one{"acme", kind,
			format, "acme"})
	}
	args := func(o one, from string) []string {
		out := []string{"export", "--rows", o.kind, "--format", o.format, "--part-rows", "70", "--out",
			filepath.Join(dir,
				from, fmt.Sprint(o))}
		if o.tenant != "" {
			out = append(out, "--tenant", o.tenant)
		}
		return out
	}
	for _, o := range all {
		s.ask(o.who, exitOK, args(o, "there")...)
	}
	s.stop()
	for _, o := range all {
		s.ask(o.who, exitOK, args(o, "there")...)
	}
	if out := s.ask("operator", exitFailed, "export", "--meter", "none", "--out", filepath.Join(dir,
		"none")); !strings.Contains(out, "not_found") {
		s.Errorf("a meter that is not there: %s", out)
	}
	if out := s.ask("acme", exitFailed, "export", "--tenant", "bolt", "--out", filepath.Join(dir,
		"none")); !strings.Contains(out, "forbidden") {
		s.Errorf("another's: %s", out)
	}
	mustStop(s.T, s.server)
	for _, o := range all {
		run(s.T, exitOK, append(args(o, "here"), at...)...)
		here, there := joinedFiles(s.T, filepath.Join(dir, "here", fmt.Sprint(o))), joinedFiles(s.T, filepath.Join(dir,
			"there", fmt.Sprint(o)))
		if len(here) == 0 || !bytes.Equal(here, there) {
			s.Errorf("%v: %d bytes of the store, %d of its server", o, len(here), len(there))
		}
	}
}

// joinedFiles is the content of the parts below a folder, in order, without the headers of all but the first.
func joinedFiles(t *testing.T, dir string) []byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*", "*-*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if header, rest, ok := bytes.Cut(b, []byte("\n")); ok && bytes.HasPrefix(header, []byte("tenant,")) {
			b = rest
		}
		out = append(out, b...)
	}
	return out
}

func TestWrongUseOfURL(t *testing.T) {
	t.Setenv(keyVariable, "")
	for _, c := range []struct{ args, want string }{
		{"verify --url http://127.0.0.1:1", keyVariable},
		{"verify --url 127.0.0.1:1", "http://host:port"},
		{"verify --url http://127.0.0.1:1 --data d", "url"},
		{"verify --tenant acme", "--tenant goes with --url"},
		{"export --url http://127.0.0.1:1 --store postgres://x --out o", "url"},
		{"replay --url http://127.0.0.1:1", "--period"},
	} {
		if out := run(t, exitUsage, strings.Fields(c.args)...); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s", c.args, out)
		}
	}
	t.Setenv(keyVariable, "k")
	for answer, want := range map[string]string{
		"hello\n": "is --url right?",
		`{"progress":{"stage":"recounting","done":1,"total":2}}` + "\n": "cut off",
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w,
				answer)
		}))
		if out := run(t, exitFailed, "verify", "--url", h.URL); !strings.Contains(out, want) {
			t.Errorf("%s: %s", answer, out)
		}
		h.Close()
	}
	http.DefaultClient.CloseIdleConnections()
}
