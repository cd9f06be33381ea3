package postgres

import (
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// maxCells bounds the counters that a node remembers of one tenant; past it they are all forgotten and read again as
// needed. A cell has about 400 bytes.
const maxCells = 50_000

// cache is what a node remembers of a tenant between its own commits. It holds for one head only: when the head under
// the lock is another one, another node has written and everything here is forgotten. A number alone does not make a
// head the same: a database that failed over to a replica without its last commits gives the same numbers to other
// rows, and the tree distinguishes them. The lane's turn guards it.
type cache struct {
	head   ledger.Head // that the cache is about; zero: about none
	cells  map[usage.CounterID]*cell
	recent [2]span // of this node's last commits, the latest first

	tallies map[tallyID]*tallyCell
	plans   map[string]quota.Schedule // by customer, of those that were asked for; the tenant's own has no customer
}

// cell is a counter in memory.
type cell struct {
	usage.Counter
	id    usage.CounterID
	place store.CounterPlace
	dirty bool
	// stored says that the table has a row of it, and base is the tail there.
	stored bool
	base   uint64
	tail   uint64 // the last row that it folded; zero: none
}

// written notes that the table now has the cell as it is.
func (c *cell) written() { c.dirty, c.stored, c.base = false, true, c.tail }

// span is the rows of one commit, after one head and up to another, and the hashes of their keys.
type span struct {
	from, to ledger.Head
	keys     map[uint64]int32
}

// isHead reports whether two heads stand for the same rows.
func isHead(a, b ledger.Head) bool { return a.Seq == b.Seq && a.Tree == b.Tree }

func (b *cache) forget() { *b = cache{} }

// at makes the cache one about that head, and reports whether it is what it was.
func (b *cache) at(head ledger.Head) (same bool) {
	same = isHead(b.head, head) && len(b.cells)+len(b.tallies)+len(b.plans) <= maxCells
	if !same {
		b.forget()
	}
	if b.cells == nil {
		b.cells, b.tallies, b.plans = map[usage.CounterID]*cell{}, map[tallyID]*tallyCell{}, map[string]quota.Schedule{}
	}
	b.head = head
	return same
}

// committed moves the cache on to the head that this node just committed.
func (b *cache) committed(s span) {
	b.head, b.recent = s.to, [2]span{s, b.recent[0]}
}

// since returns the spans that together hold every row after a head that was seen before, or false when they do not:
// others have written since, or the database has lost rows that it showed us.
func (b *cache) since(seen ledger.Head) (spans []span, ok bool) {
	next := b.head
	for i := 0; !isHead(next, seen); i++ {
		if i == len(b.recent) || b.recent[i].keys == nil || !isHead(b.recent[i].to, next) {
			return nil, false
		}
		next = b.recent[i].from
		spans = append(spans, b.recent[i])
	}
	return spans, true
}
