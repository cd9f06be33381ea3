package keyindex

import (
	"encoding/binary"
	"math/bits"
)

const (
	// filterBitsPerKey: 12 bits make about 4 false alarms in 1000 questions, and a
	// false alarm costs a block read of about a microsecond. 10 bits would save
	// 25 MB at 100 M keys and cost 40 ns more for every new key.
	filterBitsPerKey = 12
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

func (f filter) has(pos, lo uint64) bool {
	b, _ := bits.Mul64(pos, uint64(len(f)))
	w := &f[b]
	return w[0]>>(lo&63)&
		(w[1]>>(lo>>6&63))&
		(w[2]>>(lo>>12&63))&
		(w[3]>>(lo>>18&63))&
		(w[4]>>(lo>>24&63))&
		(w[5]>>(lo>>30&63))&
		(w[6]>>(lo>>36&63))&
		(w[7]>>(lo>>42&63))&1 != 0
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
