package registry

import (
	"context"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/store"
)

type floorKey struct{}

// Foresee reads from the operator's ledger what making a tenant needs. It is for a caller who makes the tenant inside a
// transaction, which reaches one ledger, with the context that it returns; others need not call it.
func (s *Service) Foresee(ctx context.Context) (context.Context, error) {
	floor, err := s.floor(ctx)
	return context.WithValue(ctx, floorKey{}, floor), err
}

// floor is where the deployment's horizon ends; zero: it has none. A new tenant's ledger begins there. One that moves
// while the tenant is made reaches it with the next run of retention; a ledger without rows has nothing that could be
// taken for new.
func (s *Service) floor(ctx context.Context) (floor calendar.Micros, err error) {
	if floor, ok := ctx.Value(floorKey{}).(calendar.Micros); ok {
		return floor, nil
	}
	err = s.store.View(ctx, tenant.Operator, func(v store.View) error {
		floor = v.Horizon().Floor
		return nil
	})
	if problem.Is(err, problem.NotFound) {
		err = nil
	}
	return floor, err
}

func appendFloor(tx store.Tx, floor calendar.Micros) error {
	if floor == 0 {
		return nil
	}
	e := audit.Of("horizon", "moved", floor.String())
	payload := map[string]string{"horizon": floor.String()}
	_, err := ledgers.Append(tx, audit.ActorSystem, e, payload, ledger.FloorKind.State(&ledger.Floor{At: floor}))
	return err
}
