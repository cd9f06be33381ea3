package load

import (
	"slices"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/eventjson"
	"github.com/tallystick/tallystick/internal/core/usage"
)

func mustWorkload(t *testing.T, s Shape) *Workload {
	t.Helper()
	w, err := NewWorkload(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var someShape = Shape{Seed: 9, Tenants: 2, Customers: 50, Meters: 3, DuplicateRatio: 0.3,
	Hour: time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)}

// A repeated event is the same bytes, so the server must call it a duplicate and not a conflict; a fresh one is new.
func TestDuplicatesAreTheSameBytes(t *testing.T) {
	w := mustWorkload(t, someShape)
	streams := []*Stream{w.NewStream(0), w.NewStream(1)}
	known := map[string]string{}
	fresh := make([]int64, someShape.Tenants)
	var b Batch
	for range 100 {
		for _, s := range streams {
			s.Fill(&b, 21)
			news, again := 0, 0
			for i := range b.Facts {
				one := Batch{Tenant: b.Tenant, Facts: b.Facts[i : i+1]}
				text := string(w.AppendJSON(nil, &one))
				id := string(rune('0'+b.Tenant)) + string(AppendID(nil, &b.Facts[i]))
				if before, ok := known[id]; !ok {
					known[id] = text
					news++
				} else if again++; before != text {
					t.Fatalf("%s became %s", before, text)
				}
			}
			if news != b.Fresh || again != b.Duplicates || news+again != 21 {
				t.Fatalf("%d new and %d repeated, said %d and %d", news, again, b.Fresh, b.Duplicates)
			}
			fresh[b.Tenant] += int64(news)
		}
	}
	for i, want := range fresh {
		totals := w.Totals(i, streams)
		var count, sum int64
		for m := range w.Meters() {
			sum += totals.Sum(m)
			for c := range w.Customers() {
				n, _ := totals.Of(m, c)
				count += n
			}
		}
		if totals.Events != want || count != want || sum < count || sum > 5*count || totals.Counters() == 0 {
			t.Errorf("tenant %d: %d events, counts %d, sum %d; want %d", i, totals.Events, count, sum, want)
		}
	}
}

// Few customers are drawn from a small table, as ever; many from one in which most of them stand.
func TestManyCustomersAreDrawn(t *testing.T) {
	for customers, want := range map[int]int{50: drawnAhead, fewCustomers: drawnAhead, fewCustomers + 1: 1 << 22,
		MaxCustomers: maxDrawn} {
		if got := draws(customers); got != want {
			t.Errorf("%d customers: %d draws, want %d", customers, got, want)
		}
	}
	drawn := map[int]bool{}
	w := mustWorkload(t, Shape{Seed: 1, Customers: 2 * fewCustomers, Uniform: true})
	for n := range uint64(20 * fewCustomers) {
		drawn[w.Fact(0, n).Customer] = true
	}
	if len(drawn) < 2*fewCustomers*95/100 {
		t.Errorf("only %d of %d customers were drawn", len(drawn), 2*fewCustomers)
	}
}

func TestTheSameSeedIsTheSameTraffic(t *testing.T) {
	draw := func(seed uint64) []Fact {
		s := someShape
		s.Seed = seed
		stream := mustWorkload(t, s).NewStream(4)
		var all []Fact
		var b Batch
		for range 5 {
			stream.Fill(&b, 10)
			all = append(all, b.Facts...)
		}
		return all
	}
	if !slices.Equal(draw(1), draw(1)) {
		t.Error("one seed, two kinds of traffic")
	}
	if slices.Equal(draw(1), draw(2)) {
		t.Error("two seeds, one kind of traffic")
	}
}

// What the body says is what the fact is, and all of it lies in one month.
func TestBodiesSayTheFacts(t *testing.T) {
	w := mustWorkload(t, someShape)
	var b Batch
	w.NewStream(0).Fill(&b, 200)
	batch, err := eventjson.Decode(w.AppendJSON(nil, &b), nil)
	if err != nil {
		t.Fatal(err)
	}
	if batch.Single || len(batch.Events) != len(b.Facts) {
		t.Fatalf("%d events, single %t", len(batch.Events), batch.Single)
	}
	for i, f := range b.Facts {
		want := usage.Event{ID: string(AppendID(nil, &f)), Meter: w.Meters()[f.Meter],
			Customer: w.Customers()[f.Customer],
			Time:     calendar.FromTime(someShape.Hour.Add(time.Duration(f.Offset) * time.Millisecond)),
			Quantity: amount.FromInt(f.Quantity),
			Given:    usage.GivenMeter | usage.GivenCustomer | usage.GivenTime | usage.GivenQuantity}
		if got := batch.Events[i]; got != want {
			t.Errorf("event %d is %+v, want %+v", i, got, want)
		}
		if len(want.ID) != IDBytes || calendar.MonthOf(want.Time).String() != "2026-11" {
			t.Errorf("event %d: id %s, time %s", i, want.ID, want.Time)
		}
	}
	b.Facts = b.Facts[:1]
	if batch, err := eventjson.Decode(w.AppendJSON(nil, &b), nil); err != nil || !batch.Single {
		t.Errorf("a batch of one: single %t, %v", batch.Single, err)
	}
}
