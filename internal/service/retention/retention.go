// Package retention lets old usage rows leave the ledger: it moves the floor, archives the months below it, reads every
// archive back and compares it with the ledger row by row, and only then has the store take the rows away. It also
// answers reads from archives. It decides nothing about a fact, and never deletes an archive.
//
// What can go wrong must go wrong on the safe side, so the order is fixed:
//
//	floor       The operator's ledger records where facts are refused from now on, then every tenant's own. A
//	            tenant's floor never passes a month of its that is open and has counters. From the commit of that
//	            row on nothing is added below it.
//	archive     A month below the floor is written to the storage under names that contain the hash of the
//	            content, so that no archive is ever replaced by another one.
//	read back   Every byte is read again from the storage and every row compared with the ledger's.
//	base        The month's counters are recorded in the ledger: folding it again starts there.
//	archived    The row that says "archived" names the manifest and its hash.
//	prune       The store takes the rows away, and with them, sooner or later, their keys.
//
// A run that breaks off anywhere is repeated from the start: what is recorded already is not done again, and the rest
// is done the same way as before.
//
// A month leaves whole. It has to be closed; it, and the longest bucket of a derived key, have to lie below the floor;
// and so has the arrival of each of its rows plus the longest future bound. So keys leave with their rows, and
// corrections with what they correct.
package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
)

// MinHorizon is the shortest horizon: any shorter and a month could leave that a broker or a client still redelivers.
const MinHorizon = 95 * 24 * time.Hour

// monthsKept is how many months before the current one never leave, whatever the horizon.
const monthsKept = 2

// Options of a run.
type Options struct {
	// Horizon is how far back facts are taken, at least MinHorizon.
	Horizon time.Duration
	// DryRun says what a run would do and changes nothing.
	DryRun bool
	// Temp is where archives are put together before they go to the storage. Default: the system's.
	Temp string
	// Progress gets each step and how far it has come. Default: nothing is called.
	Progress func(step string, done, total uint64)
}

// Report is what a run did, or would do.
type Report struct {
	Floor  calendar.Micros // of the deployment
	Months []Month
	Pruned uint64 // rows that left the store
}

// Month is one month of one tenant that lies below its floor.
type Month struct {
	Tenant string
	Month  calendar.Month
	Rows   uint64
	Stay   uint64 // of these, adjusted ones, which are archived too and never leave
	Bytes  int64
	// Waits says why the month is not archived yet; empty: it is, or would be.
	Waits string
}

// Service archives the ledgers of one store on one storage.
type Service struct {
	store   store.Store
	storage Storage
}

// New makes a service.
func New(s store.Store, storage Storage) *Service { return &Service{s, storage} }

// Run moves the floor, archives what lies below it and prunes. Errors are those of the store and the storage; nothing
// that was not archived and read back has then left.
func (s *Service) Run(ctx context.Context, o Options) (Report, error) {
	if o.Horizon < MinHorizon {
		return Report{}, fmt.Errorf("a horizon of %s is too short: at least %s (95 days)", o.Horizon, MinHorizon)
	}
	if o.Progress == nil {
		o.Progress = func(string, uint64, uint64) {}
	}
	ids, err := verify.Tenants(ctx, s.store)
	if err != nil {
		return Report{}, err
	}
	r := &run{Service: s, ctx: ctx, o: o}
	if err := r.moveFloor(); err != nil {
		return r.report, fmt.Errorf("move the floor: %w", err)
	}
	for i, id := range ids {
		o.Progress("archiving", uint64(i), uint64(len(ids)))
		if id == tenant.Operator {
			continue
		}
		if err := r.tenant(id); err != nil {
			return r.report, fmt.Errorf("tenant %s: %w", id, err)
		}
	}
	if o.DryRun {
		return r.report, nil
	}
	r.report.Pruned, err = s.store.Prune(ctx, func(done, total uint64) { o.Progress("pruning", done, total) })
	if err != nil {
		return r.report, fmt.Errorf("prune: %w", err)
	}
	return r.report, nil
}

// run is one run under way.
type run struct {
	*Service
	ctx    context.Context
	o      Options
	report Report
}

func (r *run) tenant(id string) error {
	floor, err := r.moveTenant(id)
	if err != nil {
		return fmt.Errorf("move its floor: %w", err)
	}
	due, err := r.due(id, floor)
	if err != nil || len(due.months) == 0 {
		return err
	}
	written, err := r.write(id, &due)
	defer written.remove()
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	for _, m := range written.inOrder() {
		report := Month{Tenant: id, Month: m.month, Rows: m.rows, Stay: m.stay, Bytes: m.bytes(), Waits: due.waits(m)}
		if report.Waits == "" && !r.o.DryRun {
			if err := r.archive(id, m); err != nil {
				return fmt.Errorf("archive %s: %w", m.month, err)
			}
		}
		r.report.Months = append(r.report.Months, report)
	}
	return nil
}

// archive carries one month to the storage, proves that it is there, and records that in the ledger.
func (r *run) archive(id string, m *monthFiles) error {
	manifest, err := r.put(m)
	if err != nil {
		return err
	}
	if err := r.readBack(id, manifest); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if err := r.recordBase(id, m.month, manifest.Meters); err != nil {
		return fmt.Errorf("record the counters: %w", err)
	}
	return r.store.Update(r.ctx, id, func(tx store.Tx) error {
		if _, there := tx.Horizon().Archive(m.month); there {
			return nil // another node was faster
		}
		a := ledger.Archive{Month: m.month, Rows: m.rows, Stay: m.stay, First: m.first, Last: m.last, End: m.end,
			Manifest: manifest.name, Sum: manifest.sum}
		return appendChange(tx, "period", "archived", m.month.String(), a.Manifest, ledger.ArchiveKind.State(&a))
	})
}

// appendChange records something that the system did by itself.
func appendChange(tx store.Tx, what, action, id, about string, s entity.State) error {
	c := ledger.Change{Event: audit.Of(what, action, id), State: s}
	c.Source, c.Actor = audit.SourceSystem, audit.ActorSystem
	c.Payload = fmt.Sprintf("{%q:%q}", what, id)
	if about != "" {
		c.Payload = fmt.Sprintf("{%q:%q,\"manifest\":%q}", what, id, about)
	}
	_, err := tx.Append(c)
	return err
}
