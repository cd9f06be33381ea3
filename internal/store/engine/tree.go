package engine

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// Hashing rows is most of the work of the tree, and no leaf needs another. So the leaves of a large group are hashed on
// several cores, while the disk syncs; appending them has an order, and follows.
const (
	// hashAlone is how many rows are hashed without the help of other cores: to ask for it costs more than they do.
	hashAlone = 512
	// hashAtOnce is how many rows a core takes at a time.
	hashAtOnce = 128
	maxHashers = 4
)

// leafHasher hashes rows on several cores. It serves one goroutine at a time.
type leafHasher struct {
	hashers  []ledger.Hasher
	leaves   []tree.Hash
	parts    []leafPart
	appender tree.Appender
}

// leafPart is some rows of one tenant and the place of their leaves.
type leafPart struct {
	keys *tree.Keys
	rows []ledger.Row
	into []tree.Hash
}

// reset makes room for so many leaves.
func (l *leafHasher) reset(rows int) {
	clear(l.parts) // they point to rows that are gone
	l.leaves, l.parts = sized(l.leaves, rows)[:0], l.parts[:0]
}

// add plans rows, and returns where their leaves will be.
func (l *leafHasher) add(keys *tree.Keys, rows []ledger.Row) []tree.Hash {
	from := len(l.leaves)
	l.leaves = l.leaves[:from+len(rows)]
	into := l.leaves[from:]
	for at := 0; at < len(rows); at += hashAtOnce {
		end := min(at+hashAtOnce, len(rows))
		l.parts = append(l.parts, leafPart{keys, rows[at:end], into[at:at:end]})
	}
	return into
}

// run hashes what was planned.
func (l *leafHasher) run() {
	if l.hashers == nil {
		l.hashers = make([]ledger.Hasher, min(runtime.GOMAXPROCS(0), maxHashers))
	}
	var next atomic.Int64
	work := func(h *ledger.Hasher) {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(l.parts) {
				return
			}
			p := &l.parts[i]
			h.Leaves(p.keys, p.rows, p.into)
		}
	}
	var helpers sync.WaitGroup
	if len(l.leaves) > hashAlone {
		for i := range l.hashers[1:] {
			helpers.Go(func() { work(&l.hashers[1+i]) })
		}
	}
	work(&l.hashers[0])
	helpers.Wait()
}

// one hashes rows of one tenant. The result is valid until the next call.
func (l *leafHasher) one(keys *tree.Keys, rows []ledger.Row) []tree.Hash {
	l.reset(len(rows))
	leaves := l.add(keys, rows)
	l.run()
	return leaves
}

// grown is what a section makes of its tenant.
type grown struct {
	published *published
	tiles     []tree.Tile
}

// hash grows the trees while the disk syncs.
func (e *Engine) hash(g *group) []grown {
	l, rows := &e.leaves, 0
	for _, s := range g.sections {
		rows += len(s.rows)
	}
	l.reset(rows)
	leaves := make([][]tree.Hash, len(g.sections))
	for i, s := range g.sections {
		leaves[i] = l.add(s.resident.TreeKeys, s.rows)
	}
	l.run()
	out := make([]grown, len(g.sections))
	for i, s := range g.sections {
		head := s.book.published.Load().head
		l.appender.Reset(head.Tree)
		out[i].tiles = l.appender.Append(leaves[i], nil)
		head.Tree, head.Seq, head.Clock = l.appender.Tree(), s.first+uint64(len(s.rows))-1, s.at
		out[i].published = &published{head: head, resident: s.resident}
	}
	return out
}

// regrow is the tree with a section that is replayed. Of a tile that has left whole nothing but its hash is there, in
// the section that held its last row: until that is reached the tree ends before the tile.
func (l *leafHasher) regrow(t tree.Tree, keys *tree.Keys, s *section) (tree.Tree, []tree.Tile, error) {
	own := l.one(keys, s.rows)
	l.appender.Reset(t)
	if s.had == 0 && t.Size() == s.first-1 {
		tiles := l.appender.Append(own, nil)
		return l.appender.Tree(), tiles, nil
	}
	var tiles []tree.Tile
	size := t.Size()
	err := s.eachLeaf(own, func(seq uint64, leaf *tree.Hash) error {
		if leaf != nil && size == seq-1 {
			tiles = l.appender.Append([]tree.Hash{*leaf}, tiles)
			size = seq
			return nil
		}
		if size == seq-1 && size%tree.TileRows != 0 {
			l.appender.Reset(l.appender.Tree().Full())
			size -= size % tree.TileRows
		}
		if seq%tree.TileRows != 0 {
			return nil
		}
		hash, ok := s.tileHash(tileOf(seq))
		if !ok || size != seq-tree.TileRows {
			return fmt.Errorf("nothing was kept of the rows up to %d that have left: %w", seq, errRecord)
		}
		tiles = l.appender.AppendTile(1, hash, tiles)
		size = seq
		return nil
	})
	return l.appender.Tree(), tiles, err
}

// tileOf is the index of the tile of level 1 that holds a row.
func tileOf(seq uint64) uint64 { return (seq - 1) / tree.TileRows }

// maxTiles is how many tiles in memory start a checkpoint.
const maxTiles = 64 << 10

type tileName struct {
	level int
	index uint64
}

// tiles are those that the state does not know yet.
type tiles struct {
	mu     sync.RWMutex // guards what follows
	recent map[tileName]tree.Hash
	saving map[tileName]tree.Hash // by the checkpoint under way
}

func (t *tiles) add(some []tree.Tile) {
	if len(some) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.recent == nil {
		t.recent = map[tileName]tree.Hash{}
	}
	for _, tile := range some {
		t.recent[tileName{tile.Level, tile.Index}] = tile.Hash
	}
}

func (t *tiles) find(n tileName) (hash tree.Hash, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if hash, ok = t.recent[n]; !ok {
		hash, ok = t.saving[n]
	}
	return hash, ok
}

// freeze sets apart what a checkpoint shall save.
func (t *tiles) freeze() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.saving, t.recent = t.recent, nil
}

// save writes what was set apart, and returns how many there are. Nobody changes it.
func (t *tiles) save(c *state.Checkpoint, tenant uint32) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for n, hash := range t.saving {
		c.SetTile(tenant, tree.Tile{Level: n.level, Index: n.index, Hash: hash})
	}
	return len(t.saving)
}

// drop forgets what the state knows now.
func (t *tiles) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.saving = nil
}

// treeSource reads a view's tree.
type treeSource struct{ *view }

// Tree implements store.View. That of a transaction is the tree of what is durable.
func (v *view) Tree() tree.Source { return treeSource{v} }

// Leaves implements tree.Source.
func (t treeSource) Leaves(first, last uint64) ([]tree.Hash, error) {
	var hashes ledger.Hasher
	out := make([]tree.Hash, 0, last-first+1)
	err := t.places(first, func(p state.Section) (bool, error) {
		var d decoder
		s, err := t.e.readPlace(t.b, p, &d, t.resident)
		if err != nil {
			return false, err
		}
		from, to := s.between(first, last)
		own := make([]tree.Hash, len(s.rows))
		hashes.Leaves(t.resident.TreeKeys, s.rows[from:to], own[from:from:to])
		err = s.eachLeaf(own, func(seq uint64, leaf *tree.Hash) error {
			switch {
			case seq < first || seq > last:
			case leaf == nil:
				return t.resident.Horizon.GoneOf(seq)
			default:
				out = append(out, *leaf)
			}
			return nil
		})
		return p.First+uint64(p.Rows) <= last, err
	})
	if err == nil && uint64(len(out)) != last-first+1 {
		err = problem.New(problem.NotFound, "the ledger has no row %d", first+uint64(len(out)))
	}
	return out, err
}

// Tiles implements tree.Source. Memory is read first: what a checkpoint moves meanwhile is then seen twice, not missed.
func (t treeSource) Tiles(level int, first, last uint64) ([]tree.Hash, error) {
	out, found := make([]tree.Hash, last-first+1), make([]bool, last-first+1)
	missing := len(out)
	put := func(tile tree.Tile) {
		if i := tile.Index - first; !found[i] {
			out[i], found[i] = tile.Hash, true
			missing--
		}
	}
	for i := first; i <= last && !t.frozen; i++ {
		if hash, ok := t.b.tiles.find(tileName{level, i}); ok {
			put(tree.Tile{Level: level, Index: i, Hash: hash})
		}
	}
	if missing > 0 {
		if err := t.from.Tiles(t.b.number, level, first, last, put); err != nil {
			return nil, &state.DamageError{Dir: stateDir, Err: err}
		}
	}
	if missing > 0 {
		return nil, fmt.Errorf("tiles %d to %d of level %d of tenant %s are not all in the state: run `tallystick "+
			"rebuild`",
			first, last, level, t.b.id)
	}
	return out, nil
}
