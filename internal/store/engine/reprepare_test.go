package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// Given facts that were prepared, when a change of their meters is committed before they are decided, then they are
// judged by the meters as they are now: the two halves of Record, with the change between them.
func TestAChangeThatWasCommittedFirstDecides(t *testing.T) {
	e := mustOpen(t, tiny(vfs.NewMem(), storetest.NewClock().Now))
	defer mustEnd(t, e)
	typed := storetest.NewMeter("typed", meter.Sum)
	typed.EventType = "hit"
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum), typed); err != nil {
		t.Fatal(err)
	}
	hit := storetest.Fact("hit", "", "c", storetest.Ago(0), "1")
	hit.Type = "hit"
	events := []usage.Event{hit, storetest.Fact("soon", "calls", "c", storetest.Ago(-30*time.Minute), "1"),
		storetest.Fact("new", "later", "c", storetest.Ago(0), "1")}
	b, err := e.book("acme")
	if err != nil {
		t.Fatal(err)
	}
	w, err := e.prepare(b, "", events)
	if err != nil {
		t.Fatal(err)
	}
	err = e.Update(context.Background(), "acme", func(tx store.Tx) error {
		strict, twin := storetest.NewMeter("calls", meter.Sum), storetest.NewMeter("twin", meter.Count)
		strict.Future, twin.EventType = 0, "hit"
		for _, m := range []meter.Meter{strict, twin, storetest.NewMeter("later", meter.Sum)} {
			if err := storetest.PutMeter(tx, m); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.submit(context.Background(), &b.queued, w); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, v := range w.verdicts {
		said = append(said, v.Status.String())
	}
	if got := strings.Join(said, " "); got != "accepted rejected accepted" {
		t.Errorf("answered %q", got)
	}
	err = e.View(context.Background(), "acme", func(v store.View) error {
		row, _, err := v.Event(usage.KeyOfID("hit"))
		if err == nil && len(row.Event.Outcomes) != 2 {
			t.Errorf("the fact fed %d meters, want both of its type", len(row.Event.Outcomes))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	storetest.CheckLedger(t, e, "acme")
}
