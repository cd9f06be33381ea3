package app

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/pgtest"
)

// Given a copy of a data directory and facts that came after it was made, when the copy is brought back and begins an
// epoch, then the command says since when to send again, every fact sent again is counted once, both ledgers verify,
// and the epoch is there after a move to a database, which can begin one as well.
func TestACopyThatIsBroughtBackBeginsAnEpoch(t *testing.T) {
	leaves(t)
	settings := testSettings(t)
	s := mustStart(t, settings)
	acme, key := newAcme(t, s, "calls")
	fact := func(id string) client.Event {
		return client.Event{ID: id, Meter: "calls", Customer: "c1", Quantity: "3", Time: time.Now().Truncate(time.Hour)}
	}
	kept, lost := fact("kept"), fact("lost")
	expect(t, acme, kept, "accepted")
	mustStop(t, s)
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(settings.Data)); err != nil {
		t.Fatal(err)
	}
	between := time.Now()
	s = mustStart(t, settings)
	expect(t, connect(t, s, key), lost, "accepted")
	mustStop(t, s)

	settings.Data = copied
	run(t, 2, "epoch", "--data", copied)
	run(t, 2, "epoch", "--data", filepath.Join(copied, "nowhere"), "--reason", "r")
	if out := run(t, 2, "epoch", "--data", copied, "--reason",
		strings.Repeat("r", 501)); !strings.Contains(out, "500") {
		t.Errorf("a reason that is too long: %s", out)
	}
	var begun struct {
		Tenants     int
		Operator    bool
		ResendSince time.Time `json:"resend_since"`
	}
	out := run(t, 0, "epoch", "--data", copied, "--reason", "brought back from a copy", "--json")
	if err := json.Unmarshal([]byte(out), &begun); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if begun.Tenants != 1 || !begun.Operator || begun.ResendSince.IsZero() || begun.ResendSince.After(between) {
		t.Errorf("%s, want a moment before %s", out, between)
	}
	first := begun.ResendSince
	out = run(t, 0, "epoch", "--data", copied, "--reason", "once more", "--json")
	if err := json.Unmarshal([]byte(out), &begun); err != nil || !begun.ResendSince.Equal(first) {
		t.Errorf("a second run says %s, want the same moment as the first, %s: %v", out, first, err)
	}
	s = mustStart(t, settings)
	acme = connect(t, s, key)
	expect(t, acme, kept, "duplicate")
	expect(t, acme, lost, "accepted")
	epochIs(t, acme, 3)
	mustStop(t, s)
	run(t, 0, "verify", "--data", copied)
	run(t, 0, "rebuild", "--data", copied)

	url, err := pgtest.Private(t).Create("")
	if err != nil {
		t.Fatal(err)
	}
	run(t, 0, "migrate", "--store", url)
	run(t, 0, "move", "--from", copied, "--to", url)
	if out := run(t, 1, "epoch", "--data", copied, "--reason", "again"); !strings.Contains(out, "was moved") {
		t.Errorf("an epoch of ledgers that were moved: %s", out)
	}
	if out := run(t, 0, "epoch", "--store", url, "--reason",
		"failover"); !strings.Contains(out, "in 1 tenant and the operator's own ledger") {
		t.Errorf("an epoch in a database: %s", out)
	}
	run(t, 0, "verify", "--store", url)
	settings.Store = url
	s = mustStart(t, settings)
	acme = connect(t, s, key)
	epochIs(t, acme, 4)
	expect(t, acme, lost, "duplicate")
	mustStop(t, s)
}

func epochIs(t *testing.T, c *client.Client, want int) {
	t.Helper()
	got, err := c.Tenant(context.Background(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if got.Epoch != want {
		t.Errorf("the tenant is in epoch %d, want %d", got.Epoch, want)
	}
}
