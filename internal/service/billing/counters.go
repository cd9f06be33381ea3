package billing

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/asof"
	"github.com/tallystick/tallystick/internal/store"
)

// Counter is what one meter has counted for one customer in one month.
type Counter struct {
	Meter    meter.Meter
	Customer string
	Month    calendar.Month
	Closed   bool // the month is
	usage.Counter
}

// CounterFilter says which counters are wanted, and as of when; empty fields and a nil month take any.
type CounterFilter struct {
	Meter, Customer string
	Month           *calendar.Month
	AsOf            asof.Point
}

// Counters lists counters in the order (month, meter, customer), after the given place, leaving out those without rows
// and adjustments. It looks at a bounded number of them: next is where to go on, also from a page with few or no items,
// and nil at the end. Errors: NotFound (tenant, or the filter's meter), Invalid (the ledger has not got there).
func (s *Service) Counters(ctx context.Context, tenantID string, f CounterFilter, after *store.CounterPlace,
	limit int) (items []Counter, next *store.CounterPlace, err error) {
	err = s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		if !f.AsOf.IsPresent() {
			items, next, err = s.countersThen(v, f, after, limit)
			return err
		}
		meters := meterCache{v, map[string]meter.Meter{}}
		if f.Meter != "" {
			if _, err := meters.get(f.Meter); err != nil {
				return err
			}
		}
		if f.Meter != "" && f.Customer != "" && f.Month != nil {
			items, err = point(v, meters.known[f.Meter], f, after)
		} else {
			scan := scan{filter: f, after: after, limit: max(limit, 1), looks: s.looks}
			err = scan.run(v)
			items, next = scan.items, scan.next
		}
		if err != nil {
			return err
		}
		return complete(v, meters, items)
	})
	if err != nil {
		return nil, nil, err
	}
	return items, next, nil
}

// point reads the one counter that an exact filter names.
func point(v store.View, m meter.Meter, f CounterFilter, after *store.CounterPlace) ([]Counter, error) {
	place := store.CounterPlace{Month: *f.Month, Meter: f.Meter, Customer: f.Customer}
	if after != nil && compare(place, *after) <= 0 {
		return nil, nil
	}
	c, err := v.Counter(usage.CounterID{Meter: m.Number, Customer: f.Customer, Month: *f.Month})
	if err != nil {
		return nil, fmt.Errorf("read counter: %w", err)
	}
	if isEmpty(&c) {
		return nil, nil
	}
	return []Counter{at(place, &c)}, nil
}

// complete adds what the scan did not read. It runs after the scan, because a store need not answer other questions in
// the middle of one.
func complete(v store.View, meters meterCache, items []Counter) error {
	closed := map[calendar.Month]bool{}
	for i := range items {
		c := &items[i]
		m, err := meters.get(c.Meter.Slug)
		if err != nil {
			return err
		}
		if _, known := closed[c.Month]; !known {
			p, err := store.Period(v, c.Month)
			if err != nil {
				return fmt.Errorf("read period %s: %w", c.Month, err)
			}
			closed[c.Month] = p.Closed
		}
		c.Meter, c.Closed = m, closed[c.Month]
	}
	return nil
}

type meterCache struct {
	view  store.View
	known map[string]meter.Meter
}

func (mc meterCache) get(slug string) (meter.Meter, error) {
	if m, ok := mc.known[slug]; ok {
		return m, nil
	}
	m, err := store.GetMeter(mc.view, slug)
	if err != nil {
		return meter.Meter{}, err
	}
	mc.known[slug] = m.Meter
	return m.Meter, nil
}

// scan walks the counters and leaps over what the filter rules out: in the listing order all counters of one customer,
// or of one meter, lie scattered, and between them may lie millions of others.
type scan struct {
	filter CounterFilter
	after  *store.CounterPlace
	limit  int
	looks  int  // left
	empty  bool // empty ones are wanted too

	items []Counter
	next  *store.CounterPlace
	leap  *store.CounterPlace // where to go on when a walk stopped for a leap
}

func (s *scan) run(v store.View) error {
	var from store.CounterPlace
	if s.after != nil {
		from = *s.after
	}
	for {
		start, some := s.filter.from(from)
		if !some {
			return nil
		}
		s.leap = nil
		if err := v.Counters(start, s.look); err != nil {
			return fmt.Errorf("list counters: %w", err)
		}
		if s.leap == nil {
			return nil
		}
		from = *s.leap
	}
}

// look takes one counter and reports whether the walk goes on.
func (s *scan) look(p store.CounterPlace, c *usage.Counter) bool {
	if s.after != nil && compare(p, *s.after) <= 0 {
		return true
	}
	if to, some := s.filter.from(p); !some || to != p {
		return s.over(p, to, some)
	}
	if isEmpty(c) && !s.empty {
		return s.over(p, p, true)
	}
	if len(s.items) == s.limit {
		last := s.items[len(s.items)-1]
		s.next = &store.CounterPlace{Month: last.Month, Meter: last.Meter.Slug, Customer: last.Customer}
		return false
	}
	s.items = append(s.items, at(p, c))
	return s.over(p, p, true)
}

// over is done with a place: it notes where the filter's next match can be at the earliest, and stops when the call has
// looked at enough.
func (s *scan) over(p, to store.CounterPlace, some bool) bool {
	if !some {
		return false
	}
	if s.looks--; s.looks <= 0 {
		p.Meter, p.Customer = strings.Clone(p.Meter), strings.Clone(p.Customer)
		s.next = &p
		return false
	}
	if to == p {
		return true
	}
	to.Meter, to.Customer = strings.Clone(to.Meter), strings.Clone(to.Customer)
	s.leap = &to
	return false
}

// from returns the first place at or after p that the filter lets through, or false when there is none.
func (f *CounterFilter) from(p store.CounterPlace) (store.CounterPlace, bool) {
	if f.Month != nil && p.Month != *f.Month {
		return store.CounterPlace{Month: *f.Month, Meter: f.Meter, Customer: f.Customer}, p.Month < *f.Month
	}
	nextMonth := store.CounterPlace{Month: p.Month + 1, Meter: f.Meter, Customer: f.Customer}
	if f.Meter != "" && p.Meter != f.Meter {
		if p.Meter < f.Meter {
			return store.CounterPlace{Month: p.Month, Meter: f.Meter, Customer: f.Customer}, true
		}
		return nextMonth, f.Month == nil
	}
	if f.Customer == "" || p.Customer == f.Customer {
		return p, true
	}
	if p.Customer < f.Customer {
		p.Customer = f.Customer
		return p, true
	}
	if f.Meter != "" {
		return nextMonth, f.Month == nil
	}
	return p.InNextMeter(f.Customer), true
}

func compare(a, b store.CounterPlace) int {
	return cmp.Or(cmp.Compare(a.Month, b.Month), cmp.Compare(a.Meter, b.Meter), cmp.Compare(a.Customer, b.Customer))
}

// isEmpty reports whether there is nothing to show: no on-time row, no other row that counts, no adjustment in force or
// at the close.
func isEmpty(c *usage.Counter) bool {
	return !c.Started && c.All().Count == 0 && c.Manual.IsZero() && c.SealedAt.IsZero()
}

// at copies a counter out of a walk.
func at(p store.CounterPlace, c *usage.Counter) Counter {
	return Counter{Meter: meter.Meter{Slug: strings.Clone(p.Meter)}, Customer: strings.Clone(p.Customer),
		Month: p.Month, Counter: c.Clone()}
}
