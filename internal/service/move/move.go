// Package move carries a deployment's ledgers from one store to another, section by section: rows, numbers, times, verdicts and
// chain as they are. It decides nothing and changes nothing at the source. It trusts neither side: what is already at the target
// must be the beginning of what is at the source, to the hash, and in the end both heads must be the same.
package move

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
)

// ErrDiffers is wrapped when the target holds something that is not the source's.
var ErrDiffers = errors.New("the target holds another ledger: move into an empty store, or go on with one that an earlier move began")

// Options of a run.
type Options struct {
	// Progress is told how many rows are at the target, of how many. Default: nobody is.
	Progress func(done, total uint64)
}

// Report is what a run did.
type Report struct {
	Tenants int
	Rows    uint64 // at the target, in the end
	Moved   uint64 // by this run
}

// Run moves everything. A run that broke off is gone on with by the next: a section is at the target whole or not at all. Nobody
// else may write to either store meanwhile.
func Run(ctx context.Context, from, to store.Store, o Options) (Report, error) {
	ids, err := verify.Tenants(ctx, from)
	if err != nil {
		return Report{}, err
	}
	r := &run{ctx: ctx, from: from, to: to, progress: o.Progress}
	if err := r.strangers(ids); err != nil {
		return r.report, err
	}
	for _, id := range ids {
		head, err := headOf(ctx, from, id)
		if err != nil {
			return r.report, err
		}
		r.total += head.Seq
	}
	for _, id := range ids {
		if err := r.tenant(id); err != nil {
			return r.report, fmt.Errorf("move tenant %s: %w", id, err)
		}
		r.report.Tenants++
	}
	return r.report, nil
}

type run struct {
	ctx         context.Context
	from, to    store.Store
	progress    func(done, total uint64)
	done, total uint64
	report      Report
}

// strangers refuses a target with tenants that the source does not have.
func (r *run) strangers(ids []string) error {
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
	}
	there, err := verify.Tenants(r.ctx, r.to)
	if err != nil {
		return err
	}
	for _, id := range there {
		if !known[id] {
			return fmt.Errorf("tenant %s is at the target and not at the source: %w", id, ErrDiffers)
		}
	}
	return nil
}

// headOf is where a tenant's ledger stands; nowhere if there is none.
func headOf(ctx context.Context, s store.Store, id string) (head ledger.Head, err error) {
	err = s.View(ctx, id, func(v store.View) error {
		head = v.Head()
		return nil
	})
	if problem.Is(err, problem.NotFound) {
		err = nil
	}
	return head, err
}

// tenant moves one ledger, hashing its chain from the first row on also where the target has the rows already.
func (r *run) tenant(id string) error {
	have, err := headOf(r.ctx, r.to, id)
	if err != nil {
		return err
	}
	var chain [32]byte
	var hasher ledger.Hasher
	var last ledger.Head
	err = r.from.View(r.ctx, id, func(v store.View) error {
		return v.Sections(1, func(s *ledger.Section) error {
			chain = hasher.Next(chain, s.Rows)
			last = ledger.Head{Seq: s.First + uint64(len(s.Rows)) - 1, Chain: chain, Clock: s.At}
			switch {
			case last.Seq > have.Seq:
				if s.First <= have.Seq {
					return fmt.Errorf("it ends within a section, at row %d: %w", have.Seq, ErrDiffers)
				}
				if err := r.to.Import(r.ctx, id, *s); err != nil {
					return err
				}
				r.report.Moved += uint64(len(s.Rows))
			case last.Seq == have.Seq && last != have:
				return fmt.Errorf("its first %d rows are others: %w", have.Seq, ErrDiffers)
			}
			return r.carried(len(s.Rows))
		})
	})
	if err != nil {
		return err
	}
	if have, err = headOf(r.ctx, r.to, id); err != nil {
		return err
	}
	if have != last {
		return fmt.Errorf("the target stands at row %d with chain %x, the source at row %d with %x: %w", have.Seq, have.Chain, last.Seq, last.Chain, ErrDiffers)
	}
	r.report.Rows += last.Seq
	return nil
}

func (r *run) carried(rows int) error {
	r.done += uint64(rows)
	if r.progress != nil {
		r.progress(r.done, max(r.total, r.done))
	}
	return r.ctx.Err()
}
