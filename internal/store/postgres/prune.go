package postgres

import (
	"context"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/store"
)

// pruneRows is how many numbers one transaction of pruning covers, unless Options.PruneRows says so: some thousand
// short row locks, which nobody else wants. It covers whole tiles, at least one.
const pruneRows = 5120

// pruneLock sets the locks of pruning apart from all others: the bytes of "tallyprn".
const pruneLock = "x'74616c6c7970726e'::bigint"

// The last rows leave first, so that the last row of a month shows whether any have left. A condition on the partial
// index keeps the planner to it.
var (
	pruneEvents = &statement{name: "prune_events", choosy: true, sql: `DELETE FROM usage_events
		WHERE tenant_id = $1 AND seq > $2 AND seq <= $3 AND seq > 0 AND time >= $4 AND time < $5
			AND NOT adjusted RETURNING ` + eventColumns}
	lastToPrune = &statement{name: "last_to_prune", choosy: true, sql: `SELECT seq FROM usage_events
		WHERE tenant_id = $1 AND seq >= $2 AND seq <= $3 AND seq > 0 AND time >= $4 AND time < $5
			AND NOT adjusted ORDER BY seq DESC LIMIT 1`}
	eventIsThere = &statement{name: "event_is_there", choosy: true, sql: `SELECT seq FROM usage_events
		WHERE tenant_id = $1 AND seq = $2 AND seq > 0`}
	// One node at a time prunes a tenant: two that take rows of two months out of one tile would each keep the leaves
	// of its own, not knowing that nothing of the tile stays.
	lockPruning = &statement{name: "lock_pruning",
		sql: "SELECT pg_advisory_xact_lock(hashtextextended($1, " + pruneLock + "))"}
	keepLeaves = &statement{name: "keep_leaves", sql: `INSERT INTO leaves (tenant_id, seq, hash)
		SELECT h.tenant_id, unnest($2::bigint[]), unnest($3::bytea[]) FROM heads h WHERE h.tenant_id = $1`}
	dropLeaves = &statement{name: "drop_leaves", sql: `DELETE FROM leaves
		WHERE tenant_id = $1 AND seq > $2 AND seq <= $3`}
)

// Prune implements store.Store. It needs no lock on the head: since the floor was moved past a month, which was
// committed under that lock, no node adds a row to it, and the rows that leave are held by nothing else.
func (s *Store) Prune(ctx context.Context, report func(done, total uint64)) (pruned uint64, err error) {
	var jobs []pruneJob
	var done, total uint64
	err = store.EachTenant(ctx, s, func(t *store.Listed) error {
		return s.viewing(ctx, t.ID, func(v *view) error {
			needed, held, err := v.firstNeeded()
			if err != nil {
				return err
			}
			for _, a := range v.Horizon().Archives {
				if held && a.Last >= needed {
					continue
				}
				jobs = append(jobs, pruneJob{s: s, tenantID: t.ID, set: v.set, size: v.base, archive: a})
				total += a.Rows
			}
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	for i := range jobs {
		j := &jobs[i]
		n, err := j.run(ctx)
		pruned += n
		if err != nil {
			return pruned, fmt.Errorf("prune %s of tenant %s: %w", j.archive.Month, j.tenantID, err)
		}
		if done += j.archive.Rows; report != nil {
			report(done, total)
		}
	}
	return pruned, nil
}

// pruneJob is an archived month of a tenant whose rows leave.
type pruneJob struct {
	s        *Store
	tenantID string
	set      *residentSet
	size     uint64 // of the tree; whatever is added meanwhile stays
	archive  ledger.Archive
}

func (j *pruneJob) run(ctx context.Context) (pruned uint64, err error) {
	for upTo := j.archive.Last; upTo > 0; {
		if err := ctx.Err(); err != nil {
			return pruned, err
		}
		var n, below uint64
		err := j.s.again(ctx, func() error {
			return j.s.pruning(ctx, j.tenantID, func(c *session) (err error) {
				n, below, err = j.pruneTiles(ctx, c, upTo)
				return err
			})
		})
		if err != nil {
			return pruned, err
		}
		pruned, upTo = pruned+n, below
	}
	return pruned, nil
}

// pruneTiles takes the month's last rows that are not above upTo away, of whole tiles, and keeps what the tree needs of
// them, which the same commit makes durable. It returns how many left and the row that the next ones are not above.
func (j *pruneJob) pruneTiles(ctx context.Context, c *session, upTo uint64) (n, below uint64, err error) {
	id, a := []byte(j.tenantID), &j.archive
	from, to := timeParam(a.Month.Start()), timeParam(a.Month.End())
	var last uint64
	found := func(in *reader) error { last = uint64(in.int8()); return nil }
	err = c.ask(ctx, lastToPrune, found, id, int8Param(int64(a.First)), int8Param(int64(upTo)), from, to)
	if err != nil || last == 0 {
		return 0, 0, err
	}
	tiles := max(1, j.s.options.PruneRows/tree.TileRows)
	if end := (last-1)/tree.TileRows + 1; end > tiles {
		below = (end - tiles) * tree.TileRows
	}
	var rows []ledger.Row
	err = c.ask(ctx, pruneEvents, func(in *reader) error {
		r, err := readEvent(in, j.set)
		rows = append(rows, r)
		return err
	}, id, int8Param(int64(max(below, a.First-1))), int8Param(int64(last)), from, to)
	if err == nil && len(rows) > 0 {
		err = j.keep(ctx, c, below, inOrder(rows))
	}
	return uint64(len(rows)), below, err
}

// keep keeps the leaves of rows that leave the tiles of rows above after, as far as the tree needs them.
func (j *pruneJob) keep(ctx context.Context, c *session, after uint64, rows []ledger.Row) error {
	id, last := []byte(j.tenantID), rows[len(rows)-1].Seq
	var hasher ledger.Hasher
	leaving := make(map[uint64]tree.Hash, len(rows))
	for i, h := range hasher.Leaves(j.set.TreeKeys, rows, nil) {
		leaving[rows[i].Seq] = h
	}
	kept, some := map[uint64]bool{}, map[uint64]bool{} // rows that left before, and their tiles
	end := (last-1)/tree.TileRows + 1
	err := c.ask(ctx, leavesBetween, func(in *reader) error {
		seq := uint64(in.int8())
		kept[seq], some[(seq-1)/tree.TileRows] = true, true
		return in.err
	}, id, int8Param(int64(after)), int8Param(int64(end*tree.TileRows)))
	if err != nil {
		return err
	}
	stays := func(seq uint64) bool {
		_, leaves := leaving[seq]
		return !leaves && !kept[seq]
	}
	r := c.roundTrip(ctx)
	var seqs, hashes array
	seqs.reset(oidInt8)
	hashes.reset(oidBytea)
	for index := after / tree.TileRows; index < end; index++ {
		needed := tree.KeptLeaves(index, j.size, stays)
		if needed == nil && some[index] { // all of it has left
			first, last := tree.Tile{Level: 1, Index: index}.Rows()
			r.send(dropLeaves, nil, id, int8Param(int64(first-1)), int8Param(int64(last)))
		}
		for _, seq := range needed {
			if h, leaves := leaving[seq]; leaves {
				seqs.int8(int64(seq))
				hashes.bytes(h[:])
			}
		}
	}
	r.send(keepLeaves, nil, id, seqs.param(), hashes.param())
	return r.do()
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
	r.send(lockPruning, nil, []byte(tenantID))
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
	return v.PrunedSections(first, func(s *ledger.Section) error {
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
