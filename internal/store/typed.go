package store

import (
	"fmt"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Get reads one entity. Errors: NotFound.
func Get[T any](v View, k *entity.Kind[T], id string) (T, error) {
	var none T
	e, err := v.Entity(k.Name, id)
	if err != nil {
		return none, err
	}
	return k.Read(&e)
}

// GetAt reads one entity as it was when a row had been committed. Errors: NotFound.
func GetAt[T any](v View, k *entity.Kind[T], id string, seq uint64) (T, error) {
	var none T
	e, err := v.EntityAt(k.Name, id, seq)
	if err != nil {
		return none, err
	}
	return k.Read(&e)
}

// List reads a page of a kind. Errors: Malformed.
func List[T any](v View, k *entity.Kind[T], p Page) ([]T, error) {
	return decoded(k)(v.Entities(k.Name, p))
}

// ListBy reads a page of the entities that have a term. Errors: Malformed.
func ListBy[T any](v View, k *entity.Kind[T], t entity.Term, p Page) ([]T, error) {
	return decoded(k)(v.EntitiesBy(k.Name, t, p))
}

func decoded[T any](k *entity.Kind[T]) func([]entity.Entity, error) ([]T, error) {
	return func(page []entity.Entity, err error) ([]T, error) {
		if err != nil {
			return nil, err
		}
		out := make([]T, len(page))
		for i := range page {
			if out[i], err = k.Read(&page[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
}

// eachPage is how many entities Each reads at a time.
const eachPage = 1000

// Each calls fn for every entity of a kind, by id. It ends with a page that is empty, not with one that is short: a
// store may give fewer than it was asked for. Errors are those of the store and of fn.
func Each[T any](v View, k *entity.Kind[T], fn func(*T) error) error {
	for after := ""; ; {
		page, err := List(v, k, Page{After: after, Limit: eachPage})
		if err != nil {
			return fmt.Errorf("list %s: %w", k.Name, err)
		}
		if len(page) == 0 {
			return nil
		}
		for i := range page {
			after = k.ID(&page[i])
			if err := fn(&page[i]); err != nil {
				return err
			}
		}
	}
}

// Tenant reads the tenant. Errors: NotFound.
func Tenant(v View) (tenant.Tenant, error) { return Get(v, &tenant.Kind, tenant.Self) }

// Tenant reads a tenant of a list; of one that a newer build wrote only the id is known.
func (l *Listed) Tenant() (tenant.Tenant, error) {
	if l.Entity.IsZero() {
		return tenant.Tenant{ID: l.ID}, nil
	}
	return tenant.Kind.Read(&l.Entity)
}

// Meter is a meter and whether it has events, which fixes most of it.
type Meter struct {
	meter.Meter
	Used bool
}

// GetMeter reads a meter by its slug. Errors: NotFound.
func GetMeter(v View, slug string) (Meter, error) {
	m, err := Get(v, &meter.Kind, slug)
	if err != nil {
		return Meter{}, err
	}
	used, err := v.MeterUsed(m.Number)
	return Meter{m, used}, err
}

// Meters lists meters by slug.
func Meters(v View, p Page) ([]Meter, error) {
	page, err := List(v, &meter.Kind, p)
	if err != nil {
		return nil, err
	}
	out := make([]Meter, len(page))
	for i := range page {
		used, err := v.MeterUsed(page[i].Number)
		if err != nil {
			return nil, err
		}
		out[i] = Meter{page[i], used}
	}
	return out, nil
}

// Slugs names a tenant's meters by number, for whoever shows what rows hold.
func Slugs(v View) (map[uint32]string, error) {
	out := map[uint32]string{}
	return out, Each(v, &meter.Kind, func(m *meter.Meter) error {
		out[m.Number] = m.Slug
		return nil
	})
}

// Period reads a month: open unless it was closed.
func Period(v View, m calendar.Month) (usage.Period, error) {
	p, err := Get(v, &usage.PeriodKind, m.String())
	if problem.Is(err, problem.NotFound) {
		return usage.Period{Month: m}, nil
	}
	return p, err
}

// Periods lists the months that have counters or were closed, from the given one on.
func Periods(v View, from calendar.Month, limit int) ([]usage.Period, error) {
	var out []usage.Period
	for next := from; len(out) < limit; {
		months, err := v.Months(next, limit-len(out))
		if err != nil {
			return nil, err
		}
		if len(months) == 0 {
			break
		}
		for _, m := range months {
			out, next = append(out, usage.Period{Month: m}), m+1
		}
	}
	err := Each(v, &usage.PeriodKind, func(p *usage.Period) error {
		i, found := slices.BinarySearchFunc(out, p.Month, func(a usage.Period, m calendar.Month) int {
			return int(a.Month - m)
		})
		switch {
		case found:
			out[i] = *p
		case p.Month >= from:
			out = slices.Insert(out, i, *p)
		}
		return nil
	})
	return out[:min(limit, len(out))], err
}

// Adjustment reads what a person or a late row did to a total. Errors: NotFound.
func Adjustment(v View, id string) (usage.Adjustment, error) {
	missing := problem.New(problem.NotFound, "no adjustment %q", id)
	seq, number, ok := usage.ParseAdjustmentID(id)
	if !ok || seq > v.Head().Seq {
		return usage.Adjustment{}, missing
	}
	if number != 0 {
		return lateAdjustment(v, seq, number, missing)
	}
	a, err := Get(v, &usage.AdjustmentKind, id)
	if err != nil {
		return a, err
	}
	by, err := ListBy(v, &usage.AdjustmentKind, entity.Term{Index: usage.RevertsIndex, Value: id}, Page{Limit: 1})
	if len(by) > 0 {
		a.Reverted = by[0].ID
	}
	return a, err
}

// lateAdjustment finds an adjustment in the row that made it. Adjusted rows never leave.
func lateAdjustment(v View, seq uint64, number uint32, missing error) (a usage.Adjustment, err error) {
	found := false
	_, _, err = v.Rows(seq-1, RowHint{Events: true, Adjusted: true}, func(r *ledger.Row) bool {
		if r.Seq != seq || r.Event == nil {
			return false
		}
		e := r.Event.Clone()
		for i := range e.Outcomes {
			if late, is := usage.LateAdjustment(e, &e.Outcomes[i], seq, r.At); is && late.Meter == number {
				a, found = late, true
			}
		}
		return false
	})
	if err == nil && !found {
		err = missing
	}
	return a, err
}

// Request reads what is kept under a request key, expired or not yet. Errors: NotFound. An expired one may be gone.
func Request(v View, key string) (request.Stored, error) { return Get(v, &request.Kind, key) }

// Assignment reads the plans of a customer, or of the tenant itself when customer is empty; there may be none.
func Assignment(v View, customer string) (quota.Assignment, error) {
	a, err := Get(v, &quota.AssignmentKind, quota.AssignmentID(customer))
	if problem.Is(err, problem.NotFound) {
		return quota.Assignment{Customer: customer}, nil
	}
	return a, err
}

// Assignments lists the customers that have plans of their own, at any time, after the given one. The tenant itself is
// not among them. Errors: Malformed.
func Assignments(v View, after string, limit int) ([]quota.Assignment, error) {
	p := Page{Limit: limit}
	if after != "" {
		p.After = quota.AssignmentID(after)
	}
	t := entity.Term{Index: quota.AssignedIndex, Value: quota.AssignedToCustomer}
	return ListBy(v, &quota.AssignmentKind, t, p)
}
