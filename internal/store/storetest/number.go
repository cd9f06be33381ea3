package storetest

import (
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Numbers: exact however large, small or many.
var numberCases = []Case{
	{"sums are exact from the smallest to the largest quantity", func(w *world) {
		w.create(acme, mixMeters()...)
		largest, smallest := "999999999999999.999999999999", "0.000000000001"
		w.says(acme, "accepted accepted accepted accepted", mix("a", "c", Ago(0), largest, "u"),
			mix("b", "c", Ago(0), smallest, "u"), mix("c", "c", Ago(0), largest, "u"),
			mix("d", "c", Ago(0), smallest, "u"))
		w.says(acme, "rejected:invalid rejected:invalid rejected:invalid",
			mix("e", "c", Ago(0), "1000000000000000", "u"), mix("f", "c", Ago(0), "0.0000000000001", "u"),
			mix("g", "c", Ago(0), "-1", "u"))
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
		w.says(acme, "accepted accepted duplicate rejected:invalid", long("a", "rounded", half),
			long("b", "rounded", more), long("b", "rounded", more), long("c", "calls", half))
		w.again()
		w.says(acme, "duplicate duplicate", long("b", "rounded", more),
			Fact("b", "rounded", "c", Ago(0), "0.000000000002"))
		w.totals(acme, "rounded", "c", "0.000000000002")
	}},
	{"a fact that a counter cannot hold is refused alone", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		// A person's adjustments bring the total to a thousand below the bound of 10^26.
		w.adjust(acme, "calls", "c", "99999999999999999999999000", "")
		before := w.head(acme).Seq
		w.says(acme, "rejected:overflow accepted rejected:overflow accepted accepted",
			Fact("a", "calls", "c", Ago(0), "1000"), Fact("b", "calls", "c", Ago(0), "999"),
			Fact("c", "calls", "c", Ago(0), "1"), Fact("d", "calls", "other", Ago(0), "1000"),
			Fact("e", "calls", "c", Ago(0), "0.999999999999"))
		w.says(acme, "rejected:overflow accepted accepted", Correction("f", "b", "1"), Correction("g", "b", "-1"),
			Fact("c", "calls", "c", Ago(0), "1"))
		w.again()
		w.totals(acme, "calls", "c", "99999999999999999999999999.999999999999 on time 999.999999999999")
		w.totals(acme, "calls", "other", "1000")
		if got := w.head(acme).Seq - before; got != 5 {
			w.Errorf("%d rows were kept, want 5", got)
		}
	}},
	{"a counter whose only adjustment was undone is still listed, at nothing", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		first := w.adjust(acme, "calls", "c", "-1", "")
		w.again()
		w.adjust(acme, "calls", "c", "1", first)
		w.totals(acme, "calls", "c", "0")
		CheckLedger(w, w.s, acme)
		w.again()
	}},
	{"a person's adjustment needs no rows and is undone by its opposite", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum), NewMeter("peak", meter.Max))
		first := w.adjust(acme, "calls", "c", "-12.5", "")
		w.adjust(acme, "peak", "c", "3", "")
		w.totals(acme, "calls", "c", "-12.5 on time 0")
		w.says(acme, "accepted accepted", Fact("a", "calls", "c", Ago(200*time.Hour), "20"),
			Fact("b", "peak", "c", Ago(0), "7"))
		w.totals(acme, "calls", "c", "7.5 on time 20")
		w.totals(acme, "peak", "c", "10 on time 7")
		undo := w.adjust(acme, "calls", "c", "12.5", first)
		w.again()
		w.totals(acme, "calls", "c", "20 on time 20")
		w.view(acme, func(v store.View) {
			a, err := store.Adjustment(v, first)
			if err != nil || a.Reverted != undo || a.Amount != Amount("-12.5") || a.Reason != "goodwill" ||
				a.Actor != "tester" || a.Customer != "c" || a.Month != Month {
				w.Errorf("the adjustment reads %+v, %v, want it reverted by %s", a, err, undo)
			}
			if u, err := store.Adjustment(v, undo); err != nil || u.Reverts != first || u.Reverted != "" {
				w.Errorf("its opposite reads %+v, %v", u, err)
			}
			for _, id := range []string{"", "adj_", "adj_0", "adj_1", "adj_999", first + "_1", strings.ToUpper(first),
				"adj_5_1"} {
				_, err := store.Adjustment(v, id)
				w.code("adjustment "+id, err, problem.NotFound)
			}
		})
	}},
}
