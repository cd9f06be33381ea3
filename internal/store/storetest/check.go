package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// CheckLedger holds one tenant's ledger against itself: rows without gaps, sections that cover them once, a chain that
// the rows give, counters that are the fold of the rows, and lookups that find every row. The ledger must be at rest.
func CheckLedger(t TB, s store.Store, id string) {
	t.Helper()
	err := s.View(context.Background(), id, func(v store.View) error {
		b := &books{TB: t, v: v, id: id, head: v.Head(), rows: readRows(t, v, 0, everything)}
		b.checkNumbers()
		b.checkSections()
		b.checkLookups()
		b.checkMeters()
		b.checkCounters()
		b.checkTallies()
		b.checkHours()
		b.checkQuotas()
		b.checkAudit()
		return nil
	})
	if err != nil {
		t.Fatalf("view %s: %v", id, err)
	}
}

// books are one tenant's ledger under examination.
type books struct {
	TB
	v      store.View
	id     string
	head   ledger.Head
	rows   []ledger.Row
	meters map[uint32]store.Meter
}

func (b *books) checkNumbers() {
	b.Helper()
	if uint64(len(b.rows)) != b.head.Seq {
		b.Fatalf("%s: %d rows under a head of seq %d", b.id, len(b.rows), b.head.Seq)
	}
	clock := calendar.Micros(0)
	for i, r := range b.rows {
		if r.Seq != uint64(i+1) {
			b.Fatalf("%s: row number %d is at place %d", b.id, r.Seq, i+1)
		}
		if n := set(r.Event != nil) + set(r.Entry != nil) + set(r.Change != nil); n != 1 {
			b.Fatalf("%s: row %d is %d of event, entry and change", b.id, r.Seq, n)
		}
		if r.At < clock {
			b.Errorf("%s: row %d was committed at %s, before the row it follows (%s)", b.id, r.Seq, r.At, clock)
		}
		clock = r.At
	}
	if b.head.Clock != clock {
		b.Errorf("%s: the head's clock shows %s, the last row was committed at %s", b.id, b.head.Clock, clock)
	}
	if now := b.v.Now(); now < clock {
		b.Errorf("%s: a rule would see %s, but the last row was committed at %s", b.id, now, clock)
	}
}

func (b *books) checkSections() {
	b.Helper()
	var hasher ledger.Hasher
	keys := treeKeys(b, b.v)
	whole := tree.NewCheck(b.v.Tree(), func(want tree.Tile, got tree.Hash) {
		b.Errorf("%s: tile %d of level %d is %x, its rows give %x", b.id, want.Index, want.Level, got, want.Hash)
	})
	next := uint64(1)
	err := b.v.Sections(1, func(s *ledger.Section) error {
		if s.First != next || len(s.Rows) == 0 {
			return fmt.Errorf("a section of %d rows begins at %d, want rows from %d on", len(s.Rows), s.First, next)
		}
		for i := range s.Rows {
			if next > b.head.Seq || !reflect.DeepEqual(s.Rows[i].Clone(), b.rows[next-1]) {
				return fmt.Errorf("row %d of the sections is not row %d of the ledger", s.Rows[i].Seq, next)
			}
			if s.Rows[i].At != s.At {
				return fmt.Errorf("row %d has another time than its section", next)
			}
			next++
		}
		return hasher.Check(whole, keys, s)
	})
	if err != nil {
		b.Fatalf("%s: sections: %v", b.id, err)
	}
	if next != b.head.Seq+1 {
		b.Errorf("%s: the sections end before row %d of %d", b.id, next, b.head.Seq)
	}
	checkTree(b, b.v, whole)
	b.checkSectionStarts()
}

func set(is bool) int {
	if is {
		return 1
	}
	return 0
}

// treeKeys are the keys of the ledger's tree.
func treeKeys(t TB, v store.View) *tree.Keys {
	t.Helper()
	tn, err := store.Tenant(v)
	if err != nil {
		t.Fatalf("read tenant: %v", err)
	}
	keys, err := tree.NewKeys(tn.TreeKeys)
	if err != nil {
		t.Fatalf("keys of the tree: %v", err)
	}
	return keys
}

// checkTree wants the head's tree to be that of the rows, and of what the store keeps to prove it by.
func checkTree(t TB, v store.View, whole *tree.Check) {
	t.Helper()
	head := v.Head()
	got, err := whole.Tree()
	if err != nil || got != head.Tree || got.Size() != head.Seq {
		t.Errorf("the tree of the rows has %d leaves and the root %x, the head's %d and %x: %v",
			got.Size(), got.Root(), head.Tree.Size(), head.Tree.Root(), err)
	}
	again, err := tree.Rebuild(v.Tree(), head.Seq)
	if err != nil || again != head.Tree {
		t.Errorf("the tree of the tiles and the last leaves has the root %x, the head's %x: %v", again.Root(),
			head.Tree.Root(), err)
	}
}

// errEnough ends an iteration that has seen what it wanted.
var errEnough = errors.New("seen enough")

// checkSectionStarts asks for the section of some rows and wants it first.
func (b *books) checkSectionStarts() {
	b.Helper()
	for seq := uint64(1); seq <= b.head.Seq; seq += 1 + b.head.Seq/8 {
		err := b.v.Sections(seq, func(s *ledger.Section) error {
			if seq < s.First || seq >= s.First+uint64(len(s.Rows)) {
				b.Errorf("%s: the section asked for by row %d has %d rows from %d on", b.id, seq, len(s.Rows), s.First)
			}
			return errEnough
		})
		if err != errEnough {
			b.Errorf("%s: sections from row %d: %v, want the error of the callback as it is", b.id, seq, err)
		}
	}
}

func (b *books) checkLookups() {
	b.Helper()
	corrected, seen := corrections(b.rows), map[usage.Key]uint64{}
	for _, r := range b.rows {
		if r.Kind() != ledger.EventRow {
			continue
		}
		k := r.Event.Key
		if first := seen[k]; first != 0 {
			b.Errorf("%s: rows %d and %d are both kept under %q", b.id, first, r.Seq, k.ID())
			continue
		}
		seen[k] = r.Seq
		got, by, err := b.v.Event(k)
		if err != nil {
			b.Errorf("%s: event %q of row %d: %v", b.id, k.ID(), r.Seq, err)
			continue
		}
		same(b, fmt.Sprintf("%s: event %q", b.id, k.ID()), got, r)
		same(b, fmt.Sprintf("%s: corrections of %q", b.id, k.ID()), by, corrected[k])
		b.checkAdjustments(&r)
	}
}

// checkAdjustments wants an adjustment for every outcome outside the on-time fold, and none for the others.
func (b *books) checkAdjustments(r *ledger.Row) {
	b.Helper()
	for i := range r.Event.Outcomes {
		o := &r.Event.Outcomes[i]
		name := usage.LateID(r.Seq, o.Meter)
		got, err := store.Adjustment(b.v, name)
		want, late := usage.LateAdjustment(r.Event, o, r.Seq, r.At)
		switch {
		case !late && !problem.Is(err, problem.NotFound):
			b.Errorf("%s: adjustment %s of an on-time row: %v, want not_found", b.id, name, err)
		case late && err != nil:
			b.Errorf("%s: adjustment %s: %v", b.id, name, err)
		case late:
			same(b, b.id+": adjustment "+name, got, want)
		}
	}
}

func (b *books) checkMeters() {
	b.Helper()
	used := map[uint32]bool{}
	for _, r := range b.rows {
		if r.Kind() == ledger.EventRow {
			for _, o := range r.Event.Outcomes {
				used[o.Meter] = true
			}
		}
	}
	b.meters = map[uint32]store.Meter{}
	for _, m := range allMeters(b, b.v) {
		b.meters[m.Number] = m
		if m.Used != used[m.Number] {
			b.Errorf("%s: meter %s says used %t, the rows say %t", b.id, m.Slug, m.Used, used[m.Number])
		}
		one, err := store.GetMeter(b.v, m.Slug)
		if err != nil {
			b.Errorf("%s: meter %s: %v", b.id, m.Slug, err)
		}
		same(b, b.id+": meter "+m.Slug, one, m)
	}
}

func (b *books) checkCounters() {
	b.Helper()
	wants := recount(b, b.rows, b.head.Seq)
	var before store.CounterPlace
	err := b.v.Counters(store.CounterPlace{}, func(p store.CounterPlace, got *usage.Counter) bool {
		if before != (store.CounterPlace{}) && comparePlaces(before, p) >= 0 {
			b.Errorf("%s: counter %v is listed after %v", b.id, p, before)
		}
		before = store.CounterPlace{Month: p.Month, Meter: strings.Clone(p.Meter), Customer: strings.Clone(p.Customer)}
		id := usage.CounterID{Meter: b.numberOf(p.Meter), Customer: before.Customer, Month: p.Month}
		want := wants[id]
		if want == nil {
			b.Errorf("%s: counter %v is listed, but no row made it", b.id, p)
			return true
		}
		delete(wants, id)
		b.checkCounter(id, p, got, want)
		return true
	})
	if err != nil {
		b.Fatalf("%s: counters: %v", b.id, err)
	}
	for id := range wants {
		b.Errorf("%s: the counter %v is not listed", b.id, id)
	}
}

func (b *books) numberOf(slug string) uint32 {
	for n, m := range b.meters {
		if m.Slug == slug {
			return n
		}
	}
	b.Fatalf("%s: a counter of meter %q, which does not exist", b.id, slug)
	return 0
}

func (b *books) checkCounter(id usage.CounterID, p store.CounterPlace, listed, want *usage.Counter) {
	b.Helper()
	a := b.meters[id.Meter].Aggregation
	period, err := store.Period(b.v, id.Month)
	if err != nil {
		b.Fatalf("%s: period %s: %v", b.id, id.Month, err)
	}
	if period.Closed {
		want.Sealed, want.SealedAt = true, amount.Zero
		if then := recount(b, b.rows, period.Seq)[id]; then != nil {
			want.SealedAt = then.Total(a)
		}
		b.checkAfterClose(id, period.Seq, want)
	}
	if !listed.Equal(want, a) {
		b.Errorf("%s: counter %v is %s, its rows give %s", b.id, p, describe(listed), describe(want))
	}
	alone, err := b.v.Counter(id)
	if err != nil {
		b.Errorf("%s: counter %v: %v", b.id, p, err)
		return
	}
	if !alone.Equal(want, a) {
		b.Errorf("%s: counter %v read alone is %s, its rows give %s", b.id, p, describe(&alone), describe(want))
	}
}

// checkAfterClose wants the amounts that came after the close to add up to what the total has moved since.
func (b *books) checkAfterClose(id usage.CounterID, closed uint64, want *usage.Counter) {
	b.Helper()
	moved := want.SealedAt
	for _, r := range b.rows[closed:] {
		if a := stateOf(b, &usage.AdjustmentKind, &r); a != nil &&
			(usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}) == id {
			moved = plus(b, moved, a.Amount)
		}
		if r.Kind() != ledger.EventRow || r.Event.Customer != id.Customer || r.Event.Month() != id.Month {
			continue
		}
		for _, o := range r.Event.Outcomes {
			if o.Meter == id.Meter {
				moved = plus(b, moved, o.Amount)
			}
		}
	}
	if total := want.Total(b.meters[id.Meter].Aggregation); moved != total {
		b.Errorf("%s: counter %v: sealed total and later amounts make %s, the total is %s", b.id, id, moved, total)
	}
}

func comparePlaces(a, b store.CounterPlace) int {
	return cmp.Or(cmp.Compare(a.Month, b.Month), strings.Compare(a.Meter, b.Meter),
		strings.Compare(a.Customer, b.Customer))
}

// describe writes a counter down in all that Equal looks at.
func describe(c *usage.Counter) string {
	fold := func(f *usage.Fold) string {
		return fmt.Sprintf("{count %d sum %s min %s×%d max %s×%d last %s at %s by %q members %d}",
			f.Count, f.Sum, f.Min, f.AtMin, f.Max, f.AtMax, f.Last, f.LastTime, f.LastKey, f.Members)
	}
	return fmt.Sprintf("on time %s, all %s, started %t, watermark %s, manual %s, sealed %t at %s, alerted %d",
		fold(&c.OnTime), fold(c.All()), c.Started, c.Watermark, c.Manual, c.Sealed, c.SealedAt, c.Alerted)
}
