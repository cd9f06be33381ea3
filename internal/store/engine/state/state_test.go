package state

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var storeID = [16]byte{1, 2, 3}

func mustOpen(t *testing.T, fs vfs.FS) *State {
	t.Helper()
	s, err := Open(Options{FS: fs, Dir: "state", StoreID: storeID})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t *testing.T, s *State) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// saved commits one checkpoint and opens it again after a power failure.
func saved(t *testing.T, at journal.Position, fill func(c *Checkpoint)) *State {
	t.Helper()
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, mem)
	c := s.Begin(0)
	fill(c)
	if err := s.Commit(c, storeID, at); err != nil {
		t.Fatal(err)
	}
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	return mustOpen(t, after)
}

func dec(s string) amount.Amount {
	a, err := amount.Parse(s)
	if err != nil {
		panic(err)
	}
	return a
}

// big and odd are folds with every field at an end of its range.
var (
	big = usage.Fold{Count: math.MaxInt64, Sum: dec("99999999999999999999999999.999999999999"),
		Min: dec("-99999999999999999999999999.999999999999"),
		Max: dec("0.000000000001"), AtMin: 1, AtMax: math.MaxInt64, Last: dec("-0.000000000001"),
		LastTime: calendar.MaxMicros, LastKey: []byte("k\x00\xff"), Members: 7}
	odd = usage.Fold{Count: 1, LastTime: calendar.MinMicros}
)

// Given counters, with and without a late fold, sealed or not, then they are read as they were written.
func TestCountersAreReadAsWritten(t *testing.T) {
	counters := []Counter{
		{},
		{Section: 1, Counter: usage.Counter{OnTime: odd}},
		{Section: math.MaxUint64, Counter: usage.Counter{OnTime: big, Late: &odd, Started: true,
			Watermark: calendar.MaxMicros, Generation: math.MaxUint32, Manual: dec("-5.5")}},
		{Section: 3, Counter: usage.Counter{OnTime: odd, Late: &big, Sealed: true, SealedAt: dec("12.000000000001")}},
	}
	s := saved(t, journal.Position{Segment: 3, Offset: 99}, func(c *Checkpoint) {
		for i := range counters {
			c.SetCounter(9, store.CounterPlace{Month: 5, Meter: "m", Customer: fmt.Sprint(i)},
				AppendCounter(nil, &counters[i]))
		}
	})
	defer mustClose(t, s)
	if s.Position() != (journal.Position{Segment: 3, Offset: 99}) {
		t.Errorf("the state reflects %v", s.Position())
	}
	for i := range counters {
		got, ok, err := s.Counter(9, store.CounterPlace{Month: 5, Meter: "m", Customer: fmt.Sprint(i)})
		if err != nil || !ok || !reflect.DeepEqual(got, counters[i]) {
			t.Errorf("counter %d: %+v, %t, %v, want %+v", i, got, ok, err, counters[i])
		}
	}
	if _, ok, err := s.Counter(9, store.CounterPlace{Month: 5, Meter: "m"}); ok || err != nil {
		t.Errorf("a counter that is not there: %t, %v", ok, err)
	}
}

// Given one entry of every other kind, then it is read as it was written.
func TestEntriesAreReadAsWritten(t *testing.T) {
	var grown tree.Appender
	tiles := grown.Append(make([]tree.Hash, 2*tree.TileRows+3), nil)
	heads := []Head{
		{Number: 1, ID: "a", Head: ledger.Head{Seq: math.MaxUint64, Tree: grown.Tree(), Clock: calendar.MaxMicros}},
		{Number: math.MaxUint32, ID: "é", Head: ledger.Head{}},
	}
	sections := []Section{
		{First: 1, Rows: 2, MinTime: calendar.MaxMicros, MaxTime: calendar.MinMicros, Changes: true},
		{First: 3, Rows: 1 << 20, Position: journal.Position{Segment: math.MaxUint32, Offset: math.MaxUint32},
			Offset: math.MaxUint32, Adjusted: true, Entries: true, MinTime: calendar.MinMicros,
			MaxTime: calendar.MaxMicros},
	}
	target := usage.Key{Space: usage.ClientSpace, Name: "t\xff"}
	corrected := usage.Corrected{Times: 3, TimesOnTime: 2, All: dec("-1"), OnTime: dec("0.5")}
	id := usage.CounterID{Meter: 7, Customer: "c", Month: 3}
	s := saved(t, journal.Position{Segment: 1, Offset: 4096}, func(c *Checkpoint) {
		for _, h := range heads {
			c.SetHead(h)
		}
		for _, tile := range tiles {
			c.SetTile(1, tile)
		}
		c.SetTile(1, tree.Tile{Level: 2, Index: 1})
		c.SetTile(2, tree.Tile{Level: 1, Index: 1})
		c.SetUsed(1, math.MaxUint32)
		c.SetUsed(1, 7)
		c.SetCritical(1, "k", math.MaxUint8, math.MaxUint64)
		c.SetCritical(1, "k", 1, 3)
		for i := range sections {
			c.SetSection(1, &sections[i])
		}
		c.SetCorrected(1, target, 7, corrected)
		for _, seq := range []uint64{9, math.MaxUint64, 2} {
			c.AddCorrection(1, target, seq)
		}
		c.SetMember(1, id, 2, "m", true)
		c.SetMember(1, id, 2, "", false)
	})
	defer mustClose(t, s)
	want := func(what string, got, want any, err error) {
		t.Helper()
		exact := cmp.Comparer(func(a, b amount.Amount) bool { return a == b })
		if d := cmp.Diff(want, got, exact, cmpopts.EquateComparable(tree.Tree{}), cmpopts.EquateEmpty()); err != nil ||
			d != "" {
			t.Errorf("%s (%v) -want +got:\n%s", what, err, d)
		}
	}
	gotHeads, err := s.Heads()
	want("heads", gotHeads, heads, err)
	var gotTiles []tree.Tile
	err = s.Tiles(1, 1, 0, 300, func(tile tree.Tile) { gotTiles = append(gotTiles, tile) })
	want("tiles", gotTiles, tiles, err)
	gotTiles = nil
	err = s.Tiles(1, 1, 1, 1, func(tile tree.Tile) { gotTiles = append(gotTiles, tile) })
	want("a tile", gotTiles, tiles[1:], err)
	used, err := s.UsedMeters(1)
	want("used meters", used, []uint32{7, math.MaxUint32}, err)
	for meter, is := range map[uint32]bool{7: true, math.MaxUint32: true, 8: false} {
		got, err := s.Used(1, meter)
		want("used meter", got, is, err)
	}
	critical, err := s.Critical(1)
	want("critical kinds", critical, []entity.Entity{
		{State: entity.State{Kind: "k", Version: 1, Critical: true}, Seq: 3},
		{State: entity.State{Kind: "k", Version: math.MaxUint8, Critical: true}, Seq: math.MaxUint64},
	}, err)
	var gotSections []Section
	err = s.Sections(1, 0, func(sec Section) bool { gotSections = append(gotSections, sec); return true })
	want("sections", gotSections, sections, err)
	for seq, first := range map[uint64]uint64{1: 1, 2: 1, 3: 3, 3 + 1<<20 - 1: 3} {
		got, ok, err := s.SectionOf(1, seq)
		if !ok || err != nil || got.First != first {
			t.Errorf("row %d is in the section from %d on (%t, %v), want %d", seq, got.First, ok, err, first)
		}
	}
	if _, ok, err := s.SectionOf(1, 3+1<<20); ok || err != nil {
		t.Errorf("a row that is in no section: %t, %v", ok, err)
	}
	gotCorrected, err := s.Corrected(1, target, 7)
	want("corrected", gotCorrected, corrected, err)
	gotCorrected, err = s.Corrected(1, target, 8)
	want("corrected in another meter", gotCorrected, usage.Corrected{}, err)
	seqs, err := s.Corrections(1, target)
	want("corrections", seqs, []uint64{2, 9, math.MaxUint64}, err)
	for member, onTime := range map[string]bool{"m": true, "": false} {
		got, seen, err := s.Member(1, id, 2, member)
		want("member", []bool{got, seen}, []bool{onTime, true}, err)
		_, seen, err = s.Member(1, id, 3, member)
		want("member of another generation", seen, false, err)
	}
}

// Given tenants with neighboring numbers, meters whose slugs begin like one another, and names with the highest bytes
// there are, then a scan lists in order, starts where it is asked to, and never shows anything of another tenant.
func TestScansStayWithTheirTenant(t *testing.T) {
	tenants := []uint32{1, 2, 255, 256, math.MaxUint32 - 1, math.MaxUint32}
	var places []store.CounterPlace
	for _, m := range []calendar.Month{0, 1, 255, 256, 24_311} {
		for _, slug := range []string{"a", "a-", "ab", "b"} {
			for _, customer := range []string{"", "\x01", "a", "b\xff", "\xff", "\xff\xff"} {
				places = append(places, store.CounterPlace{Month: m, Meter: slug, Customer: customer})
			}
		}
	}
	one := AppendCounter(nil, &Counter{Counter: usage.Counter{Started: true}, Section: 1})
	s := saved(t, journal.Position{Segment: 1, Offset: 4096}, func(c *Checkpoint) {
		for _, n := range tenants {
			for _, p := range places {
				c.SetCounter(n, p, one)
			}
			// A counter at which everything was refused makes no month.
			c.SetCounter(n, store.CounterPlace{Month: 30_000, Meter: "a", Customer: "refused"},
				AppendCounter(nil, &Counter{}))
			c.SetHead(Head{Number: n, ID: fmt.Sprint(n)})
			c.SetUsed(n, n)
			c.SetSection(n, &Section{First: uint64(n), Rows: 1})
			for _, name := range []string{"a", "ab", "a\xff"} {
				c.AddCorrection(n, usage.Key{Space: usage.ClientSpace, Name: name}, uint64(n))
			}
		}
	})
	defer mustClose(t, s)
	for _, n := range tenants {
		for from := 0; from < len(places); from += 7 {
			var got []store.CounterPlace
			err := s.Counters(n, places[from], func(p store.CounterPlace, c *Counter) bool {
				if !c.Empty() {
					got = append(got, p)
				}
				return true
			})
			if err != nil || !reflect.DeepEqual(got, places[from:]) {
				t.Fatalf("tenant %d from %+v: %d counters, want %d: %v", n, places[from], len(got), len(places)-from,
					err)
			}
		}
		if list, err := s.UsedMeters(n); err != nil || !slices.Equal(list, []uint32{n}) {
			t.Errorf("tenant %d has used meters %d: %v", n, list, err)
		}
		sections := 0
		err := s.Sections(n, 0, func(sec Section) bool { sections++; return sec.First == uint64(n) })
		if err != nil || sections != 1 {
			t.Errorf("tenant %d has %d sections: %v", n, sections, err)
		}
		if _, ok, err := s.SectionOf(n, uint64(n)+1); ok || err != nil {
			t.Errorf("tenant %d: a row of no section: %t, %v", n, ok, err)
		}
		for _, name := range []string{"a", "ab", "a\xff"} {
			if seqs, err := s.Corrections(n, usage.Key{Space: usage.ClientSpace, Name: name}); err != nil ||
				len(seqs) != 1 || seqs[0] != uint64(n) {
				t.Errorf("tenant %d: corrections of %q: %v, %v", n, name, seqs, err)
			}
		}
		var months []calendar.Month
		for m := calendar.Month(0); ; m++ {
			next, ok, err := s.NextMonth(n, m)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			months, m = append(months, next), next
		}
		if fmt.Sprint(months) != fmt.Sprint([]calendar.Month{0, 1, 255, 256, 24_311}) {
			t.Errorf("tenant %d has the months %v", n, months)
		}
	}
}

// What a power failure leaves is some whole checkpoint, at the position that it says.
func TestCheckpointsAreWhole(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, mem)
	for i := uint32(1); i <= 5; i++ {
		c := s.Begin(0)
		for n := range uint32(50) {
			c.SetHead(Head{Number: n, ID: "x", Head: ledger.Head{Seq: uint64(i)}})
		}
		before := mem.CrashClone(vfs.CrashCloneCfg{})
		if err := s.Commit(c, storeID, journal.Position{Segment: i, Offset: i}); err != nil {
			t.Fatal(err)
		}
		for step, fs := range []*vfs.MemFS{before, mem.CrashClone(vfs.CrashCloneCfg{})} {
			after := mustOpen(t, fs)
			want := i - 1 + uint32(step)
			heads, err := after.Heads()
			if err != nil || after.Position().Segment != want ||
				want > 0 && (len(heads) != 50 || heads[49].Seq != uint64(want)) {
				t.Errorf("checkpoint %d, step %d: position %v, %d heads, %v", i, step, after.Position(), len(heads),
					err)
			}
			mustClose(t, after)
		}
	}
	mustClose(t, s)
}

// tampered opens a state whose meta record is another one.
func tampered(t *testing.T, meta []byte) error {
	t.Helper()
	mem := vfs.NewMem()
	s := mustOpen(t, mem)
	c := s.Begin(0)
	c.SetHead(Head{Number: 1, ID: "a"})
	if err := s.Commit(c, storeID, journal.Position{Segment: 1, Offset: 1}); err != nil {
		t.Fatal(err)
	}
	var err error
	if meta == nil {
		err = s.db.Delete([]byte{kindMeta}, pebble.NoSync)
	} else {
		err = s.db.Set([]byte{kindMeta}, meta, pebble.NoSync)
	}
	if err = errors.Join(err, s.db.Flush()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	s, err = Open(Options{FS: mem, Dir: "state", StoreID: storeID})
	if err == nil {
		mustClose(t, s)
	}
	return err
}

// Another version, another store and a state that does not say what it reflects are refused by name, each with what to
// do.
func TestForeignStatesAreRefused(t *testing.T) {
	newer := metaValue(storeID, journal.Position{})
	newer[0] = Version + 1
	var version *VersionError
	if err := tampered(t, newer); !errors.As(err, &version) || version.Older() ||
		!strings.Contains(err.Error(), fmt.Sprint("version ", Version+1)) ||
		!strings.Contains(err.Error(), "tallystick rebuild") {
		t.Errorf("another version: %v", err)
	}
	older := metaValue(storeID, journal.Position{})
	older[0] = Version - 1
	if err := tampered(t, older); !errors.As(err, &version) || !version.Older() {
		t.Errorf("an older version: %v", err)
	}
	for what, meta := range map[string][]byte{
		"another store":  metaValue([16]byte{9}, journal.Position{}),
		"a short record": newer[:7],
		"an empty one":   {},
		"none":           nil,
	} {
		var damage *DamageError
		if err := tampered(t, meta); !errors.As(err, &damage) || !strings.Contains(err.Error(), "tallystick rebuild") ||
			!strings.Contains(err.Error(), "state") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Values that were not written by this package are refused, never read as something else.
func TestCutValuesAreRefused(t *testing.T) {
	whole := AppendCounter(nil, &Counter{Section: 300,
		Counter: usage.Counter{OnTime: big, Late: &big, Sealed: true, SealedAt: dec("1.5")}})
	for n := range whole {
		if _, err := ReadCounter(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes were read as a counter", n, len(whole))
		}
	}
	if _, err := readSection([]byte("s1234first---"), []byte{1, 1}); err == nil {
		t.Error("a section of two bytes was read")
	}
	if _, ok := readPlace([]byte{0, 0, 0, 1, 'm'}); ok {
		t.Error("a place without an end of its slug was read")
	}
}
