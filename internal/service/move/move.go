// Package move carries a deployment's ledgers from one store to another, section by section: rows, numbers, times,
// verdicts and chain as they are. It decides nothing. It trusts neither side: what is already at the target must be the
// beginning of what is at the source, to the hash, and in the end both heads must be the same.
//
// A deployment must not be written to in two places, so a move ends by marking every ledger of the source as moved, in
// a last row that stays behind. From then on the source refuses writes and names the new place. The order of a run
// makes that safe:
//
//	copy     every ledger, then have the target verified, then the places of those who follow the ledgers
//	mark     tenant by tenant, each only if nothing came since its last row was copied, else the rest is copied first
//	operator marked last; no tenant comes into being after that, and those that did meanwhile are copied and marked
//
// It may break off anywhere. The next run finds what is copied and what is marked, and does the rest.
package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
)

// Errors of a run.
var (
	// ErrBroken is wrapped when the source's rows are not those that its head stands for.
	ErrBroken = errors.New("the source's ledger does not add up: run `tallystick verify` on it")
	// ErrDiffers is wrapped when the target holds something that is not the source's.
	ErrDiffers = errors.New("the target holds another ledger: " +
		"move into an empty store, or go on with one that an earlier move began")
	// ErrMovedElsewhere is wrapped when the source was moved to another place than the target, or the target itself was
	// moved.
	ErrMovedElsewhere = errors.New("a ledger is moved from where it is kept now")
	// ErrGrows is wrapped when the source is written to faster than it can be copied.
	ErrGrows = errors.New("the source is written to faster than it can be copied: stop its servers and run the move " +
		"again")
)

// maxChases bounds how often the rest of one ledger is copied because it has grown before it could be marked.
const maxChases = 100

// Options of a run.
type Options struct {
	// Place is the target as the source will name it to its callers: an address without secrets. Default: the source is
	// not marked, which makes a copy.
	Place string
	// Progress is called with how many rows are at the target, of how many. Default: none.
	Progress func(done, total uint64)
	// Verify proves the target before the source is marked, and again if rows came after that. Default: nothing is
	// proven.
	Verify func(ctx context.Context) error
}

// Report is what a run did.
type Report struct {
	Tenants int    // without the operator's own ledger
	Rows    uint64 // at the target, in the end, without what came there since
	Moved   uint64 // by this run
	Marked  int    // ledgers of the source, by this run
}

// Run moves everything and marks the source. A run that broke off is gone on with by the next: a section is at the
// target whole or not at all. Nobody may write to the target meanwhile; what is still written to the source is copied
// too.
func Run(ctx context.Context, from, to store.Store, o Options) (Report, error) {
	r := &run{ctx: ctx, from: from, to: to, o: o}
	ids, err := r.ledgers()
	if err != nil {
		return r.report, err
	}
	for _, id := range ids {
		if err := r.copy(id); err != nil {
			return r.report, fmt.Errorf("move tenant %s: %w", id, err)
		}
	}
	if err := r.verify(); err != nil {
		return r.report, err
	}
	if o.Place == "" {
		return r.report, nil
	}
	if err := r.carryFollowers(); err != nil {
		return r.report, err
	}
	proven := r.report.Moved
	err = r.markAll(ids)
	if err == nil {
		err = r.carryFollowers()
	}
	if err != nil {
		return r.report, fmt.Errorf("%w; the target is complete as far as it was copied: run the move again to end it",
			err)
	}
	if r.report.Moved > proven {
		return r.report, r.verify()
	}
	return r.report, nil
}

// Done reports whether every ledger of a store was moved to the place, so that nothing is left to do.
func Done(ctx context.Context, from store.Store, place string) (bool, error) {
	ids, err := verify.Tenants(ctx, from)
	if err != nil || len(ids) == 0 {
		return false, err
	}
	for _, id := range ids {
		s, err := look(ctx, from, id)
		if err != nil || s.movedTo != place {
			return false, err
		}
	}
	return true, nil
}

type run struct {
	ctx         context.Context
	from, to    store.Store
	o           Options
	done, total uint64
	report      Report
}

// ledgers lists what is to be moved, and refuses pairs of stores that do not belong together.
func (r *run) ledgers() ([]string, error) {
	ids, err := verify.Tenants(r.ctx, r.from)
	if err != nil {
		return nil, err
	}
	if err := r.strangers(ids); err != nil {
		return nil, err
	}
	for _, id := range ids {
		source, err := look(r.ctx, r.from, id)
		if err != nil {
			return nil, err
		}
		if r.o.Place != "" && source.movedTo != "" && source.movedTo != r.o.Place {
			return nil, fmt.Errorf("tenant %s was moved to %s, not to %s: %w", id, source.movedTo, r.o.Place,
				ErrMovedElsewhere)
		}
		r.total += source.kept().Seq
	}
	return ids, nil
}

// strangers refuses a target with tenants that the source does not have, and one that was itself moved.
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
		target, err := look(r.ctx, r.to, id)
		if err != nil {
			return err
		}
		if target.movedTo != "" {
			return fmt.Errorf("tenant %s of the target was moved to %s: %w", id, target.movedTo, ErrMovedElsewhere)
		}
	}
	return nil
}

// stand is where a ledger stands.
type stand struct {
	head    ledger.Head
	movedTo string
}

// kept is the last row that belongs to the ledger wherever it is: the mark, which is always the last, stays behind. Its
// chain is not known then.
func (s stand) kept() ledger.Head {
	if s.movedTo == "" {
		return s.head
	}
	return ledger.Head{Seq: s.head.Seq - 1}
}

// look reads where a tenant's ledger stands; nowhere if there is none.
func look(ctx context.Context, s store.Store, id string) (out stand, err error) {
	err = s.View(ctx, id, func(v store.View) error {
		t, err := store.Tenant(v)
		out = stand{v.Head(), t.MovedTo}
		return err
	})
	if problem.Is(err, problem.NotFound) {
		err = nil
	}
	return out, err
}

// count takes note of one more ledger; the operator's own is no tenant's.
func (r *run) count(id string) {
	if id != tenant.Operator {
		r.report.Tenants++
	}
}

// copy brings one ledger to the target and counts it.
func (r *run) copy(id string) error {
	last, err := r.carry(id, ledger.Head{})
	if err != nil {
		return err
	}
	r.count(id)
	r.report.Rows += last.Seq
	return nil
}

// carry copies what the target lacks of one ledger, hashing the tree also where the target has the rows already: from
// the first row on, or from where both were found to be the same. It returns the head that both then have.
func (r *run) carry(id string, same ledger.Head) (ledger.Head, error) {
	have, err := look(r.ctx, r.to, id)
	if err != nil {
		return ledger.Head{}, err
	}
	var hasher ledger.Hasher
	last, marked := same, false
	err = r.from.View(r.ctx, id, func(v store.View) error {
		t, err := store.Tenant(v)
		if err != nil {
			return err
		}
		marked = t.MovedTo != ""
		keys, err := tree.NewKeys(t.TreeKeys)
		if err != nil {
			return err
		}
		head, end, whole := v.Head(), stand{v.Head(), t.MovedTo}.kept().Seq, same
		err = v.Sections(same.Seq+1, func(s *ledger.Section) error {
			whole.Tree, _ = hasher.Grow(whole.Tree, keys, s.Rows, nil)
			whole.Seq, whole.Clock = whole.Tree.Size(), s.At
			if s.First > end {
				return nil // the mark
			}
			last = whole
			return r.section(id, have.head, last, s)
		})
		if err == nil && whole != head {
			err = fmt.Errorf("its rows end with %d and the root %x, its head is at %d with %x: %w",
				whole.Seq, whole.Tree.Root(), head.Seq, head.Tree.Root(), ErrBroken)
		}
		return err
	})
	if err != nil {
		return last, err
	}
	if marked && have.head.Seq > last.Seq {
		return last, nil // it was complete when it was marked, and lives on at the target since
	}
	if have, err = look(r.ctx, r.to, id); err != nil {
		return last, err
	}
	if have.head != last {
		return last, fmt.Errorf("the target stands at row %d with the root %x, the source at row %d with %x: %w",
			have.head.Seq, have.head.Tree.Root(), last.Seq, last.Tree.Root(), ErrDiffers)
	}
	return last, nil
}

// section imports a section unless the target has it. last is the head after it.
func (r *run) section(id string, have, last ledger.Head, s *ledger.Section) error {
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
	r.done += uint64(len(s.Rows))
	if r.o.Progress != nil {
		r.o.Progress(r.done, max(r.total, r.done))
	}
	return r.ctx.Err()
}

func (r *run) verify() error {
	if r.o.Verify == nil {
		return nil
	}
	return r.o.Verify(r.ctx)
}

// markAll marks the tenants, then the operator's ledger, then tenants that were made in between.
func (r *run) markAll(ids []string) error {
	for range 2 {
		for _, id := range ids {
			if id == tenant.Operator {
				continue
			}
			if err := r.mark(id); err != nil {
				return err
			}
		}
		if err := r.mark(tenant.Operator); err != nil {
			return err
		}
		var err error
		if ids, err = r.unmarked(); err != nil || len(ids) == 0 {
			return err
		}
	}
	return fmt.Errorf("tenant %s was made after the deployment was marked as moved", ids[0])
}

// unmarked lists the ledgers that are not marked yet.
func (r *run) unmarked() (out []string, err error) {
	ids, err := verify.Tenants(r.ctx, r.from)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		source, err := look(r.ctx, r.from, id)
		if err != nil {
			return nil, err
		}
		if source.movedTo == "" {
			out = append(out, id)
		}
	}
	return out, nil
}

// errBehind says that rows came to the source since they were copied.
var errBehind = errors.New("the source has grown")

// mark ends a ledger at the source, unless it is marked or there is none. Rows that came since it was copied are copied
// first.
func (r *run) mark(id string) error {
	for range maxChases {
		source, err := look(r.ctx, r.from, id)
		if err != nil || source.movedTo != "" || source.head.Seq == 0 {
			return err
		}
		target, err := look(r.ctx, r.to, id)
		if err != nil {
			return err
		}
		switch {
		case source.head == target.head:
			err = r.from.Update(r.ctx, id, func(tx store.Tx) error { return r.appendMark(tx, target.head.Seq) })
		case source.head.Seq > target.head.Seq:
			err = errBehind
		default:
			err = fmt.Errorf("the target was written to: %w", ErrDiffers)
		}
		if err == nil {
			r.report.Marked++
			return nil
		}
		if !errors.Is(err, errBehind) {
			return fmt.Errorf("mark tenant %s of the source as moved: %w", id, err)
		}
		if err := r.rest(id, target.head); err != nil {
			return fmt.Errorf("move tenant %s: %w", id, err)
		}
	}
	return fmt.Errorf("move tenant %s: %w", id, ErrGrows)
}

// rest copies rows that came late, and keeps the report's numbers right.
func (r *run) rest(id string, had ledger.Head) error {
	last, err := r.carry(id, had)
	if err != nil {
		return err
	}
	if had.Seq == 0 {
		r.count(id)
	}
	r.report.Rows += last.Seq - had.Seq
	return nil
}

// appendMark appends the row that ends the ledger here. The head is held: nothing comes between the look and the row.
func (r *run) appendMark(tx store.Tx, copied uint64) error {
	if tx.Head().Seq != copied {
		return errBehind
	}
	t, err := store.Tenant(tx)
	if err != nil {
		return err
	}
	t.MovedTo, t.MovedAt = r.o.Place, tx.Now()
	payload, err := json.Marshal(struct {
		ID      string `json:"id"`
		MovedTo string `json:"moved_to"`
		MovedAt string `json:"moved_at"`
	}{t.ID, t.MovedTo, t.MovedAt.String()})
	if err != nil {
		return err
	}
	e := audit.Of("tenant", "moved", t.ID)
	e.Source, e.Actor, e.Payload = audit.SourceSystem, audit.ActorSystem, string(payload)
	_, err = tx.Append(ledger.Change{Event: e, State: tenant.Kind.State(&t)})
	return err
}
