package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/kinds"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// widget is an entity that only some builds know.
type widget struct {
	Name  string `json:"name"`
	Color string `json:"color"`
	Shape string `json:"shape"`
}

// widgets declares it. By the second version it is found by its shape too.
func widgets(version uint8) *entity.Kind[widget] {
	return &entity.Kind[widget]{
		Name: "widget", Version: version,
		ID:     func(w *widget) string { return w.Name },
		Encode: func(w *widget) []byte { return entity.Shape(w) },
		Decode: func(e *entity.Entity) (w widget, err error) { return w, json.Unmarshal(e.Data, &w) },
		Terms: func(w *widget) []entity.Term {
			terms := []entity.Term{{Index: "color", Value: w.Color}}
			if version > 1 {
				terms = append(terms, entity.Term{Index: "shape", Value: w.Shape})
			}
			return terms
		},
	}
}

// builds are an old one, which knows no widgets, one that does, and the next.
func builds() (old, newer, next *entity.Kinds) {
	return kinds.All(), kinds.All().With(widgets(1).Declare()), kinds.All().With(widgets(2).Declare())
}

func put(s entity.State) func(store.Tx) error {
	return func(tx store.Tx) error {
		_, err := tx.Append(ledger.Change{Event: audit.Of(s.Kind, "put", s.ID), State: s})
		return err
	}
}

func (e *Engine) mustUpdate(t *testing.T, fn func(store.Tx) error) {
	t.Helper()
	if err := e.Update(context.Background(), "acme", fn); err != nil {
		t.Fatal(err)
	}
}

// asDecider runs fn where the notes belong to it: the decider looks at them without the lock too.
func (e *Engine) asDecider(t *testing.T, fn func()) {
	t.Helper()
	e.mustUpdate(t, func(store.Tx) error {
		fn()
		return nil
	})
}

// wantFound wants these widgets under a term, in both directions, and that each is there.
func (e *Engine) wantFound(t *testing.T, index, value string, want ...string) {
	t.Helper()
	err := e.View(context.Background(), "acme", func(v store.View) error {
		for _, backward := range []bool{false, true} {
			p := store.Page{Limit: 100, Backward: backward}
			page, err := v.EntitiesBy("widget", entity.Term{Index: index, Value: value}, p)
			got := ids(page)
			if backward {
				slices.Reverse(got)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s=%s: %v, %v, want %v", index, value, got, err, want)
			}
		}
		for _, id := range want {
			if _, err := v.Entity("widget", id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func ids(page []entity.Entity) (out []string) {
	for i := range page {
		out = append(out, page[i].ID)
	}
	return out
}

// Given a ledger with a kind that an old build does not know, then the old one works and carries it along, through a
// rebuild too, and what it kept is found by key and by term by a newer one; a next one finds by new terms what was
// there.
func TestBuildsCarryKindsThatTheyDoNotKnow(t *testing.T) {
	for _, rebuilt := range []bool{false, true} {
		t.Run(fmt.Sprint("rebuilt=", rebuilt), func(t *testing.T) {
			fs := vfs.NewMem()
			old, newer, next := builds()
			open := func(k *entity.Kinds) *Engine {
				o := resting(fs)
				o.Kinds = k
				return mustOpen(t, o)
			}
			e := open(newer)
			if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
				t.Fatal(err)
			}
			e.mustUpdate(t, put(widgets(1).State(&widget{"a", "red", "round"})))
			e.wantFound(t, "color", "red", "a")
			mustEnd(t, e)

			e = open(old)
			mustRecord(t, e, "f")
			e.mustUpdate(t, put(widgets(1).State(&widget{"b", "red", "square"})))
			e.wantFound(t, "color", "red")
			checkpointNow(t, e)
			e.wantFound(t, "color", "red")
			err := e.View(context.Background(), "acme", func(v store.View) error {
				page, err := v.Entities("widget", store.Page{Limit: 9})
				if !slices.Equal(ids(page), []string{"a", "b"}) {
					t.Errorf("the old build lists %v", ids(page))
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			storetest.CheckLedger(t, e, "acme")
			mustEnd(t, e)
			if rebuilt {
				o := resting(fs)
				o.Kinds = old
				if err := Rebuild(o); err != nil {
					t.Fatal(err)
				}
			}

			e = open(newer)
			e.wantFound(t, "color", "red", "a", "b")
			e.wantFound(t, "shape", "round")
			e.mustUpdate(t, put(widgets(1).State(&widget{"c", "red", "round"})))
			e.wantFound(t, "color", "red", "a", "b", "c")
			checkpointNow(t, e) // which indexes what the old build left
			e.wantFound(t, "color", "red", "a", "b", "c")
			for _, id := range []string{"a", "b", "c"} {
				if kept, ok, err := e.state.Entity(1, "widget", id); err != nil || !ok || kept.Indexed != 1 {
					t.Errorf("%s is kept as %+v, %t, %v, want its terms to be of version 1", id, kept, ok, err)
				}
			}
			mustEnd(t, e)

			e = open(next)
			e.wantFound(t, "shape", "round", "a", "c")
			e.mustUpdate(t, put(widgets(2).State(&widget{"a", "blue", "round"})))
			e.wantFound(t, "color", "red", "b", "c")
			mustEnd(t, e)

			e = open(newer) // a's version 2 is unknown to it
			e.wantFound(t, "color", "red", "b", "c")
			e.wantFound(t, "color", "blue")
			e.wantFound(t, "shape", "round")
			storetest.CheckLedger(t, e, "acme")
			mustEnd(t, e)
		})
	}
}

// Given a critical kind that a build does not know, kept or not, in the state or only in the journal, then that build
// does not open the store and says which row and what to do; and a newer one still does.
func TestAnUnknownCriticalKindStopsTheStart(t *testing.T) {
	old, newer, _ := builds()
	critical, unkept := *widgets(1), *widgets(1)
	critical.Name, critical.Critical = "deal", true
	unkept.Name, unkept.Critical, unkept.Unkept = "fold", true, true
	raised := critical
	raised.Version = 2
	both := newer.With(critical.Declare(), unkept.Declare())
	for name, c := range map[string]struct {
		wrote *entity.Kinds
		opens *entity.Kinds
		state entity.State
	}{
		"a kind":               {both, old, critical.State(&widget{Name: "x"})},
		"one that is not kept": {both, newer, unkept.State(&widget{Name: "x"})},
		"a version":            {newer.With(raised.Declare()), both, raised.State(&widget{Name: "x"})},
	} {
		for _, saved := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", saved=", saved), func(t *testing.T) {
				fs := vfs.NewCrashableMem()
				o := resting(fs)
				o.Kinds = c.wrote
				e := mustOpen(t, o)
				if err := storetest.Create(e, "acme"); err != nil {
					t.Fatal(err)
				}
				e.mustUpdate(t, put(c.state))
				if saved {
					checkpointNow(t, e)
				}
				after := fs.CrashClone(vfs.CrashCloneCfg{})
				mustEnd(t, e)
				o = resting(after)
				o.Kinds = c.opens
				_, err := Open(o)
				want := fmt.Sprintf("row 2 of this ledger: it has version %d of kind %s", c.state.Version, c.state.Kind)
				if !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), want) ||
					!strings.Contains(err.Error(), "upgrade") {
					t.Fatalf("it opened: %v, want %q", err, want)
				}
				if err := Rebuild(o); !problem.Is(err, problem.Unavailable) {
					t.Errorf("rebuilt: %v, want unavailable", err)
				}
				o.Kinds = c.wrote
				e = mustOpen(t, o)
				storetest.CheckLedger(t, e, "acme")
				mustEnd(t, e)
			})
		}
	}
}

// Given an import with a critical kind that this build does not know behind rows that it does, then nothing of it is
// there.
func TestAnUnknownCriticalKindIsNotImported(t *testing.T) {
	e := mustOpen(t, resting(vfs.NewMem()))
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	head := e.mustHead(t, "acme")
	change := func(seq uint64, s entity.State) ledger.Row {
		c := &ledger.Change{Event: audit.Of("x", "put", "y"), State: s}
		return ledger.Row{Seq: seq, At: storetest.Ago(0), Change: c}
	}
	rows := []ledger.Row{
		change(head+1, quota.PlanKind.State(&quota.Plan{Name: "pro"})),
		change(head+2, entity.State{Kind: "deal", ID: "x", Version: 1, Critical: true, Data: []byte("{}")}),
	}
	err := e.Import(context.Background(), "acme", ledger.Section{First: head + 1, At: storetest.Ago(0), Rows: rows})
	if !problem.Is(err, problem.Unavailable) {
		t.Errorf("imported: %v, want unavailable", err)
	}
	err = e.View(context.Background(), "acme", func(v store.View) error {
		_, err := v.Entity(quota.PlanKind.Name, "pro")
		return err
	})
	if now := e.mustHead(t, "acme"); now != head || !problem.Is(err, problem.NotFound) {
		t.Errorf("the head went from %d to %d, the plan: %v", head, now, err)
	}
	mustRecord(t, e, "after")
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}

// Given entities of a kind that is not resident whose entries in the state do not even decode, then the store starts
// and serves all else: nothing reads them before somebody asks.
func TestOnlyResidentKindsAreReadAtStart(t *testing.T) {
	fs := vfs.NewMem()
	e := mustOpen(t, resting(fs))
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	e.mustUpdate(t, func(tx store.Tx) error {
		return errors.Join(storetest.Assign(tx, "bad", "pro"), storetest.Assign(tx, "good", "pro"),
			storetest.PutGadget(tx, "g", "n", "red"))
	})
	mustEnd(t, e)
	spoil(t, fs, "plan_assignment\x00customer:bad")
	e = mustOpen(t, resting(fs))
	mustRecord(t, e, "f")
	err := e.View(context.Background(), "acme", func(v store.View) error {
		if a, err := store.Assignment(v, "good"); err != nil || a.Plans.At(v.Now()).Plan != "pro" {
			t.Errorf("good has %+v, %v", a, err)
		}
		if got, err := storetest.GadgetsOfColor(v, "red"); err != nil || len(got) != 1 {
			t.Errorf("gadgets %v, %v", got, err)
		}
		_, err := store.Assignment(v, "bad")
		return err
	})
	if err == nil {
		t.Error("the spoilt one was read")
	}
	mustEnd(t, e)
	spoil(t, fs, "meter\x00calls")
	if _, err := Open(resting(fs)); err == nil {
		t.Error("a spoilt meter was not read at start")
	}
}

// spoil makes the entry of an entity of the first tenant unreadable.
func spoil(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	db, err := pebble.Open("data/state", &pebble.Options{
		FS: fs, DisableWAL: true, FormatMajorVersion: pebble.FormatNewest, Logger: silent{},
	})
	if err != nil {
		t.Fatal(err)
	}
	key := append([]byte{'e', 0, 0, 0, 1}, name...)
	if _, closer, err := db.Get(key); err != nil {
		t.Fatalf("no entry %q: %v", name, err)
	} else if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set(key, []byte{0}, pebble.NoSync), db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// A change of a kind that is not resident leaves the resident set as it is, however many there are; and one that is
// resident makes another.
func TestOnlyResidentKindsMakeAnotherSet(t *testing.T) {
	e := mustOpen(t, resting(vfs.NewMem()))
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	b, err := e.book("acme")
	if err != nil {
		t.Fatal(err)
	}
	before := b.published.Load().resident
	e.mustUpdate(t, func(tx store.Tx) error {
		_, err := storetest.Adjust(tx, "calls", "c", storetest.Month, "1", "")
		return errors.Join(err, storetest.Assign(tx, "c", "pro"), storetest.PutGadget(tx, "g", "n"))
	})
	if b.published.Load().resident != before {
		t.Error("an adjustment, an assignment or a gadget made another resident set")
	}
	e.mustUpdate(t, func(tx store.Tx) error { return storetest.PutPlan(tx, quota.Plan{Name: "pro"}) })
	if b.published.Load().resident == before {
		t.Error("a plan did not")
	}
	mustEnd(t, e)
}

// Given entities in the state, in what a checkpoint is saving, in what came since and in the transaction, each
// replacing some of the layer below, then pages of every size in both directions show the newest of each, and an
// entity can be read as it was; and a snapshot shows what the checkpoint has.
func TestPagesGoThroughAllLayers(t *testing.T) {
	e := mustOpen(t, resting(vfs.NewMem()))
	if err := storetest.Create(e, "acme"); err != nil {
		t.Fatal(err)
	}
	layer := func(tx store.Tx, from, to, step int, note, color string) error {
		for i := from; i < to; i += step {
			if err := storetest.PutGadget(tx, fmt.Sprintf("g%02d", i), note, color); err != nil {
				return err
			}
		}
		return nil
	}
	e.mustUpdate(t, func(tx store.Tx) error { return layer(tx, 0, 20, 1, "state", "red") })
	checkpointNow(t, e)
	head := e.mustHead(t, "acme")
	e.mustUpdate(t, func(tx store.Tx) error { return layer(tx, 1, 24, 2, "saving", "blue") })
	e.asDecider(t, func() { e.notes[0], e.notes[1] = newNotes(), e.notes[0] })
	e.mustUpdate(t, func(tx store.Tx) error { return layer(tx, 2, 28, 3, "recent", "red") })
	e.mustUpdate(t, func(tx store.Tx) error {
		if err := layer(tx, 3, 32, 5, "own", "blue"); err != nil {
			return err
		}
		notes, colors := map[string]string{}, map[string]string{}
		for _, l := range []struct {
			from, to, step int
			note, color    string
		}{
			{0, 20, 1, "state", "red"}, {1, 24, 2, "saving", "blue"}, {2, 28, 3, "recent", "red"},
			{3, 32, 5, "own", "blue"},
		} {
			for i := l.from; i < l.to; i += l.step {
				notes[fmt.Sprintf("g%02d", i)], colors[fmt.Sprintf("g%02d", i)] = l.note, l.color
			}
		}
		if err := checkPages(tx, notes, colors); err != nil {
			return err
		}
		was, err := tx.EntityAt("gadget", "g03", head)
		if err != nil || !strings.Contains(string(was.Data), "state") {
			t.Errorf("g03 was %s, %v", was.Data, err)
		}
		was, err = tx.EntityAt("gadget", "g03", tx.Head().Seq)
		if err != nil || !strings.Contains(string(was.Data), "own") {
			t.Errorf("g03 is %s, %v", was.Data, err)
		}
		return nil
	})
	e.asDecider(t, func() {
		for of, entities := range e.notes[1].entities { // so that nothing is lost of what was never saved
			for id, n := range entities {
				if e.notes[0].entities[of][id] == nil {
					e.notes[0].entities[of][id] = n
				}
			}
		}
		e.notes[1] = newNotes()
	})
	n, err := e.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	e.mustUpdate(t, func(tx store.Tx) error { return storetest.PutGadget(tx, "g00", "later", "blue") })
	err = n.View(context.Background(), "acme", func(v store.View) error {
		got, err := v.Entity("gadget", "g00")
		if err != nil || !strings.Contains(string(got.Data), "state") {
			t.Errorf("the snapshot has g00 as %s, %v", got.Data, err)
		}
		if red, err := storetest.GadgetsOfColor(v, "red"); err != nil || red[0] != "g00" {
			t.Errorf("red in the snapshot: %v, %v", red, err)
		}
		was, err := v.EntityAt("gadget", "g00", 1<<60)
		if err != nil || was.Seq != got.Seq {
			t.Errorf("the snapshot's past has row %d, %v, want %d", was.Seq, err, got.Seq)
		}
		return nil
	})
	if err := errors.Join(err, n.Release()); err != nil {
		t.Error(err)
	}
	mustEnd(t, e)
}

// checkPages runs within a transaction, which must not end the test itself.
func checkPages(v store.View, notes, colors map[string]string) error {
	lists := map[string]func(store.Page) ([]entity.Entity, error){
		"": func(p store.Page) ([]entity.Entity, error) { return v.Entities("gadget", p) },
	}
	for _, c := range []string{"red", "blue"} {
		lists[c] = func(p store.Page) ([]entity.Entity, error) {
			return v.EntitiesBy("gadget", entity.Term{Index: "color", Value: c}, p)
		}
	}
	for color, list := range lists {
		var want []string
		for id := range notes {
			if color == "" || colors[id] == color {
				want = append(want, id+" "+notes[id])
			}
		}
		slices.Sort(want)
		for _, backward := range []bool{false, true} {
			for limit := 1; limit <= len(want)+1; limit++ {
				var got []string
				for p := (store.Page{Limit: limit, Backward: backward}); ; {
					page, err := list(p)
					if err != nil || len(page) > limit {
						return fmt.Errorf("a page of %d has %d: %w", limit, len(page), err)
					}
					if len(page) == 0 || len(got) > len(want) {
						break
					}
					for i := range page {
						var g struct{ Note string }
						if err := json.Unmarshal(page[i].Data, &g); err != nil {
							return err
						}
						got = append(got, page[i].ID+" "+g.Note)
					}
					p.After = page[len(page)-1].ID
				}
				if backward {
					slices.Reverse(got)
				}
				if !slices.Equal(got, want) {
					return fmt.Errorf("%q by %d, backward %t: %v, want %v", color, limit, backward, got, want)
				}
			}
		}
	}
	return nil
}

// A transaction sees what its own adjustments do to counters, in lists too, also to one that nothing else has touched.
func TestATransactionListsTheCountersThatItChanges(t *testing.T) {
	e := cold(t, vfs.NewMem())
	e.mustUpdate(t, func(tx store.Tx) error {
		for _, who := range []string{"b", "c"} {
			if _, err := storetest.Adjust(tx, "calls", who, storetest.Month, "5", ""); err != nil {
				return err
			}
		}
		var got []string
		err := tx.Counters(store.CounterPlace{}, func(p store.CounterPlace, c *usage.Counter) bool {
			got = append(got, fmt.Sprint(p.Customer, " ", c.Total(meter.Sum)))
			return true
		})
		if want := []string{"b 5", "c 6"}; !slices.Equal(got, want) {
			t.Errorf("counters inside the transaction: %v, want %v", got, want)
		}
		return err
	})
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}
