package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// everyColumn asks for all that a slice can have.
const everyColumn = store.WantKeys | store.WantResources | store.WantProperties | store.WantMembers

// metered is one row of a slice, by rows.
type metered struct {
	Customer   string
	Seq        uint64
	Time       calendar.Micros
	Value      amount.Amount
	Why        usage.Why
	Corrects   string
	Base       amount.Amount
	Key        usage.Key
	Resource   string
	Properties string
	Member     string
}

// readSlice gathers the rows of a slice by seq, and holds every piece against what the port says of pieces.
func readSlice(t TB, v store.View, q store.SliceQuery) []metered {
	t.Helper()
	var out []metered
	err := v.Slice(q, func(s *store.Slice) error {
		checkPiece(t, s, q.Wants)
		for i := range s.Seq {
			m := metered{Customer: strings.Clone(s.Customer), Seq: s.Seq[i], Time: s.Time[i], Value: s.Value[i],
				Why: s.Why[i]}
			if s.Corrects != nil {
				m.Corrects, m.Base = strings.Clone(s.Corrects[i]), s.Base[i]
			}
			if s.Key != nil {
				m.Key = usage.Key{Space: s.Key[i].Space, Name: strings.Clone(s.Key[i].Name)}
			}
			for _, c := range []struct {
				from []string
				to   *string
			}{{s.Resource, &m.Resource}, {s.Properties, &m.Properties}, {s.Member, &m.Member}} {
				if c.from != nil {
					*c.to = strings.Clone(c.from[i])
				}
			}
			out = append(out, m)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("slice %+v: %v", q, err)
	}
	slices.SortFunc(out, func(a, b metered) int { return cmp.Compare(a.Seq, b.Seq) })
	for i := 1; i < len(out); i++ {
		if out[i].Seq == out[i-1].Seq {
			t.Errorf("slice %+v: row %d is in two places", q, out[i].Seq)
		}
	}
	return out
}

func checkPiece(t TB, s *store.Slice, wants store.Columns) {
	t.Helper()
	n := s.Len()
	if len(s.Time) != n || len(s.Value) != n || len(s.Why) != n {
		t.Errorf("a piece has %d rows, %d times, %d values, %d reasons", n, len(s.Time), len(s.Value), len(s.Why))
	}
	for _, c := range []struct {
		name   string
		rows   int
		is     bool
		wanted bool
	}{
		{"keys", len(s.Key), s.Key != nil, wants&store.WantKeys != 0},
		{"resources", len(s.Resource), s.Resource != nil, wants&store.WantResources != 0},
		{"properties", len(s.Properties), s.Properties != nil, wants&store.WantProperties != 0},
		{"members", len(s.Member), s.Member != nil, wants&store.WantMembers != 0},
		{"corrects", len(s.Corrects), s.Corrects != nil, s.Corrects != nil},
		{"bases", len(s.Base), s.Base != nil, s.Corrects != nil},
	} {
		if n > 0 && c.is != c.wanted || c.is && c.rows != n {
			t.Errorf("a piece of %d rows has %d %s, wanted %t", n, c.rows, c.name, c.wanted)
		}
	}
	if s.Corrects != nil && !slices.ContainsFunc(s.Corrects, func(id string) bool { return id != "" }) {
		t.Errorf("a piece without corrections has their column")
	}
}

// plainSlice is what a slice must be, read off the rows.
func plainSlice(rows []ledger.Row, q store.SliceQuery) (out []metered) {
	for i := range rows {
		r := &rows[i]
		if r.Kind() != ledger.EventRow || q.UpTo != 0 && r.Seq > q.UpTo || r.Event.Time < q.From ||
			r.Event.Time >= q.To || q.Customer != "" && r.Event.Customer != q.Customer {
			continue
		}
		for _, o := range r.Event.Outcomes {
			if o.Meter != q.Meter {
				continue
			}
			m := metered{Customer: r.Event.Customer, Seq: r.Seq, Time: r.Event.Time, Value: o.Value, Why: o.Why,
				Corrects: r.Event.Corrects, Base: o.Base}
			if q.Wants&store.WantKeys != 0 {
				m.Key = r.Event.Key
			}
			if q.Wants&store.WantResources != 0 {
				m.Resource = r.Event.Resource
			}
			if q.Wants&store.WantProperties != 0 {
				m.Properties = r.Event.Properties
			}
			if q.Wants&store.WantMembers != 0 {
				m.Member = o.Member
			}
			out = append(out, m)
		}
	}
	return out
}

// checkSlices asks for every meter's usage in several ways and wants what the rows say.
func checkSlices(t TB, v store.View, rows []ledger.Row) {
	t.Helper()
	head := v.Head().Seq
	for _, m := range allMeters(t, v) {
		whole := store.SliceQuery{Meter: m.Number, To: calendar.MaxMicros + 1, Wants: everyColumn}
		queries := []store.SliceQuery{whole}
		add := func(change func(q *store.SliceQuery)) {
			q := whole
			change(&q)
			queries = append(queries, q)
		}
		add(func(q *store.SliceQuery) { q.Wants = 0 })
		add(func(q *store.SliceQuery) { q.UpTo, q.Wants = head/2+1, store.WantKeys })
		add(func(q *store.SliceQuery) { q.Customer, q.Wants = "c", store.WantMembers })
		add(func(q *store.SliceQuery) { q.Customer, q.UpTo, q.Wants = "d", head*2/3+1, store.WantProperties })
		add(func(q *store.SliceQuery) {
			q.From, q.To, q.Wants = Month.Start(), Ago(time.Minute), store.WantResources
		})
		add(func(q *store.SliceQuery) { q.From = Ago(-19 * 24 * time.Hour) }) // ahead of most commits
		for _, q := range queries {
			same(t, fmt.Sprintf("slice %+v", q), readSlice(t, v, q), plainSlice(rows, q))
		}
	}
}

// CheckSlices holds the usage that a tenant's ledger shows by slices against its rows.
func CheckSlices(t TB, s store.Store, id string) {
	t.Helper()
	err := s.View(context.Background(), id, func(v store.View) error {
		checkSlices(t, v, readRows(t, v, 0, everything))
		return nil
	})
	if err != nil {
		t.Fatalf("view %s: %v", id, err)
	}
}

// slice reads a meter's usage.
func (w *world) slice(id, slug string, change func(q *store.SliceQuery)) (out []metered) {
	w.Helper()
	q := store.SliceQuery{Meter: w.meter(id, slug).Number, To: calendar.MaxMicros + 1, Wants: everyColumn}
	if change != nil {
		change(&q)
	}
	w.view(id, func(v store.View) { out = readSlice(w, v, q) })
	return out
}

// seqs writes down which rows a slice has, and their values.
func seqs(rows []metered) string {
	var out []string
	for _, m := range rows {
		out = append(out, fmt.Sprintf("%d=%s", m.Seq, m.Value))
	}
	return strings.Join(out, " ")
}

var sliceCases = []Case{
	{"a slice has every outcome of its meter in exactly one piece", func(w *world) {
		w.create(acme, append(mixMeters(), NewMeter("calls", meter.Sum), NewMeter("idle", meter.Sum))...)
		first := w.head(acme).Seq + 1
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(time.Hour), "3"),
			Fact("b", "calls", "d", Ago(2*time.Hour), "4"), mix("m", "c", Ago(time.Hour), "7", "u1"),
			Fact("c", "calls", "c", Ago(0), "5"))
		for range 2 {
			for slug, want := range map[string]string{
				"calls": fmt.Sprintf("%d=3 %d=4 %d=5", first, first+1, first+3), "m-sum": fmt.Sprintf("%d=7", first+2),
				"m-max": fmt.Sprintf("%d=7", first+2), "idle": "",
			} {
				if got := seqs(w.slice(acme, slug, nil)); got != want {
					w.Errorf("%s: %s, want %s", slug, got, want)
				}
			}
			if m := w.slice(acme, "m-unique", nil); len(m) != 1 || m[0].Member == "" || m[0].Key.ID() != "m" ||
				m[0].Properties == "" {
				w.Errorf("m-unique: %+v", m)
			}
			CheckSlices(w, w.s, acme)
			w.again()
		}
	}},
	{"a slice ends where its range, its customer and its last row say", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		at := Ago(time.Hour)
		v := w.says(acme, "accepted", Fact("a", "calls", "c", at-1, "1"), Fact("b", "calls", "c", at, "2"),
			Fact("c", "calls", "cc", at, "3"), Fact("d", "calls", "c", at+1, "4"), Fact("e", "calls", "c", at+2, "5"))
		seq := func(i int) uint64 { return v[i].Seq }
		for range 2 {
			for _, c := range []struct {
				change func(q *store.SliceQuery)
				want   string
			}{
				{func(q *store.SliceQuery) { q.From, q.To = at, at+2 },
					fmt.Sprintf("%d=2 %d=3 %d=4", seq(1), seq(2), seq(3))},
				{func(q *store.SliceQuery) { q.From, q.To, q.Customer = at, at+2, "c" },
					fmt.Sprintf("%d=2 %d=4", seq(1), seq(3))},
				{func(q *store.SliceQuery) { q.Customer = "nobody" }, ""},
				{func(q *store.SliceQuery) { q.Customer = "a\x00b" }, ""},
				{func(q *store.SliceQuery) { q.From, q.To = at, at }, ""},
				{func(q *store.SliceQuery) { q.UpTo = seq(1) }, fmt.Sprintf("%d=1 %d=2", seq(0), seq(1))},
				{func(q *store.SliceQuery) { q.UpTo = seq(4) + 1000 },
					fmt.Sprintf("%d=1 %d=2 %d=3 %d=4 %d=5", seq(0), seq(1), seq(2), seq(3), seq(4))},
				{func(q *store.SliceQuery) { q.UpTo = seq(0) - 1 }, ""},
			} {
				if got := seqs(w.slice(acme, "calls", c.change)); got != c.want {
					w.Errorf("have %s, want %s", got, c.want)
				}
			}
			w.again()
		}
	}},
	{"a slice shows late rows at their own time, and corrections at that of what they correct", func(w *world) {
		calls := NewMeter("calls", meter.Sum)
		calls.Lateness = time.Hour
		w.create(acme, append(mixMeters(), calls)...)
		w.says(acme, "accepted adjusted accepted", Fact("a", "calls", "c", Ago(0), "3"),
			On(Fact("b", "calls", "c", Ago(48*time.Hour), "4"), "r"), mix("m", "c", Ago(time.Hour), "7", "u1"))
		w.says(acme, "accepted adjusted accepted", Correction("x", "a", "-1"), Correction("y", "b", "-4"),
			OfMeter(Correction("z", "m", "-2"), "m-sum"))
		w.closePeriod(acme, Month)
		w.says(acme, "adjusted", Correction("late", "a", "-2"))
		for range 2 {
			CheckSlices(w, w.s, acme)
			got := w.slice(acme, "calls", nil)
			if len(got) != 5 || got[1].Why != usage.TooLate || got[2].Corrects != "a" || got[2].Base != Amount("3") ||
				got[2].Time != got[0].Time ||
				got[3].Why != usage.TargetWas || got[3].Resource != "r" || got[4].Why != usage.PeriodClosed {
				w.Errorf("calls: %+v", got)
			}
			if fed := w.slice(acme, "m-sum", nil); len(fed) != 2 || fed[1].Corrects != "m" ||
				fed[1].Value != Amount("-2") || fed[1].Base != Amount("7") {
				w.Errorf("m-sum: %+v", fed)
			}
			w.again()
		}
	}},
	{"a slice inside an update shows all that was committed before it", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "3"))
		number := w.meter(acme, "calls").Number
		w.update(acme, func(tx store.Tx) error {
			if _, err := Adjust(tx, "calls", "c", Month, "9", ""); err != nil {
				return err
			}
			if got := readSlice(w, tx, store.SliceQuery{Meter: number, To: calendar.MaxMicros + 1,
				UpTo: tx.Head().Seq}); len(got) != 1 || got[0].Value != Amount("3") {
				w.Errorf("within the update: %+v", got)
			}
			return nil
		})
	}},
	{"a slice of many rows comes in pieces that a reader may leave", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum), NewMeter("other", meter.Sum))
		const n, batch = 1740, 580
		for from := 0; from < n; from += batch {
			var events []usage.Event
			for i := range batch {
				// Many rows share a time, and one customer has most of them: more than any store reads at once.
				events = append(events, Fact(fmt.Sprint("e", from+i), []string{"calls", "other"}[i%20/19],
					[]string{"c", "d"}[i%16/15], Ago(time.Duration(i%5)*time.Minute), fmt.Sprint(i)))
			}
			w.says(acme, "accepted", events...)
		}
		w.again()
		CheckSlices(w, w.s, acme)
		number := w.meter(acme, "calls").Number
		w.view(acme, func(v store.View) {
			calls, stop := 0, errors.New("enough")
			err := v.Slice(store.SliceQuery{Meter: number, To: calendar.MaxMicros + 1}, func(*store.Slice) error {
				calls++
				return stop
			})
			if calls != 1 || !errors.Is(err, stop) {
				w.Errorf("a reader that had enough was called %d times: %v", calls, err)
			}
			// And the view still answers.
			if _, err := store.GetMeter(v, "calls"); err != nil {
				w.Errorf("after a slice that was left: %v", err)
			}
		})
	}},
	{"a slice of a meter that does not exist, or is another tenant's, is not found", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.create("beta", NewMeter("calls", meter.Sum), NewMeter("more", meter.Sum))
		w.says("beta", "accepted", Fact("a", "more", "c", Ago(0), "1"), Fact("b", "calls", "c", Ago(0), "1"))
		number := w.meter("beta", "more").Number
		w.view(acme, func(v store.View) {
			err := v.Slice(store.SliceQuery{Meter: number, To: calendar.MaxMicros + 1}, func(*store.Slice) error {
				return nil
			})
			w.code("slice of another's meter", err, problem.NotFound)
		})
		if got := w.slice(acme, "calls", nil); len(got) != 0 {
			w.Errorf("acme sees %+v", got)
		}
	}},
}
