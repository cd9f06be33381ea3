package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/kinds"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store"
)

// gadget is an entity of a kind that no product has: whatever stores do for it they do for every kind to come.
type gadget struct {
	Name   string   `json:"-"`
	Note   string   `json:"note"`
	Colors []string `json:"colors,omitempty"`
}

const (
	gadgetKind = "gadget"
	byColor    = "color"
)

// gadgets is the declaration of that kind at a version.
func gadgets(version uint8) *entity.Kind[gadget] {
	return &entity.Kind[gadget]{
		Name: gadgetKind, Version: version,
		ID:     func(g *gadget) string { return g.Name },
		Encode: func(g *gadget) []byte { return entity.Shape(g) },
		Decode: func(e *entity.Entity) (gadget, error) {
			g := gadget{Name: e.ID}
			return g, json.Unmarshal(e.Data, &g)
		},
		Terms: func(g *gadget) (out []entity.Term) {
			for _, c := range g.Colors {
				out = append(out, entity.Term{Index: byColor, Value: c})
			}
			return out
		},
	}
}

// Kinds are the kinds of this build and one that only the suite has. Stores under test know them.
func Kinds() *entity.Kinds { return kinds.All().With(gadgets(1).Declare()) }

// KindsOfNextBuild know a newer version of that kind, by which gadgets have other terms.
func KindsOfNextBuild() *entity.Kinds { return kinds.All().With(gadgets(2).Declare()) }

// PutGadget appends an entity of a kind that only Kinds and KindsOfNextBuild know.
func PutGadget(tx store.Tx, name, note string, colors ...string) error {
	s := gadgets(1).State(&gadget{name, note, colors})
	_, err := tx.Append(change(gadgetKind, "put", name, s))
	return err
}

// GadgetsOfColor lists the ids of the gadgets that have a color.
func GadgetsOfColor(v store.View, color string) ([]string, error) {
	page, err := v.EntitiesBy(gadgetKind, entity.Term{Index: byColor, Value: color}, store.Page{Limit: many})
	return idsOf(page), err
}

func idsOf(page []entity.Entity) (out []string) {
	for i := range page {
		out = append(out, page[i].ID)
	}
	return out
}

// Entities: kept, found and listed without a store knowing what they are.
var entityCases = []Case{
	{"an entity is found by its id and by its terms, as its last change left it", findsEntities},
	{"entities are listed by id, page by page, in both directions", listsEntities},
	{"a transaction reads the entities that it has changed", readsOwnEntities},
	{"an entity can be read as it was", readsEntitiesAsTheyWere},
	{"what an update that failed had put is not there", func(w *world) {
		w.create(acme)
		w.update(acme, func(tx store.Tx) error { return PutGadget(tx, "a", "kept", "red") })
		err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
			if err := PutGadget(tx, "a", "lost", "blue"); err != nil {
				return err
			}
			if err := PutGadget(tx, "b", "lost", "red"); err != nil {
				return err
			}
			return problem.New(problem.Fixed, "changed my mind")
		})
		w.code("the update", err, problem.Fixed)
		for range 2 {
			w.gadgets("red", "a")
			w.gadgets("blue")
			w.noGadget("b")
			w.again()
		}
	}},
	{"a kind that a store does not know is carried along, unless it is critical", carriesUnknownKinds},
	{"no tenant finds the entities of another", func(w *world) {
		w.create("one")
		w.create(acme)
		w.update("one", func(tx store.Tx) error { return PutGadget(tx, "a", "mine", "red") })
		for range 2 {
			w.gadgets("red")
			w.noGadget("a")
			w.view(acme, func(v store.View) {
				if all, err := v.Entities(gadgetKind, store.Page{Limit: many}); err != nil || len(all) != 0 {
					w.Errorf("gadgets of another tenant: %v, %v", all, err)
				}
			})
			w.again()
		}
	}},
}

// gadgets wants these gadgets, and no others, to have a color.
func (w *world) gadgets(color string, want ...string) {
	w.Helper()
	w.view(acme, func(v store.View) {
		if got, err := GadgetsOfColor(v, color); err != nil || !slices.Equal(got, want) {
			w.Errorf("%s gadgets: %v, %v, want %v", color, got, err, want)
		}
	})
}

func (w *world) noGadget(name string) {
	w.Helper()
	w.view(acme, func(v store.View) {
		_, err := v.Entity(gadgetKind, name)
		w.code("gadget "+name, err, problem.NotFound)
	})
}

func (w *world) gadgetNoted(name, note string) {
	w.Helper()
	w.view(acme, func(v store.View) {
		g, err := store.Get(v, gadgets(1), name)
		if err != nil || g.Note != note {
			w.Errorf("gadget %s: %+v, %v, want the note %q", name, g, err, note)
		}
	})
}

func findsEntities(w *world) {
	w.create(acme)
	put := func(name, note string, colors ...string) {
		w.update(acme, func(tx store.Tx) error { return PutGadget(tx, name, note, colors...) })
	}
	put("b", "first", "red", "blue")
	put("a", "first", "red")
	put("c", "first")
	for range 2 {
		w.gadgets("red", "a", "b")
		w.gadgets("blue", "b")
		w.gadgets("re")
		w.gadgets("redder")
		w.again()
	}
	put("b", "second", "green")
	put("c", "second", "red")
	for range 2 {
		w.gadgets("red", "a", "c")
		w.gadgets("blue")
		w.gadgets("green", "b")
		w.gadgetNoted("b", "second")
		w.noGadget("d")
		w.again()
	}
	put("b", "third", "blue", "red")
	put("b", "fourth", "blue")
	for range 2 {
		w.gadgets("red", "a", "c")
		w.gadgets("blue", "b")
		w.gadgets("green")
		w.gadgetNoted("b", "fourth")
		w.again()
	}
}

// listsEntities puts some before a reopening and some after, so that a store that keeps the new ones elsewhere merges.
func listsEntities(w *world) {
	w.create(acme)
	put := func(names []string) {
		w.update(acme, func(tx store.Tx) error {
			for _, name := range names {
				if err := PutGadget(tx, name, "n", "red"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	put(unsorted[:6])
	w.again()
	put(unsorted[4:])
	term := entity.Term{Index: byColor, Value: "red"}
	for range 2 {
		w.view(acme, func(v store.View) {
			for _, list := range []func(p store.Page) ([]entity.Entity, error){
				func(p store.Page) ([]entity.Entity, error) { return v.Entities(gadgetKind, p) },
				func(p store.Page) ([]entity.Entity, error) { return v.EntitiesBy(gadgetKind, term, p) },
			} {
				w.pages("gadgets", func(after string, limit int) ([]string, error) {
					page, err := list(store.Page{After: after, Limit: limit})
					return idsOf(page), err
				})
				w.backward(list)
			}
		})
		w.again()
	}
}

// backward wants the unsorted names from the last to the first, in pages of every size.
func (w *world) backward(list func(p store.Page) ([]entity.Entity, error)) {
	w.Helper()
	want := slices.Sorted(slices.Values(unsorted))
	slices.Reverse(want)
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		for after := ""; ; {
			page, err := list(store.Page{After: after, Limit: limit, Backward: true})
			if err != nil || len(page) > limit {
				w.Fatalf("a page of %d: %d, %v", limit, len(page), err)
			}
			if len(page) == 0 {
				break
			}
			got = append(got, idsOf(page)...)
			after = page[len(page)-1].ID
			if len(got) > len(want) {
				break
			}
		}
		if !slices.Equal(got, want) {
			w.Errorf("backward by %d: %q, want %q", limit, got, want)
		}
	}
}

func readsOwnEntities(w *world) {
	w.create(acme)
	w.update(acme, func(tx store.Tx) error {
		for _, name := range []string{"a", "c", "e"} {
			if err := PutGadget(tx, name, "old", "red"); err != nil {
				return err
			}
		}
		return nil
	})
	w.again()
	w.update(acme, func(tx store.Tx) error {
		for name, color := range map[string]string{"b": "red", "c": "blue", "d": "blue"} {
			if err := PutGadget(tx, name, "new", color); err != nil {
				return err
			}
		}
		for color, want := range map[string]string{"red": "a b e", "blue": "c d"} {
			if got, err := GadgetsOfColor(tx, color); err != nil || strings.Join(got, " ") != want {
				w.Errorf("%s inside the transaction: %v, %v, want %s", color, got, err, want)
			}
		}
		for _, c := range []struct {
			page store.Page
			want string
		}{
			{store.Page{Limit: 2}, "a b"}, {store.Page{After: "b", Limit: 2}, "c d"},
			{store.Page{Limit: 9}, "a b c d e"},
			{store.Page{Limit: 2, Backward: true}, "e d"}, {store.Page{After: "d", Limit: 9, Backward: true}, "c b a"},
		} {
			page, err := tx.Entities(gadgetKind, c.page)
			if got := strings.Join(idsOf(page), " "); err != nil || got != c.want {
				w.Errorf("page %+v inside the transaction: %s, %v, want %s", c.page, got, err, c.want)
			}
		}
		g, err := store.Get(tx, gadgets(1), "c")
		if err != nil || g.Note != "new" {
			w.Errorf("c inside the transaction: %+v, %v", g, err)
		}
		return nil
	})
	w.gadgets("red", "a", "b", "e")
}

func readsEntitiesAsTheyWere(w *world) {
	w.create(acme)
	var at []uint64
	for i := range 4 {
		w.update(acme, func(tx store.Tx) error { return PutGadget(tx, "a", fmt.Sprint(i)) })
		at = append(at, w.head(acme).Seq)
		w.update(acme, func(tx store.Tx) error { return PutGadget(tx, "b", "beside") })
		if i == 1 {
			w.again()
		}
	}
	for range 2 {
		w.view(acme, func(v store.View) {
			_, err := v.EntityAt(gadgetKind, "a", at[0]-1)
			w.code("before it was there", err, problem.NotFound)
			for i, seq := range at {
				for _, later := range []uint64{0, 1} { // its own row, and that of another after it
					g, err := store.GetAt(v, gadgets(1), "a", seq+later)
					if err != nil || g.Note != fmt.Sprint(i) {
						w.Errorf("as of row %d: %+v, %v, want %d", seq+later, g, err, i)
					}
				}
			}
		})
		w.again()
	}
}

func carriesUnknownKinds(w *world) {
	w.create(acme)
	unknown := entity.State{Kind: "of-a-newer-build", ID: "x", Version: 7, Data: []byte(`{"a":[1]}`)}
	newer := gadgets(1).State(&gadget{"n", "newer", []string{"red"}})
	newer.Version = 9
	w.update(acme, func(tx store.Tx) error {
		if _, err := tx.Append(change("thing", "put", "x", unknown)); err != nil {
			return err
		}
		_, err := tx.Append(change(gadgetKind, "put", "n", newer))
		return err
	})
	before := w.head(acme)
	critical := unknown
	critical.Critical = true
	for range 2 {
		w.view(acme, func(v store.View) {
			for _, want := range []entity.State{unknown, newer} {
				got, err := v.Entity(want.Kind, want.ID)
				same(w, fmt.Sprintf("%s (%v)", want.Kind, err), got.State, want)
				page, err := v.Entities(want.Kind, store.Page{Limit: many})
				if err != nil || !slices.Equal(idsOf(page), []string{want.ID}) {
					w.Errorf("entities of kind %s: %v, %v", want.Kind, page, err)
				}
			}
		})
		w.gadgets("red")
		err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
			_, err := tx.Append(change("thing", "put", "x", critical))
			return err
		})
		w.code("a critical state that this build does not know", err, problem.Unavailable)
		if after := w.head(acme); after != before {
			w.Errorf("the head went from %v to %v", before, after)
		}
		w.again()
	}
}

// changeGadget puts or changes an entity of the made-up kind.
func (l *life) changeGadget(id string) {
	name := rapid.SampledFrom([]string{"a", "b", "B", "ä"}).Draw(l.T, "gadget")
	note := rapid.SampledFrom([]string{"x", "y"}).Draw(l.T, "note")
	colors := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"red", "blue", "green"}), 0, 3, rapid.ID).Draw(l.T,
		"colors")
	l.update("change gadget", id, func(tx store.Tx) error { return PutGadget(tx, name, note, colors...) })
}

// collectEntities lists all entities by kind, and by the terms that they have.
func collectEntities(v store.View) (map[string][]entity.Entity, error) {
	all := Kinds()
	out := map[string][]entity.Entity{}
	for _, d := range all.All() {
		if d.Name == "request" {
			continue // expired ones may be gone, or not yet
		}
		page, err := v.Entities(d.Name, store.Page{Limit: many})
		if err != nil {
			return nil, err
		}
		out[d.Name] = page
		for i := range page {
			entry, err := all.Entry(&page[i])
			if err != nil {
				return nil, err
			}
			for _, t := range entry.Terms {
				name := fmt.Sprint(d.Name, " ", t.Index, "=", t.Value)
				if out[name] != nil {
					continue
				}
				if out[name], err = v.EntitiesBy(d.Name, t, store.Page{Limit: many}); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}
