package storetest

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/store"
)

// ShortPages is a store that never lists more than so many tenants, months or entities at once, however many it is
// asked for. What goes through all of them must then ask again, with a handful in place of thousands.
func ShortPages(s store.Store, most int) store.Store { return shortPages{s, most} }

type shortPages struct {
	store.Store
	most int
}

func (s shortPages) Tenants(ctx context.Context, after string, limit int) ([]store.Listed, error) {
	return s.Store.Tenants(ctx, after, min(limit, s.most))
}

func (s shortPages) View(ctx context.Context, id string, fn func(store.View) error) error {
	return s.Store.View(ctx, id, func(v store.View) error { return fn(shortView{v, s.most}) })
}

type shortView struct {
	store.View
	most int
}

func (v shortView) Months(from calendar.Month, limit int) ([]calendar.Month, error) {
	return v.View.Months(from, min(limit, v.most))
}

func (v shortView) Entities(kind string, p store.Page) ([]entity.Entity, error) {
	p.Limit = min(p.Limit, v.most)
	return v.View.Entities(kind, p)
}

func (v shortView) EntitiesBy(kind string, t entity.Term, p store.Page) ([]entity.Entity, error) {
	p.Limit = min(p.Limit, v.most)
	return v.View.EntitiesBy(kind, t, p)
}
