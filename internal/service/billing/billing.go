// Package billing shows and changes what a tenant's totals are made of: counters, adjustments and periods.
//
// It computes no total itself: the store folds by the rules of the core, and this package finds, filters and closes.
// Every change is a ledger row with its audit event in the same commit. Nothing it does rewrites a row or a sealed
// total.
package billing

import (
	"context"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

// maxLooked bounds the counters that one call looks at, so that a filter that matches little cannot hold a view for
// long.
const maxLooked = 50_000

// Service reads and changes bills. It is safe for concurrent use.
type Service struct {
	store   store.Store
	ledgers ledgers.Ledgers
	looks   int // counters that one call may look at: maxLooked but in tests
}

// New works on a store.
func New(s store.Store) *Service {
	return &Service{store: s, ledgers: ledgers.New(s), looks: maxLooked}
}

// Slugs names a tenant's meters by number, for whoever prints what holds numbers. Errors: NotFound.
func (s *Service) Slugs(ctx context.Context, tenantID string) (slugs map[uint32]string, err error) {
	err = s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		slugs, err = store.Slugs(v)
		return err
	})
	return slugs, err
}

func allMeters(v store.View) ([]store.Meter, error) {
	meters, err := store.Meters(v, store.Page{Limit: tenant.MaxMeters})
	if err != nil {
		return nil, fmt.Errorf("list meters: %w", err)
	}
	return meters, nil
}
