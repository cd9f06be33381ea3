package verify

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// compareCounters holds every counter against its rows, and every row's counter against the listing.
func (b *recount) compareCounters() error {
	var last store.CounterPlace
	var failed error
	err := b.v.Counters(store.CounterPlace{}, func(p store.CounterPlace, got *usage.Counter) bool {
		if b.report.Counters++; last != (store.CounterPlace{}) && comparePlaces(last, p) >= 0 {
			b.differs("place of the counter "+place(p), "after "+place(last), "before it")
		}
		last = store.CounterPlace{Month: p.Month, Meter: strings.Clone(p.Meter), Customer: strings.Clone(p.Customer)}
		failed = b.compareListed(last, got)
		return failed == nil && b.ctx.Err() == nil
	})
	if err = cmp.Or(err, failed, b.ctx.Err()); err != nil {
		return fmt.Errorf("list counters: %w", err)
	}
	for id, t := range b.counters {
		if !t.listed {
			p := store.CounterPlace{Month: id.Month, Meter: b.entities.numbers[id.Meter].Slug, Customer: id.Customer}
			b.differs("counter "+place(p), "listed", "not listed")
		}
	}
	return nil
}

func (b *recount) compareListed(p store.CounterPlace, got *usage.Counter) error {
	m, ok := b.entities.meters[p.Meter]
	if !ok {
		b.differs("counter "+place(p), "no such meter", "a counter of it")
		return nil
	}
	id := usage.CounterID{Meter: m.Number, Customer: p.Customer, Month: p.Month}
	t := b.counters[id]
	if t == nil {
		b.differs("counter "+place(p), "no rows", "a counter")
		return nil
	}
	t.listed = true
	b.compareCounter("counter "+place(p), t, id, m.Aggregation, got)
	alone, err := b.v.Counter(id)
	if err != nil {
		return err
	}
	b.compareCounter("counter "+place(p)+" read alone", t, id, m.Aggregation, &alone)
	return nil
}

func (b *recount) compareCounter(what string, t *tally, id usage.CounterID, a meter.Aggregation, got *usage.Counter) {
	b.compareFold(what+", on-time rows", &t.onTime, &got.OnTime)
	b.compareFold(what+", all rows", t.allRows(), got.All())
	if t.started != got.Started || t.watermark != got.Watermark {
		b.differs(what+", watermark", shownMark(t.started, t.watermark), shownMark(got.Started, got.Watermark))
	}
	if t.manual != got.Manual {
		b.differs(what+", adjustments by people", t.manual, got.Manual)
	}
	if want := b.quotas.alerted[id]; want != got.Alerted {
		b.differs(what+", highest threshold reported", want, got.Alerted)
	}
	total, ok := t.allRows().Value(a).Add(t.manual)
	if !ok || total != got.Total(a) {
		b.differs(what+", total", total, got.Total(a))
	}
	if !b.entities.periods[id.Month].Closed {
		if got.Sealed {
			b.differs(what+", sealed total", "none: the period is open", got.SealedAt)
		}
		return
	}
	b.compareSeal(what, t, a, total, got)
}

// compareSeal checks the total at the close, and that what came later adds up to what the total has moved since.
func (b *recount) compareSeal(what string, t *tally, a meter.Aggregation, total amount.Amount, got *usage.Counter) {
	if t.base != nil {
		if want := t.base.SealedTotal(a); want != got.SealedTotal(a) {
			b.differs(what+", sealed total", want, got.SealedTotal(a))
		}
		return
	}
	sealed, ok := t.atClose().Value(a).Add(t.manualAtClose)
	if !ok || sealed != got.SealedTotal(a) {
		b.differs(what+", sealed total", sealed, got.SealedTotal(a))
	}
	moved, ok := total.Sub(sealed)
	if !ok || moved != t.movedSinceThen {
		b.differs(what+", amounts of the rows after the close", moved, t.movedSinceThen)
	}
}

func (b *recount) compareFold(what string, want, got *usage.Fold) {
	if want.Equal(got) {
		return
	}
	for _, f := range []struct {
		name      string
		want, got any
	}{
		{"count", want.Count, got.Count}, {"sum", want.Sum, got.Sum},
		{"min", want.Min, got.Min}, {"max", want.Max, got.Max},
		{"facts at the min", want.AtMin, got.AtMin}, {"facts at the max", want.AtMax, got.AtMax},
		{"last", want.Last, got.Last}, {"time of the last", want.LastTime, got.LastTime},
		{"key of the last", string(want.LastKey), string(got.LastKey)},
		{"members", want.Members, got.Members},
	} {
		if f.want != f.got {
			b.differs(what+", "+f.name, f.want, f.got)
		}
	}
}

func shownMark(started bool, m calendar.Micros) string {
	if !started {
		return "none"
	}
	return m.String()
}

func place(p store.CounterPlace) string {
	return fmt.Sprintf("%s of %q in %s", p.Meter, p.Customer, p.Month)
}

func comparePlaces(a, b store.CounterPlace) int {
	return cmp.Or(cmp.Compare(a.Month, b.Month), strings.Compare(a.Meter, b.Meter),
		strings.Compare(a.Customer, b.Customer))
}
