package storetest

import (
	"context"
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/internal/core/account"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Rows of the three kinds: who brought them, and that entries are carried like all others.
var rowCases = []Case{
	{"a row names who brought it", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		for i, by := range []string{"acme.k1", "kafka-in", "acme.k1", "", "acme.k2",
			strings.Repeat("é", store.MaxBy/2)} {
			e := Fact(fmt.Sprint("e", i), "calls", "c", Ago(0), "1")
			vs, err := w.s.Record(context.Background(), store.Batch{Tenant: acme, By: by, Events: []usage.Event{e}})
			if err != nil || vs[0].Status != usage.Accepted {
				w.Fatalf("record: %v, %v", vs, err)
			}
			for range 2 {
				if r, _ := w.event(acme, vs[0].Key); r.By != by {
					w.Errorf("row %d was brought by %q, want %q", r.Seq, r.By, by)
				}
				w.again()
			}
		}
		for _, bad := range []string{strings.Repeat("x", store.MaxBy+1), "a\x00", "\xff"} {
			_, err := w.s.Record(context.Background(), store.Batch{Tenant: acme, By: bad, Events: []usage.Event{
				Fact("bad", "calls", "c", Ago(0), "1"),
			}})
			w.code("a batch by "+bad, err, problem.Malformed)
		}
	}},
	{"facts of several who bring them at once keep who brought each", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		together(8, func(i int) {
			by := fmt.Sprint("key", i)
			for j := range 20 {
				b := store.Batch{Tenant: acme, By: by, Events: []usage.Event{
					Fact(fmt.Sprint(by, "-", j), "calls", by, Ago(0), "1"),
				}}
				if _, err := w.s.Record(context.Background(), b); err != nil {
					w.Errorf("record: %v", err)
				}
			}
		})
		for range 2 {
			for _, r := range w.rows(acme, 0) {
				if r.Event != nil && r.By != r.Event.Customer {
					w.Errorf("row %d of %s was brought by %q", r.Seq, r.Event.Customer, r.By)
				}
			}
			w.again()
		}
	}},
	{"entries are kept, hashed and carried like every row", carriesEntries},
}

// entries are rows with every field of an entry set, and with none that may be absent.
func entries() []*account.Row {
	full := account.Entry{
		ID: "E1", Account: "A10", Type: account.Debit, Amount: Amount("5.000000000001"), Time: Ago(7),
		Sequence: 1 << 62,
		Given:    account.GivenTime | account.GivenSequence, Counter: "A11", Transfer: "T1", Hold: "H1",
		Expires:  Ago(-9),
		Corrects: "E0", Reason: "wrong", Metadata: `{"a":"é"}`,
	}
	least := account.Entry{ID: "E2", Account: "a", Type: account.Credit, Amount: Amount("0.000000000001"), Time: Ago(0)}
	return []*account.Row{
		{Entry: full, System: true, Late: true, Gap: true, Version: 9, Balance: Amount("-12.5"), Held: Amount("3")},
		{Entry: least, Version: 1, Balance: Amount("0.000000000001")},
		{Entry: account.Entry{ID: "E3", Account: "a", Type: account.Hold, Amount: Amount("1"), Time: Ago(0),
			Expires: Ago(-1)}},
		{Entry: account.Entry{ID: "E4", Account: "a", Type: account.Release, Amount: Amount("1"), Time: Ago(0),
			Hold: "E3"}},
	}
}

func carriesEntries(w *world) {
	w.create(acme, NewMeter("calls", meter.Sum))
	w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1"))
	first := w.head(acme).Seq + 1
	s := ledger.Section{First: first, At: Ago(0)}
	for i, e := range entries() {
		s.Rows = append(s.Rows, ledger.Row{Seq: first + uint64(i), At: Ago(0), By: "bank", Entry: e})
	}
	change := change("note", "made", "x", gadgets(1).State(&gadget{"g", "beside entries", nil}))
	s.Rows = append(s.Rows, ledger.Row{Seq: first + uint64(len(s.Rows)), At: Ago(0), Change: &change})
	if err := w.s.Import(context.Background(), acme, s); err != nil {
		w.Fatalf("import: %v", err)
	}
	for range 2 {
		same(w, "the rows", w.rows(acme, first-1), s.Rows)
		w.view(acme, func(v store.View) {
			var got []ledger.Row
			_, _, err := v.Rows(0, store.RowHint{Entries: true}, func(r *ledger.Row) bool {
				if r.Kind() == ledger.EntryRow {
					got = append(got, r.Clone())
				}
				return true
			})
			same(w, fmt.Sprintf("the entries (%v)", err), got, s.Rows[:len(s.Rows)-1])
		})
		w.again()
	}
	w.says(acme, "accepted", Fact("b", "calls", "c", Ago(0), "1"))
	w.totals(acme, "calls", "c", "2")
}
