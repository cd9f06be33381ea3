package app

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/pgtest"
)

// Given a ledger in a data directory, when it is moved to a database, added to there by a server, and moved back to another
// directory, then both moves verify, a fact of the first days is still a duplicate, and a second run moves nothing.
func TestALedgerMovesToADatabaseAndBack(t *testing.T) {
	leaves(t)
	url, err := pgtest.Private(t).Create("")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	settings := testSettings(t)
	s := mustStart(t, settings)
	made, err := connect(t, s, testRootKey).CreateTenant(ctx, client.NewTenant{ID: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	acme := connect(t, s, made.APIKey)
	if _, err := acme.CreateMeter(ctx, client.Meter{Slug: "calls", Aggregation: "sum"}); err != nil {
		t.Fatal(err)
	}
	fact := client.Event{ID: "e1", Meter: "calls", Customer: "c1", Quantity: "3", Time: time.Now().Add(-time.Minute)}
	expect(t, acme, fact, "accepted")
	mustStop(t, s)

	run(t, 0, "migrate", "--store", url)
	run(t, 0, "move", "--from", settings.Data, "--to", url)
	if out := run(t, 0, "move", "--from", settings.Data, "--to", url, "--json"); !strings.Contains(out, `"moved":0`) {
		t.Errorf("a second move: %s", out)
	}
	run(t, 0, "verify", "--store", url)

	settings.Store = url
	s = mustStart(t, settings)
	acme = connect(t, s, made.APIKey)
	expect(t, acme, fact, "duplicate")
	fact.ID = "e2"
	expect(t, acme, fact, "accepted")
	mustStop(t, s)

	back := filepath.Join(t.TempDir(), "back")
	run(t, 0, "move", "--from", url, "--to", back)
	run(t, 0, "verify", "--data", back)
	if out := run(t, 1, "move", "--from", settings.Data, "--to", back); !strings.Contains(out, "another ledger") {
		t.Errorf("an older ledger over a newer one: %s", out)
	}
	settings.Store, settings.Data = embedded, back
	s = mustStart(t, settings)
	acme = connect(t, s, made.APIKey)
	expect(t, acme, fact, "duplicate")
	counters, err := acme.Counters(ctx, client.CounterFilter{Meter: "calls"})
	if err != nil || len(counters.Items) != 1 || counters.Items[0].Total != "6" {
		t.Errorf("%+v, %v", counters, err)
	}
	mustStop(t, s)
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
