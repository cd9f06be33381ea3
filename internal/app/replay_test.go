package app

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
)

// A month is recorded over HTTP, replayed and exported from the files, and billed as replayed when the server is back.
func TestReplayAndExportOfAServersLedger(t *testing.T) {
	leaves(t)
	ctx := context.Background()
	settings := testSettings(t)
	s := mustStart(t, settings)
	acme, key := newAcme(t, s, "seats")
	at := time.Now().UTC()
	for id, quantity := range map[string]client.Decimal{"a": "5", "b": "7", "c": "4"} {
		if _, err := acme.SendEvent(ctx, &client.Event{ID: id, Meter: "seats", Customer: "ann", Time: at,
			Quantity: quantity}); err != nil {
			t.Fatal(err)
		}
	}
	mustStop(t, s)

	month := at.Format("2006-01")
	replay := []string{"replay", "--data", settings.Data, "--tenant", "acme", "--period", month}
	if out := run(t, 0, replay...); !strings.Contains(out, "no difference") {
		t.Errorf("got %s", out)
	}
	replay = append(replay, "--aggregation", "max", "--json")
	want := `{"meter":"seats","customer":"ann","on_time_before":"16","on_time_after":"7","total_before":"16",` +
		`"total_after":"7","difference":"-9","refused":0}` + "\n"
	if out := run(t, 0, replay...); out != want {
		t.Errorf("got %s", out)
	}
	apply := append(replay, "--apply", "--reason", "the peak is billed")
	if out := run(t, 0, apply...); !strings.Contains(out, `"adjustment":"adj_`) {
		t.Errorf("got %s", out)
	}
	if out := run(t, 0, apply...); strings.Contains(out, `"adjustment"`) {
		t.Errorf("applied twice: %s", out)
	}
	parts := filepath.Join(t.TempDir(), "export")
	if out := run(t, 0, "export", "--data", settings.Data, "--tenant", "acme", "--out", parts,
		"--json"); !strings.Contains(out, `"rows":3`) {
		t.Errorf("got %s", out)
	}
	if found, err := filepath.Glob(filepath.Join(parts, "acme", "events-*.parquet")); err != nil || len(found) != 1 {
		t.Errorf("%q, %v", found, err)
	}

	s = mustStart(t, settings)
	defer mustStop(t, s)
	page, err := connect(t, s, key).Counters(ctx,
		client.CounterFilter{Meter: "seats", Customer: "ann", Period: month})
	if err != nil || len(page.Items) != 1 || page.Items[0].Total != "7" {
		t.Errorf("%+v, %v", page, err)
	}
}
