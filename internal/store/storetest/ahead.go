package storetest

import (
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// far is a meter that takes events of the next thirty days.
func far(slug string, a meter.Aggregation) meter.Meter {
	m := NewMeter(slug, a)
	m.Future, m.Lateness = 30*24*time.Hour, 40*24*time.Hour
	return m
}

// Facts that are far ahead of their commit.
var aheadCases = []Case{
	{"facts of the next thirty days are kept, found by their time, and known for good", func(w *world) {
		w.create(acme, far("calls", meter.Sum), NewMeter("near", meter.Sum))
		const day = 24 * time.Hour
		e := []usage.Event{
			Fact("a", "calls", "c", Ago(0), "1"), Fact("b", "calls", "c", Ago(-2*day), "2"),
			Fact("c", "calls", "d", Ago(-20*day), "4"),
			Fact("d", "calls", "c", Ago(-30*day), "8"), Fact("e", "calls", "c", Ago(-30*day)+1, "16"),
			Fact("f", "near", "c", Ago(-2*day), "32"),
		}
		vs := w.says(acme, "accepted accepted accepted accepted rejected:future rejected:future", e...)
		row := func(i int) string { return fmt.Sprintf("%d=%s", vs[i].Seq, e[i].Quantity) }
		windows := func() {
			w.Helper()
			for from, want := range map[calendar.Micros]string{
				Ago(0):         row(0) + " " + row(1) + " " + row(2) + " " + row(3),
				Ago(-day):      row(1) + " " + row(2) + " " + row(3),
				Ago(-19 * day): row(2) + " " + row(3), Ago(-30 * day): row(3), Ago(-30*day) + 1: "",
			} {
				if got := seqs(w.slice(acme, "calls", func(q *store.SliceQuery) { q.From = from })); got != want {
					w.Errorf("from %s on: %s, want %s", from, got, want)
				}
				then := w.slice(acme, "calls", func(q *store.SliceQuery) { q.From, q.UpTo = from, vs[0].Seq })
				if from > Ago(0) && len(then) > 0 {
					w.Errorf("as of row %d from %s on: %s", vs[0].Seq, from, seqs(then))
				}
			}
		}
		windows()
		w.again()
		windows()
		// The bound may become shorter: what was kept under the longer one is still found.
		short := far("calls", meter.Sum)
		short.Future = time.Hour
		w.putMeter(acme, short)
		w.says(acme, "rejected:future duplicate", Fact("g", "calls", "c", Ago(-2*day), "1"), e[3])
		windows()
		short.Future = 0
		w.putMeter(acme, short)
		w.again()
		windows()
		if m := w.meter(acme, "calls"); m.Ahead() != 30*day {
			w.Errorf("the meter's rows are at most %s ahead", m.Ahead())
		}
		// When their time has come they are duplicates, whatever was changed.
		w.clock.Advance(31 * day)
		w.says(acme, "duplicate duplicate duplicate duplicate accepted", e[0], e[1], e[2], e[3], e[4])
	}},
	{"a month that is closed before its time keeps what was sent ahead of it", func(w *world) {
		w.create(acme, far("calls", meter.Sum))
		next := Month + 1
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"), Fact("b", "calls", "c", next.Start(), "2"),
			Fact("c", "calls", "c", next.Start().Add(time.Hour), "4"))
		w.closePeriod(acme, Month)
		w.says(acme, "adjusted accepted", Fact("d", "calls", "c", Month.End()-1, "8"),
			Fact("e", "calls", "c", next.Start().Add(2*time.Hour), "16"))
		w.totals(acme, "calls", "c", "9 on time 1")
		w.again()
		sum := func(m calendar.Month, total, sealed string) {
			w.Helper()
			c := w.counterIn(acme, "calls", "c", m)
			if c.Total(meter.Sum) != Amount(total) || c.SealedTotal(meter.Sum) != Amount(sealed) {
				w.Errorf("%s: total %s, sealed %s, want %s and %s", m, c.Total(meter.Sum), c.SealedTotal(meter.Sum),
					total, sealed)
			}
		}
		sum(Month, "9", "1")
		sum(next, "22", "22")
		w.clock.Set(next.End().Time())
		w.closePeriod(acme, next)
		w.says(acme, "adjusted", Fact("f", "calls", "c", next.Start(), "32"))
		sum(next, "54", "22")
	}},
}
