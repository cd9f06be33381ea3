package keyindex

import (
	"encoding/binary"
	"math/bits"
)

const (
	// filterBitsPerKey: 10 bits make about 11 false alarms in 1000 questions, each a
	// block read of some two microseconds. Only the keys that a sketch admits ask: known
	// ones and one new key in forty, which ask ten runs. That is 6 ns for every
	// new key, and 12 bits would save 4 of them for 25 MB at 100 M keys.
	filterBitsPerKey = 10
	filterBlockBytes = 64
	filterBlockBits  = 8 * filterBlockBytes
)

// filter is a blocked Bloom filter: a key owns one cache line and sets one bit in
// each of its eight words. The line is chosen by the position of the key in the
// range of its run, so that a run written in order fills its filter in order, and
// the bits by Lo, which that position says nothing about.
type filter [][8]uint64

// emptyFilter answers no to everything: it stands where a partition has no run, so
// that probing needs no branch for it.
var emptyFilter = make(filter, 1)

func filterBlocks(keys int64) int64 {
	return max(1, (keys*filterBitsPerKey+filterBlockBits-1)/filterBlockBits)
}

func (f filter) add(pos, lo uint64) {
	b, _ := bits.Mul64(pos, uint64(len(f)))
	w := &f[b]
	w[0] |= 1 << (lo & 63)
	w[1] |= 1 << (lo >> 6 & 63)
	w[2] |= 1 << (lo >> 12 & 63)
	w[3] |= 1 << (lo >> 18 & 63)
	w[4] |= 1 << (lo >> 24 & 63)
	w[5] |= 1 << (lo >> 30 & 63)
	w[6] |= 1 << (lo >> 36 & 63)
	w[7] |= 1 << (lo >> 42 & 63)
}

// admits is 1 if the key may be in the run and 0 if it is not.
func (f filter) admits(pos, lo uint64) uint64 {
	b, _ := bits.Mul64(pos, uint64(len(f)))
	w := &f[b]
	return w[0] >> (lo & 63) &
		(w[1] >> (lo >> 6 & 63)) &
		(w[2] >> (lo >> 12 & 63)) &
		(w[3] >> (lo >> 18 & 63)) &
		(w[4] >> (lo >> 24 & 63)) &
		(w[5] >> (lo >> 30 & 63)) &
		(w[6] >> (lo >> 36 & 63)) &
		(w[7] >> (lo >> 42 & 63)) & 1
}

func (f filter) encode(dst []byte) {
	for i := range f {
		for j, w := range f[i] {
			binary.LittleEndian.PutUint64(dst[i*filterBlockBytes+j*8:], w)
		}
	}
}

func decodeFilter(src []byte) filter {
	f := make(filter, len(src)/filterBlockBytes)
	for i := range f {
		for j := range f[i] {
			f[i][j] = binary.LittleEndian.Uint64(src[i*filterBlockBytes+j*8:])
		}
	}
	return f
}
