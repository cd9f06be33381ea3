// Package sha256lanes hashes many independent messages with SHA-256 at once: where the processor has no instructions
// for SHA-256 but wide registers, 8 or 16 messages side by side, one in each lane of a register. It is for the leaves
// of a tree and for the nodes of one level. What it returns is what crypto/sha256 returns, which it uses everywhere
// else: for few messages, for long ones, and on other machines.
//
// Decision 0053 says why it exists beside the standard library, and what it gains.
package sha256lanes

import (
	"crypto/sha256"
	"encoding/binary"
)

// Size is the length of a hash.
const Size = sha256.Size

const (
	blockSize = sha256.BlockSize
	maxLanes  = 16

	// maxBlocks is the length of messages that are hashed side by side, padding included: 1 KiB. Messages of one length
	// share a buffer, so the buffers of all lengths take at most 136 KiB.
	maxBlocks = 16

	// Behind a message stand one byte and its length in bits.
	markSize   = 1
	lengthSize = 8
)

// Hasher hashes messages as they come. It keeps its buffers and allocates when it first meets a length. The zero value
// is ready; each goroutine needs its own.
type Hasher struct {
	kernel Kernel
	long   batch                // of messages with more blocks than maxBlocks, one at a time
	by     [maxBlocks + 1]batch // by the number of blocks
	hashes [maxLanes][Size]byte
}

// batch is messages of one number of blocks that wait until there is one for each lane.
type batch struct {
	padded []byte // the messages, each in whole blocks
	sizes  [maxLanes]int
	into   [maxLanes]*[Size]byte
	count  int
}

// New returns a Hasher that uses a certain kernel. It must be one of Kernels.
func New(kernel Kernel) *Hasher { return &Hasher{kernel: kernel} }

// Next begins a message of size bytes. The caller writes it to the slice that is returned, before it calls the Hasher
// again. Its hash is in into after the next Flush, or earlier.
func (h *Hasher) Next(size int, into *[Size]byte) []byte {
	if h.kernel == fastest {
		h.kernel = best
	}
	blocks := (size + markSize + lengthSize + blockSize - 1) / blockSize
	b, lanes := &h.long, 1
	if blocks <= maxBlocks {
		b, lanes = &h.by[blocks], h.kernel.lanes()
	}
	if b.count == lanes {
		h.run(b, blocks)
	}
	length := blocks * blockSize
	if len(b.padded) < lanes*length {
		b.padded, b.sizes = make([]byte, lanes*length), [maxLanes]int{}
	}
	message := b.padded[b.count*length:][:length]
	// Where a message of this size was before, the same stands behind it already. The size 0 may be that of none.
	if size != b.sizes[b.count] || size == 0 {
		pad(message, size)
	}
	b.sizes[b.count], b.into[b.count] = size, into
	b.count++
	return message[:size:size]
}

// pad writes what stands behind the first size bytes of a padded message.
func pad(message []byte, size int) {
	message[size] = 0x80
	length := message[len(message)-lengthSize:]
	clear(message[size+markSize : len(message)-lengthSize])
	binary.BigEndian.PutUint64(length, uint64(size)*8)
}

// Flush hashes what waits. It must follow the last message before any hash is used.
func (h *Hasher) Flush() {
	for blocks := range h.by {
		if h.by[blocks].count > 0 {
			h.run(&h.by[blocks], blocks)
		}
	}
	if h.long.count > 0 {
		h.run(&h.long, 0)
	}
}

// run hashes what waits in a batch, and empties it.
func (h *Hasher) run(b *batch, blocks int) {
	if b.count >= h.kernel.fewest() {
		h.kernel.sum(&h.hashes, b.padded, blocks)
		for i := range b.count {
			*b.into[i] = h.hashes[i]
		}
	} else {
		for i := range b.count {
			*b.into[i] = sha256.Sum256(b.padded[i*blocks*blockSize:][:b.sizes[i]])
		}
	}
	clear(b.into[:b.count])
	b.count = 0
}
