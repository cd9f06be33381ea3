// Package ledger defines what a tenant's ledger is made of, apart from any store: rows numbered without gaps, committed
// in sections, and a Merkle tree over their canonical encoding. A row is a usage event, an account entry, or a change
// of an entity.
package ledger

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/account"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Head is where a tenant's ledger stands. The clock never moves backward.
type Head struct {
	Seq   uint64
	Tree  tree.Tree
	Clock calendar.Micros
}

// Change is a change of an entity: the audit event of it, and the entity as it is from then on. The state is zero when
// only the audit event matters.
type Change struct {
	audit.Event
	State entity.State
}

// RowKind says what a row is.
type RowKind uint8

// The kinds of rows.
const (
	EventRow RowKind = iota + 1
	EntryRow
	ChangeRow
)

var rowKindNames = [...]string{EventRow: "event", EntryRow: "entry", ChangeRow: "change"}

func (k RowKind) String() string { return rowKindNames[k] }

// Row is one numbered row. Exactly one of Event, Entry and Change is set; Kind says which.
type Row struct {
	Seq    uint64
	At     calendar.Micros // when it was committed
	By     string          // the API key or the source that brought an event or an entry; a change names its actor
	Event  *usage.Row
	Entry  *account.Row
	Change *Change
}

// Kind says what the row is. It panics for a row that is nothing: no store may make one.
func (r *Row) Kind() RowKind {
	switch {
	case r.Event != nil:
		return EventRow
	case r.Entry != nil:
		return EntryRow
	case r.Change != nil:
		return ChangeRow
	}
	panic(fmt.Sprintf("ledger: row %d is neither an event nor an entry nor a change", r.Seq))
}

// Types of rows that are no changes, as those see them who follow a ledger.
const (
	UsageRecorded = "usage.recorded"
	EntryRecorded = "entry.recorded"
)

// Type is the type of a row as those see it who follow a ledger. A change has the type of its audit event.
func (r *Row) Type() string {
	switch r.Kind() {
	case EventRow:
		return UsageRecorded
	case EntryRow:
		return EntryRecorded
	}
	return r.Change.Type
}

// Entity is the entity that a change leaves behind. Its state is zero for other rows.
func (r *Row) Entity() entity.Entity {
	if r.Change == nil {
		return entity.Entity{}
	}
	return entity.Entity{State: r.Change.State, Seq: r.Seq, At: r.At}
}

// Clone gives the row memory of its own: its strings may belong to a file's buffer.
func (r *Row) Clone() Row {
	out := *r
	out.By = strings.Clone(r.By)
	switch r.Kind() {
	case EventRow:
		out.Event = r.Event.Clone()
	case EntryRow:
		out.Entry = r.Entry.Clone()
	case ChangeRow:
		c := *r.Change
		for _, s := range [...]*string{
			&c.Type, &c.Source, &c.Actor, &c.EntityType, &c.EntityID, &c.Payload, &c.State.Kind, &c.State.ID,
		} {
			*s = strings.Clone(*s)
		}
		c.State.Data = slices.Clone(c.State.Data)
		out.Change = &c
	}
	return out
}

// Section is what one commit added to one tenant: rows with consecutive numbers and one time. When usage rows of it
// were archived and have left, Gone says how many; the tree knows their leaves.
type Section struct {
	First uint64
	At    calendar.Micros
	Rows  []Row
	Gone  int
}

// Count is how many rows the commit added.
func (s *Section) Count() int { return len(s.Rows) + s.Gone }

// Hasher hashes rows into leaves of the tree. It keeps its buffers. The zero value is ready; each goroutine needs its
// own.
type Hasher struct {
	tree    tree.Hasher
	grower  tree.Appender
	buf     []byte
	ends    []int    // of the encodings in buf
	encoded [][]byte // the same
	leaves  []tree.Hash
}

// Leaf is the leaf of a row.
func (h *Hasher) Leaf(keys *tree.Keys, r *Row) tree.Hash {
	h.buf = h.appendCanonical(h.buf[:0], keys, r)
	return h.tree.Leaf(keys, r.Seq, h.buf)
}

func (h *Hasher) appendCanonical(b []byte, keys *tree.Keys, r *Row) []byte {
	var state tree.Hash
	if r.Kind() == ChangeRow && !r.Change.State.IsZero() {
		state = h.tree.BlindState(keys, r.Seq, r.Change.State.Data)
	}
	return AppendCanonical(b, r, state)
}

// rowsAtOnce bounds the rows that are encoded before they are hashed side by side, and with them the buffer.
const rowsAtOnce = 512

// Leaves appends the leaves of rows.
func (h *Hasher) Leaves(keys *tree.Keys, rows []Row, into []tree.Hash) []tree.Hash {
	for len(rows) > 0 {
		n := 1
		for n < min(len(rows), rowsAtOnce) && rows[n].Seq == rows[n-1].Seq+1 {
			n++
		}
		h.buf, h.ends, h.encoded = h.buf[:0], h.ends[:0], h.encoded[:0]
		for i := range rows[:n] {
			h.buf = h.appendCanonical(h.buf, keys, &rows[i])
			h.ends = append(h.ends, len(h.buf))
		}
		begin := 0
		for _, end := range h.ends { // the buffer does not move any more
			h.encoded = append(h.encoded, h.buf[begin:end])
			begin = end
		}
		into = append(into, make([]tree.Hash, n)...)
		h.tree.Leaves(keys, rows[0].Seq, h.encoded, into[len(into)-n:])
		rows = rows[n:]
	}
	return into
}

// Grow is the tree with the next rows, and appends the tiles that they complete to tiles.
func (h *Hasher) Grow(t tree.Tree, keys *tree.Keys, rows []Row, tiles []tree.Tile) (tree.Tree, []tree.Tile) {
	h.leaves = h.Leaves(keys, rows, h.leaves[:0])
	h.grower.Reset(t)
	tiles = h.grower.Append(h.leaves, tiles)
	return h.grower.Tree(), tiles
}

// Check gives a section to a check of the tree: leaves of the rows that are there, and gaps where others have left.
func (h *Hasher) Check(c *tree.Check, keys *tree.Keys, s *Section) error {
	next, end := s.First, s.First+uint64(s.Count())
	if s.Gone == 0 {
		h.leaves = h.Leaves(keys, s.Rows, h.leaves[:0])
		for i := range h.leaves {
			if err := c.Add(h.leaves[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		if r.Seq < next || r.Seq >= end {
			return fmt.Errorf("row %d does not belong into the section from row %d to %d", r.Seq, s.First, end-1)
		}
		if err := c.Gone(int(r.Seq - next)); err != nil {
			return err
		}
		if err := c.Add(h.Leaf(keys, r)); err != nil {
			return err
		}
		next = r.Seq + 1
	}
	return c.Gone(int(end - next))
}
