package journal

import (
	"cmp"
	"fmt"
)

// Position is a place in the journal: where a record starts, or where the next one will. The zero Position is before
// everything. Positions order as their records were appended.
type Position struct {
	Segment uint32
	Offset  uint32
}

// Compare is -1, 0 or 1 as p lies before, at or after q.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Segment, q.Segment), cmp.Compare(p.Offset, q.Offset))
}

// Less reports whether p lies before q.
func (p Position) Less(q Position) bool { return p.Compare(q) < 0 }

// String is "segment:offset".
func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Segment, p.Offset) }
