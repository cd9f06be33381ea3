package verify_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// wrong is a store that is right but for what its hooks change on the way to the reader.
type wrong struct {
	store.Store
	head     func(*ledger.Head)
	section  func(*ledger.Section) *ledger.Section // nil: left out
	counter  func(store.CounterPlace, *usage.Counter) bool
	alone    func(*usage.Counter)
	extra    *store.CounterPlace
	event    func(*ledger.Row, *[]ledger.Row) error
	entities func([]entity.Entity) []entity.Entity
	byTerm   func([]entity.Entity) []entity.Entity
	entity   func(*entity.Entity) error
	unused   bool
	months   func(from calendar.Month, list []calendar.Month) []calendar.Month
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

func (v *wrongView) PrunedSections(first uint64, fn func(*ledger.Section) error) error {
	return v.View.PrunedSections(first, func(s *ledger.Section) error {
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

func (v *wrongView) Entities(kind string, p store.Page) ([]entity.Entity, error) {
	list, err := v.View.Entities(kind, p)
	if v.w.entities != nil {
		list = v.w.entities(list)
	}
	return list, err
}

func (v *wrongView) EntitiesBy(kind string, t entity.Term, p store.Page) ([]entity.Entity, error) {
	list, err := v.View.EntitiesBy(kind, t, p)
	if v.w.byTerm != nil {
		list = v.w.byTerm(list)
	}
	return list, err
}

func (v *wrongView) Entity(kind, id string) (entity.Entity, error) {
	e, err := v.View.Entity(kind, id)
	if err == nil && v.w.entity != nil {
		err = v.w.entity(&e)
	}
	return e, err
}

func (v *wrongView) MeterUsed(number uint32) (bool, error) {
	used, err := v.View.MeterUsed(number)
	return used && !v.w.unused, err
}

func (v *wrongView) Months(from calendar.Month, limit int) ([]calendar.Month, error) {
	list, err := v.View.Months(from, limit)
	if v.w.months != nil {
		list = v.w.months(from, list)
	}
	return list, err
}

// bend bends the entities of one kind where they are listed; those for which it returns false are left out.
func bend[T any](k *entity.Kind[T], change func(*T) bool) func([]entity.Entity) []entity.Entity {
	return func(list []entity.Entity) (out []entity.Entity) {
		for _, e := range list {
			v, err := k.ReadIf(&e)
			if err != nil {
				panic(err)
			}
			if v != nil {
				if !change(v) {
					continue
				}
				e.State = k.State(v)
			}
			out = append(out, e)
		}
		return out
	}
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

// wrongStores are wrong in one way each.
var wrongStores = map[string]wrong{
	"head counts a row more": {head: func(h *ledger.Head) { h.Seq++ }},
	"head's clock is off":    {head: func(h *ledger.Head) { h.Clock++ }},
	"head's tree is another": {head: func(h *ledger.Head) {
		var a tree.Appender
		a.Append(make([]tree.Hash, h.Seq), nil)
		h.Tree = a.Tree()
	}},
	"a section is missing": {section: func(s *ledger.Section) *ledger.Section {
		if s.First == 6 {
			return nil
		}
		return s
	}},
	"a row has another number": {section: func(s *ledger.Section) *ledger.Section {
		s.Rows[0].Seq += 100
		return s
	}},
	"a row has another time": {section: func(s *ledger.Section) *ledger.Section {
		s.Rows[0].At++
		return s
	}},
	"time goes backward": {section: func(s *ledger.Section) *ledger.Section {
		s.At -= calendar.Micros(s.First)
		return s
	}},
	"a row was changed":     {section: onRow("c1", func(r *usage.Row) { r.Resource = "other" })},
	"one key has two rows":  {section: onRow("c2", func(r *usage.Row) { r.Key.Name = "c1" })},
	"a target is not there": {section: onRow("fix", func(r *usage.Row) { r.Corrects = "nobody" })},
	"a target comes later":  {section: onRow("fix", func(r *usage.Row) { r.Corrects = "after" })},
	"a late amount is off": {section: onRow("after", func(r *usage.Row) {
		r.Outcomes[0].Amount = amount.One
	})},

	"count":       {counter: onCounter("calls", "bob", func(c *usage.Counter) { c.OnTime.Count++ })},
	"sum":         {counter: onCounter("calls", "bob", func(c *usage.Counter) { c.OnTime.Sum = amount.FromInt(2) })},
	"min":         {counter: onCounter("peak", "ann", func(c *usage.Counter) { c.OnTime.Min = amount.One })},
	"max":         {counter: onCounter("peak", "ann", func(c *usage.Counter) { c.OnTime.Max = amount.One })},
	"at max":      {counter: onCounter("peak", "ann", func(c *usage.Counter) { c.OnTime.AtMax++ })},
	"last":        {counter: onCounter("peak", "ann", func(c *usage.Counter) { c.OnTime.Last = amount.One })},
	"last time":   {counter: onCounter("peak", "ann", func(c *usage.Counter) { c.OnTime.LastTime++ })},
	"members":     {counter: onCounter("users", "ann", func(c *usage.Counter) { c.OnTime.Members++ })},
	"all rows":    {counter: onCounter("calls", "ann", func(c *usage.Counter) { c.Late.Count++ })},
	"watermark":   {counter: onCounter("calls", "bob", func(c *usage.Counter) { c.Watermark++ })},
	"by people":   {counter: onCounter("calls", "bob", func(c *usage.Counter) { c.Manual = amount.One })},
	"sealed":      {counter: onCounter("calls", "ann", func(c *usage.Counter) { c.SealedAt = amount.One })},
	"read alone":  {alone: func(c *usage.Counter) { c.OnTime.Count++ }},
	"not listed":  {counter: func(p store.CounterPlace, _ *usage.Counter) bool { return p.Customer != "bob" }},
	"extra":       {extra: &store.CounterPlace{Month: 1, Meter: "calls", Customer: "eve"}},
	"no meter":    {extra: &store.CounterPlace{Month: 1, Meter: "none", Customer: "eve"}},
	"out of turn": {extra: &store.CounterPlace{Month: 99999999, Meter: "calls", Customer: "eve"}},

	"a key is not found":   {event: func(*ledger.Row, *[]ledger.Row) error { return missing() }},
	"a key finds another":  {event: func(r *ledger.Row, _ *[]ledger.Row) error { r.Seq++; return nil }},
	"corrections are gone": {event: func(_ *ledger.Row, by *[]ledger.Row) error { *by = nil; return nil }},
	"a meter is gone":      {entities: bend(&meter.Kind, leaveOut[meter.Meter])},
	"a meter says unused":  {unused: true},
	"an API key is gone":   {entities: bend(&tenant.KeyKind, leaveOut[tenant.APIKey])},
	"the tenant is another": {entities: bend(&tenant.Kind,
		func(x *tenant.Tenant) bool { x.Salt[0] ^= 1; return true })},
	"a period is gone": {entities: bend(&usage.PeriodKind, leaveOut[usage.Period])},
	"a period has no actor": {entities: bend(&usage.PeriodKind,
		func(p *usage.Period) bool { p.Actor = ""; return true })},
	"an entity is of another row": {entities: func(list []entity.Entity) []entity.Entity {
		for i := range list {
			list[i].Seq++
		}
		return list[:min(1, len(list))]
	}},
	"an entity too many": {entities: func(list []entity.Entity) []entity.Entity {
		if len(list) > 0 && list[0].Kind == meter.Kind.Name {
			list = append(list, entity.Entity{State: entity.State{Kind: meter.Kind.Name, ID: "zzz"}})
		}
		return list
	}},
	"a list by a term is short": {byTerm: func([]entity.Entity) []entity.Entity { return nil }},
	"a month is gone":           {months: func(calendar.Month, []calendar.Month) []calendar.Month { return nil }},
	"a month too many": {months: func(from calendar.Month, list []calendar.Month) []calendar.Month {
		if from == 0 {
			return append([]calendar.Month{7}, list...)
		}
		return list
	}},
	"an adjustment is gone": {entity: func(e *entity.Entity) error {
		if e.Kind == usage.AdjustmentKind.Name {
			return missing()
		}
		return nil
	}},
}

// Each way of being wrong is reported, by exactly these differences: no more, no fewer, with both values.
func TestEveryWrongStoreIsReported(t *testing.T) {
	names := slices.Sorted(maps.Keys(wrongStores))
	reported(t, "testdata/wrong", names, func(name string) verify.Report {
		s := naive.New(naive.Options{Now: storetest.NewClock().Now})
		history(t, s)
		w := wrongStores[name]
		w.Store = s
		return examine(t, &w)
	})
}

// reported holds the differences that each case gives against a file. Every case is in it.
func reported(t *testing.T, file string, names []string, run func(name string) verify.Report) {
	t.Helper()
	datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
		i := slices.Index(names, d.Input)
		if i < 0 {
			t.Fatalf("%s: no case %q, or it is there twice", d.Pos, d.Input)
		}
		names = slices.Delete(names, i, i+1)
		r := run(d.Input)
		lines := []string{}
		for _, found := range r.Differences {
			if found.Tenant != acme {
				t.Errorf("%s: a difference in another ledger: %s", d.Pos, found)
			}
			lines = append(lines, fmt.Sprintf("%s: %s, not %s\n", found.What, found.Want, found.Got))
		}
		slices.Sort(lines) // maps have no order
		return strings.Join(append(lines, ""), "")
	})
	if len(names) > 0 {
		t.Errorf("%s does not have the cases %q", file, names)
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
