package verify_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// wrong is a store that is right but for what its hooks change on the way to the reader.
type wrong struct {
	store.Store
	head       func(*ledger.Head)
	section    func(*ledger.Section) *ledger.Section // nil: left out
	counter    func(store.CounterPlace, *usage.Counter) bool
	alone      func(*usage.Counter)
	extra      *store.CounterPlace
	event      func(*ledger.Row, *[]ledger.Row) error
	meter      func(*store.Meter) bool
	key        func(*tenant.APIKey) bool
	tenant     func(*tenant.Tenant)
	adjustment func(*usage.Adjustment) error
	period     func(*usage.Period) bool
}

func (w *wrong) View(ctx context.Context, id string, fn func(store.View) error) error {
	return w.Store.View(ctx, id, func(v store.View) error {
		if id != acme {
			return fn(v)
		}
		return fn(&wrongView{v, w})
	})
}

type wrongView struct {
	store.View
	w *wrong
}

func (v *wrongView) Head() ledger.Head {
	h := v.View.Head()
	if v.w.head != nil {
		v.w.head(&h)
	}
	return h
}

func (v *wrongView) Remains(first uint64, fn func(*ledger.Section) error) error {
	return v.View.Remains(first, func(s *ledger.Section) error {
		if v.w.section == nil {
			return fn(s)
		}
		own := *s
		own.Rows = slices.Clone(s.Rows)
		if bent := v.w.section(&own); bent != nil {
			return fn(bent)
		}
		return nil
	})
}

func (v *wrongView) Counters(from store.CounterPlace, fn func(store.CounterPlace, *usage.Counter) bool) error {
	if v.w.extra != nil {
		fn(*v.w.extra, &usage.Counter{Started: true})
	}
	return v.View.Counters(from, func(p store.CounterPlace, c *usage.Counter) bool {
		if v.w.counter != nil && !v.w.counter(p, c) {
			return true
		}
		return fn(p, c)
	})
}

func (v *wrongView) Counter(id usage.CounterID) (usage.Counter, error) {
	c, err := v.View.Counter(id)
	if v.w.alone != nil {
		v.w.alone(&c)
	}
	return c, err
}

func (v *wrongView) Event(k usage.Key) (ledger.Row, []ledger.Row, error) {
	r, by, err := v.View.Event(k)
	if err == nil && v.w.event != nil {
		err = v.w.event(&r, &by)
	}
	return r, by, err
}

func (v *wrongView) Meters(after string, limit int) ([]store.Meter, error) {
	list, err := v.View.Meters(after, limit)
	return bent(list, v.w.meter), err
}

func (v *wrongView) APIKeys(after string, limit int) ([]tenant.APIKey, error) {
	list, err := v.View.APIKeys(after, limit)
	return bent(list, v.w.key), err
}

func (v *wrongView) Periods(from calendar.Month, limit int) ([]usage.Period, error) {
	list, err := v.View.Periods(from, limit)
	return bent(list, v.w.period), err
}

func bent[T any](list []T, bend func(*T) bool) []T {
	if bend == nil {
		return list
	}
	var out []T
	for i := range list {
		if bend(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}

func (v *wrongView) Tenant() (tenant.Tenant, error) {
	t, err := v.View.Tenant()
	if v.w.tenant != nil {
		v.w.tenant(&t)
	}
	return t, err
}

func (v *wrongView) Adjustment(id string) (usage.Adjustment, error) {
	a, err := v.View.Adjustment(id)
	if err == nil && v.w.adjustment != nil {
		err = v.w.adjustment(&a)
	}
	return a, err
}

// onRow bends the event of one row.
func onRow(id string, bend func(*usage.Row)) func(*ledger.Section) *ledger.Section {
	return func(s *ledger.Section) *ledger.Section {
		for i := range s.Rows {
			if e := s.Rows[i].Event; e != nil && e.ID == id {
				own := *e
				own.Outcomes = slices.Clone(e.Outcomes)
				bend(&own)
				s.Rows[i].Event = &own
			}
		}
		return s
	}
}

// onCounter bends one counter where it is listed.
func onCounter(slug, customer string, bend func(*usage.Counter)) func(store.CounterPlace, *usage.Counter) bool {
	return func(p store.CounterPlace, c *usage.Counter) bool {
		if p.Meter == slug && p.Customer == customer {
			bend(c)
		}
		return true
	}
}

func leaveOut[T any](*T) bool { return false }

func missing() error { return problem.New(problem.NotFound, "gone") }

// Each of these stores is wrong in one way, and each way must be named.
func TestEveryWrongStoreIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		bend wrong
		want string // what the first difference is about
	}{
		"head counts a row more": {wrong{head: func(h *ledger.Head) { h.Seq++ }}, "number of the last row"},
		"head's clock is off":    {wrong{head: func(h *ledger.Head) { h.Clock++ }}, "clock"},
		"head's chain is off":    {wrong{head: func(h *ledger.Head) { h.Chain[31] ^= 1 }}, "chain"},
		"a section is missing": {wrong{section: func(s *ledger.Section) *ledger.Section {
			if s.First == 6 {
				return nil
			}
			return s
		}}, "first row of a section"},
		"a row has another number": {wrong{section: func(s *ledger.Section) *ledger.Section {
			s.Rows[0].Seq += 100
			return s
		}}, "number of row"},
		"a row has another time": {wrong{section: func(s *ledger.Section) *ledger.Section {
			s.Rows[0].At++
			return s
		}}, "time of row"},
		"time goes backward": {wrong{section: func(s *ledger.Section) *ledger.Section {
			s.At -= calendar.Micros(s.First)
			return s
		}}, "time of the section"},
		"a row was changed":     {wrong{section: onRow("c1", func(r *usage.Row) { r.Resource = "other" })}, "chain"},
		"one key has two rows":  {wrong{section: onRow("c2", func(r *usage.Row) { r.Key.Name = "c1" })}, "event c1"},
		"a target is not there": {wrong{section: onRow("fix", func(r *usage.Row) { r.Corrects = "nobody" })}, "target nobody"},
		"a target comes later":  {wrong{section: onRow("fix", func(r *usage.Row) { r.Corrects = "after" })}, "target after"},
		"a late amount is off": {wrong{section: onRow("after", func(r *usage.Row) {
			r.Outcomes[0].Amount = amount.One
		})}, "amounts of the rows after the close"},

		"count":       {wrong{counter: onCounter("calls", "bob", func(c *usage.Counter) { c.OnTime.Count++ })}, "on-time rows, count"},
		"sum":         {wrong{counter: onCounter("calls", "bob", func(c *usage.Counter) { c.OnTime.Sum = amount.FromInt(2) })}, "on-time rows, sum"},
		"min":         {wrong{counter: onCounter("peak", "ann", func(c *usage.Counter) { c.OnTime.Min = amount.One })}, "on-time rows, min"},
		"max":         {wrong{counter: onCounter("peak", "ann", func(c *usage.Counter) { c.OnTime.Max = amount.One })}, "on-time rows, max"},
		"at max":      {wrong{counter: onCounter("peak", "ann", func(c *usage.Counter) { c.OnTime.AtMax++ })}, "facts at the max"},
		"last":        {wrong{counter: onCounter("peak", "ann", func(c *usage.Counter) { c.OnTime.Last = amount.One })}, "on-time rows, last"},
		"last time":   {wrong{counter: onCounter("peak", "ann", func(c *usage.Counter) { c.OnTime.LastTime++ })}, "time of the last"},
		"members":     {wrong{counter: onCounter("users", "ann", func(c *usage.Counter) { c.OnTime.Members++ })}, "on-time rows, members"},
		"all rows":    {wrong{counter: onCounter("calls", "ann", func(c *usage.Counter) { c.Late.Count++ })}, "all rows, count"},
		"watermark":   {wrong{counter: onCounter("calls", "bob", func(c *usage.Counter) { c.Watermark++ })}, "watermark"},
		"by people":   {wrong{counter: onCounter("calls", "bob", func(c *usage.Counter) { c.Manual = amount.One })}, "adjustments by people"},
		"sealed":      {wrong{counter: onCounter("calls", "ann", func(c *usage.Counter) { c.SealedAt = amount.One })}, "sealed total"},
		"read alone":  {wrong{alone: func(c *usage.Counter) { c.OnTime.Count++ }}, "read alone"},
		"not listed":  {wrong{counter: func(p store.CounterPlace, _ *usage.Counter) bool { return p.Customer != "bob" }}, `counter calls of "bob"`},
		"extra":       {wrong{extra: &store.CounterPlace{Month: 1, Meter: "calls", Customer: "eve"}}, `counter calls of "eve"`},
		"no meter":    {wrong{extra: &store.CounterPlace{Month: 1, Meter: "none", Customer: "eve"}}, `counter none of "eve"`},
		"out of turn": {wrong{extra: &store.CounterPlace{Month: 99999999, Meter: "calls", Customer: "eve"}}, "place of the counter"},

		"a key is not found":    {wrong{event: func(*ledger.Row, *[]ledger.Row) error { return missing() }}, "event c1"},
		"a key finds another":   {wrong{event: func(r *ledger.Row, _ *[]ledger.Row) error { r.Seq++; return nil }}, "event c1"},
		"corrections are gone":  {wrong{event: func(_ *ledger.Row, by *[]ledger.Row) error { *by = nil; return nil }}, "corrections of event"},
		"a meter is gone":       {wrong{meter: leaveOut[store.Meter]}, "meter "},
		"a meter says unused":   {wrong{meter: func(m *store.Meter) bool { m.Used = false; return true }}, "use of meter"},
		"an API key is gone":    {wrong{key: leaveOut[tenant.APIKey]}, "API key acme.k1"},
		"the tenant is another": {wrong{tenant: func(x *tenant.Tenant) { x.Salt[0] ^= 1 }}, "tenant"},
		"a period is gone":      {wrong{period: leaveOut[usage.Period]}, "period 2026-11"},
		"a period is open":      {wrong{period: func(p *usage.Period) bool { p.Closed = false; return true }}, "period 2026-11"},
		"an adjustment is gone": {wrong{adjustment: func(*usage.Adjustment) error { return missing() }}, "adjustment adj_"},
		"a revert is forgotten": {wrong{adjustment: func(a *usage.Adjustment) error { a.Reverted = ""; return nil }}, "adjustment adj_"},
	} {
		t.Run(name, func(t *testing.T) {
			s := naive.New(naive.Options{Now: storetest.NewClock().Now})
			history(t, s)
			c.bend.Store = s
			r := examine(t, &c.bend)
			if r.OK() {
				t.Fatal("nothing was reported")
			}
			found := slices.ContainsFunc(r.Differences, func(d verify.Difference) bool { return strings.Contains(d.What, c.want) })
			if !found {
				t.Errorf("no difference about %q among %v", c.want, r.Differences)
			}
			for _, d := range r.Differences {
				if d.Tenant != acme || d.Want == d.Got {
					t.Errorf("a difference that says nothing: %s", d)
				}
			}
		})
	}
}

// One wrong rule can make everything differ; the list is bounded and the count is not.
func TestTheListIsBounded(t *testing.T) {
	s := naive.New(naive.Options{Now: storetest.NewClock().Now})
	history(t, s)
	w := &wrong{Store: s, section: func(s *ledger.Section) *ledger.Section {
		for range 600 {
			s.Rows = append(s.Rows, s.Rows[0])
		}
		return s
	}}
	r := examine(t, w)
	if len(r.Differences) != verify.MaxDifferences || r.Found <= verify.MaxDifferences {
		t.Errorf("%d listed of %d found", len(r.Differences), r.Found)
	}
}
