package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// withFacts opens an engine that remembers so many bytes, with sections of so many facts each: two of every customer,
// so that a correction of the larger one needs the counter's rows.
func withFacts(t *testing.T, fs vfs.FS, remember, sections, facts int) *Engine {
	t.Helper()
	o := resting(fs)
	o.SegmentBytes, o.CounterBytes, o.recall = 8<<20, 1<<20, remember
	e := mustOpen(t, o)
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	for s := range sections {
		var events []usage.Event
		for i := range facts {
			customer := fmt.Sprintf("c%d-%d", s, i/2)
			events = append(events, storetest.Fact(factName(s, i), "calls", customer, storetest.Ago(0),
				fmt.Sprint(10+i%2)))
		}
		mustKeep(t, e, events)
	}
	return e
}

func factName(section, i int) string { return fmt.Sprintf("f%d-%d", section, i) }

func mustKeep(t *testing.T, e *Engine, events []usage.Event) {
	t.Helper()
	a := record(e, "acme", events...)
	if a.err != nil || strings.Count(a.said, "accepted") != len(events) {
		t.Fatalf("%d events: %+v", len(events), a)
	}
}

// fixes are corrections of every second fact: the larger one of its counter, which then has to be found anew.
func fixes(sections, facts int) (out []usage.Event) {
	for s := range sections {
		for i := 1; i < facts; i += 2 {
			out = append(out, storetest.Correction("fix-"+factName(s, i), factName(s, i), "-5"))
		}
	}
	return out
}

// Given facts that came in a few batches, when all of them are corrected at once, in any order, then every section is
// read once, and not once for each correction.
func TestCorrectionsReadASectionOnce(t *testing.T) {
	const sections, facts = 3, 100
	e := withFacts(t, vfs.NewMem(), 0, sections, facts)
	events := fixes(sections, facts)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	mustKeep(t, e, events)
	if n := figure(t, e, "sections_read_deciding_total"); n != sections {
		t.Errorf("%d corrections read %v sections, want %d", len(events), n, sections)
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}

// The same holds when there is room for one section only, as long as corrections come as their facts did; and when they
// do not, they are as right.
func TestCorrectionsWithRoomForOneSection(t *testing.T) {
	const sections, facts = 3, 40
	e := withFacts(t, vfs.NewMem(), 1, sections, facts)
	mustKeep(t, e, fixes(sections, facts))
	if n := figure(t, e, "sections_read_deciding_total"); n != sections {
		t.Errorf("sections were read %v times, want %d", n, sections)
	}
	var events []usage.Event
	for i := 1; i < facts; i += 2 {
		for s := range sections {
			events = append(events, storetest.Correction("again-"+factName(s, i), factName(s, i), "9"))
		}
	}
	mustKeep(t, e, events)
	if n := len(e.recall.recent); n != 1 {
		t.Errorf("%d sections are remembered", n)
	}
	storetest.CheckLedger(t, e, "acme")
	mustEnd(t, e)
}

// What is remembered stays within its bounds, keeps what was used last, and never more than the last section if that
// alone is too large.
func TestRecallIsBounded(t *testing.T) {
	b := &book{}
	of := func(first uint64, bytes int) *recalled {
		return &recalled{section: section{first: first, had: 1}, book: b, bytes: bytes}
	}
	m := recall{limit: 10}
	for i := range uint64(3) {
		m.add(of(i+1, 4))
	}
	if m.find(b, 1) != nil || m.find(b, 2) == nil || m.bytes != 8 {
		t.Errorf("12 bytes of 10: %+v", m)
	}
	m.add(of(4, 4)) // 2 was used after 3
	if m.find(b, 3) != nil || m.find(b, 2) == nil || m.find(&book{}, 2) != nil || m.find(b, 5) != nil {
		t.Errorf("the wrong one was forgotten: %+v", m)
	}
	m.add(of(5, 11))
	if len(m.recent) != 1 || m.bytes != 11 || m.find(b, 5) == nil {
		t.Errorf("a large one: %+v", m)
	}
	m = recall{limit: 1 << 20}
	for i := range uint64(2 * recallSections) {
		m.add(of(i+1, 1))
	}
	if len(m.recent) != recallSections || m.bytes != recallSections || m.find(b, recallSections+1) == nil {
		t.Errorf("%d sections of %d bytes are remembered", len(m.recent), m.bytes)
	}
}

// A reader that looks at facts and their corrections one after the other, as verification does, reads their sections
// once.
func TestAReaderReadsASectionOnce(t *testing.T) {
	const sections, facts = 2, 40
	e := withFacts(t, vfs.NewMem(), 0, sections, facts)
	mustKeep(t, e, fixes(sections, facts))
	err := e.View(context.Background(), "acme", func(v store.View) error {
		for s := range sections {
			for i := range facts {
				if _, by, err := v.Event(usage.KeyOfID(factName(s, i))); err != nil || len(by) != i%2 {
					return fmt.Errorf("%s has %d corrections: %w", factName(s, i), len(by), err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if n := figure(t, e, "sections_read_total"); n != sections+1 {
		t.Errorf("%v sections were read, want %d", n, sections+1)
	}
	mustEnd(t, e)
}

// A request is as large as its sender likes. Once it is answered nothing of the writer's points into it.
func TestTheWriterForgetsWhatItWrote(t *testing.T) {
	e := withFacts(t, vfs.NewMem(), 0, 1, 100)
	for _, slot := range e.writer.refs.slots {
		if slot.s != "" {
			t.Fatalf("%q of a request is kept", slot.s)
		}
	}
	mustEnd(t, e)
}
