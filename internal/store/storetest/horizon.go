package storetest

import (
	"context"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Horizon: the floor below which nothing is taken, and months that leave.
var horizonCases = []Case{
	{"a fact below the floor is refused, and one has to say its time", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		floor := Month.Start()
		w.says(acme, "accepted accepted", Fact("old", "calls", "c", floor-1, "1"),
			Untimed(Fact("untimed", "calls", "d", 0, "1")))
		w.moveFloor(acme, floor)
		w.again()
		w.says(acme, "duplicate duplicate rejected:beyond_horizon accepted rejected:invalid rejected:beyond_horizon",
			Fact("old", "calls", "c", floor-1, "1"), Untimed(Fact("untimed", "calls", "d", 0, "1")),
			Fact("new", "calls", "c", floor-1, "1"),
			Fact("edge", "calls", "c", floor, "1"), Untimed(Fact("another", "calls", "c", 0, "1")),
			Correction("fix", "old", "-1"))
		w.code("a floor that moves back", w.s.Update(context.Background(), acme, func(tx store.Tx) error {
			return putFloor(tx, floor-1)
		}), problem.Conflict)
		w.again()
		w.view(acme, func(v store.View) {
			if got := v.Horizon().Floor; got != floor {
				w.Errorf("the floor is %s, want %s", got, floor)
			}
		})
	}},
	{"a month that left is not counted again and keeps its totals", func(w *world) { w.monthLeaves() }},
	{"a month in which everything was refused is no period", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.plan(acme, "none", Hard("calls", "0"))
		w.assign(acme, "c", "none")
		w.says(acme, "rejected:quota_exceeded accepted",
			Fact("a", "calls", "c", (Month-1).Start(), "1"), Fact("b", "calls", "d", Month.Start(), "1"))
		for range 2 {
			w.view(acme, func(v store.View) {
				if p, err := store.Periods(v, 0, 10); err != nil || len(p) != 1 || p[0].Month != Month {
					w.Errorf("periods %+v: %v", p, err)
				}
			})
			w.again()
		}
	}},
	{"nothing leaves that is not archived", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("old", "calls", "c", Month.Start()-1, "1"))
		w.moveFloor(acme, Month.Start())
		if n, err := w.s.Prune(context.Background(), nil); n != 0 || err != nil {
			w.Errorf("%d rows left: %v", n, err)
		}
		w.event(acme, usage.KeyOfID("old"))
	}},
}

func (w *world) moveFloor(id string, floor calendar.Micros) {
	w.Helper()
	w.update(id, func(tx store.Tx) error { return putFloor(tx, floor) })
}

func putFloor(tx store.Tx, floor calendar.Micros) error {
	_, err := tx.Append(change("horizon", "moved", floor.String(), ledger.FloorKind.State(&ledger.Floor{At: floor})))
	return err
}

// archive records in the ledger that a month is archived, as a service does that has read the archive back.
func (w *world) archive(id string, m calendar.Month) {
	w.Helper()
	a := ledger.Archive{Month: m, Manifest: "there.json"}
	for _, r := range w.rows(id, 0) {
		if r.Kind() != ledger.EventRow || r.Event.Month() != m {
			continue
		}
		a.Rows++
		a.End = r.Seq
		if r.Event.Status() == usage.Adjusted {
			a.Stay++
			continue
		}
		if a.First == 0 {
			a.First = r.Seq
		}
		a.Last = r.Seq
	}
	w.update(id, func(tx store.Tx) error {
		base := ledger.Base{Month: m}
		err := tx.Counters(store.CounterPlace{Month: m}, func(p store.CounterPlace, c *usage.Counter) bool {
			if p.Month == m {
				base.Counters = append(base.Counters,
					ledger.BaseCounter{Meter: w.numbers[p.Meter], Customer: strings.Clone(p.Customer), Counter: *c})
			}
			return p.Month == m
		})
		if err != nil {
			return err
		}
		if _, err := tx.Append(change("period", "base_recorded", m.String(),
			ledger.BaseKind.State(&base))); err != nil {
			return err
		}
		_, err = tx.Append(change("period", "archived", m.String(), ledger.ArchiveKind.State(&a)))
		return err
	})
}

// bygone is the tenant of the story below. Its ledger is not among those that are checked row by row: some have left.
const bygone = "bygone"

func (w *world) monthLeaves() {
	meters := []meter.Meter{NewMeter("calls", meter.Sum), NewMeter("peak", meter.Max)}
	if err := Create(w.s, bygone, meters...); err != nil {
		w.Fatalf("create: %v", err)
	}
	w.numbers = map[string]uint32{"calls": 1, "peak": 2}
	old, at := Month-2, (Month - 2).Start().Add(200*time.Hour)
	facts := []usage.Event{Fact("a", "calls", "c", at, "10"), Fact("b", "peak", "c", at, "7"),
		Fact("live", "calls", "c", Ago(0), "3"), Correction("fix", "a", "-4"),
		Fact("late", "calls", "c", at.Add(-100*time.Hour), "1")}
	w.says(bygone, "accepted accepted accepted accepted adjusted", facts...)
	w.says(bygone, "accepted", Fact("more", "calls", "c", at, "2"))
	w.closePeriod(bygone, old)
	w.moveFloor(bygone, Month.Start())
	before, peak := w.counterIn(bygone, "calls", "c", old), w.counterIn(bygone, "peak", "c", old)
	w.archive(bygone, old)
	gone, err := w.s.Prune(context.Background(), nil)
	if err != nil || gone != 4 {
		w.Fatalf("%d rows left, want 4: %v", gone, err)
	}
	for range 2 {
		after, top := w.counterIn(bygone, "calls", "c", old), w.counterIn(bygone, "peak", "c", old)
		if !before.Equal(&after, meter.Sum) || !peak.Equal(&top, meter.Max) {
			w.Errorf("the counters are %+v and %+v, were %+v and %+v", after, top, before, peak)
		}
		w.sendBygone(facts)
		w.readBygone(old)
		if again, err := w.s.Prune(context.Background(), nil); again != 0 || err != nil {
			w.Errorf("pruned again: %d rows, %v", again, err)
		}
		w.again()
	}
}

// sendBygone sends everything again. A store may forget a key with its row, or later.
func (w *world) sendBygone(facts []usage.Event) {
	w.Helper()
	head := w.head(bygone).Seq
	for i, v := range w.record(bygone, facts...) {
		switch got := said(v); {
		case got == "duplicate", got == "rejected:beyond_horizon" && facts[i].ID != "live" && facts[i].ID != "late":
		case facts[i].Corrects != "" && got == "rejected:unknown_correction_target":
		default:
			w.Errorf("%s, sent again: %s", facts[i].ID, got)
		}
	}
	if after := w.head(bygone).Seq; after != head {
		w.Errorf("sending everything again added %d rows", after-head)
	}
}

// checkPruned wants what is left of the rows, and what was kept of the others, to make up the head's tree. It returns
// how many rows have left.
func checkPruned(t TB, v store.View) (gone int) {
	t.Helper()
	var hasher ledger.Hasher
	keys := treeKeys(t, v)
	whole := tree.NewCheck(v.Tree(), func(want tree.Tile, got tree.Hash) {
		t.Errorf("tile %d of level %d is %x, want %x", want.Index, want.Level, got, want.Hash)
	})
	err := v.PrunedSections(1, func(s *ledger.Section) error {
		gone += s.Gone
		return hasher.Check(whole, keys, s)
	})
	if err != nil {
		t.Fatalf("sections: %v", err)
	}
	checkTree(t, v, whole)
	return gone
}

func (w *world) readBygone(old calendar.Month) {
	w.Helper()
	w.view(bygone, func(v store.View) {
		_, _, err := v.Rows(0, everything, func(*ledger.Row) bool { return true })
		w.code("all rows", err, problem.Archived)
		w.code("all sections", v.Sections(1, func(*ledger.Section) error { return nil }), problem.Archived)
		w.code("the month's usage", v.Slice(store.SliceQuery{Meter: 1, From: old.Start(), To: old.End()},
			func(*store.Slice) error { return nil }), problem.Archived)
		rows := 0
		count := func(*ledger.Row) bool { rows++; return true }
		if _, _, err := v.Rows(0, store.RowHint{From: Month.Start(), Events: true}, count); err != nil || rows == 0 {
			w.Errorf("rows above the floor: %d, %v", rows, err)
		}
		if _, _, err := v.Rows(0, store.RowHint{Events: true, Adjusted: true}, count); err != nil {
			w.Errorf("adjusted rows: %v", err)
		}
		if gone := checkPruned(w, v); gone != 4 {
			w.Errorf("%d rows have left, want 4", gone)
		}
		if _, _, err := v.Event(usage.KeyOfID("a")); !problem.Is(err, problem.Archived) &&
			!problem.Is(err, problem.NotFound) {
			w.Errorf("an event that left: %v", err)
		}
		if r, _, err := v.Event(usage.KeyOfID("late")); err != nil || r.Event.ID != "late" {
			w.Errorf("an adjusted event stays: %v", err)
		}
	})
}
