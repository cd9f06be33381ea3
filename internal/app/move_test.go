package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/pgtest"
)

// Given a ledger in a data directory, when it is moved to a database, added to there by a server, and moved back to
// another directory, then both moves verify, a fact of the first days is still a duplicate, and a second run moves
// nothing.
func TestALedgerMovesToADatabaseAndBack(t *testing.T) {
	leaves(t)
	url, err := pgtest.Private(t).Create("")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	settings := testSettings(t)
	s := mustStart(t, settings)
	acme, key := newAcme(t, s, "calls")
	fact := client.Event{ID: "e1", Meter: "calls", Customer: "c1", Quantity: "3", Time: time.Now().Add(-time.Minute)}
	expect(t, acme, fact, "accepted")
	mustStop(t, s)

	run(t, 0, "migrate", "--store", url)
	run(t, 0, "move", "--from", settings.Data, "--to", url)
	if out := run(t, 0, "move", "--from", settings.Data, "--to", url, "--json"); !strings.Contains(out,
		`"moved":0,"marked":0`) {
		t.Errorf("a second move: %s", out)
	}
	onlyRead(t, settings, key, shownStore(&Settings{Store: url}))
	run(t, 0, "verify", "--store", url)
	if out := run(t, 0, "rebuild", "--store", url); !strings.Contains(out, "ok: hours added up again from ") {
		t.Errorf("rebuild: %s", out)
	}
	run(t, 0, "verify", "--store", url)
	if out := run(t, 0, "rebuild", "--store", url, "--json"); !strings.Contains(out, `"ok":true,"rows":`) {
		t.Errorf("rebuild: %s", out)
	}
	run(t, 2, "rebuild", "--store", "mysql://there")

	settings.Store = url
	s = mustStart(t, settings)
	acme = connect(t, s, key)
	expect(t, acme, fact, "duplicate")
	fact.ID = "e2"
	expect(t, acme, fact, "accepted")
	mustStop(t, s)

	if out := run(t, 1, "move", "--from", url, "--to", strings.Replace(url, "host=/", "host=/./",
		1)); !strings.Contains(out, "under two names") {
		t.Errorf("a database moved to itself: %s", out)
	}
	still := mustStart(t, settings) // a node that nobody stopped
	back := filepath.Join(t.TempDir(), "back")
	run(t, 0, "move", "--from", url, "--to", back)
	run(t, 0, "verify", "--data", back)
	if out := run(t, 0, "move", "--from", url, "--to", back); !strings.Contains(out, "already") {
		t.Errorf("a second move: %s", out)
	}
	fact.ID = "e3"
	refusesAsMoved(t, connect(t, still, key), fact, back)
	mustStop(t, still)
	fact.ID = "e2"
	if out := run(t, 1, "move", "--from", settings.Data, "--to", back); !strings.Contains(out, "was moved to") {
		t.Errorf("an older ledger over a newer one: %s", out)
	}
	settings.Store, settings.Data = embedded, back
	s = mustStart(t, settings)
	acme = connect(t, s, key)
	expect(t, acme, fact, "duplicate")
	counters, err := acme.Counters(ctx, client.CounterFilter{Meter: "calls"})
	if err != nil || len(counters.Items) != 1 || counters.Items[0].Total != "6" {
		t.Errorf("%+v, %v", counters, err)
	}
	mustStop(t, s)
}

// onlyRead wants a server on a source that was moved to say so at its start and to every writer, and to answer readers.
func onlyRead(t *testing.T, settings Settings, key, place string) {
	t.Helper()
	var log bytes.Buffer
	s, err := Start(context.Background(), ServerOptions{Settings: settings, Logger: newLogger(&log, settings.Log)})
	if err != nil {
		t.Fatal(err)
	}
	defer mustStop(t, s)
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), place) {
		t.Errorf("the start does not warn: %s", log.String())
	}
	ctx, c := context.Background(), connect(t, s, key)
	refusesAsMoved(t, c, client.Event{ID: "e1", Meter: "calls", Customer: "c1", Quantity: "3"}, place)
	if _, err := connect(t, s, testRootKey).CreateTenant(ctx, client.NewTenant{ID: "late"}); codeOf(err) != "moved" {
		t.Errorf("a new tenant: %v", err)
	}
	if _, err := c.CreateMeter(ctx, client.Meter{Slug: "more", Aggregation: "sum"}); codeOf(err) != "moved" {
		t.Errorf("a new meter: %v", err)
	}
	if err := c.Ready(ctx); codeOf(err) != "moved" {
		t.Errorf("readyz: %v", err)
	}
	counters, err := c.Counters(ctx, client.CounterFilter{Meter: "calls"})
	if err != nil || len(counters.Items) != 1 || counters.Items[0].Total != "3" {
		t.Errorf("%+v, %v", counters, err)
	}
}

func refusesAsMoved(t *testing.T, c *client.Client, e client.Event, place string) {
	t.Helper()
	_, err := c.SendEvent(context.Background(), &e)
	var p *client.Problem
	if !errors.As(err, &p) || p.Code != "moved" || p.Status != http.StatusServiceUnavailable ||
		!strings.Contains(p.Detail, place) {
		t.Errorf("an event after the move: %v", err)
	}
}

func codeOf(err error) string {
	var p *client.Problem
	if !errors.As(err, &p) {
		return fmt.Sprint(err)
	}
	return p.Code
}

func expect(t *testing.T, c *client.Client, e client.Event, status client.Status) {
	t.Helper()
	answer, err := c.SendEvent(context.Background(), &e)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Status != status {
		t.Errorf("%s is %s, want %s", e.ID, answer.Status, status)
	}
}

// run runs a command line and returns what it printed.
func run(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if got := Run(context.Background(), args, &out, &out); got != code {
		t.Fatalf("tallystick %s: exit code %d, want %d: %s", strings.Join(args, " "), got, code, out.String())
	}
	return out.String()
}

func TestAPasswordIsNotShown(t *testing.T) {
	s := Settings{Store: "postgres://user:secret@db.internal:5432/ledger?sslpassword=secret"}
	if got := shownStore(&s); got != "postgres://db.internal:5432/ledger" {
		t.Errorf("shown as %s", got)
	}
}
