package retention

import (
	"errors"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

// periodsPage is how many periods are listed at a time: a hundred years.
const periodsPage = 1200

// floorAt is where the floor stands: the first moment of a month, a horizon ago and never in the months that are always
// kept.
func floorAt(now calendar.Micros, horizon time.Duration) calendar.Micros {
	past := max(now.Add(-horizon), calendar.MinMicros)
	return min(calendar.MonthOf(past), calendar.MonthOf(now)-monthsKept).Start()
}

// moveFloor records the floor in the operator's ledger. The floor only moves forward.
func (r *run) moveFloor() error {
	move := func(v store.View) calendar.Micros {
		r.report.Floor = max(v.Horizon().Floor, floorAt(v.Now(), r.o.Horizon))
		return r.report.Floor
	}
	if r.o.DryRun {
		return r.store.View(r.ctx, tenant.Operator, func(v store.View) error {
			move(v)
			return nil
		})
	}
	return r.store.Update(r.ctx, tenant.Operator, func(tx store.Tx) error {
		if _, err := store.Tenant(tx); problem.Is(err, problem.NotFound) {
			return errors.New("the deployment has no operator's ledger yet: start the server once")
		}
		return appendFloor(tx, move(tx))
	})
}

// moveTenant records it in a tenant's own ledger, which is what facts are judged by: its commits and those of facts
// have one order on every store and node. It returns the tenant's floor.
func (r *run) moveTenant(id string) (floor calendar.Micros, err error) {
	if r.o.DryRun {
		err = r.store.View(r.ctx, id, func(v store.View) (err error) {
			floor, err = r.tenantFloor(v)
			return err
		})
		return floor, err
	}
	err = r.store.Update(r.ctx, id, func(tx store.Tx) (err error) {
		if floor, err = r.tenantFloor(tx); err != nil {
			return err
		}
		return appendFloor(tx, floor)
	})
	return floor, err
}

// tenantFloor is the deployment's floor, held back by the tenant's first open period that something happened in.
func (r *run) tenantFloor(v store.View) (calendar.Micros, error) {
	periods, err := store.Periods(v, 0, periodsPage)
	if err != nil {
		return 0, err
	}
	floor := r.report.Floor
	for _, p := range periods {
		if !p.Closed {
			floor = min(floor, p.Month.Start())
		}
	}
	return max(floor, v.Horizon().Floor), nil
}

func appendFloor(tx store.Tx, floor calendar.Micros) error {
	if floor <= tx.Horizon().Floor {
		return nil
	}
	return appendChange(tx, "horizon", "moved", floor.String(), "", ledger.FloorKind.State(&ledger.Floor{At: floor}))
}

// due is what may be archived of one tenant, subject to when its rows arrived.
type due struct {
	floor  calendar.Micros
	future time.Duration // the longest that its meters ever had
	months map[calendar.Month]bool
}

// due lists closed months below the floor that are not archived yet.
func (r *run) due(id string, floor calendar.Micros) (due, error) {
	d := due{floor: floor, months: map[calendar.Month]bool{}}
	err := r.store.View(r.ctx, id, func(v store.View) error {
		meters, err := store.Meters(v, store.Page{Limit: tenant.MaxMeters})
		if err != nil {
			return err
		}
		var bucket time.Duration
		for i := range meters {
			d.future, bucket = max(d.future, meters[i].Ahead()), max(bucket, meters[i].KeyBucket)
		}
		periods, err := store.Periods(v, 0, periodsPage)
		if err != nil {
			return err
		}
		for _, p := range periods {
			_, archived := v.Horizon().Archive(p.Month)
			// Two facts of one bucket are one fact, and the bucket may reach into the next month.
			if p.Closed && !archived && p.Month.End().Add(bucket) <= floor {
				d.months[p.Month] = true
			}
		}
		return nil
	})
	return d, err
}

// waits says why a month cannot leave yet: a key is kept for as long after its arrival as facts are taken, too.
func (d *due) waits(m *monthFiles) string {
	if until := m.lastAt.Add(d.future); until >= d.floor {
		return "its last row arrived at " + m.lastAt.String() + ": it leaves when the floor has passed " +
			until.String()
	}
	return ""
}
