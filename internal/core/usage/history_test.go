package usage_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// book is the same history three times: folded anew by the naive store, kept live by Judge, and kept live by Apply.
type book struct {
	story    story
	judged   *live
	replayed *live
	prepare  *usage.Preparer
	sent     []string
}

var aggregations = []meter.Aggregation{meter.Sum, meter.Count, meter.Min, meter.Max, meter.Last, meter.Unique,
	meter.Avg}

func newBook(t *rapid.T) *book {
	b := &book{story: story{clock: time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC)}}
	if _, err := b.story.start(""); err != nil {
		t.Fatal(err)
	}
	var meters []*meter.Meter
	for i, a := range aggregations {
		m := &meter.Meter{Number: uint32(i + 1), Slug: a.String(), Aggregation: a, EventType: "all",
			Lateness: 2 * time.Microsecond, Future: time.Hour}
		if a == meter.Unique {
			m.UniqueProperty = "user"
		}
		meters = append(meters, m)
		if err := b.story.append("meter", "created", m.Slug, meter.Kind.State(m)); err != nil {
			t.Fatal(err)
		}
	}
	b.judged, b.replayed = newLive(meters), newLive(meters)
	b.prepare = usage.NewPreparer(usage.NewCatalog([32]byte{1}, meters))
	return b
}

// Counters that the rules keep equal counters folded anew from the rows, after every fact, correction and close; and
// applying the rows that were kept leads to the same counters as deciding them did.
func TestLiveCountersEqualAFoldOfTheRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook(t)
		for i := range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 20).Draw(t, "step"); {
			case step == 0:
				b.close(t)
			case step < 10 && len(b.sent) > 0:
				b.send(t, b.correction(t, i))
			default:
				b.send(t, b.fact(t, i))
			}
			b.compare(t)
		}
	})
}

func (b *book) fact(t *rapid.T, n int) usage.Event {
	months := []string{"2026-11", "2026-10"}
	m, err := calendar.ParseMonth(rapid.SampledFrom(months).Draw(t, "month"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := parseEvent([]string{"type=all", "customer=c1",
		fmt.Sprintf("p.user=%q", rapid.SampledFrom([]string{"ann", "bob", "cid"}).Draw(t, "user"))})
	if err != nil {
		t.Fatal(err)
	}
	e.ID = fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id"), n)
	e.Quantity = amount.FromInt(rapid.Int64Range(0, 3).Draw(t, "quantity"))
	e.Time, e.Given = m.Start()+calendar.Micros(rapid.IntRange(0, 5).Draw(t, "time")),
		e.Given|usage.GivenTime|usage.GivenQuantity
	return e
}

func (b *book) correction(t *rapid.T, n int) usage.Event {
	return usage.Event{
		ID: fmt.Sprintf("k%d", n), Corrects: rapid.SampledFrom(b.sent).Draw(t, "target"), Reason: "refund",
		Meter: rapid.SampledFrom(aggregations).Draw(t, "meter").String(),
		Quantity: amount.FromInt(rapid.Int64Range(-3, 3).Filter(func(n int64) bool { return n != 0 }).Draw(t,
			"quantity")),
		Given: usage.GivenMeter | usage.GivenQuantity,
	}
}

func (b *book) send(t *rapid.T, e usage.Event) {
	want, err := b.story.record([]usage.Event{e}, false)
	if err != nil {
		t.Fatal(err)
	}
	var f usage.Fact
	b.prepare.Prepare(&e, &f)
	row := &usage.Row{}
	seq := want[0].Seq
	got := usage.Judge(b.judged, &f, seq, calendar.FromTime(b.story.clock), row)
	if got.Status != want[0].Status ||
		problem.CodeOf(asError(got.Problem)) != problem.CodeOf(asError(want[0].Problem)) {
		t.Fatalf("%+v: %s (%v), the naive store says %s (%v)", e, got.Status, got.Problem, want[0].Status,
			want[0].Problem)
	}
	if got.Problem != nil {
		return
	}
	b.judged.keep(seq, row)
	if err := usage.Apply(b.replayed, row, seq); err != nil {
		t.Fatal(err)
	}
	b.replayed.keep(seq, row)
	if e.Corrects == "" {
		b.sent = append(b.sent, e.ID)
	}
}

// asError keeps a nil problem from becoming an error that is not nil.
func asError(p *problem.Error) error {
	if p == nil {
		return nil
	}
	return p
}

func (b *book) close(t *rapid.T) {
	const month = "2026-10"
	m, err := calendar.ParseMonth(month)
	if err != nil {
		t.Fatal(err)
	}
	if b.judged.closed[m] {
		return
	}
	if _, err := b.story.close(month); err != nil {
		t.Fatal(err)
	}
	b.judged.closed[m], b.replayed.closed[m] = true, true
}

func (b *book) compare(t *rapid.T) {
	err := b.story.view(func(v store.View) error {
		for id, c := range b.judged.counters {
			a := b.judged.meters[id.Meter-1].Aggregation
			want, err := v.Counter(id)
			if err != nil {
				return err
			}
			if !c.Equal(&want, a) {
				t.Fatalf("%s %s: decided\n%+v late %+v\nfolded\n%+v late %+v", a, id.Month, c, c.Late, want, want.Late)
			}
			if r := b.replayed.counters[id]; r != nil && !r.Equal(&want, a) {
				t.Fatalf("%s %s: applied\n%+v late %+v\nfolded\n%+v late %+v", a, id.Month, r, r.Late, want, want.Late)
			}
		}
		for id, got := range b.judged.tallies {
			want, err := v.Tally(id.Meter, id.Month)
			if err != nil {
				return err
			}
			if *got != want || *b.replayed.tallies[id] != want {
				t.Fatalf("tally of %s in %s: decided %+v, applied %+v, folded %+v", b.judged.meters[id.Meter-1].Slug,
					id.Month, *got, *b.replayed.tallies[id], want)
			}
		}
		for id, d := range b.judged.days {
			b.compareDay(t, v, id, d)
			b.compareDay(t, v, id, b.replayed.days[id])
		}
		return b.addUp(v)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// compareDay wants the first hour of a day, in which everything happens, to be what its rows give, or lost, and to read
// back as it was written.
func (b *book) compareDay(t *rapid.T, v store.View, id dayID, d *usage.Day) {
	encoded := usage.AppendDay(nil, d)
	read, err := usage.ReadDay(encoded)
	if err != nil || !bytes.Equal(usage.AppendDay(nil, read), encoded) {
		t.Fatalf("%x does not read back: %v", encoded, err)
	}
	h := read.Hour(0)
	if h == nil || h.Lost {
		return
	}
	grid := usage.Grid{Cuts: []calendar.Micros{id.day.Hour(0), id.day.Hour(1)}, MaxCells: 1, MaxCorrected: 100,
		Aggregation: b.judged.meters[id.meter-1].Aggregation}
	rows, hour := usage.NewWindows(grid), usage.NewWindows(grid)
	q := store.SliceQuery{Meter: id.meter, From: grid.Cuts[0], To: grid.Cuts[1], Wants: store.WantKeys}
	for again := true; again; again = rows.Again() {
		if err := v.Slice(q, func(s *store.Slice) error {
			return rows.Add(&usage.Piece{Customer: s.Customer, Seq: s.Seq, Time: s.Time, Value: s.Value, Why: s.Why,
				Corrects: s.Corrects, Base: s.Base, Key: s.Key})
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := hour.AddHour("", grid.Cuts[0], h); err != nil {
		t.Fatal(err)
	}
	got, want := slices.Collect(hour.All()), slices.Collect(rows.All())
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s on %s: the hour gives %+v, its rows %+v", grid.Aggregation, grid.Cuts[0], got, want)
	}
}

// addUp checks that after the close the amounts of adjustments add up to total − sealed_total.
func (b *book) addUp(v store.View) error {
	since := map[usage.CounterID]amount.Amount{}
	for _, r := range b.judged.rows {
		for i := range r.Outcomes {
			if o := &r.Outcomes[i]; o.Why == usage.PeriodClosed {
				id := usage.CounterID{Meter: o.Meter, Customer: r.Customer, Month: r.Month()}
				since[id], _ = since[id].Add(o.Amount)
			}
		}
	}
	for id, sum := range since {
		c, err := v.Counter(id)
		if err != nil {
			return err
		}
		a := b.judged.meters[id.Meter-1].Aggregation
		if d, _ := c.Total(a).Sub(c.SealedTotal(a)); d != sum {
			return fmt.Errorf("%s %s: adjustments since the close add up to %s, the total moved by %s", a, id.Month,
				sum, d)
		}
	}
	return nil
}
