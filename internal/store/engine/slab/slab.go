// Package slab keeps many small blocks of bytes in mapped memory, without a pointer between them: what the collector
// neither marks nor counts. It owns that memory. It knows how long a block is and whether it is in use, and nothing of
// what is in it.
package slab

import (
	"encoding/binary"
	"runtime"
	"syscall"
)

// A block begins with its length in units and a byte that is 1 while it is in use; the rest of it is its owner's.
// Blocks follow one another in chunks, so that all of them can be walked over. A block that was freed is used again for
// one that is as long, or little shorter. It is never joined with another: the entries that are kept here differ
// little in length.
//
// Chunks are mapped, not allocated: in the collector's heap each byte of them would make it let another byte of garbage
// gather. They are large, so that the system may back them with large pages, which are found faster.
const (
	Unit       = 16
	Head       = 3 // bytes of a block that are not its owner's
	unitBits   = 17
	chunkUnits = 1 << unitBits
	chunkBytes = chunkUnits * Unit
	hugePages  = 14 // MADV_HUGEPAGE of Linux
	nearly     = 4  // units that a block may be longer than it has to be

	// MaxBytes is how long a block may be.
	MaxBytes = 1<<16*Unit - Unit
)

// Ref names a block. It is never 0.
type Ref uint32

// Slab is not safe for use by several goroutines at once, unless all of them only read.
type Slab struct {
	chunks [][]byte
	top    int              // units in use of the last chunk
	free   map[uint16][]Ref // by length
	used   int              // bytes of blocks in use
}

// New makes an empty slab.
func New() *Slab { return &Slab{top: chunkUnits, free: map[uint16][]Ref{}} }

// Used is how many bytes the blocks take that are in use.
func (s *Slab) Used() int { return s.used }

// Held is how many bytes of memory there are for blocks.
func (s *Slab) Held() int { return len(s.chunks) * chunkBytes }

// Bytes is a block.
func (s *Slab) Bytes(r Ref) []byte {
	b := s.chunks[r>>unitBits][int(r&(chunkUnits-1))*Unit:]
	return b[:int(binary.LittleEndian.Uint16(b))*Unit]
}

// Take returns a block of so many bytes at least. What is in it is of no meaning.
func (s *Slab) Take(size int) Ref {
	units := uint16((size + Unit - 1) / Unit)
	for n := units; n < units+nearly; n++ {
		if of := s.free[n]; len(of) > 0 {
			r := of[len(of)-1]
			s.free[n] = of[:len(of)-1]
			return s.use(r)
		}
	}
	if s.top+int(units) > chunkUnits {
		s.add()
	}
	r := Ref((len(s.chunks)-1)<<unitBits | s.top)
	s.top += int(units)
	s.length(r, units)
	return s.use(r)
}

func (s *Slab) length(r Ref, units uint16) {
	binary.LittleEndian.PutUint16(s.chunks[r>>unitBits][int(r&(chunkUnits-1))*Unit:], units)
}

func (s *Slab) use(r Ref) Ref {
	b := s.Bytes(r)
	b[2] = 1
	s.used += len(b)
	return r
}

// Free gives a block back.
func (s *Slab) Free(r Ref) {
	b := s.Bytes(r)
	b[2] = 0
	s.used -= len(b)
	units := uint16(len(b) / Unit)
	s.free[units] = append(s.free[units], r)
}

// add maps another chunk. What is left of the last one becomes free blocks.
func (s *Slab) add() {
	for s.top < chunkUnits {
		units := min(chunkUnits-s.top, 1<<16-1)
		r := Ref((len(s.chunks)-1)<<unitBits | s.top)
		s.length(r, uint16(units))
		s.free[uint16(units)] = append(s.free[uint16(units)], r)
		s.top += units
	}
	s.chunks = append(s.chunks, s.chunk())
	s.top = 0
	if len(s.chunks) == 1 {
		s.top = 1 // no block is 0
	}
}

// chunk maps memory, which goes back when the slab is no longer in use. Where none can be mapped it is allocated.
func (s *Slab) chunk() []byte {
	b, err := syscall.Mmap(-1, 0, chunkBytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return make([]byte, chunkBytes)
	}
	_ = syscall.Madvise(b, hugePages) // a hint
	runtime.AddCleanup(s, unmap, b)
	return b
}

// unmap cannot fail for what was mapped.
func unmap(b []byte) { _ = syscall.Munmap(b) }

// Units is how many units there are to walk over.
func (s *Slab) Units() int { return max(0, len(s.chunks)-1)*chunkUnits + s.top }

// Walk returns the block at the hand, which goes around, and moves the hand behind it; used is whether it is in use.
// There is at least one block.
func (s *Slab) Walk(hand *Ref) (r Ref, units int, used bool) {
	if last := Ref((len(s.chunks)-1)<<unitBits | s.top); *hand == 0 || *hand >= last {
		*hand = 1
	}
	r = *hand
	b := s.Bytes(r)
	units = len(b) / Unit
	*hand += Ref(units)
	return r, units, b[2] == 1
}
