package storetest

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// ShortPages is a store that never lists more than so many tenants, periods or assignments at once, however many it is asked for. What
// goes through all of them must then ask again, with a handful in place of thousands.
func ShortPages(s store.Store, most int) store.Store { return shortPages{s, most} }

type shortPages struct {
	store.Store
	most int
}

func (s shortPages) Tenants(ctx context.Context, after string, limit int) ([]tenant.Tenant, error) {
	return s.Store.Tenants(ctx, after, min(limit, s.most))
}

func (s shortPages) View(ctx context.Context, id string, fn func(store.View) error) error {
	return s.Store.View(ctx, id, func(v store.View) error { return fn(shortView{v, s.most}) })
}

type shortView struct {
	store.View
	most int
}

func (v shortView) Periods(from calendar.Month, limit int) ([]usage.Period, error) {
	return v.View.Periods(from, min(limit, v.most))
}

func (v shortView) Assignments(after string, limit int) ([]quota.Assignment, error) {
	return v.View.Assignments(after, min(limit, v.most))
}
