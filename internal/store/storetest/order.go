package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Order does not matter to the bill.
var orderCases = []Case{
	{"in any order and with any repetition the rows and totals are the same", func(w *world) {
		deliveries(w, spread(12*24*time.Hour), func(id, slug string, a meter.Aggregation, c, first usage.Counter) {
			if c.Total(a) != first.Total(a) {
				w.Errorf("%s of %s totals %s, want %s", slug, id, c.Total(a), first.Total(a))
			}
		})
	}},
	{"within the lateness window every field of a counter is the same too", func(w *world) {
		deliveries(w, spread(meter.DefaultLateness), func(id, slug string, a meter.Aggregation, c, first usage.Counter) {
			if !c.Equal(&first, a) {
				w.Errorf("%s of %s is %s, want %s", slug, id, describe(&c), describe(&first))
			}
		})
	}},
}

// spread makes facts over a span of time before Start, some at the same moment.
func spread(span time.Duration) []usage.Event {
	const facts = 24
	values := []string{"3", "0", "0.000000000001", "12.5", "3", "999999999999999.999999999999"}
	var out []usage.Event
	for i := range facts {
		at := Ago(span * time.Duration(i/2*2) / facts)
		id := fmt.Sprint("e", i)
		if i%5 == 0 {
			id = "" // some are named by the server
			at--
		}
		out = append(out, mix(id, fmt.Sprint("c", i%2), at, values[i%len(values)], fmt.Sprint("u", i%7)))
	}
	return append(out, mix("first", "c0", Ago(span), "4", "u1"), mix("last", "c0", Ago(0), "4", "u1"))
}

// deliveries delivers the facts to several tenants, in another order and with other repetitions each, and compares what is
// there then with the first.
func deliveries(w *world, facts []usage.Event, compare func(id, slug string, a meter.Aggregation, c, first usage.Counter)) {
	const orders = 5
	var rows []string
	for n := range orders {
		id := fmt.Sprint("order", n)
		createAlike(w, id)
		random := rand.New(rand.NewPCG(uint64(n), 7))
		queue := slices.Concat(facts, facts[:len(facts)/2])
		random.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
		for len(queue) > 0 {
			size := min(1+random.IntN(9), len(queue))
			w.record(id, queue[:size]...)
			queue = queue[size:]
		}
		got := contents(w.rows(id, 0))
		if n == 0 {
			rows = got
		}
		same(w, "the rows of "+id, got, rows)
		for _, slug := range mixSlugs() {
			for _, customer := range []string{"c0", "c1"} {
				compare(id, slug, w.meter(id, slug).Aggregation, w.counter(id, slug, customer), w.counter("order0", slug, customer))
			}
		}
	}
}

// createAlike makes tenants that derive the same keys, so that their rows can be compared.
func createAlike(w *world, id string) {
	w.create(id, mixMeters()...)
	w.update(id, func(tx store.Tx) error {
		t, err := tx.Tenant()
		if err != nil {
			return err
		}
		t.Salt = Tenant(acme, 0).Salt
		return PutTenant(tx, t)
	})
}

// contents lists what the facts among the rows say, in an order of its own.
func contents(rows []ledger.Row) []string {
	var out []string
	for _, r := range rows {
		if r.Event != nil {
			out = append(out, fmt.Sprintf("%s %s %s", r.Event.Key.ID(), r.Event.Time, usage.AppendContent(nil, &r.Event.Event, r.Event.Key.Space)))
		}
	}
	slices.Sort(out)
	return out
}

// The chain and the clock.
var chainCases = []Case{
	{"the chain covers every row once, also over many commits", func(w *world) {
		w.create(acme, mixMeters()...)
		for i := range 15 {
			w.clock.Advance(time.Duration(i) * time.Second)
			w.says(acme, "accepted", mix(fmt.Sprint("a", i), "c", Ago(0), "1", "u"), mix(fmt.Sprint("b", i), "d", Ago(0), "2", "u"))
			if i%4 == 0 {
				w.adjust(acme, "m-sum", "c", "1", "")
			}
			if i%6 == 0 {
				w.again()
			}
		}
		CheckLedger(w, w.s, acme)
	}},
	{"the chain is that of the rows and of nothing else", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		before := w.head(acme)
		w.says(acme, "accepted rejected:unknown_meter accepted", Fact("a", "calls", "c", Ago(0), "1"), Fact("b", "x", "c", Ago(0), "1"), Fact("c", "calls", "c", Ago(0), "1"))
		var hasher ledger.Hasher
		if want, got := hasher.Next(before.Chain, w.rows(acme, before.Seq)), w.head(acme).Chain; got != want {
			w.Errorf("the chain is %x, want %x", got, want)
		}
	}},
	{"the clock never moves backward when the wall clock does", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		for range 2 {
			w.clock.Advance(-3 * time.Hour)
			w.view(acme, func(v store.View) {
				if v.Now() != Ago(0) || v.Head().Clock != Ago(0) {
					w.Errorf("the clock shows %s, the head %s, want %s", v.Now(), v.Head().Clock, Ago(0))
				}
			})
			w.again()
		}
		w.says(acme, "accepted accepted", Fact("b", "calls", "c", Ago(-time.Hour), "1"), Untimed(Fact("c", "calls", "c", 0, "1")))
		w.adjust(acme, "calls", "c", "1", "")
		for _, r := range w.rows(acme, 3) {
			if r.At != Ago(0) || r.Event != nil && r.Event.ID == "c" && r.Event.Time != Ago(0) {
				w.Errorf("row %d was committed at %s, want %s", r.Seq, r.At, Ago(0))
			}
		}
		w.clock.Set(Start.Add(time.Minute))
		w.says(acme, "accepted", Fact("d", "calls", "c", Ago(0), "1"))
		if got := w.head(acme).Clock; got != Ago(-time.Minute) {
			w.Errorf("the clock shows %s, want it to go on", got)
		}
	}},
	{"the sections end where the reader's error says, and it is returned", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		err := w.s.View(context.Background(), acme, func(v store.View) error {
			seen := 0
			return v.Sections(1, func(*ledger.Section) error {
				if seen++; seen > 1 {
					w.Errorf("the sections went on after an error")
				}
				return errEnough
			})
		})
		if err != errEnough {
			w.Errorf("view: %v, want the reader's error as it is", err)
		}
	}},
}

// Numbers: exact however large, small or many.
var numberCases = []Case{
	{"sums are exact from the smallest to the largest quantity", func(w *world) {
		w.create(acme, mixMeters()...)
		largest, smallest := "999999999999999.999999999999", "0.000000000001"
		w.says(acme, "accepted accepted accepted accepted", mix("a", "c", Ago(0), largest, "u"), mix("b", "c", Ago(0), smallest, "u"),
			mix("c", "c", Ago(0), largest, "u"), mix("d", "c", Ago(0), smallest, "u"))
		w.says(acme, "rejected:invalid rejected:invalid rejected:invalid", mix("e", "c", Ago(0), "1000000000000000", "u"),
			mix("f", "c", Ago(0), "0.0000000000001", "u"), mix("g", "c", Ago(0), "-1", "u"))
		for range 2 {
			w.totals(acme, "m-sum", "c", "2000000000000000")
			w.totals(acme, "m-min", "c", smallest)
			w.totals(acme, "m-max", "c", largest)
			w.totals(acme, "m-avg", "c", "500000000000000")
			w.totals(acme, "m-last", "c", smallest)
			w.again()
		}
	}},
	{"a meter that rounds takes decimals past the twelfth, others refuse them", func(w *world) {
		m := NewMeter("rounded", meter.Sum)
		m.Rounding = meter.HalfEven
		w.create(acme, m, NewMeter("calls", meter.Sum))
		long := func(id, slug, quantity string) usage.Event {
			e := Fact(id, slug, "c", Ago(0), "0")
			e.Unrounded = quantity
			return e
		}
		half, more := "0.0000000000005", "0.0000000000015"
		w.says(acme, "accepted accepted duplicate rejected:invalid", long("a", "rounded", half), long("b", "rounded", more), long("b", "rounded", more), long("c", "calls", half))
		w.again()
		w.says(acme, "duplicate duplicate", long("b", "rounded", more), Fact("b", "rounded", "c", Ago(0), "0.000000000002"))
		w.totals(acme, "rounded", "c", "0.000000000002")
	}},
	{"a fact that a counter cannot hold is refused alone", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		// A person's adjustments bring the total to a thousand below the bound of 10^26.
		w.adjust(acme, "calls", "c", "99999999999999999999999000", "")
		before := w.head(acme).Seq
		w.says(acme, "rejected:overflow accepted rejected:overflow accepted accepted", Fact("a", "calls", "c", Ago(0), "1000"), Fact("b", "calls", "c", Ago(0), "999"),
			Fact("c", "calls", "c", Ago(0), "1"), Fact("d", "calls", "other", Ago(0), "1000"), Fact("e", "calls", "c", Ago(0), "0.999999999999"))
		w.says(acme, "rejected:overflow accepted accepted", Correction("f", "b", "1"), Correction("g", "b", "-1"), Fact("c", "calls", "c", Ago(0), "1"))
		w.again()
		w.totals(acme, "calls", "c", "99999999999999999999999999.999999999999 on time 999.999999999999")
		w.totals(acme, "calls", "other", "1000")
		if got := w.head(acme).Seq - before; got != 5 {
			w.Errorf("%d rows were kept, want 5", got)
		}
	}},
	{"a person's adjustment needs no rows and is undone by its opposite", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum), NewMeter("peak", meter.Max))
		first := w.adjust(acme, "calls", "c", "-12.5", "")
		w.adjust(acme, "peak", "c", "3", "")
		w.totals(acme, "calls", "c", "-12.5 on time 0")
		w.says(acme, "accepted accepted", Fact("a", "calls", "c", Ago(200*time.Hour), "20"), Fact("b", "peak", "c", Ago(0), "7"))
		w.totals(acme, "calls", "c", "7.5 on time 20")
		w.totals(acme, "peak", "c", "10 on time 7")
		undo := w.adjust(acme, "calls", "c", "12.5", first)
		w.again()
		w.totals(acme, "calls", "c", "20 on time 20")
		w.view(acme, func(v store.View) {
			a, err := v.Adjustment(first)
			if err != nil || a.Reverted != undo || a.Amount != Amount("-12.5") || a.Reason != "goodwill" || a.Actor != "tester" || a.Customer != "c" || a.Month != Month {
				w.Errorf("the adjustment reads %+v, %v, want it reverted by %s", a, err, undo)
			}
			if u, err := v.Adjustment(undo); err != nil || u.Reverts != first || u.Reverted != "" {
				w.Errorf("its opposite reads %+v, %v", u, err)
			}
			for _, id := range []string{"", "adj_", "adj_0", "adj_1", "adj_999", first + "_1", strings.ToUpper(first), "adj_5_1"} {
				_, err := v.Adjustment(id)
				w.code("adjustment "+id, err, "not_found")
			}
		})
	}},
}
