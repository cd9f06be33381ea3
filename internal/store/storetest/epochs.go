package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

// Epochs: a row begins each, and the tree has another key from the next row on.
var epochCases = []Case{
	{"rows before and after the beginning of an epoch are in one tree", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
		begin := func(then ...func(tx store.Tx) error) (from uint64) {
			w.update(acme, func(tx store.Tx) error {
				t, err := store.Tenant(tx)
				from = tx.Head().Seq + 1
				err = errors.Join(err, BeginEpoch(tx, &t))
				for _, fn := range then {
					err = errors.Join(err, fn(tx))
				}
				return err
			})
			return from
		}
		// In one commit with rows behind it, which have the new key already.
		first := begin(func(tx store.Tx) error { return PutMeter(tx, NewMeter("more", meter.Sum)) },
			func(tx store.Tx) error { return ClosePeriod(tx, Month-3) })
		CheckLedger(w, w.s, acme)
		w.says(acme, "accepted duplicate", Fact("b", "calls", "c", Ago(0), "1"), Fact("a", "calls", "c", Ago(0), "1"))
		second := begin()
		for range 2 {
			w.view(acme, func(v store.View) {
				t, err := store.Tenant(v)
				if err != nil || len(t.Epochs) != 2 || t.Epochs[0].FromSeq != first || t.Epochs[1].FromSeq != second {
					w.Errorf("the epochs are %+v, want them from rows %d and %d: %v", t.Epochs, first, second, err)
				}
				for seq, want := range map[uint64]int{1: 1, first - 1: 1, first: 2, second - 1: 2, second: 3} {
					if got := t.Epoch(seq); got != want {
						w.Errorf("row %d is in epoch %d, want %d", seq, got, want)
					}
				}
			})
			w.again()
			CheckLedger(w, w.s, acme)
		}
		w.totals(acme, "calls", "c", "2 on time 2")
	}},
	{"an epoch begins beside facts that are recorded", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		const callers, facts = 4, 100
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for k := range facts {
					w.says(acme, "accepted", Fact(fmt.Sprintf("%d.%d", i, k), "calls", "c", Ago(0), "1"))
				}
			})
		}
		for range 20 {
			err := w.s.Update(context.Background(), acme, func(tx store.Tx) error {
				t, err := store.Tenant(tx)
				return errors.Join(err, BeginEpoch(tx, &t))
			})
			if err != nil {
				w.Errorf("begin an epoch: %v", err)
			}
		}
		all.Wait()
		for range 2 {
			CheckLedger(w, w.s, acme)
			w.again()
		}
		w.totals(acme, "calls", "c", fmt.Sprintf("%d on time %d", callers*facts, callers*facts))
		w.view(acme, func(v store.View) {
			if t, err := store.Tenant(v); err != nil || t.Epoch(v.Head().Seq) != 21 || len(t.TreeKeys) != 21 {
				w.Errorf("the head is in epoch %d and the tree has %d keys: %v", t.Epoch(v.Head().Seq), len(t.TreeKeys),
					err)
			}
		})
	}},
	{"a closed ledger begins an epoch too", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.closeTenant(acme)
		w.update(acme, func(tx store.Tx) error {
			t, err := store.Tenant(tx)
			return errors.Join(err, BeginEpoch(tx, &t))
		})
		w.view(acme, func(v store.View) {
			if t, err := store.Tenant(v); err != nil || !t.Closed || t.Epoch(v.Head().Seq) != 2 {
				w.Errorf("the tenant is %+v: %v", tenant.Tenant{Closed: t.Closed, Epochs: t.Epochs}, err)
			}
		})
		CheckLedger(w, w.s, acme)
	}},
}
