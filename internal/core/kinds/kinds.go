// Package kinds lists every kind of entity that this build knows. A new kind is one line here.
package kinds

import (
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// All are the kinds of this build.
func All() *entity.Kinds {
	return entity.NewKinds(
		tenant.Kind.Declare(),
		tenant.KeyKind.Declare(),
		meter.Kind.Declare(),
		usage.PeriodKind.Declare(),
		usage.AdjustmentKind.Declare(),
		quota.PlanKind.Declare(),
		quota.AssignmentKind.Declare(),
		quota.AlertKind.Declare(),
		ledger.FloorKind.Declare(),
		ledger.ArchiveKind.Declare(),
		ledger.BaseKind.Declare(),
		request.Kind.Declare(),
		sink.Kind.Declare(),
		sink.ItemKind.Declare(),
	)
}
