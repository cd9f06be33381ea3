package postgres

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/store"
)

var (
	addTiles = &statement{name: "add_tiles", sql: `INSERT INTO tiles (tenant_id, level, index, hash)
		SELECT h.tenant_id, unnest($2::smallint[]), unnest($3::bigint[]), unnest($4::bytea[])
		FROM heads h WHERE h.tenant_id = $1`}
	tilesBetween = &statement{name: "tiles_between", sql: `SELECT index, hash FROM tiles
		WHERE tenant_id = $1 AND level = $2 AND index >= $3 AND index <= $4 ORDER BY index`}
	leavesBetween = &statement{name: "leaves_between", sql: `SELECT seq, hash FROM leaves
		WHERE tenant_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq`}
)

// sendTiles adds the tiles that the rows have completed: at most one for 256 rows, and those above it.
func sendTiles(r *roundTrip, tenantID string, tiles []tree.Tile) {
	if len(tiles) == 0 {
		return
	}
	var level, index, hash array
	level.reset(oidInt2)
	index.reset(oidInt8)
	hash.reset(oidBytea)
	for i := range tiles {
		level.int2(int16(tiles[i].Level))
		index.int8(int64(tiles[i].Index))
		hash.bytes(tiles[i].Hash[:])
	}
	r.send(addTiles, nil, []byte(tenantID), level.param(), index.param(), hash.param())
}

// hash reads a hash of the tree.
func (r *reader) hash() (h tree.Hash) {
	copy(h[:], r.next(tree.HashSize))
	return h
}

// readTree reads the tree of a head that stands at row seq.
func readTree(b []byte, seq uint64) (tree.Tree, error) {
	t, n, err := tree.ReadBinary(b)
	if err == nil && (n != len(b) || t.Size() != seq) {
		err = fmt.Errorf("a tree of %d rows in %d of %d bytes is not that of %d rows", t.Size(), n, len(b), seq)
	}
	return t, err
}

// Tree implements store.View. It is the tree of the rows in the tables, also inside an update.
func (v *view) Tree() tree.Source { return treeTables{v} }

// treeTables is what the tables have of a tree.
type treeTables struct{ *view }

// Leaves implements tree.Source.
func (t treeTables) Leaves(first, last uint64) ([]tree.Hash, error) {
	if first == 0 || first > last || last > t.base {
		return nil, fmt.Errorf("rows %d to %d are not in a ledger of %d rows", first, last, t.base)
	}
	var rows []ledger.Row
	all := store.RowHint{Events: true, Entries: true, Changes: true}
	err := t.between(first-1, last, all, func(r *ledger.Row) { rows = append(rows, *r) })
	if err != nil {
		return nil, err
	}
	var hasher ledger.Hasher
	hashed := hasher.Leaves(t.set.TreeKeys, inOrder(rows), nil)
	if uint64(len(hashed)) == last-first+1 {
		return hashed, nil
	}
	out := make([]tree.Hash, last-first+1)
	known, left := make([]bool, len(out)), len(out)
	put := func(seq uint64, h tree.Hash) {
		if i := seq - first; !known[i] {
			out[i], known[i] = h, true
			left--
		}
	}
	for i := range hashed {
		put(rows[i].Seq, hashed[i])
	}
	err = t.ask(leavesBetween, func(in *reader) error {
		put(uint64(in.int8()), in.hash())
		return in.err
	}, int8Param(int64(first-1)), int8Param(int64(last)))
	if err != nil || left == 0 {
		return out, err
	}
	var gone uint64 // the first row that left with its tile
	for i := range known {
		seq := first + uint64(i)
		switch {
		case known[i]:
		case !t.mayHaveLeft(seq):
			return nil, t.missing(seq)
		case gone == 0:
			gone = seq
		}
	}
	return nil, t.set.Horizon.GoneOf(gone)
}

// Tiles implements tree.Source.
func (t treeTables) Tiles(level int, first, last uint64) (out []tree.Hash, err error) {
	next := first
	err = t.ask(tilesBetween, func(in *reader) error {
		if index := uint64(in.int8()); index == next {
			out = append(out, in.hash())
			next++
		}
		return in.err
	}, int2Param(int16(level)), int8Param(int64(first)), int8Param(int64(last)))
	if err == nil && next <= last {
		err = t.s.portError(t.ctx, fmt.Errorf("tile %d of level %d of tenant %s is not in its table: %w",
			next, level, t.tenantID, errDefect))
	}
	return out, err
}
