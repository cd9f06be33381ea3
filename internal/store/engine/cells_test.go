package engine

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/slab"
	"github.com/tallystick/tallystick/internal/store/engine/state"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// memory is cells beside plain maps of what they must hold.
type memory struct {
	*rapid.T
	cs     *cells
	books  []*book
	now    map[named]state.Counter // every counter as it is
	frozen map[named]state.Counter // those that the checkpoint under way saves, as they were when it began
	disk   map[named]state.Counter
	saving bool
	epoch  uint64
	step   int
}

type named struct {
	book int
	id   usage.CounterID
}

func newMemory(t *rapid.T) *memory {
	m := &memory{T: t, now: map[named]state.Counter{}, disk: map[named]state.Counter{}}
	m.cs = newCells(rapid.SampledFrom([]int{0, 1000, 1 << 20}).Draw(t, "bytes"), 1000,
		rapid.SampledFrom([]int{1, 16}).Draw(t, "cells"))
	for i := range 2 {
		m.books = append(m.books, &book{number: uint32(i + 1)})
	}
	return m
}

func (m *memory) name() named {
	id := usage.CounterID{
		Meter:    rapid.Uint32Range(1, 2).Draw(m.T, "meter"),
		Month:    calendar.Month(rapid.IntRange(1, 2).Draw(m.T, "month")),
		Customer: strings.Repeat("c", rapid.IntRange(0, 8).Draw(m.T, "customer")),
	}
	return named{rapid.IntRange(0, 1).Draw(m.T, "book"), id}
}

func (m *memory) hash(n named) uint64 {
	// so that many share one
	return cellHash(m.books[n.book].number, n.id, hashCustomer(n.id.Customer)) % 7 * 0x0101_0000_0101
}

// cell returns a counter's cell as the decider would get it.
func (m *memory) cell(n named) *cell {
	b, hash := m.books[n.book], m.hash(n)
	if r := m.cs.find(b, n.id, hash); r != 0 {
		return m.cs.openCell(r)
	}
	if _, dirty := m.now[n]; dirty && !sameCounter(m.now[n], m.disk[n]) {
		m.Fatalf("%v is not in memory, and the state does not have it", n)
	}
	in := &brought{Counter: cloneState(m.disk[n]), book: b, id: n.id, slug: fmt.Sprint("m", n.id.Meter), hash: hash}
	return m.cs.add(in)
}

// judge changes some counters, as a fact that feeds them does: all are held before the first changes.
func (m *memory) judge() {
	m.cs.release()
	names := map[named]*cell{}
	for range rapid.IntRange(1, 12).Draw(m.T, "counters") {
		n := m.name()
		c := m.cell(n)
		m.cs.touch(c)
		names[n] = c
	}
	for n, c := range names {
		m.step++
		c.OnTime.Count++
		c.OnTime.Sum, _ = c.OnTime.Sum.Add(amount.FromInt(int64(m.step)))
		c.OnTime.LastKey = append(c.OnTime.LastKey[:0], strings.Repeat("k", rapid.IntRange(0, 90).Draw(m.T, "key"))...)
		c.Late = nil
		if m.step%3 == 0 {
			c.Late = &usage.Fold{Count: int64(m.step)}
		}
		c.link(uint64(m.step))
		m.now[n] = cloneState(c.Counter)
	}
}

func (m *memory) freeze() {
	if m.saving {
		return
	}
	m.epoch, m.saving, m.frozen = m.cs.freeze(), true, map[named]state.Counter{}
	for n, c := range m.now {
		if !sameCounter(c, m.disk[n]) {
			m.frozen[n] = cloneState(c)
		}
	}
}

// finish saves what the checkpoint shall save, which must be what was there when it began, and ends it.
func (m *memory) finish() {
	if !m.saving {
		return
	}
	saved := map[named]state.Counter{}
	for i, b := range m.books {
		for _, r := range b.saving {
			c, err := state.ReadCounter(m.cs.saved(nil, r))
			if err != nil {
				m.Fatal(err)
			}
			p := m.cs.place(r)
			saved[named{i, usage.CounterID{Meter: m.cs.meter(r), Month: p.Month, Customer: p.Customer}}] = c
		}
	}
	for n, want := range m.frozen {
		if !sameCounter(saved[n], want) {
			m.Fatalf("%v is saved as %+v, it was %+v", n, saved[n], want)
		}
	}
	for n, c := range saved {
		m.disk[n] = c
	}
	m.cs.finish(m.epoch)
	m.saving = false
	for r := range m.cs.wide {
		if m.cs.mayGo(m.cs.entry(r), 0) {
			m.cs.move(r)
		}
	}
}

func (m *memory) letGo() {
	m.cs.letGo(m.cs.rounds(), rapid.IntRange(1, 1000).Draw(m.T, "units"))
}

func (m *memory) check() {
	there := 0
	for n, want := range m.now {
		r := m.cs.find(m.books[n.book], n.id, m.hash(n))
		if r == 0 {
			if !sameCounter(want, m.disk[n]) {
				m.Fatalf("%v was let go before it was saved", n)
			}
			continue
		}
		there++
		got, err := m.cs.read(r)
		if err != nil || !sameCounter(state.Counter{Counter: got, Section: want.Section}, want) {
			m.Fatalf("%v is %+v, want %+v: %v", n, got, want, err)
		}
		if all, err := state.ReadCounter(m.cs.value(nil, r)); err != nil || !sameCounter(all, want) {
			m.Fatalf("%v has the bytes of %+v, want %+v: %v", n, all, want, err)
		}
	}
	if m.cs.count < there || m.cs.count > len(m.now) {
		m.Fatalf("%d counters in memory, %d were found, of %d", m.cs.count, there, len(m.now))
	}
}

func sameCounter(a, b state.Counter) bool {
	return bytes.Equal(state.AppendCounter(nil, &a), state.AppendCounter(nil, &b))
}

func cloneState(c state.Counter) state.Counter {
	return state.Counter{Counter: c.Counter.Clone(), Section: c.Section}
}

// Given any history of facts, checkpoints that begin and end around them and counters that are let go, with few open
// cells, values that outgrow their entries and hashes that collide, then memory has every counter as it is, a
// checkpoint saves it as it was when the checkpoint began, and nothing leaves before it is saved.
func TestMemoryHoldsWhatTheStateDoesNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMemory(t)
		t.Repeat(map[string]func(*rapid.T){
			"judge":  func(t *rapid.T) { m.T = t; m.judge() },
			"freeze": func(t *rapid.T) { m.T = t; m.freeze() },
			"finish": func(t *rapid.T) { m.T = t; m.finish() },
			"let go": func(t *rapid.T) { m.T = t; m.letGo() },
			"":       func(t *rapid.T) { m.T = t; m.check() },
		})
	})
}

// Given an event that feeds more meters than there are cells, then each of its counters counts it.
func TestAnEventFeedsMoreCountersThanAreOpen(t *testing.T) {
	o := resting(vfs.NewMem())
	o.open = 1
	e := mustOpen(t, o)
	var meters []meter.Meter
	for i := range 3 * cellWays {
		m := storetest.NewMeter(fmt.Sprint("m", i), meter.Count)
		m.EventType = "call"
		meters = append(meters, m)
	}
	if err := storetest.Create(e, "acme", meters...); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		f := storetest.Fact(fmt.Sprint("f", i), "", "c", storetest.Ago(0), "1")
		f.Type, f.Given = "call", f.Given&^(usage.GivenMeter|usage.GivenQuantity)|usage.GivenType
		f.Meter, f.Quantity = "", amount.Zero
		if a := record(e, "acme", f); a.err != nil || !strings.HasPrefix(a.said, "accepted") {
			t.Fatalf("%+v", a)
		}
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}

// Given a listing that gives way while it looks at changed counters, when a checkpoint ends meanwhile and memory is
// used for others, then it lists every counter once.
func TestACheckpointEndsWhileCountersAreListed(t *testing.T) {
	o := resting(vfs.NewMem())
	var e *Engine
	const customers = 3 * cellsAtOnce
	stretch := 0
	o.listing = func() {
		if stretch++; stretch != 2 {
			return
		}
		checkpointNow(t, e)
		forgetAll(e)
		for i := range 4 {
			mustRecord(t, e, fmt.Sprint("other-", i))
		}
	}
	e = mustOpen(t, o)
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < customers; i += 100 {
		var events []usage.Event
		for n := i; n < min(i+100, customers); n++ {
			events = append(events, storetest.Fact(fmt.Sprint("f", n), "calls", fmt.Sprint("c", n), storetest.Ago(0),
				"1"))
		}
		if _, err := e.Record(context.Background(), store.Batch{Tenant: "acme", Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	listed := map[string]int{}
	err := e.View(context.Background(), "acme", func(v store.View) error {
		return v.Counters(store.CounterPlace{}, func(p store.CounterPlace, _ *usage.Counter) bool {
			listed[p.Customer]++
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range customers {
		if name := fmt.Sprint("c", n); listed[name] != 1 {
			t.Fatalf("%s was listed %d times", name, listed[name])
		}
	}
	mustEnd(t, e)
}

// Given counters of many months, meters and names, then a checkpoint saves them in the order of the state.
func TestCountersAreSavedInOrder(t *testing.T) {
	names := []string{
		"", "a", "a\x00", "a\x00b", "aa", "cus_1", "cus_10", "cus_2", "cus_100000000001", "cus_100000000002",
		"cus_1000000000010", "z", "\xff",
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		e := &Engine{cells: newCells(1<<20, 1000, 8)}
		b := &book{}
		some := names[random.IntN(len(names)-1):]
		var refs []slab.Ref
		for range random.IntN(60) {
			id := usage.CounterID{
				Meter: uint32(random.IntN(3)), Month: calendar.Month(random.IntN(3)),
				Customer: some[random.IntN(len(some))],
			}
			hash := cellHash(b.number, id, hashCustomer(id.Customer))
			if e.cells.find(b, id, hash) == 0 {
				refs = append(refs, e.cells.add(&brought{book: b, id: id, slug: []string{"a", "ab", "b"}[id.Meter],
					hash: hash}).ref)
			}
		}
		got := e.inStateOrder(refs)
		if len(got) != len(refs) {
			t.Fatalf("%d counters of %d", len(got), len(refs))
		}
		if !slices.IsSortedFunc(got, func(a, b slab.Ref) int { return byPlace(e.cells.place(a), e.cells.place(b)) }) {
			t.Fatal("not in order")
		}
	}
}

// Given a counter whose cell was closed since a fact of the same commit changed it, when a correction takes that fact
// away, then what is left is found in the commits before.
func TestAClosedCellRemembersTheCommitBefore(t *testing.T) {
	o := resting(vfs.NewMem())
	o.open = 1
	e := mustOpen(t, o)
	if err := storetest.Create(e, "acme", storetest.NewMeter("high", meter.Max)); err != nil {
		t.Fatal(err)
	}
	if a := record(e, "acme", storetest.Fact("first", "high", "c", storetest.Ago(0), "5")); a.err != nil {
		t.Fatal(a.err)
	}
	events := []usage.Event{storetest.Fact("top", "high", "c", storetest.Ago(0), "9")}
	for i := range 4 * cellWays {
		events = append(events, storetest.Fact(fmt.Sprint("o", i), "high", fmt.Sprint("other-", i), storetest.Ago(0),
			"1"))
	}
	events = append(events, storetest.Correction("undo", "top", "-9"))
	if _, err := e.Record(context.Background(), store.Batch{Tenant: "acme", Events: events}); err != nil {
		t.Fatal(err)
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}
