package plans

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Quota is what a plan allows of one meter in one month, and what is used of it.
type Quota struct {
	Place
	Month calendar.Month
	Limit quota.Limit
	Used  amount.Amount
}

// Place is a quota's place in the listing: the tenant's own stand first, under no customer.
type Place struct{ Customer, Meter string }

func (p Place) compare(o Place) int {
	return cmp.Or(strings.Compare(p.Customer, o.Customer), strings.Compare(p.Meter, o.Meter))
}

// Filter says which quotas are wanted; empty fields take any, and a nil month is the one that now lies in.
type Filter struct {
	Meter, Customer string
	Month           *calendar.Month
}

// Quotas lists the quotas in force in the order (customer, meter), after the given place. It looks at a bounded number
// of customers: next is where to go on, also from a page with few or no items, and nil at the end. Errors: NotFound
// (tenant, or the filter's meter), Invalid.
func (s *Service) Quotas(ctx context.Context, tenantID string, f Filter, after *Place,
	limit int) (items []Quota, next *Place, err error) {
	if f.Customer != "" {
		if bad := usage.CheckCustomer(f.Customer); bad != nil {
			return nil, nil, bad
		}
	}
	err = s.ledgers.View(ctx, tenantID, func(v store.View) error {
		l := &listing{v: v, filter: f, after: after, limit: max(limit, 1), looks: s.looks,
			plans: map[string]*quota.Rules{}, meters: map[string]*store.Meter{}}
		l.month = calendar.MonthOf(v.Now())
		if f.Month != nil {
			l.month = *f.Month
		}
		if f.Meter != "" {
			if _, err := store.GetMeter(v, f.Meter); err != nil {
				return err
			}
		}
		err := l.run()
		items, next = l.items, l.next
		return err
	})
	return items, next, err
}

// listing is one call of Quotas.
type listing struct {
	v      store.View
	filter Filter
	after  *Place
	limit  int
	looks  int // left
	month  calendar.Month
	plans  map[string]*quota.Rules
	meters map[string]*store.Meter
	items  []Quota
	next   *Place
}

// customersAtOnce is how many assignments are read at a time.
const customersAtOnce = 500

// run goes through the tenant itself and the customers that have plans, or through the one that is asked for.
func (l *listing) run() error {
	if l.filter.Customer != "" || l.after == nil || l.after.Customer == "" {
		a, err := store.Assignment(l.v, l.filter.Customer)
		if err != nil {
			return fmt.Errorf("read the plan of %q: %w", l.filter.Customer, err)
		}
		if err := l.show(a); err != nil || l.full() || l.filter.Customer != "" {
			return err
		}
	}
	from := ""
	if l.after != nil && l.after.Customer != "" {
		// The customer that the last page ended in may have more.
		a, err := store.Assignment(l.v, l.after.Customer)
		if err == nil {
			err = l.show(a)
		}
		if err != nil || l.full() {
			return err
		}
		from = l.after.Customer
	}
	for {
		some, err := store.Assignments(l.v, from, customersAtOnce)
		if err != nil {
			return fmt.Errorf("list the customers that have plans: %w", err)
		}
		if len(some) == 0 {
			return nil
		}
		for _, a := range some {
			if err := l.show(a); err != nil || l.full() {
				return err
			}
			if l.looks--; l.looks <= 0 {
				l.next = &Place{Customer: a.Customer, Meter: "\U0010FFFF"} // behind all that it has
				return nil
			}
		}
		from = some[len(some)-1].Customer
	}
}

// full reports whether the page was, when more came.
func (l *listing) full() bool { return l.next != nil }

// show adds the quotas of one plan that are wanted.
func (l *listing) show(a quota.Assignment) error {
	rules, err := l.rules(a.Plans.At(l.v.Now()).Plan)
	if err != nil || rules == nil {
		return err
	}
	for _, slug := range slices.Sorted(rules.Meters()) {
		p := Place{a.Customer, slug}
		if l.filter.Meter != "" && l.filter.Meter != slug || l.after != nil && p.compare(*l.after) <= 0 {
			continue
		}
		if len(l.items) == l.limit {
			last := l.items[l.limit-1].Place
			l.next = &last
			return nil
		}
		q, limits, err := l.quota(p, *rules.Limit(slug))
		if err != nil {
			return err
		}
		if limits {
			l.items = append(l.items, q)
		}
	}
	return nil
}

func (l *listing) rules(plan string) (*quota.Rules, error) {
	if r, known := l.plans[plan]; known || plan == "" {
		return r, nil
	}
	p, err := store.Get(l.v, &quota.PlanKind, plan)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return nil, fmt.Errorf("read plan %s: %w", plan, err)
	}
	if err == nil {
		l.plans[plan] = quota.Compile(&p)
	}
	return l.plans[plan], nil
}

// quota reads what is used. A meter that no longer adds up is not limited.
func (l *listing) quota(p Place, limit quota.Limit) (q Quota, limits bool, err error) {
	m := l.meters[p.Meter]
	if m == nil {
		one, err := store.GetMeter(l.v, p.Meter)
		if err != nil {
			return q, false, fmt.Errorf("read meter %s: %w", p.Meter, err)
		}
		m = &one
		l.meters[p.Meter] = m
	}
	if !usage.AddsUp(m.Aggregation) {
		return q, false, nil
	}
	q = Quota{Place: p, Month: l.month, Limit: limit}
	if p.Customer == "" {
		t, err := l.v.Tally(m.Number, l.month)
		q.Used = t.Used
		return q, true, err
	}
	c, err := l.v.Counter(usage.CounterID{Meter: m.Number, Customer: p.Customer, Month: l.month})
	q.Used = c.All().Value(m.Aggregation)
	return q, true, err
}
