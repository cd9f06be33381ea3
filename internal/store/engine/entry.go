package engine

import (
	"encoding/binary"
	"math"

	"github.com/tallystick/tallystick/internal/store/engine/slab"
)

// entry is a counter in memory, as bytes:
//
//	what the slab keeps (3), flags (1), tag (4), series (4), open cell (4), epoch (4), when it was last used (2),
//	lengths of customer and value (2 each), the section before the last (8), customer, value, and space to grow
//
// The value is what the state keeps. It is that of the open cell's counter when it was opened, while there is one.
type entry []byte

const (
	fieldFlags    = slab.Head
	fieldTag      = 4
	fieldSeries   = 8
	fieldOpen     = 12
	fieldEpoch    = 16
	fieldSeen     = 20
	fieldCustomer = 22
	fieldValue    = 24
	fieldPrev     = 26
	headBytes     = 34

	// growthBytes is what a value may grow by before it needs another block.
	growthBytes = 10

	// maxValue is how long a value in an entry may be. A longer one is wide.
	maxValue = math.MaxUint16

	flagKept = 1 << 0 // the checkpoint under way saves what kept has of it
	flagWide = 1 << 1 // the value is in wide, since it has grown beyond the entry
)

// entrySize is how long the entry of a customer's name and a value of so many bytes is.
func entrySize(customer, value int) int {
	return headBytes + customer + min(value, maxValue) + growthBytes
}

func (e entry) u32(at int) uint32      { return binary.LittleEndian.Uint32(e[at:]) }
func (e entry) set32(at int, v uint32) { binary.LittleEndian.PutUint32(e[at:], v) }
func (e entry) u16(at int) uint16      { return binary.LittleEndian.Uint16(e[at:]) }
func (e entry) set16(at int, v uint16) { binary.LittleEndian.PutUint16(e[at:], v) }
func (e entry) has(flag byte) bool     { return e[fieldFlags]&flag != 0 }
func (e entry) prev() uint64           { return binary.LittleEndian.Uint64(e[fieldPrev:]) }
func (e entry) setPrev(v uint64)       { binary.LittleEndian.PutUint64(e[fieldPrev:], v) }
func (e entry) customer() []byte       { return e[headBytes : headBytes+int(e.u16(fieldCustomer))] }
func (e entry) room() []byte           { return e[headBytes+int(e.u16(fieldCustomer)):] }
func (e entry) value() []byte          { return e.room()[:e.u16(fieldValue)] }
