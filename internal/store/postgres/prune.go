package postgres

import (
	"context"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/store"
)

// pruneRows is how many numbers one transaction of pruning covers, unless Options.PruneRows says so: some thousand
// short row locks, which nobody else wants.
const pruneRows = 5000

// The last rows leave first, so that the last row of a month tells whether any have left. A condition on the partial
// index keeps the planner to it.
var (
	pruneEvents = &statement{name: "prune_events", choosy: true, sql: `WITH gone AS (DELETE FROM usage_events
			WHERE tenant_id = $1 AND seq > $2 AND seq <= $3 AND seq > 0 AND time >= $4 AND time < $5
				AND NOT adjusted RETURNING 1)
		SELECT count(*) FROM gone`}
	lastToPrune = &statement{name: "last_to_prune", choosy: true, sql: `SELECT seq FROM usage_events
		WHERE tenant_id = $1 AND seq >= $2 AND seq <= $3 AND seq > 0 AND time >= $4 AND time < $5
			AND NOT adjusted ORDER BY seq DESC LIMIT 1`}
	eventIsThere = &statement{name: "event_is_there", choosy: true, sql: `SELECT seq FROM usage_events
		WHERE tenant_id = $1 AND seq = $2 AND seq > 0`}
)

// pruneJob is an archived month of a tenant whose rows may leave, between the first and the last.
type pruneJob struct {
	tenantID    string
	month       calendar.Month
	first, last uint64
	rows        uint64 // of the month
}

// Prune implements store.Store. It needs no lock on the head: since the floor was moved past a month, which was
// committed under that lock, no node adds a row to it, and the rows that leave are held by nothing else.
func (s *Store) Prune(ctx context.Context, report func(done, total uint64)) (pruned uint64, err error) {
	var jobs []pruneJob
	var done, total uint64
	err = store.EachTenant(ctx, s, func(t *store.Listed) error {
		return s.View(ctx, t.ID, func(v store.View) error {
			for _, a := range v.Horizon().Archives {
				jobs = append(jobs, pruneJob{t.ID, a.Month, a.First, a.Last, a.Rows})
				total += a.Rows
			}
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	for _, j := range jobs {
		n, err := s.pruneMonth(ctx, &j)
		pruned += n
		if err != nil {
			return pruned, fmt.Errorf("prune %s of tenant %s: %w", j.month, j.tenantID, err)
		}
		if done += j.rows; report != nil {
			report(done, total)
		}
	}
	return pruned, nil
}

func (s *Store) pruneMonth(ctx context.Context, j *pruneJob) (pruned uint64, err error) {
	id, from, to := []byte(j.tenantID), timeParam(j.month.Start()), timeParam(j.month.End())
	for upTo := j.last; upTo > 0; {
		if err := ctx.Err(); err != nil {
			return pruned, err
		}
		var n, below uint64
		err := s.again(ctx, func() error {
			n, below = 0, 0
			return s.pruning(ctx, j.tenantID, func(c *session) error {
				var last uint64
				found := func(in *reader) error { last = uint64(in.int8()); return nil }
				err := c.ask(ctx, lastToPrune, found, id, int8Param(int64(j.first)), int8Param(int64(upTo)), from, to)
				if err != nil || last == 0 {
					return err
				}
				below = j.first - 1
				if last > s.options.PruneRows {
					below = max(below, last-s.options.PruneRows)
				}
				return c.ask(ctx, pruneEvents, func(in *reader) error { n = uint64(in.int8()); return nil },
					id, int8Param(int64(below)), int8Param(int64(last)), from, to)
			})
		})
		if err != nil {
			return pruned, err
		}
		pruned, upTo = pruned+n, below
	}
	return pruned, nil
}

// pruning runs fn in a transaction of the one role that may take usage rows away, and of one tenant, and commits it.
func (s *Store) pruning(ctx context.Context, tenantID string, fn func(*session) error) error {
	c, err := s.lend(ctx)
	if err != nil {
		return err
	}
	defer c.giveBack(context.WithoutCancel(ctx))
	r := c.roundTrip(ctx)
	r.begin(beginWrite, rolePrune, tenantID)
	if err := r.do(); err != nil {
		return err
	}
	if err := fn(c); err != nil {
		return err
	}
	return c.ask(ctx, commit, nil)
}

func (v *view) Horizon() store.Horizon { return v.set.Horizon }

// hasLeft reports whether a usage row is no longer in its table.
func (v *view) hasLeft(seq uint64) (bool, error) {
	left := true
	err := v.ask(eventIsThere, func(*reader) error { left = false; return nil }, int8Param(int64(seq)))
	return left, err
}

// Sections implements store.View.
func (v *view) Sections(first uint64, fn func(*ledger.Section) error) error {
	return v.Remains(first, func(s *ledger.Section) error {
		if s.Gone == 0 {
			return fn(s)
		}
		for i := range s.Rows {
			if want := s.First + uint64(i); s.Rows[i].Seq != want {
				return v.set.Horizon.GoneOf(want)
			}
		}
		return v.set.Horizon.GoneOf(s.First + uint64(len(s.Rows)))
	})
}

// section takes its rows from the front of rows. A row that is not there must be one that may have left.
func (v *view) section(p place, rows *[]ledger.Row) (*ledger.Section, error) {
	n := 0
	for n < len(*rows) && (*rows)[n].Seq < p.first+uint64(p.rows) {
		n++
	}
	s := &ledger.Section{First: p.first, At: p.at, Rows: (*rows)[:n:n], Gone: p.rows - n}
	*rows = (*rows)[n:]
	if s.Gone == 0 {
		return s, nil
	}
	copy(s.Chain[:], p.chain)
	for i, seq := 0, p.first; seq < p.first+uint64(p.rows); seq++ {
		if i < n && s.Rows[i].Seq == seq {
			i++
			continue
		}
		if !v.mayHaveLeft(seq) {
			return nil, v.missing(seq)
		}
	}
	return s, nil
}

func (v *view) mayHaveLeft(seq uint64) bool {
	for _, a := range v.set.Horizon.Archives {
		if seq >= a.First && seq <= a.Last {
			return true
		}
	}
	return false
}
