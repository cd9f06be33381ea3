// Package verify proves that a ledger and everything that is derived from it agree, or lists where they do not. It
// reads a store through the port alone, folds the rows itself instead of asking the code that folded them first, and
// compares. It owns no rule that a bill rests on and never repairs: what differs is for a person to judge.
package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

// One tenant is examined at a time, in two passes over its rows. The first checks numbers, times, chain and identities,
// and gathers what must be known before a fact can be folded: the corrections of facts, when each period was closed,
// what the changes left behind. The second folds each fact with what its corrections left of it. Then the store's
// counters, entities and lookups are held against the result.
//
// Memory grows with the largest tenant, not with the deployment: a hash of 16 bytes for each of its event rows and each
// member of its unique meters (two to three times that with the table around them), some 300 bytes for each counter
// (400 where the tenant has plans), some 150 bytes for each hour in which a customer used a meter, and the corrections
// and manual adjustments.

// MaxDifferences bounds the list of a report. One wrong rule can make every counter differ; the first thousand say as
// much.
const MaxDifferences = 1000

// Options of a run.
type Options struct {
	// Progress gets how many rows were read, of how many: each is read twice. Default: nothing is called.
	Progress func(done, total uint64)
}

// Difference is one place where the store shows something else than its ledger gives.
type Difference struct {
	Tenant string
	What   string
	Want   string // what the rows give
	Got    string // what the store shows
}

func (d Difference) String() string {
	return fmt.Sprintf("tenant %s: %s: the ledger gives %s, the store shows %s", d.Tenant, d.What, d.Want, d.Got)
}

// Report is what a run found.
type Report struct {
	Tenants     int    // without the operator's own ledger
	Operator    bool   // whether there is one, which was examined too
	Rows        uint64 // of all kinds
	Counters    uint64
	Lookups     uint64 // rows that were also looked up by their key
	Differences []Difference
	Found       uint64 // differences in all, also those beyond the list
}

// OK reports whether everything agreed.
func (r *Report) OK() bool { return r.Found == 0 }

// Ledgers is what is examined: a store at rest, or one moment of a store that serves meanwhile. All that a view shows
// must be as of its head: of a PostgreSQL store it always is; of the embedded one it is in a snapshot.
type Ledgers interface {
	View(ctx context.Context, tenantID string, fn func(v store.View) error) error
	Tenants(ctx context.Context, after string, limit int) ([]store.Listed, error)
}

// Run examines every tenant. An error means that something could not be read, so that nothing is
// proven; differences are no error.
func Run(ctx context.Context, s Ledgers, o Options) (Report, error) {
	r := &run{ctx: ctx, progress: o.Progress}
	ids, err := Tenants(ctx, s)
	if err != nil {
		return r.report, err
	}
	for _, id := range ids {
		err := s.View(ctx, id, func(v store.View) error {
			r.total += passes * v.Head().Seq
			return nil
		})
		if err != nil {
			return r.report, fmt.Errorf("read tenant %s: %w", id, err)
		}
	}
	for _, id := range ids {
		err := s.View(ctx, id, func(v store.View) error {
			b, err := newRecount(r, id, v)
			if err != nil {
				return err
			}
			return b.examine()
		})
		if err != nil {
			return r.report, fmt.Errorf("read tenant %s: %w", id, err)
		}
		if id == tenant.Operator {
			r.report.Operator = true
		} else {
			r.report.Tenants++
		}
	}
	return r.report, nil
}

// passes over each row.
const passes = 2

// run is an examination under way.
type run struct {
	ctx         context.Context
	progress    func(done, total uint64)
	done, total uint64
	report      Report
}

// Tenants lists every ledger of a store: the operator's own first, if the deployment has one.
func Tenants(ctx context.Context, s Ledgers) ([]string, error) {
	var ids []string
	err := s.View(ctx, tenant.Operator, func(store.View) error {
		ids = append(ids, tenant.Operator)
		return nil
	})
	if err != nil && !problem.Is(err, problem.NotFound) {
		return nil, fmt.Errorf("read the operator's ledger: %w", err)
	}
	err = store.EachTenant(ctx, s, func(t *store.Listed) error {
		ids = append(ids, t.ID)
		return nil
	})
	return ids, err
}

func (r *run) differs(d Difference) {
	r.report.Found++
	if len(r.report.Differences) < MaxDifferences {
		r.report.Differences = append(r.report.Differences, d)
	}
}

// read notes progress after each section, and stops when the caller has had enough.
func (r *run) read(rows int) error {
	r.done += uint64(rows)
	if r.progress != nil {
		r.progress(r.done, max(r.total, r.done))
	}
	if r.ctx.Err() != nil {
		return errors.Join(errors.New("verify was stopped"), context.Cause(r.ctx))
	}
	return nil
}
