package engine

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

func openWithDays(t *testing.T) (*Engine, *storetest.Clock) {
	t.Helper()
	clock := storetest.NewClock()
	e, err := Open(Options{Dir: "data", FS: vfs.NewMem(), Now: clock.Now, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	return e, clock
}

func recordOne(t *testing.T, e *Engine, id string, at calendar.Micros) {
	t.Helper()
	v, err := e.Record(context.Background(),
		store.Batch{Tenant: "acme", Events: []usage.Event{storetest.Fact(id, "calls", "c", at, "1")}})
	if err != nil || !v[0].Kept() {
		t.Fatalf("record: %v, %v", v, err)
	}
}

// Given a checkpoint that is being written, when a fact comes for an hour that it saves, then it saves the hour without
// the fact: a start would replay that, and count it twice.
func TestADayThatIsBeingSavedDoesNotChange(t *testing.T) {
	e, _ := openWithDays(t)
	recordOne(t, e, "a", storetest.Ago(0))
	var saved []savedDay
	enough := errors.New("enough")
	err := e.Update(t.Context(), "acme", func(store.Tx) error { // the decider runs it, which begins checkpoints
		saved = e.days.freeze()
		return enough
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	before := usage.AppendDay(nil, saved[0].value)
	recordOne(t, e, "b", storetest.Ago(0))
	if now := usage.AppendDay(nil, saved[0].value); !bytes.Equal(before, now) {
		t.Errorf("the day to save was %x and is %x", before, now)
	}
	storetest.CheckLedger(t, e, "acme")
}

// Given more days than are held in memory, when a checkpoint ends, then those that it saved leave, and are read again
// when they are asked for or changed.
func TestDaysLeaveMemory(t *testing.T) {
	e, _ := openWithDays(t)
	e.mu.Lock()
	e.days.limit = 3
	e.mu.Unlock()
	day := calendar.Day(1).Hour(0)
	for i := range 9 {
		recordOne(t, e, string(rune('a'+i)), storetest.Ago(0)-calendar.Micros(i)*day)
	}
	if err := e.checkpointed(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.mu.RLock()
	left := e.days.count
	e.mu.RUnlock()
	if left != 0 {
		t.Errorf("%d days are still in memory", left)
	}
	storetest.CheckLedger(t, e, "acme")
	recordOne(t, e, "again", storetest.Ago(0)-8*day)
	storetest.CheckLedger(t, e, "acme")
}

// Given a view, when a meter and its first fact come after it began, then hours move the view on to where they are, and
// the rows up to there can be read with it.
func TestHoursMoveTheViewOn(t *testing.T) {
	e, _ := openWithDays(t)
	recordOne(t, e, "a", storetest.Ago(0))
	hours := store.HourQuery{Meter: 1, From: storetest.Month.Start(), To: storetest.Month.End()}
	err := e.View(t.Context(), "acme", func(v store.View) error {
		before := v.Head().Seq
		err := e.Update(t.Context(), "acme", func(tx store.Tx) error {
			return storetest.PutMeter(tx, storetest.NewMeter("later", meter.Sum))
		})
		if err != nil {
			return err
		}
		later := storetest.Fact("b", "later", "c", storetest.Ago(0), "1")
		if _, err := e.Record(t.Context(), store.Batch{Tenant: "acme", Events: []usage.Event{later}}); err != nil {
			return err
		}
		upTo, kept, err := v.Hours(hours, func(*store.Hour) error { return nil })
		if err != nil || !kept || upTo <= before || v.Head().Seq < upTo {
			t.Errorf("hours up to row %d of %d, kept %t: %v", upTo, v.Head().Seq, kept, err)
		}
		rows := 0
		err = v.Slice(store.SliceQuery{Meter: 2, From: hours.From, To: hours.To, UpTo: upTo},
			func(s *store.Slice) error {
				rows += s.Len()
				return nil
			})
		if rows != 1 {
			t.Errorf("%d rows of the new meter", rows)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
