package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
		deliveries(w, spread(meter.DefaultLateness),
			func(id, slug string, a meter.Aggregation, c, first usage.Counter) {
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

// deliveries delivers the facts to several tenants, in another order and with other repetitions each, and compares what
// is there then with the first.
func deliveries(w *world, facts []usage.Event,
	compare func(id, slug string, a meter.Aggregation, c, first usage.Counter)) {
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
				compare(id, slug, w.meter(id, slug).Aggregation, w.counter(id, slug, customer),
					w.counter("order0", slug, customer))
			}
		}
	}
}

// createAlike makes tenants that derive the same keys, so that their rows can be compared.
func createAlike(w *world, id string) {
	w.create(id, mixMeters()...)
	w.update(id, func(tx store.Tx) error {
		t, err := store.Tenant(tx)
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
			out = append(out, fmt.Sprintf("%s %s %s", r.Event.Key.ID(), r.Event.Time,
				usage.AppendContent(nil, &r.Event.Event, r.Event.Key.Space)))
		}
	}
	slices.Sort(out)
	return out
}
