package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// unsorted names stand in the order of no collation; sorted by their bytes they are "10", "9", "A", "Z", "a", "a-b",
// "a.b", ….
var unsorted = []string{"a_b", "Z", "a", "ab", "10", "a-b", "A", "9", "a.b", "b"}

// Listings: in the order of bytes, page by page, nothing twice and nothing missing.
var listingCases = []Case{
	{"tenants are listed by id, and the operator's own never", func(w *world) {
		for _, id := range append(slices.Clone(unsorted), tenant.Operator) {
			w.create(id)
		}
		w.again()
		w.pages("tenants", func(after string, limit int) ([]string, error) {
			ts, err := w.s.Tenants(context.Background(), after, limit)
			return named(ts, func(t store.Listed) string { return t.ID }), err
		})
		if w.head(tenant.Operator).Seq != 1 {
			w.Errorf("the operator's ledger cannot be read")
		}
	}},
	{"what cannot be a name is no place in a list, and nobody is called so", unnameable},
	{"meters are listed by slug", func(w *world) {
		w.create(acme)
		for _, slug := range unsorted {
			w.putMeter(acme, NewMeter(slug, meter.Sum))
		}
		w.again()
		w.view(acme, func(v store.View) {
			w.pages("meters", func(after string, limit int) ([]string, error) {
				ms, err := store.Meters(v, store.Page{After: after, Limit: limit})
				return named(ms, func(m store.Meter) string { return m.Slug }), err
			})
		})
	}},
	{"API keys are listed by id, revoked ones too", func(w *world) {
		w.create(acme)
		w.update(acme, func(tx store.Tx) error {
			for i, id := range unsorted {
				k := tenant.APIKey{ID: id}
				if i%2 == 0 {
					k.RevokedAt = tx.Now()
				}
				if err := PutKey(tx, k); err != nil {
					return err
				}
			}
			return nil
		})
		w.again()
		w.view(acme, func(v store.View) {
			w.pages("keys", func(after string, limit int) ([]string, error) {
				ks, err := store.List(v, &tenant.KeyKind, store.Page{After: after, Limit: limit})
				return named(ks, func(k tenant.APIKey) string { return k.ID }), err
			})
		})
	}},
	{"counters are listed by month, slug and customer, from any place on", listsCounters},
	{"a counter without rows is new", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		if c := w.counter(acme, "calls", "nobody"); !c.Total(meter.Sum).IsZero() || c.Started || c.OnTime.Count != 0 {
			w.Errorf("the counter reads %s", describe(&c))
		}
	}},
	{"rows can be read from any place on and left at any row", func(w *world) {
		w.manyRows()
		all := w.rows(acme, 0)
		w.view(acme, func(v store.View) {
			for after := range uint64(len(all)) {
				shown := 0
				last, end, err := v.Rows(after, everything, func(r *ledger.Row) bool {
					shown++
					same(w, fmt.Sprint("row ", after+1), r.Clone(), all[after])
					return false
				})
				if err != nil || shown != 1 || last != after+1 || end && last != uint64(len(all)) {
					w.Errorf("left at once after row %d: %d rows shown, last %d, end %t, %v", after, shown, last, end,
						err)
				}
				same(w, fmt.Sprint("rows after ", after), readRows(w, v, after, everything), all[after:])
			}
			for _, after := range []uint64{uint64(len(all)), uint64(len(all)) + 7} {
				if rows := readRows(w, v, after, everything); len(rows) != 0 {
					w.Errorf("%d rows are there after the last", len(rows))
				}
			}
		})
	}},
	{"a hint never hides a row that it names", func(w *world) {
		w.manyRows()
		all := w.rows(acme, 0)
		times := []time.Duration{0, time.Hour, 50 * time.Hour, 30 * 24 * time.Hour}
		hints := []store.RowHint{{Events: true}, {Changes: true}, {Events: true, Adjusted: true},
			{Events: true, Changes: true, Adjusted: true}}
		for _, from := range times {
			for _, to := range times {
				hints = append(hints, store.RowHint{Events: true, From: Ago(from), To: Ago(to)},
					store.RowHint{Events: true, Changes: true, To: Ago(to) + 1},
					store.RowHint{Events: true, Changes: true, Adjusted: true, From: Ago(from)})
			}
		}
		w.view(acme, func(v store.View) {
			for _, h := range hints {
				shown := map[uint64]bool{}
				for _, r := range readRows(w, v, 0, h) {
					shown[r.Seq] = true
					same(w, fmt.Sprintf("row %d under %+v", r.Seq, h), r, all[r.Seq-1])
				}
				for _, r := range all {
					if names(h, &r) && !shown[r.Seq] {
						w.Errorf("the hint %+v hides row %d", h, r.Seq)
					}
				}
			}
		})
	}},
	{"what a view returned stays as it was", func(w *world) {
		w.create(acme, mixMeters()...)
		v := w.says(acme, "accepted", mix("a", "c", Ago(0), "5", "u"))[0]
		w.says(acme, "accepted", OfMeter(Correction("fix", "a", "-1"), "m-sum"))
		row, by := w.event(acme, v.Key)
		counter, meters := w.counter(acme, "m-sum", "c"), []store.Meter{w.meter(acme, "m-sum")}
		then := history{row.Clone(), []ledger.Row{by[0].Clone()}}
		was := counter.Clone()
		for i := range 20 {
			w.says(acme, "accepted", mix(fmt.Sprint("e", i), "c", Ago(-time.Minute), "7", "w"))
		}
		w.putMeter(acme, NewMeter("m-sum", meter.Max))
		same(w, "the event", history{row, by}, then)
		same(w, "the meter", meters[0].Aggregation, meter.Sum)
		if !counter.Equal(&was, meter.Sum) {
			w.Errorf("the counter was %s and is now %s", describe(&was), describe(&counter))
		}
		m := NewMeter("m-sum", meter.Sum)
		m.EventType, m.ValueProperty = mixType, "v"
		w.putMeter(acme, m)
	}},
}

// pages reads a listing in pages of every size and compares it with the sorted names.
func (w *world) pages(what string, page func(after string, limit int) ([]string, error)) {
	w.Helper()
	want := slices.Sorted(slices.Values(unsorted))
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		for after := ""; ; after = got[len(got)-1] {
			some, err := page(after, limit)
			if err != nil || len(some) > limit {
				w.Fatalf("%s after %q: %d of at most %d, %v", what, after, len(some), limit, err)
			}
			got = append(got, some...)
			if len(some) == 0 || len(got) > len(want) {
				break
			}
		}
		if !slices.Equal(got, want) {
			w.Errorf("%s in pages of %d: %q, want %q", what, limit, got, want)
		}
	}
	if some, err := page("aa", many); err != nil || !slices.Equal(some, []string{"ab", "b"}) {
		w.Errorf("%s after one that is not there: %q, %v", what, some, err)
	}
}

func named[T any](things []T, name func(T) string) (out []string) {
	for _, t := range things {
		out = append(out, name(t))
	}
	return out
}

func listsCounters(w *world) {
	// Numbers are given in order of creation, which is not that of the slugs.
	w.create(acme, NewMeter("b", meter.Sum), NewMeter("a_b", meter.Sum), NewMeter("B", meter.Sum))
	customers := append([]string{"é", "e\u0301", "z", "ｚ", "a b", "😀"}, unsorted...)
	var places []store.CounterPlace
	for i, customer := range customers {
		for j, p := range []store.CounterPlace{{Month: Month, Meter: "b"}, {Month: Month, Meter: "a_b"},
			{Month: Month - 1, Meter: "B"}, {Month: Month - 1, Meter: "b"}} {
			p.Customer = customer
			places = append(places, p)
			w.says(acme, "accepted", Fact(fmt.Sprint(i, "-", j), p.Meter, customer, p.Month.Start(), "1"))
		}
	}
	w.adjust(acme, "B", "only adjusted", "1", "")
	places = append(places, store.CounterPlace{Month: Month, Meter: "B", Customer: "only adjusted"})
	slices.SortFunc(places, comparePlaces)
	w.again()
	w.view(acme, func(v store.View) {
		list := func(from store.CounterPlace, limit int) (out []store.CounterPlace) {
			err := v.Counters(from, func(p store.CounterPlace, _ *usage.Counter) bool {
				out = append(out, p)
				return len(out) < limit
			})
			if err != nil {
				w.Fatalf("counters from %v: %v", from, err)
			}
			return out
		}
		same(w, "all counters", list(store.CounterPlace{}, many), places)
		for i, p := range places {
			same(w, fmt.Sprintf("counters from %v", p), list(p, many), places[i:])
			same(w, fmt.Sprintf("one counter from %v", p), list(p, 1), places[i:i+1])
			p.Customer += "\x01" // the place right after it
			if from := list(p, 1); i+1 < len(places) {
				same(w, fmt.Sprintf("the counter after %v", places[i]), from, places[i+1:i+2])
			}
		}
		first := slices.IndexFunc(places, func(p store.CounterPlace) bool { return p.Month == Month })
		same(w, "counters of the month", list(store.CounterPlace{Month: Month}, many), places[first:])
	})
}

// unnameable asks every question that takes a name for names that cannot be.
func unnameable(w *world) {
	w.create(acme, NewMeter("calls", meter.Sum))
	w.says(acme, "accepted", Fact("e", "calls", "c", Ago(0), "1"))
	missing := func(what string, err error) {
		if !problem.Is(err, problem.NotFound) {
			w.Errorf("%s: %v, want it not to be found", what, err)
		}
	}
	for _, bad := range []string{"\x00", "calls\x00", "c\x00", "\xff", "\xed\xa0\x80", "c\xc3"} {
		_, err := w.s.Tenants(context.Background(), bad, 1)
		errs := map[string]error{"tenants": err}
		_, err = w.s.Access(context.Background(), bad, bad)
		missing("access", err)
		missing("view", w.s.View(context.Background(), bad, func(store.View) error { return nil }))
		w.view(acme, func(v store.View) {
			every := func(store.CounterPlace, *usage.Counter) bool { return true }
			errs["counters from a meter"] = v.Counters(store.CounterPlace{Meter: bad}, every)
			errs["counters from a customer"] = v.Counters(store.CounterPlace{Customer: bad}, every)
			_, errs["assignments"] = store.Assignments(v, bad, 1)
			_, err := store.GetMeter(v, bad)
			missing("meter", err)
			_, err = store.Get(v, &tenant.KeyKind, bad)
			missing("API key", err)
			_, err = store.Get(v, &quota.PlanKind, bad)
			missing("plan", err)
			_, err = store.Adjustment(v, bad)
			missing("adjustment", err)
			_, err = store.Request(v, bad)
			missing("request", err)
			_, _, err = v.Event(usage.KeyOfID(bad))
			missing("event", err)
			if c, err := v.Counter(usage.CounterID{Meter: 1, Customer: bad, Month: Month}); err != nil || c.Started {
				w.Errorf("counter: %+v, %v", c, err)
			}
			if a, err := store.Assignment(v, bad); err != nil || len(a.Plans) != 0 {
				w.Errorf("assignment: %+v, %v", a, err)
			}
			for _, q := range []store.AuditQuery{{EntityID: bad}, {EntityType: bad}, {Type: bad}, {Source: bad}} {
				q.Limit = 10
				if rows, err := v.AuditEvents(q); err != nil || len(rows) != 0 {
					w.Errorf("audit events of %+v: %d, %v", q, len(rows), err)
				}
			}
			q := store.SliceQuery{Meter: 1, Customer: bad, From: Month.Start(), To: Month.End()}
			if err := v.Slice(q, func(*store.Slice) error { return errors.New("a piece") }); err != nil {
				w.Errorf("slice: %v", err)
			}
		})
		for what, err := range errs {
			if !problem.Is(err, problem.Malformed) {
				w.Errorf("%s after %q: %v, want it to be malformed", what, bad, err)
			}
		}
	}
}

// manyRows makes a ledger of events and changes, on time and late, over several sections and months.
func (w *world) manyRows() {
	w.create(acme, mixMeters()...)
	for i := range 12 {
		w.record(acme, mix(fmt.Sprint("a", i), "c", Ago(time.Duration(i)*10*time.Hour), "3", "u"),
			mix(fmt.Sprint("b", i), "d", Ago(time.Duration(11-i)*time.Hour), "3", "u"),
			mix(fmt.Sprint("c", i), "c", Ago(time.Duration(i)*90*time.Hour), "3", "u"),
			OfMeter(Correction(fmt.Sprint("fix", i), fmt.Sprint("a", i), "-1"), "m-sum"))
		if i%3 == 0 {
			w.adjust(acme, "m-sum", "c", "1", "")
		}
		w.clock.Advance(time.Minute)
	}
	w.again()
}

// names reports whether a hint asks for the row.
func names(h store.RowHint, r *ledger.Row) bool {
	if r.Change != nil {
		return h.Changes
	}
	at := r.Event.Time
	return h.Events && (h.From == 0 || at >= h.From) && (h.To == 0 || at < h.To) &&
		(!h.Adjusted || r.Event.Status() == usage.Adjusted)
}
