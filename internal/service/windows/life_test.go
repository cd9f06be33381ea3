package windows_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/asof"
	"github.com/tallystick/tallystick/internal/service/billing"
	"github.com/tallystick/tallystick/internal/service/windows"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// The range that the facts of a life lie in.
var lifeFrom, lifeTo = (storetest.Month - 2).Start(), (storetest.Month + 3).End()

// witness is a store that writes down what was answered along its life, and asks again later.
type witness struct {
	store.Store
	storetest.TB
	memory *[]memory
}

// memory is what one tenant's ledger answered when it ended with the row seq.
type memory struct {
	tenant  string
	seq     uint64
	clock   calendar.Micros
	answers map[string]string
}

// enough memories of one life: each is compared after every restart.
const enough = 4

func (w witness) Record(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	v, err := w.Store.Record(ctx, b)
	if err == nil {
		w.remember(b.Tenant)
	}
	return v, err
}

func (w witness) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	err := w.Store.Update(ctx, id, fn)
	if err == nil {
		w.remember(id)
	}
	return err
}

// Close is the end of the life.
func (w witness) Close() error {
	w.compare()
	return w.Store.Close()
}

// remember keeps the first memories and then every fourth in place of an old one, so that young and old ledgers are
// looked back at.
func (w witness) remember(id string) {
	var head ledger.Head
	err := w.View(context.Background(), id, func(v store.View) error {
		head = v.Head()
		return nil
	})
	if err != nil {
		w.Fatalf("view %s: %v", id, err)
	}
	all := *w.memory
	if len(all) >= enough && head.Seq%4 != 0 {
		return
	}
	m := memory{id, head.Seq, head.Clock, look(w, w.Store, id, asof.Point{})}
	if len(all) < enough {
		*w.memory = append(all, m)
		return
	}
	all[int(head.Seq/4)%enough] = m
}

// compare asks again for all that was remembered.
func (w witness) compare() {
	w.Helper()
	for _, m := range *w.memory {
		points := map[string]asof.Point{"seq": asof.AtSeq(m.seq)}
		if w.over(m) {
			points["time"] = asof.AtTime(m.clock)
		}
		for by, p := range points {
			then := look(w, w.Store, m.tenant, p)
			for question, want := range m.answers {
				if got := then[question]; got != want {
					w.Fatalf("%s as of row %d, by %s: %s:\n got %s\nwant %s", m.tenant, m.seq, by, question, got, want)
				}
			}
		}
	}
}

// over reports whether the time of a memory is over: only then no more rows come to be committed at it.
func (w witness) over(m memory) (is bool) {
	err := w.View(context.Background(), m.tenant, func(v store.View) error {
		_, _, err := v.Rows(m.seq, store.RowHint{Events: true, Changes: true}, func(r *ledger.Row) bool {
			is = r.At > m.clock
			return false
		})
		return err
	})
	if err != nil {
		w.Fatalf("rows of %s: %v", m.tenant, err)
	}
	return is
}

// look asks a ledger everything that can be asked as of a moment.
func look(t storetest.TB, s store.Store, id string, asOf asof.Point) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range meters(t, s, id) {
		for i, q := range queries(m.Slug) {
			q.AsOf = asOf
			out[fmt.Sprintf("usage %s by %s (%d)", m.Slug, q.Step, i)] = report(t, s, id, q)
		}
	}
	b := billing.New(s)
	var lines []string
	var after *store.CounterPlace
	for {
		items, next, err := b.Counters(context.Background(), id, billing.CounterFilter{AsOf: asOf}, after, 7)
		if err != nil {
			t.Fatalf("counters of %s: %v", id, err)
		}
		for _, c := range items {
			lines = append(lines, counterLine(&c))
		}
		if after = next; next == nil {
			break
		}
	}
	out["counters"] = strings.Join(lines, "\n")
	periods, err := b.PeriodsThen(context.Background(), id, 0, 100, asOf)
	if err != nil {
		t.Fatalf("periods of %s: %v", id, err)
	}
	out["periods"] = fmt.Sprint(periods)
	one, err := b.PeriodThen(context.Background(), id, storetest.Month, asOf)
	if err != nil {
		t.Fatalf("period of %s: %v", id, err)
	}
	if one.Seal != nil {
		out["seal"] = fmt.Sprintf("%x", *one.Seal)
	}
	return out
}

func counterLine(c *billing.Counter) string {
	a := c.Meter.Aggregation
	sealed := ""
	if c.Closed {
		sealed = c.SealedTotal(a).String()
	}
	return fmt.Sprintf("%s %s %q closed %t: on time %d %s %s %s %s %d, watermark %d %t, all %s, adjustments %s, "+
		"total %s, sealed %s", c.Month, c.Meter.Slug, c.Customer, c.Closed,
		c.OnTime.Count, c.OnTime.Sum, c.OnTime.Min, c.OnTime.Max, c.OnTime.Last, c.OnTime.Members, c.Watermark,
		c.Started, c.All().Value(a), c.Adjustments(a), c.Total(a), sealed)
}

func meters(t storetest.TB, s store.Store, id string) (out []store.Meter) {
	t.Helper()
	err := s.View(context.Background(), id, func(v store.View) (err error) {
		out, err = store.Meters(v, store.Page{Limit: 1000})
		return err
	})
	if err != nil {
		t.Fatalf("meters of %s: %v", id, err)
	}
	return out
}

func berlin() *time.Location {
	z, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	return z
}

var byCustomer = []usage.Dimension{{Of: usage.ByCustomer}}

// queries are the ways in which the usage of a meter is asked for.
func queries(slug string) []windows.Query {
	from, to := lifeFrom, lifeTo
	everything := windows.Query{Meter: slug, From: &from, To: &to, Zone: time.UTC}
	months, weeks, days, hours, minutes := everything, everything, everything, everything, everything
	months.Step, months.GroupBy = calendar.StepMonth, byCustomer
	days.Step, days.Zone = calendar.StepDay, berlin()
	days.GroupBy = []usage.Dimension{{Of: usage.ByProperty, Name: "u"}, {Of: usage.ByResource}}
	hours.Step, hours.Zone, hours.Customer = calendar.StepHour, berlin(), "c"
	weeks.Step, weeks.Zone, weeks.GroupBy = calendar.StepWeek, berlin(), byCustomer
	begin, end := storetest.Ago(3*time.Hour), storetest.Ago(-3*time.Hour)
	minutes.Step, minutes.Zone, minutes.From, minutes.To = calendar.StepMinute, berlin(), &begin, &end
	minutes.GroupBy = []usage.Dimension{{Of: usage.ByResource}}
	// The ends of this one lie within hours: what comes between is added up, and they are not.
	ofAll, first, last := everything, lifeFrom.Add(17*time.Minute), lifeTo.Add(-13*time.Minute)
	ofAll.Step, ofAll.Zone, ofAll.From, ofAll.To = calendar.StepHour, berlin(), &first, &last
	return []windows.Query{everything, months, weeks, days, hours, minutes, ofAll}
}

func report(t storetest.TB, s store.Store, id string, q windows.Query) string {
	t.Helper()
	r, err := windows.New(s).Usage(context.Background(), id, q)
	if err != nil {
		if problem.Is(err, problem.NotFound) || problem.Is(err, problem.Overflow) {
			return string(problem.CodeOf(err))
		}
		t.Fatalf("usage of %s: %v", q.Meter, err)
	}
	var lines []string
	for w := range r.Windows {
		lines = append(lines, fmt.Sprintf("%s %v %s", w.From, w.Group, w.Value))
	}
	return strings.Join(lines, "\n")
}

// agree wants the subject's windows to be what the oracle's rows and counters say.
func agree(t storetest.TB, oracle, subject store.Store, id string) {
	t.Helper()
	var rows []ledger.Row
	counters := map[string]map[string]amount.Amount{} // meter → month and customer → value of all rows
	all := meters(t, oracle, id)
	err := oracle.View(context.Background(), id, func(v store.View) error {
		_, _, err := v.Rows(0, store.RowHint{Events: true}, func(r *ledger.Row) bool {
			rows = append(rows, *r)
			return true
		})
		if err != nil {
			return err
		}
		return v.Counters(store.CounterPlace{}, func(p store.CounterPlace, c *usage.Counter) bool {
			if c.All().Count == 0 {
				return true
			}
			if counters[p.Meter] == nil {
				counters[p.Meter] = map[string]amount.Amount{}
			}
			i := slices.IndexFunc(all, func(m store.Meter) bool { return m.Slug == p.Meter })
			counters[p.Meter][p.Month.String()+p.Customer] = c.All().Value(all[i].Aggregation)
			return true
		})
	})
	if err != nil {
		t.Fatalf("read %s: %v", id, err)
	}
	for _, m := range all {
		for _, q := range queries(m.Slug) {
			want := plainly(rows, &m.Meter, q)
			if q.Step == calendar.StepMonth && !maps.Equal(want, counters[m.Slug]) &&
				len(want)+len(counters[m.Slug]) > 0 {
				t.Fatalf("%s of %s: the test's own months are %v, the counters %v", m.Slug, id, want, counters[m.Slug])
			}
			got := map[string]amount.Amount{}
			r, err := windows.New(subject).Usage(context.Background(), id, q)
			if problem.Is(err, problem.Overflow) && want == nil {
				continue
			}
			if err != nil {
				t.Fatalf("usage of %s: %v", m.Slug, err)
			}
			var items []usage.Window
			for w := range r.Windows {
				got[labeled(w.From, w.Group, q)] = w.Value
				items = append(items, w)
			}
			if !maps.Equal(got, want) {
				t.Fatalf("%s of %s by %q:\n got %v\nwant %v", m.Slug, id, q.Step, got, want)
			}
			agreeFilled(t, subject, id, q, items)
		}
	}
}

// plainly is the definition of usage, read off a list of rows: no grid, no pieces, no passes. It is nil when a sum does
// not fit.
func plainly(rows []ledger.Row, m *meter.Meter, q windows.Query) map[string]amount.Amount {
	type fact struct {
		key    string
		time   calendar.Micros
		value  amount.Amount
		member string
	}
	groups := map[string][]fact{}
	for _, r := range rows {
		e := r.Event
		if e == nil || e.IsCorrection() || q.Customer != "" && e.Customer != q.Customer || e.Time < *q.From ||
			e.Time >= *q.To {
			continue
		}
		for _, o := range e.Outcomes {
			if o.Meter != m.Number {
				continue
			}
			f, corrected := fact{string(rune(e.Key.Space)) + e.Key.Name, e.Time, o.Value, o.Member}, false
			for _, c := range rows {
				if c.Event == nil || c.Event.Corrects != e.Key.ID() {
					continue
				}
				for _, change := range c.Event.Outcomes {
					if change.Meter == m.Number {
						f.value, _ = f.value.Add(change.Value)
						corrected = true
					}
				}
			}
			if corrected && f.value.Sign() <= 0 {
				continue
			}
			var labels []usage.Label
			for _, d := range q.GroupBy {
				labels = append(labels, labelOf(e, d))
			}
			name := labeled(e.Time, labels, q)
			groups[name] = append(groups[name], f)
		}
	}
	out := map[string]amount.Amount{}
	for name, facts := range groups {
		slices.SortFunc(facts, func(a, b fact) int {
			if a.time != b.time {
				return int(a.time - b.time)
			}
			return strings.Compare(a.key, b.key)
		})
		sum, low, high, members := amount.Zero, facts[0].value, facts[0].value, map[string]bool{}
		for _, f := range facts {
			var fits bool
			if sum, fits = sum.Add(f.value); !fits {
				return nil
			}
			members[f.member] = true
			if f.value.Cmp(low) < 0 {
				low = f.value
			}
			if f.value.Cmp(high) > 0 {
				high = f.value
			}
		}
		out[name] = map[meter.Aggregation]amount.Amount{
			meter.Sum: sum, meter.Count: amount.FromInt(int64(len(facts))), meter.Min: low, meter.Max: high,
			meter.Last:   facts[len(facts)-1].value,
			meter.Unique: amount.FromInt(int64(len(members))), meter.Avg: sum.DivInt(int64(len(facts))),
		}[m.Aggregation]
	}
	return out
}

func labelOf(e *usage.Row, d usage.Dimension) usage.Label {
	switch d.Of {
	case usage.ByCustomer:
		return usage.Label{Kind: properties.String, Text: e.Customer}
	case usage.ByResource:
		if e.Resource == "" {
			return usage.Label{}
		}
		return usage.Label{Kind: properties.String, Text: e.Resource}
	}
	v, _ := properties.Lookup(e.Properties, d.Name)
	return v
}

// labeled names a window of a group by what the zone's clock shows in it.
func labeled(at calendar.Micros, group []usage.Label, q windows.Query) string {
	out := at.Time().In(q.Zone).Format(map[calendar.Step]string{
		calendar.StepNone: "", calendar.StepMinute: "2006-01-02T15:04-07:00 ",
		calendar.StepHour: "2006-01-02T15-07:00 ", calendar.StepDay: "2006-01-02 ",
		calendar.StepWeek: "", calendar.StepMonth: "2006-01",
	}[q.Step])
	if q.Step == calendar.StepWeek {
		out = fmt.Sprintln(at.Time().In(q.Zone).ISOWeek())
	}
	for i, l := range group {
		if q.GroupBy[i].Of == usage.ByCustomer {
			out += l.Text
		} else {
			out += fmt.Sprintf("|%d%s", l.Kind, l.Text)
		}
	}
	return out
}
