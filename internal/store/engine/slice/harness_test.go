package slice

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// tinyShape makes files of a few rows have many pages, row groups and blocks, and dictionaries that give up.
var tinyShape = shape{pageRows: 4, groupRows: 12, dictionaryBytes: 48, blockBytes: 256, readBuffer: 64}

// tb is what testing.T and rapid.T share.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

func never() bool { return true }

func openTiny(t tb, fs vfs.FS) *Set {
	t.Helper()
	s, err := Open(Options{FS: fs, Dir: "slices", StoreID: [16]byte{1}, shape: tinyShape})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

// fact is a row of a journal that exists only here: record n is at position (1, n).
type fact struct {
	tenant string
	ledger.Row
}

func position(record int) journal.Position {
	return journal.Position{Segment: 1, Offset: uint32(record)}
}

func meterName(n uint32) string { return fmt.Sprintf("meter-%d", n) }

// world is a journal in memory and what slices were made of it.
type world struct {
	facts []fact // one for each record
	seqs  map[string]uint64
}

var months = []string{"2026-10", "2026-11", "2027-01"}

func drawFact(t *rapid.T, seqs map[string]uint64) fact {
	few := func(label string, n int) string {
		return fmt.Sprintf("%s-%d", label, rapid.IntRange(1, n).Draw(t, label))
	}
	m, err := calendar.ParseMonth(rapid.SampledFrom(months).Draw(t, "month"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	f := fact{tenant: few("tenant", 3)}
	seqs[f.tenant]++
	span := int64(m.End() - m.Start())
	e := &usage.Row{Key: usage.Key{Space: rapid.SampledFrom([]usage.Space{usage.ClientSpace,
		usage.DerivedSpace}).Draw(t, "space"), Name: few("key", 1000)}}
	e.Customer = few("customer", 4)
	e.Time = m.Start() + calendar.Micros(rapid.SampledFrom([]int64{0, 1, span / 2, span - 1}).Draw(t, "time"))
	e.Resource = rapid.SampledFrom([]string{"", "disk", "a rather long name of a resource"}).Draw(t, "resource")
	e.Properties = rapid.SampledFrom([]string{"", `{"a":1}`, `{"text":"` + strings.Repeat("x", 300) + `"}`}).Draw(t,
		"properties")
	e.Quantity = amount.FromInt(rapid.Int64Range(-5, 1<<40).Draw(t, "quantity"))
	if rapid.IntRange(0, 5).Draw(t, "corrects") == 0 {
		e.Corrects, e.Reason = few("key", 1000), "wrong"
	}
	for n := range uint32(rapid.IntRange(1, 3).Draw(t, "meters")) {
		o := usage.Outcome{Meter: n + 1, Value: e.Quantity, Why: usage.Why(rapid.IntRange(0, 3).Draw(t, "why")),
			Overage: rapid.Bool().Draw(t, "overage")}
		if e.Corrects != "" {
			o.Base = amount.FromInt(rapid.Int64Range(0, 9).Draw(t, "base"))
		}
		o.Member = rapid.SampledFrom([]string{"", "user-1", "user-2"}).Draw(t, "member")
		e.Outcomes = append(e.Outcomes, o)
	}
	f.Row = ledger.Row{Seq: seqs[f.tenant], At: e.Time + 5, Event: e}
	return f
}

// batch is of the records from to to, of one month if that is given.
func (w *world) batch(from, to int, only *calendar.Month) *Batch {
	b := &Batch{}
	for i := from; i < to; i++ {
		if f := &w.facts[i]; only == nil || f.Event.Month() == *only {
			b.Add(f.tenant, &f.Row, meterName)
		}
	}
	return b
}

// line is a row of a piece in a form that compares.
type line struct {
	customer                               string
	seq                                    uint64
	time                                   calendar.Micros
	value, base                            amount.Amount
	why                                    usage.Why
	corrects, resource, properties, member string
	key                                    usage.Key
}

func linesOf(s *store.Slice, wants store.Columns) (out []line) {
	for i := range s.Seq {
		l := line{customer: s.Customer, seq: s.Seq[i], time: s.Time[i], value: s.Value[i], why: s.Why[i]}
		if s.Corrects != nil {
			l.corrects, l.base = strings.Clone(s.Corrects[i]), s.Base[i]
		}
		if wants&store.WantKeys != 0 {
			l.key = usage.Key{Space: s.Key[i].Space, Name: strings.Clone(s.Key[i].Name)}
		}
		if wants&store.WantResources != 0 {
			l.resource = strings.Clone(s.Resource[i])
		}
		if wants&store.WantProperties != 0 {
			l.properties = strings.Clone(s.Properties[i])
		}
		if wants&store.WantMembers != 0 {
			l.member = strings.Clone(s.Member[i])
		}
		out = append(out, l)
	}
	return out
}

func sortLines(lines []line) []line {
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.seq, b.seq) })
	return lines
}

// read asks the slices.
func read(n *Snapshot, q Query) (out []line, err error) {
	missed, err := n.Read(q, func(s *store.Slice) error {
		out = append(out, linesOf(s, q.Wants)...)
		return nil
	})
	for i := range missed {
		err = errors.Join(err, missed[i].Err)
	}
	return sortLines(out), err
}

// readAround asks the slices, and the facts for what the slices missed. It also returns how many rows of the files
// that could not be read had been handed on before.
func (w *world) readAround(t tb, n *Snapshot, q Query) (out []line, before int, missed []Missed) {
	t.Helper()
	missed, err := n.Read(q, func(s *store.Slice) error {
		out = append(out, linesOf(s, q.Wants)...)
		return nil
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	for i := range missed {
		m := &missed[i]
		for _, l := range w.scan(t, q, m.records) {
			if m.Has(l.customer, l.time, l.seq) {
				out = append(out, l)
			} else {
				before++
			}
		}
	}
	return sortLines(out), before, missed
}

// records reports whether a record's rows of a month are in the hole.
func (h *Hole) records(record int, m calendar.Month) bool {
	return m == h.Month && h.Holds(position(record))
}

// scan answers a query from the facts of some records, by the port's own gatherer.
func (w *world) scan(t tb, q Query, holds func(record int, m calendar.Month) bool) (out []line) {
	t.Helper()
	var number uint32
	if _, err := fmt.Sscanf(q.Meter, "meter-%d", &number); err != nil {
		t.Fatalf("%v", err)
	}
	g := store.NewGatherer(store.SliceQuery{Meter: number, Customer: q.Customer, From: q.From, To: q.To, UpTo: q.UpTo,
		Wants: q.Wants}, func(s *store.Slice) error {
		out = append(out, linesOf(s, q.Wants)...)
		return nil
	})
	for i := range w.facts {
		if f := &w.facts[i]; f.tenant == q.Tenant && holds(i, f.Event.Month()) {
			if err := g.Add(&f.Row); err != nil {
				t.Fatalf("%v", err)
			}
		}
	}
	if err := g.Flush(); err != nil {
		t.Fatalf("%v", err)
	}
	return sortLines(out)
}

// covered reports what the slices say that they hold.
func covered(n *Snapshot) func(record int, m calendar.Month) bool {
	return func(record int, m calendar.Month) bool {
		p := position(record)
		return p.Less(n.Covered) && !slices.ContainsFunc(n.Holes, func(h Hole) bool {
			return h.Month == m && h.Holds(p)
		})
	}
}

func drawQuery(t *rapid.T, facts int) Query {
	q := Query{
		Tenant: fmt.Sprintf("tenant-%d", rapid.IntRange(1, 4).Draw(t, "tenant")),
		Meter:  meterName(uint32(rapid.IntRange(1, 4).Draw(t, "meter"))),
		From:   0, To: calendar.MaxMicros, UpTo: uint64(facts),
		Wants: store.Columns(rapid.IntRange(0, 15).Draw(t, "wants")),
	}
	if rapid.Bool().Draw(t, "one customer") {
		q.Customer = fmt.Sprintf("customer-%d", rapid.IntRange(1, 5).Draw(t, "customer"))
	}
	if rapid.Bool().Draw(t, "bounded") {
		m, _ := calendar.ParseMonth(rapid.SampledFrom(months).Draw(t, "of"))
		span := m.End() - m.Start()
		q.From = m.Start() + rapid.SampledFrom([]calendar.Micros{0, 1, span / 2}).Draw(t, "from")
		q.To = q.From + rapid.SampledFrom([]calendar.Micros{0, 1, span / 2, span, 5 * span}).Draw(t, "for")
	}
	if rapid.Bool().Draw(t, "up to") {
		q.UpTo = uint64(rapid.IntRange(0, facts).Draw(t, "last"))
	}
	return q
}

// agree compares what the slices say with what they were made of.
func (w *world) agree(t *rapid.T, s *Set) {
	t.Helper()
	n := s.Acquire()
	defer n.Release()
	for range 4 {
		q := drawQuery(t, len(w.facts))
		got, err := read(n, q)
		if err != nil {
			t.Fatalf("read %+v: %v", q, err)
		}
		// Zero means no bound to the port, and nothing to a query here.
		want := []line(nil)
		if q.UpTo != 0 {
			want = w.scan(t, q, covered(n))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v:\n got %+v\nwant %+v", q, got, want)
		}
	}
}

func mustClose(t testing.TB, s *Set) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
