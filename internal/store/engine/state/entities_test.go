package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// thing is an entity of kinds that exist here only: what it is found by is in it.
type thing struct {
	Terms   []entity.Term
	Expires calendar.Micros
}

// build declares two kinds. A later version of the first puts a mark before its values, as if they had changed.
func build(version uint8) *entity.Kinds {
	declare := func(name string, version uint8) entity.Declaration {
		k := entity.Kind[thing]{
			Name: name, Version: version,
			ID:     func(*thing) string { return "" },
			Encode: func(t *thing) []byte { return entity.Shape(t) },
			Decode: func(e *entity.Entity) (t thing, err error) { return t, json.Unmarshal(e.Data, &t) },
			Terms: func(t *thing) (out []entity.Term) {
				for _, term := range t.Terms {
					term.Value = strings.Repeat("'", int(version)-1) + term.Value
					out = append(out, term)
				}
				return out
			},
			Expires: func(t *thing) calendar.Micros { return t.Expires },
		}
		return k.Declare()
	}
	if version == 0 {
		return entity.NewKinds(declare("a!", 1))
	}
	return entity.NewKinds(declare("a", version), declare("a!", 1))
}

func nobody(string) bool { return false }

type entityName struct {
	tenant   uint32
	kind, id string
}

// things are entities that a state must have, in a plain map.
type things struct {
	*rapid.T
	s       *State
	kinds   *entity.Kinds
	all     map[entityName]entity.Entity
	expires map[entityName]calendar.Micros // as the build that indexed it last knew
	changes map[entityName][]uint64
	seq     uint64
	now     calendar.Micros
}

var (
	thingTenants = []uint32{1, 2, 256}
	thingIDs     = []string{"a", "b", "ab", "a\x01", "é", "\U0010ffff"}
	thingValues  = []string{"", "x", "y", "xy", "'x"}
)

// change draws what one checkpoint saves.
func (m *things) change() {
	c := m.s.Begin(0)
	if _, err := m.s.Reap(c, m.now, 100); err != nil {
		m.Fatal(err)
	}
	for name, expires := range m.expires {
		if expires != 0 && expires <= m.now {
			delete(m.all, name)
			delete(m.expires, name)
		}
	}
	changed := map[entityName]bool{}
	for range rapid.IntRange(0, 6).Draw(m.T, "changes") {
		name := entityName{
			rapid.SampledFrom(thingTenants).Draw(m.T, "tenant"),
			rapid.SampledFrom([]string{"a", "a!", "unknown"}).Draw(m.T, "kind"),
			rapid.SampledFrom(thingIDs).Draw(m.T, "id"),
		}
		if !changed[name] {
			changed[name] = true
			m.put(c, name)
		}
	}
	if err := m.s.Commit(c, storeID, journal.Position{Segment: 1, Offset: uint32(m.seq)}); err != nil {
		m.Fatal(err)
	}
}

func (m *things) put(c *Checkpoint, name entityName) {
	var v thing
	if rapid.IntRange(0, 3).Draw(m.T, "expires") == 0 {
		v.Expires = m.now + calendar.Micros(rapid.IntRange(1, 3).Draw(m.T, "in"))
	} else {
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(thingValues), 0, 3, rapid.ID)
		for _, value := range some.Draw(m.T, "values") {
			v.Terms = append(v.Terms, entity.Term{Index: "i", Value: value}, entity.Term{Index: "i!", Value: value})
		}
	}
	m.seq++
	e := entity.Entity{State: entity.State{
		Kind: name.kind, ID: name.id, Version: 1, Critical: rapid.Bool().Draw(m.T, "critical"), Data: entity.Shape(&v),
	}, Seq: m.seq, At: m.now}
	e.Critical = e.Critical && m.kinds.Knows(&e.State)
	entry := m.entry(&e)
	kept := Entity{Entity: e, Indexed: entry.Indexed, Terms: entry.Terms, Expires: entry.Expires}
	var changes []uint64
	if entry.Expires == 0 {
		changes = append(changes, e.Seq)
		m.changes[name] = append(m.changes[name], e.Seq)
	}
	if err := m.s.SetEntity(c, name.tenant, &kept, changes); err != nil {
		m.Fatal(err)
	}
	m.all[name], m.expires[name] = e, entry.Expires
}

func (m *things) entry(e *entity.Entity) entity.Entry {
	e.Critical = false // a build before may have known it
	entry, err := m.kinds.Entry(e)
	if err != nil {
		m.Fatal(err)
	}
	return entry
}

// want lists what a page has of a tenant's entities.
func (m *things) want(tenant uint32, kind string, p store.Page, has func(*entity.Entity) bool) []entity.Entity {
	var out []entity.Entity
	for name, e := range m.all {
		if name.tenant == tenant && name.kind == kind && p.Holds(name.id) && has(&e) {
			out = append(out, e)
		}
	}
	return p.Cut(out)
}

func (m *things) check() {
	ignored := cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(entity.State{}, "Critical")}
	for _, tenant := range thingTenants {
		for _, kind := range []string{"a", "a!", "unknown", "none"} {
			p := store.Page{
				After: rapid.SampledFrom(append([]string{"", "aa"}, thingIDs...)).Draw(m.T, "after"),
				Limit: rapid.IntRange(0, 7).Draw(m.T, "limit"), Backward: rapid.Bool().Draw(m.T, "backward"),
			}
			got, err := m.s.Entities(tenant, kind, p, nobody)
			want := m.want(tenant, kind, p, func(*entity.Entity) bool { return true })
			if d := cmp.Diff(want, got, ignored); err != nil || d != "" {
				m.Fatalf("%d %s %+v (%v) -want +got:\n%s", tenant, kind, p, err, d)
			}
			if d := m.kinds.Find(kind); d != nil {
				m.checkTerms(tenant, d, p, ignored)
			}
		}
	}
	at := rapid.Uint64Range(0, m.seq+1).Draw(m.T, "as of")
	for name, seqs := range m.changes {
		want := uint64(0)
		for _, seq := range seqs {
			if seq <= at {
				want = seq
			}
		}
		if got, err := m.s.LastChange(name.tenant, name.kind, name.id, at); err != nil || got != want {
			m.Fatalf("the last change of %+v up to %d is %d, %v, want %d", name, at, got, err, want)
		}
	}
}

func (m *things) checkTerms(tenant uint32, d *entity.Declaration, p store.Page, ignored cmp.Option) {
	for _, value := range append([]string{"''x", "'y"}, thingValues...) {
		t := entity.Term{Index: "i", Value: value}
		has := func(e *entity.Entity) bool { return slices.Contains(m.entry(e).Terms, t) }
		q := Search{Kind: d.Name, Term: t, Version: d.Version, Skip: nobody}
		q.Wants = func(e *entity.Entity) (bool, error) { return has(e), nil }
		got, err := m.s.EntitiesBy(tenant, &q, p)
		if d := cmp.Diff(m.want(tenant, d.Name, p, has), got, ignored); err != nil || d != "" {
			m.Fatalf("%d %s=%q %+v (%v) -want +got:\n%s", tenant, q.Kind, value, p, err, d)
		}
	}
}

// entries counts what the database has, by the first byte of the key.
func (m *things) entries() map[byte]int {
	out := map[byte]int{}
	err := m.s.scan(nil, nil, func(k, _ []byte) (bool, error) {
		out[k[0]]++
		return true, nil
	})
	if err != nil {
		m.Fatal(err)
	}
	return out
}

// Given any changes of entities, checkpoints, expiries and builds that know other kinds or versions, then the state
// lists and finds what a plain map would, and nothing is left behind of what an entity was found by before.
func TestEntitiesAreFoundAsAMapWouldFindThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewMem()
		open := func() *State {
			s, err := Open(Options{FS: fs, Dir: "state", StoreID: storeID, Cache: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		m := &things{T: t, s: open(), kinds: build(1), now: 1}
		m.all, m.changes = map[entityName]entity.Entity{}, map[entityName][]uint64{}
		m.expires = map[entityName]calendar.Micros{}
		defer func() { _ = m.s.Close() }()
		for range rapid.IntRange(1, 5).Draw(t, "checkpoints") {
			m.change()
			m.check()
			m.now++
			if rapid.IntRange(0, 2).Draw(t, "another build") == 0 {
				m.kinds = build(rapid.Uint8Range(0, 3).Draw(t, "version"))
				m.check()
				if rapid.Bool().Draw(t, "indexes") {
					m.reindex(rapid.IntRange(1, 5).Draw(t, "at once"))
				}
			}
		}
		m.reindex(100)
		m.check()
		m.checkEntries()
	})
}

// reindex ends a pass, in steps.
func (m *things) reindex(limit int) {
	for r := NewReindexer(m.kinds); len(r.kinds) > 0; {
		c := m.s.Begin(0)
		if err := m.s.Reindex(c, r, limit); err != nil {
			m.Fatal(err)
		}
		if err := m.s.Commit(c, storeID, journal.Position{Segment: 1}); err != nil {
			m.Fatal(err)
		}
		m.check()
	}
	for name, e := range m.all {
		if entry := m.entry(&e); entry.Indexed != 0 {
			m.expires[name] = entry.Expires
		}
	}
}

// checkEntries wants the entries of entities of known kinds, and no others.
func (m *things) checkEntries() {
	want := map[byte]int{kindMeta: 1}
	for _, e := range m.all {
		entry := m.entry(&e)
		if entry.Indexed == 0 {
			return // what a build before knew is as that one left it
		}
		want[kindEntity]++
		want[kindTerm] += len(entry.Terms)
		if entry.Expires != 0 {
			want[kindExpiry]++
		} else {
			want[kindIndexed]++
		}
	}
	for _, seqs := range m.changes {
		want[kindHistory] += len(seqs)
	}
	got := m.entries()
	maps.DeleteFunc(want, func(_ byte, n int) bool { return n == 0 })
	if !maps.Equal(got, want) {
		m.Fatalf("entries by kind: %s, want %s", counts(got), counts(want))
	}
}

func counts(m map[byte]int) (out string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out += fmt.Sprintf(" %c:%d", k, m[k])
	}
	return out
}

// Given an entity that changes in the checkpoint that would index it, then its old terms are not written.
func TestAnEntityThatChangesIsNotIndexedAsItWas(t *testing.T) {
	s := mustOpen(t, vfs.NewMem())
	defer mustClose(t, s)
	put := func(c *Checkpoint, k *entity.Kinds, seq uint64, value string) {
		e := entity.Entity{Seq: seq, State: entity.State{Kind: "a", ID: "x", Version: 1}}
		e.Data = entity.Shape(&thing{Terms: []entity.Term{{Index: "i", Value: value}}})
		entry, err := k.Entry(&e)
		if err != nil {
			t.Fatal(err)
		}
		kept := Entity{Entity: e, Indexed: entry.Indexed, Terms: entry.Terms}
		if err := s.SetEntity(c, 1, &kept, []uint64{seq}); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(c *Checkpoint) {
		if err := s.Commit(c, storeID, journal.Position{}); err != nil {
			t.Fatal(err)
		}
	}
	c := s.Begin(0)
	put(c, build(0), 1, "old")
	commit(c)
	c = s.Begin(0)
	put(c, build(1), 2, "new")
	if err := s.Reindex(c, NewReindexer(build(1)), 10); err != nil {
		t.Fatal(err)
	}
	commit(c)
	var terms []string
	prefix := []byte{kindTerm}
	err := s.scan(prefix, prefix, func(k, _ []byte) (bool, error) {
		terms = append(terms, string(k[5:]))
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a\x00i\x00new\x00x"}; !slices.Equal(terms, want) {
		t.Errorf("terms %q, want %q", terms, want)
	}
}
