package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

const (
	// submitters is enough to have several batches wait at once on a machine of few cores.
	submitters = 8
	// perSubmitter keeps the plain folds of the oracle quick.
	perSubmitter = 12
)

// Many callers at once: each promise holds as if they had queued.
var concurrencyCases = []Case{
	{"of many deliveries of a fact at once exactly one is accepted", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		const facts = 40
		var mu sync.Mutex // guards what the submitters were answered
		accepted, seqs := map[string]int{}, map[string]map[uint64]bool{}
		together(submitters, func(i int) {
			order := rand.New(rand.NewPCG(uint64(i), 1)).Perm(facts)
			for from := 0; from < facts; from += 10 {
				var events []usage.Event
				for _, n := range order[from : from+10] {
					events = append(events, Fact(fmt.Sprint("e", n), "calls", fmt.Sprint("c", n%3), Ago(0),
						fmt.Sprint(n)))
				}
				vs, err := w.s.Record(context.Background(), store.Batch{Tenant: acme, Events: events})
				if err != nil {
					w.Errorf("record: %v", err)
					return
				}
				mu.Lock()
				for _, v := range vs {
					if v.Status == usage.Accepted {
						accepted[v.Key.Name]++
					} else if v.Status != usage.Duplicate {
						w.Errorf("%s was %s", v.Key.Name, said(v))
					}
					if seqs[v.Key.Name] == nil {
						seqs[v.Key.Name] = map[uint64]bool{}
					}
					seqs[v.Key.Name][v.Seq] = true
				}
				mu.Unlock()
			}
		})
		for n := range facts {
			if id := fmt.Sprint("e", n); accepted[id] != 1 || len(seqs[id]) != 1 {
				w.Errorf("%s was accepted %d times, under %d numbers", id, accepted[id], len(seqs[id]))
			}
		}
		w.totals(acme, "calls", "c0", "273")
		w.totals(acme, "calls", "c1", "247")
		w.totals(acme, "calls", "c2", "260")
	}},
	{"everybody reads what they wrote, whoever else writes", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		number := w.meter(acme, "calls").Number
		together(submitters, func(i int) {
			mine := usage.CounterID{Meter: number, Customer: fmt.Sprint("c", i), Month: Month}
			for n := range perSubmitter {
				e := Fact(fmt.Sprint(i, "-", n), "calls", mine.Customer, Ago(0), "1")
				vs, err := w.s.Record(context.Background(), store.Batch{Tenant: acme, Events: []usage.Event{e}})
				if err != nil || vs[0].Status != usage.Accepted {
					w.Errorf("record %s: %v, %v", e.ID, vs, err)
					return
				}
				err = w.s.View(context.Background(), acme, func(v store.View) error {
					return readBack(v, vs[0], mine, n+1)
				})
				if err != nil {
					w.Errorf("after %s: %v", e.ID, err)
				}
			}
		})
	}},
	{"rows and changes that are made at once are numbered without gaps", func(w *world) {
		tenants := []string{"one", "two"}
		for _, id := range tenants {
			w.create(id, NewMeter("calls", meter.Sum))
		}
		together(submitters, func(i int) {
			id := tenants[i%len(tenants)]
			for n := range perSubmitter {
				if i%4 < 2 { // both tenants have submitters of either kind
					recordPair(w, id, fmt.Sprint(i, "-", n))
					continue
				}
				err := w.s.Update(context.Background(), id, func(tx store.Tx) error {
					_, err := Adjust(tx, "calls", "c", Month, "1", "")
					return err
				})
				if err != nil {
					w.Errorf("adjust: %v", err)
				}
			}
		})
		for _, id := range tenants {
			const events, changes = 2 * 2 * perSubmitter, 2 * perSubmitter
			if got := w.head(id).Seq; got != 2+events+changes { // the tenant and its meter came first
				w.Errorf("%s has %d rows, want %d", id, got, 2+events+changes)
			}
			w.totals(id, "calls", "c", fmt.Sprint(events+changes))
		}
	}},
	{"a reader never sees part of a batch", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		id := usage.CounterID{Meter: w.meter(acme, "calls").Number, Customer: "c", Month: Month}
		const size = 5
		var done atomic.Bool
		together(2, func(i int) {
			if i == 0 {
				defer done.Store(true)
				for n := range perSubmitter {
					var events []usage.Event
					for j := range size {
						events = append(events, Fact(fmt.Sprint(n, "-", j), "calls", "c", Ago(0), "1"))
					}
					if _, err := w.s.Record(context.Background(),
						store.Batch{Tenant: acme, Events: events}); err != nil {
						w.Errorf("record: %v", err)
					}
				}
				return
			}
			for last, stop := int64(0), false; !stop; {
				stop = done.Load() // read before the view: one look follows the last batch
				err := w.s.View(context.Background(), acme, func(v store.View) error {
					c, err := v.Counter(id)
					if err == nil && (c.OnTime.Count%size != 0 || c.OnTime.Count < last) {
						return fmt.Errorf("%d facts are counted after %d, of batches of %d", c.OnTime.Count, last, size)
					}
					last = c.OnTime.Count
					return err
				})
				if err != nil {
					w.Errorf("view: %v", err)
					return
				}
			}
		})
		w.totals(acme, "calls", "c", fmt.Sprint(size*perSubmitter))
	}},
	{"of many who create a tenant exactly one does", func(w *world) {
		var made atomic.Int64
		together(submitters, func(int) {
			err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
				if _, err := store.Tenant(tx); err == nil {
					return problem.New(problem.Exists, "tenant %s exists", acme)
				}
				return PutTenant(tx, Tenant(acme, tx.Now()))
			})
			switch {
			case err == nil:
				made.Add(1)
			case !problem.Is(err, problem.Exists):
				w.Errorf("create: %v", err)
			}
		})
		w.tenants = append(w.tenants, acme)
		if made.Load() != 1 || w.head(acme).Seq != 1 {
			w.Errorf("%d created the tenant, which has %d rows", made.Load(), w.head(acme).Seq)
		}
	}},
	{"updates at once each build on what they read", func(w *world) {
		w.create(acme)
		together(submitters, func(i int) {
			err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
				return PutMeter(tx, NewMeter(fmt.Sprint("m", i), meter.Sum))
			})
			if err != nil {
				w.Errorf("put meter: %v", err)
			}
		})
		numbers := map[uint32]bool{}
		for i := range submitters {
			numbers[w.meter(acme, fmt.Sprint("m", i)).Number] = true
		}
		if len(numbers) != submitters {
			w.Errorf("%d meters have %d numbers", submitters, len(numbers))
		}
	}},
}

// recordPair submits two facts of one unit each and wants neighboring numbers.
func recordPair(w *world, id, name string) {
	vs, err := w.s.Record(context.Background(), store.Batch{Tenant: id, Events: []usage.Event{
		Fact(name+"a", "calls", "c", Ago(0), "1"), Fact(name+"b", "calls", "c", Ago(0), "1")}})
	if err != nil {
		w.Errorf("record: %v", err)
		return
	}
	if vs[1].Seq != vs[0].Seq+1 {
		w.Errorf("a batch became rows %d and %d", vs[0].Seq, vs[1].Seq)
	}
}

// readBack wants a verdict's row and counter in a view that began after the answer.
func readBack(v store.View, said usage.Verdict, mine usage.CounterID, count int) error {
	if h := v.Head(); h.Seq < said.Seq {
		return fmt.Errorf("the head is at %d, before row %d", h.Seq, said.Seq)
	}
	r, _, err := v.Event(said.Key)
	if err != nil {
		return err
	}
	if r.Seq != said.Seq {
		return fmt.Errorf("the event is row %d, the answer was %d", r.Seq, said.Seq)
	}
	found := false
	_, _, err = v.Rows(said.Seq-1, everything, func(r *ledger.Row) bool {
		found = r.Seq == said.Seq && r.Event != nil && r.Event.Key == said.Key
		return false
	})
	if err != nil || !found {
		return fmt.Errorf("row %d is not among the rows (%v)", said.Seq, err)
	}
	c, err := v.Counter(mine)
	if err == nil && c.OnTime.Count != int64(count) {
		err = fmt.Errorf("the counter has %d facts, want %d", c.OnTime.Count, count)
	}
	return err
}
