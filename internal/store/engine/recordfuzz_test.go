package engine

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/account"
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/kinds"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/wire"
	"github.com/tallystick/tallystick/internal/store/resident"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// bornHere is the first meter that sections create. Those below are numbered.
const bornHere = 30

var numbered = func() *resident.Set {
	var all []entity.Entity
	for n := uint32(1); n < bornHere; n++ {
		m := meter.Meter{Number: n, Slug: fmt.Sprint("meter-", n)}
		all = append(all, entity.Entity{State: meter.Kind.State(&m)})
	}
	set, err := resident.Load(kinds.All(), all)
	if err != nil {
		panic(err)
	}
	return set
}()

// sections draws what a group may hold: rows of every kind, with every optional field there or not.
type sections struct {
	*rapid.T
	born map[uint32]string // meters that the section has created so far
	keys map[usage.Key]bool
}

func (g *sections) text(label string, n int) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"a", "ab", "abc", "é'\"", "日本語", "\xff\xfe", strings.Repeat("x", n)}),
		rapid.StringN(1, 20, n),
	).Draw(g.T, label)
}

func (g *sections) maybe(label string, n int) string {
	if rapid.Bool().Draw(g.T, "has "+label) {
		return g.text(label, n)
	}
	return ""
}

func (g *sections) amount(label string) amount.Amount {
	return storetest.Amount(rapid.SampledFrom([]string{"0", "1", "-1", "2", "0.000000000001", "-0.5",
		"999999999999999.999999999999", "99999999999999999999999999.999999999999", "12.25"}).Draw(g.T, label))
}

func (g *sections) section() section {
	s := section{tenant: rapid.Uint32().Draw(g.T, "tenant"), first: rapid.Uint64Range(1, 1<<48).Draw(g.T, "first"),
		at: g.time("at")}
	g.born, g.keys = map[uint32]string{}, map[usage.Key]bool{}
	for i := range rapid.IntRange(1, 12).Draw(g.T, "rows") {
		r := ledger.Row{Seq: s.first + uint64(i), At: s.at}
		r.By = rapid.SampledFrom([]string{"", "acme.k1", "kafka-in", strings.Repeat("x", store.MaxBy)}).Draw(g.T, "by")
		switch rapid.IntRange(0, 5).Draw(g.T, "kind") {
		case 0:
			r.Change = g.change()
		case 1:
			r.Entry = g.entry()
		default:
			r.Event = g.event()
			for range r.Event.Outcomes {
				s.links = append(s.links, link(rapid.Uint64().Draw(g.T, "link")))
			}
		}
		s.rows = append(s.rows, r)
	}
	return s
}

// pruned is what is left of a section, with what it keeps of the tree.
func (g *sections) pruned() section {
	s := section{tenant: 1, first: rapid.Uint64Range(1, 1000).Draw(g.T, "first"), at: g.time("at"),
		had: rapid.IntRange(1, 700).Draw(g.T, "had")}
	s.kept = newKept(s.first, uint64(s.had))
	last := s.first + uint64(s.had) - 1
	for tile := tileOf(s.first); tile <= tileOf(last); tile++ {
		if rapid.Bool().Draw(g.T, "whole") {
			s.kept.setWhole(tile - tileOf(s.first))
			if (tile+1)*tree.TileRows <= last {
				s.kept.tiles = append(s.kept.tiles, strings.Repeat(string(rune('A'+tile)), tree.HashSize)...)
			}
		}
	}
	for seq := s.first; seq <= last; seq++ {
		switch {
		case s.isWhole(seq):
		case rapid.IntRange(0, 60).Draw(g.T, "stays") == 0:
			s.rows = append(s.rows, ledger.Row{Seq: seq, At: s.at, Change: g.audit()})
			s.archived = append(s.archived, rapid.Bool().Draw(g.T, "archived"))
		default:
			s.kept.leaves = append(s.kept.leaves, strings.Repeat(string(rune('a'+seq%26)), tree.HashSize)...)
		}
	}
	return s
}

func (g *sections) audit() *ledger.Change {
	return &ledger.Change{Event: audit.Event{Type: g.text("change", 60), Payload: g.maybe("payload", 300)}}
}

func (g *sections) time(label string) calendar.Micros {
	return calendar.Micros(rapid.OneOf(rapid.Int64Range(int64(calendar.MinMicros), int64(calendar.MaxMicros)),
		rapid.SampledFrom([]int64{int64(calendar.MinMicros), int64(calendar.MaxMicros),
			int64(storetest.Ago(0))})).Draw(g.T, label))
}

func (g *sections) entry() *account.Row {
	e := &account.Row{}
	e.ID, e.Account, e.Counter, e.Transfer = g.text("id", 255), g.text("account", 255), g.maybe("counter", 255),
		g.maybe("transfer", 255)
	e.Hold, e.Corrects, e.Reason, e.Metadata = g.maybe("hold", 255), g.maybe("target", 255), g.maybe("reason", 1000),
		g.maybe("metadata", 4096)
	e.Type, e.Given = account.Type(rapid.ByteRange(1, 4).Draw(g.T, "type")),
		account.Given(rapid.ByteRange(0, 3).Draw(g.T, "given"))
	e.Amount, e.Balance, e.Held = g.amount("amount"), g.amount("balance"), g.amount("held")
	e.Time, e.Expires = g.time("time"), g.time("expires")
	e.Sequence, e.Version = rapid.Uint64().Draw(g.T, "sequence"), rapid.Uint64().Draw(g.T, "version")
	e.System, e.Late, e.Gap = rapid.Bool().Draw(g.T, "system"), rapid.Bool().Draw(g.T, "late"),
		rapid.Bool().Draw(g.T, "gap")
	return e
}

func (g *sections) change() *ledger.Change {
	c := &ledger.Change{Event: audit.Event{Type: g.text("change", 60), Source: g.maybe("source", 60),
		Actor:      g.maybe("actor", 60),
		EntityType: "thing", EntityID: g.maybe("entity", 255), Payload: g.maybe("payload", 3000)}}
	if rapid.Bool().Draw(g.T, "creates a meter") {
		n := uint32(bornHere + len(g.born))
		g.born[n] = fmt.Sprint("born-", n)
		m := storetest.NewMeter(g.born[n], meter.Sum)
		m.Number = n
		c.State = meter.Kind.State(&m)
	} else if rapid.Bool().Draw(g.T, "has a state") {
		c.State = entity.State{
			Kind: g.text("kind", 32), ID: g.text("id", 1024), Version: rapid.Byte().Draw(g.T, "version"),
			Critical: rapid.Bool().Draw(g.T, "critical"), Data: []byte(g.maybe("data", 3000)),
		}
	}
	return c
}

func (g *sections) event() *usage.Row {
	r := &usage.Row{Key: g.key()}
	r.ID = r.Key.Name
	if r.Key.Space == usage.DerivedSpace {
		r.ID = g.maybe("id", 255)
	}
	r.Given = usage.Given(rapid.Byte().Draw(g.T, "given"))
	r.Type, r.Customer, r.Resource, r.Properties = g.maybe("type", 255), g.text("customer", 255),
		g.maybe("resource", 255), g.maybe("properties", 4096)
	r.Time, r.Quantity = g.time("time"), g.amount("quantity")
	n := 1
	if r.Type != "" {
		n = rapid.IntRange(1, 25).Draw(g.T, "outcomes")
	}
	if rapid.IntRange(0, 3).Draw(g.T, "corrects") == 0 {
		r.Corrects, r.Reason, n = g.text("target", 255), g.maybe("reason", 1000), 1
	}
	for range n {
		r.Outcomes = append(r.Outcomes, g.outcome(r))
	}
	if r.Type == "" || r.Corrects != "" {
		r.Meter = g.slug(r.Outcomes[0].Meter)
	}
	return r
}

func (g *sections) key() usage.Key {
	for {
		k := usage.Key{Space: usage.ClientSpace, Name: g.text("key", 255)}
		if rapid.IntRange(0, 3).Draw(g.T, "derived") == 0 {
			raw := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(g.T, "raw")
			k = usage.Key{Space: usage.DerivedSpace, Name: base64.RawURLEncoding.EncodeToString(raw)}
		} else if rapid.Bool().Draw(g.T, "like others") {
			k.Name = "evt_0123456789_" + fmt.Sprint(rapid.IntRange(0, 1000).Draw(g.T, "n"))
		}
		if !g.keys[k] {
			g.keys[k] = true
			return k
		}
	}
}

func (g *sections) outcome(r *usage.Row) usage.Outcome {
	o := usage.Outcome{Meter: rapid.Uint32Range(1, bornHere-1).Draw(g.T, "meter"), Value: r.Quantity,
		Member:  g.maybe("member", 4096),
		Why:     usage.Why(rapid.IntRange(0, int(usage.TargetWas)).Draw(g.T, "why")),
		Overage: rapid.Bool().Draw(g.T, "overage")}
	if len(g.born) > 0 && rapid.Bool().Draw(g.T, "of a new meter") {
		o.Meter = bornHere
	}
	if rapid.Bool().Draw(g.T, "own value") {
		o.Value = g.amount("value")
	}
	if r.Corrects != "" {
		o.Base = g.amount("base")
	}
	if o.Why != usage.OnTime {
		o.Amount = g.amount("amount")
	}
	return o
}

func (g *sections) slug(n uint32) string {
	if s, ok := g.born[n]; ok {
		return s
	}
	return numbered.Catalog.Number(n).Slug
}

func encode(w *recordWriter, list []section) []byte {
	b := []byte{recordVersion}
	for i := range list {
		b = w.section(b, &list[i])
	}
	return b
}

// exact compares rows to the last digit.
var exact = cmp.Options{cmp.AllowUnexported(section{}, kept{}),
	cmp.Comparer(func(a, b amount.Amount) bool { return a == b }), cmpopts.EquateEmpty()}

// Given any groups, one after the other through the same writer and decoder, then each is read as it was written, and
// is no larger than what was reserved for it.
func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w recordWriter
		var d decoder
		for range rapid.IntRange(1, 3).Draw(t, "groups") {
			var list []section
			g := &sections{T: t}
			for range rapid.IntRange(1, 3).Draw(t, "sections") {
				list = append(list, g.section())
			}
			payload := encode(&w, list)
			heads, err := readHeads(payload, nil)
			if err != nil || len(heads) != len(list) {
				t.Fatalf("%d heads: %v", len(heads), err)
			}
			for i, want := range list {
				got, err := d.decode(heads[i], numbered)
				if err != nil {
					t.Fatalf("decode: %v", err)
				}
				if diff := cmp.Diff(want, got, exact); diff != "" {
					t.Fatalf("section %d (-written +read):\n%s", i, diff)
				}
				alone, _, err := readHead(payload[heads[i].offset:], recordVersion)
				if err != nil || alone.first != want.first || alone.rows != len(want.rows) {
					t.Fatalf("section %d is not at its offset: %v", i, err)
				}
				if n, bound := len(heads[i].body), importBound(want.rows)+maxSectionOverhead; n > bound {
					t.Fatalf("section %d has %d bytes, %d were reserved", i, n, bound)
				}
			}
		}
	})
}

// Given what is left of any section, then it is read as it was written, and copied as it is; and none of what it keeps
// can be missing.
func TestPrunedRecordsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w recordWriter
		var d decoder
		want := (&sections{T: t}).pruned()
		payload := w.pruned([]byte{prunedVersion}, &want)
		heads, err := readHeads(payload, nil)
		if err != nil || len(heads) != 1 {
			t.Fatalf("%d heads: %v", len(heads), err)
		}
		if again := heads[0].copy([]byte{prunedVersion}); !slices.Equal(again, payload) {
			t.Fatalf("%d bytes are copied as other %d", len(payload), len(again))
		}
		got, err := d.decode(heads[0], numbered)
		if diff := cmp.Diff(want, got, exact); err != nil || diff != "" {
			t.Fatalf("(-written +read) %v:\n%s", err, diff)
		}
		less := want
		if n := len(less.kept.leaves); n > 0 {
			less.kept.leaves = less.kept.leaves[tree.HashSize:]
			if heads, err := readHeads(w.pruned([]byte{prunedVersion}, &less), nil); err == nil {
				if _, err := d.decode(heads[0], numbered); err == nil {
					t.Fatal("a section without one of its leaves was read")
				}
			}
		}
	})
}

// Given any bytes for a payload, then they are decoded or refused; and what is decoded is written and read the same
// again.
func FuzzRecord(f *testing.F) {
	for seed := range 4 {
		g := rapid.Custom(func(t *rapid.T) []byte {
			return encode(&recordWriter{}, []section{(&sections{T: t}).section()})
		})
		if b := g.Example(seed); len(b) < 1000 {
			f.Add(b)
		}
	}
	for seed := range 4 {
		g := rapid.Custom(func(t *rapid.T) []byte {
			s := (&sections{T: t}).pruned()
			return (&recordWriter{}).pruned([]byte{prunedVersion}, &s)
		})
		if b := g.Example(seed); len(b) < 2000 {
			f.Add(b)
		}
	}
	f.Add([]byte{recordVersion})
	f.Add([]byte{recordVersion, 5, 0, 0, 0, 1, 1, 0, 1, 0})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, payload []byte) {
		heads, err := readHeads(payload, nil)
		if err != nil {
			return
		}
		var d, again decoder
		for _, h := range heads {
			s, err := d.decode(h, numbered)
			if err != nil {
				continue
			}
			b := encode(&recordWriter{}, []section{s})
			if s.had > 0 {
				b = (&recordWriter{}).pruned([]byte{prunedVersion}, &s)
			}
			second, err := readHeads(b, nil)
			if err != nil {
				t.Fatalf("what was decoded does not encode: %v", err)
			}
			got, err := again.decode(second[0], numbered)
			if err != nil {
				t.Fatalf("what was decoded does not decode again: %v", err)
			}
			if !reflect.DeepEqual(canonical(s), canonical(got)) || !slices.Equal(s.links, got.links) ||
				!reflect.DeepEqual(s.kept, got.kept) || !slices.Equal(s.archived, got.archived) {
				t.Fatalf("%+v became %+v", s, got)
			}
		}
	})
}

// canonical is all that a section says, in the words of the tree.
func canonical(s section) (out []string) {
	for i := range s.rows {
		out = append(out, string(ledger.AppendCanonical(nil, &s.rows[i], tree.Hash{})))
	}
	return out
}

// A record of another version is named as such and never decoded.
func TestUnknownRecordVersionIsNamed(t *testing.T) {
	_, err := readHeads([]byte{prunedVersion + 1, 0, 0}, nil)
	if err == nil || !strings.Contains(err.Error(), "version 7") || !strings.Contains(err.Error(), "that wrote it") {
		t.Errorf("version 7: %v", err)
	}
	if _, err := readHeads(nil, nil); err == nil {
		t.Error("an empty record was read")
	}
}

// Given a string table that is full of collisions and has been reset more often than it can count, then strings are
// still found or written, never mixed up.
func TestStringTableForgetsButNeverMixesUp(t *testing.T) {
	var w recordWriter
	w.refs.epoch = ^uint32(0) - 2
	for range 6 {
		w.refs.reset()
		var b []byte
		var want []string
		for i := range 5000 {
			s := fmt.Sprint("s", i*7919%3001)
			want = append(want, s)
			b = w.string(b, s)
		}
		r := reader{Reader: wire.Reader{Rest: b}}
		for i, s := range want {
			if got := r.string(); got != s || r.Bad {
				t.Fatalf("string %d is %q, want %q", i, got, s)
			}
		}
	}
}
