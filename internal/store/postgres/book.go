package postgres

import (
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// maxCells bounds the counters that a node remembers of one tenant; past it they are all forgotten and read again as needed.
// A cell has about 400 bytes.
const maxCells = 50_000

// book is what a node remembers of a tenant between its own commits. It holds for one head only: when the head under the
// lock has another number, another node has written and everything here is forgotten. The lane's turn guards it.
type book struct {
	seq    uint64 // of the head that the book is about; zero: about none
	cells  map[usage.CounterID]*cell
	recent [2]span // of this node's last commits, the latest first

	tallies  map[tallyID]*tallyCell
	assigned map[string]string // customer → plan, of those that were asked for
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

// span is the rows of one commit, above from and up to to, and the hashes of their keys.
type span struct {
	from, to uint64
	keys     map[uint64]int32
}

func (b *book) forget() { *b = book{} }

// at makes the book one about the head of that number, and reports whether it is what it was.
func (b *book) at(seq uint64) (same bool) {
	same = b.seq == seq && len(b.cells)+len(b.tallies)+len(b.assigned) <= maxCells
	if !same {
		b.forget()
	}
	if b.cells == nil {
		b.cells, b.tallies, b.assigned = map[usage.CounterID]*cell{}, map[tallyID]*tallyCell{}, map[string]string{}
	}
	b.seq = seq
	return same
}

// committed moves the book on to the head that this node just committed.
func (b *book) committed(s span) {
	b.seq, b.recent = s.to, [2]span{s, b.recent[0]}
}

// since returns the spans that together hold every row above seq, or false when they do not.
func (b *book) since(seq uint64) (spans []span, ok bool) {
	if seq > b.seq {
		return nil, false // the database has lost rows that it showed us: it failed over to a replica that lacked them
	}
	next := b.seq
	for i := 0; seq < next; i++ {
		if i == len(b.recent) || b.recent[i].keys == nil || b.recent[i].to != next {
			return nil, false
		}
		next = b.recent[i].from
		spans = append(spans, b.recent[i])
	}
	return spans, true
}
