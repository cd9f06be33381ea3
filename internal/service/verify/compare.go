package verify

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// entitiesPage is how many keys, meters and periods are listed at a time.
const entitiesPage = 1000

// compareEntities holds tenant, keys, meters and periods against the changes that made them.
func (b *book) compareEntities() error {
	t, err := store.Tenant(b.v)
	if err != nil {
		return fmt.Errorf("read tenant: %w", err)
	}
	b.compareState("tenant", tenant.Kind.State(b.entities.tenant), tenant.Kind.State(&t))
	keys, err := listed(b.v.APIKeys, func(k *tenant.APIKey) string { return k.ID })
	if err != nil {
		return fmt.Errorf("list API keys: %w", err)
	}
	for _, id := range namesOf(b.entities.keys, keys) {
		b.compareState("API key "+id, keyState(b.entities.keys, id), keyState(keys, id))
	}
	meters, err := listed(b.v.Meters, func(m *store.Meter) string { return m.Slug })
	if err != nil {
		return fmt.Errorf("list meters: %w", err)
	}
	for _, slug := range namesOf(b.entities.meters, meters) {
		want, got := ledger.State{}, ledger.State{}
		if m, ok := b.entities.meters[slug]; ok {
			want.Meter = &m
		}
		if m, ok := meters[slug]; ok {
			got.Meter = &m.Meter
			if used := b.entities.used[m.Number]; used != m.Used {
				b.differs("use of meter "+slug, used, m.Used)
			}
		}
		b.compareState("meter "+slug, want, got)
	}
	return b.comparePeriods()
}

func keyState(m map[string]tenant.APIKey, id string) ledger.State {
	if k, ok := m[id]; ok {
		return tenant.KeyKind.State(&k)
	}
	return ledger.State{}
}

// compareState never shows the states themselves: they hold salts and hashes.
func (b *book) compareState(what string, want, got ledger.State) {
	none := ledger.State{}
	switch {
	case want != none && got == none:
		b.differs(what, "one", "none")
	case want == none && got != none:
		b.differs(what, "none", "one")
	case !bytes.Equal(want.Encode(), got.Encode()):
		b.differs(what, "what its last change says", "something else")
	}
}

// listed reads a list to its end.
func listed[T any](list func(after string, limit int) ([]T, error), name func(*T) string) (map[string]T, error) {
	out := map[string]T{}
	for after := ""; ; {
		page, err := list(after, entitiesPage)
		if err != nil {
			return nil, err
		}
		for i := range page {
			n := name(&page[i])
			if n <= after {
				return nil, fmt.Errorf("%q is listed after %q", n, after)
			}
			after = n
			out[n] = page[i]
		}
		if len(page) < entitiesPage {
			return out, nil
		}
	}
}

// namesOf lists the names of both.
func namesOf[A, B any](a map[string]A, b map[string]B) []string {
	all := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
	slices.Sort(all)
	return slices.Compact(all)
}

func (b *book) comparePeriods() error {
	want := map[calendar.Month]usage.Period{}
	for id := range b.counters {
		want[id.Month] = usage.Period{Month: id.Month}
	}
	maps.Copy(want, b.entities.periods)
	for from := calendar.Month(0); ; {
		page, err := store.Periods(b.v, from, entitiesPage)
		if err != nil {
			return fmt.Errorf("list periods: %w", err)
		}
		for _, p := range page {
			if p.Month < from {
				return fmt.Errorf("list periods: %s is listed when only later ones were asked for", p.Month)
			}
			from = p.Month + 1
			w, there := want[p.Month]
			delete(want, p.Month)
			if there && w != p {
				b.differs("period "+p.Month.String(), fmt.Sprintf("%+v", w), fmt.Sprintf("%+v", p))
			}
			if !there {
				b.differs("period "+p.Month.String(), "nothing happened in it", "listed")
			}
		}
		if len(page) < entitiesPage {
			break
		}
	}
	for m := range want {
		b.differs("period "+m.String(), "listed", "not listed")
	}
	return nil
}

// compareManual finds every person's adjustment again by its id.
func (b *book) compareManual() error {
	for i := range b.entities.manual {
		want := b.entities.manual[i]
		want.Reverted = b.entities.reverted[want.ID]
		got, err := store.Adjustment(b.v, want.ID)
		if problem.Is(err, problem.NotFound) {
			b.differs("adjustment "+want.ID, fmt.Sprintf("row %d", want.Seq), "none")
			continue
		}
		if err != nil {
			return fmt.Errorf("read adjustment %s: %w", want.ID, err)
		}
		if got != want {
			b.differs("adjustment "+want.ID, fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got))
		}
	}
	return nil
}

// compareCounters holds every counter against its rows, and every row's counter against the listing.
func (b *book) compareCounters() error {
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

func (b *book) compareListed(p store.CounterPlace, got *usage.Counter) error {
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

func (b *book) compareCounter(what string, t *tally, id usage.CounterID, a meter.Aggregation, got *usage.Counter) {
	b.compareFold(what+", on-time rows", &t.onTime, &got.OnTime)
	b.compareFold(what+", all rows", t.allRows(), got.All())
	if t.started != got.Started || t.watermark != got.Watermark {
		b.differs(what+", watermark", shownMark(t.started, t.watermark), shownMark(got.Started, got.Watermark))
	}
	if t.manual != got.Manual {
		b.differs(what+", adjustments by people", t.manual, got.Manual)
	}
	if want := b.quotas.told[id]; want != got.Alerted {
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
func (b *book) compareSeal(what string, t *tally, a meter.Aggregation, total amount.Amount, got *usage.Counter) {
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

func (b *book) compareFold(what string, want, got *usage.Fold) {
	if want.Equal(got) {
		return
	}
	for _, f := range []struct {
		name      string
		want, got any
	}{
		{"count", want.Count, got.Count}, {"sum", want.Sum, got.Sum}, {"min", want.Min, got.Min}, {"max", want.Max, got.Max},
		{"facts at the min", want.AtMin, got.AtMin}, {"facts at the max", want.AtMax, got.AtMax}, {"last", want.Last, got.Last},
		{"time of the last", want.LastTime, got.LastTime}, {"key of the last", string(want.LastKey), string(got.LastKey)},
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
	return cmp.Or(cmp.Compare(a.Month, b.Month), strings.Compare(a.Meter, b.Meter), strings.Compare(a.Customer, b.Customer))
}
