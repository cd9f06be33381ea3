package usage

import (
	"crypto/sha256"
	"encoding/binary"
)

// memberTable is a set of members of cells.
//
// A name is kept as 128 bits of its SHA-256, so that long names take no more memory than short ones: that distinguishes
// 10^7 names apart in all but one of 10^24 sets. The hash is its own place in the table, which is what makes it several
// times faster than a map, and a third of its size.
type memberTable struct {
	slots []memberSlot // a power of two of them, at most three quarters taken
	n     int
}

type memberSlot struct {
	hash [2]uint64
	cell uint32 // one up; zero: free
}

const minSlots = 1 << 8

// add puts a member in and reports whether it is new.
func (t *memberTable) add(cell uint32, name string) bool {
	if 4*t.n >= 3*len(t.slots) {
		t.grow()
	}
	sum := sha256.Sum256([]byte(name))
	s := memberSlot{[2]uint64{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}, cell + 1}
	if !t.put(s) {
		return false
	}
	t.n++
	return true
}

func (t *memberTable) put(s memberSlot) bool {
	mask := uint64(len(t.slots) - 1)
	// One name may be in every cell: the cell must spread it.
	for i := s.hash[0] + uint64(s.cell)*0x9e3779b97f4a7c15; ; i++ {
		switch slot := &t.slots[i&mask]; *slot {
		case memberSlot{}:
			*slot = s
			return true
		case s:
			return false
		}
	}
}

func (t *memberTable) grow() {
	old := t.slots
	t.slots = make([]memberSlot, max(minSlots, 2*len(old)))
	for _, s := range old {
		if s.cell != 0 {
			t.put(s)
		}
	}
}
