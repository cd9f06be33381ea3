package tree

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tallystick/tallystick/internal/core/sha256lanes"
)

// Key is a tree key with the row that it is used from. It is secret: whoever has it can test guesses of rows against
// the hashes in proofs. It is not the salt of derived keys, so that it can be replaced from a row on.
type Key struct {
	FromSeq uint64
	Secret  [32]byte
}

// Keys are the keys of one tree, ready for use. They never change, and can be used from several goroutines.
type Keys struct{ ciphers []keyCipher }

type keyCipher struct {
	from  uint64
	block cipher.Block
}

// NewKeys prepares the keys of a tree: the first from row 1 on, each other from a later row than the one before it.
// Preparing a key costs as much as several leaves, so it is done once for a tenant and not for a commit.
func NewKeys(keys []Key) (*Keys, error) {
	if len(keys) == 0 {
		return nil, errors.New("a tree needs a key")
	}
	k := &Keys{ciphers: make([]keyCipher, len(keys))}
	for i := range keys {
		from := keys[i].FromSeq
		switch {
		case i == 0 && from != 1:
			return nil, fmt.Errorf("the first key of a tree is used from row %d, not from row 1", from)
		case i > 0 && from <= keys[i-1].FromSeq:
			return nil, fmt.Errorf("key %d of a tree is used from row %d, the one before it from row %d",
				i+1, from, keys[i-1].FromSeq)
		}
		block, err := aes.NewCipher(keys[i].Secret[:])
		if err != nil {
			return nil, fmt.Errorf("prepare key %d of a tree: %w", i+1, err)
		}
		k.ciphers[i] = keyCipher{from: from, block: block}
	}
	return k, nil
}

// at is the last key whose first row is not after seq. Most rows are new, and a tree has few keys.
func (k *Keys) at(seq uint64) cipher.Block {
	for i := len(k.ciphers) - 1; i >= 0; i-- {
		if k.ciphers[i].from <= seq {
			return k.ciphers[i].block
		}
	}
	panic("tree: rows are numbered from 1")
}

// secretSize is the length of a nonce and of a blind.
const secretSize = aes.BlockSize

// The first byte of the block that AES turns into a nonce or a blind. The last eight are the row's number.
const (
	nonceBlock = 0x00
	blindBlock = 0x01
)

// headSize is what stands before the content of a leaf or of a state: its prefix, and a nonce or a blind.
const headSize = 1 + secretSize

// Hasher hashes rows into leaves, of any tree. It keeps its buffers. The zero value is ready; each goroutine needs its
// own.
type Hasher struct {
	block [aes.BlockSize]byte
	buf   []byte
	lanes sha256lanes.Hasher
}

// Leaf is the leaf of row seq, given its canonical encoding.
func (h *Hasher) Leaf(keys *Keys, seq uint64, canonical []byte) Hash {
	return h.sum(leafPrefix, nonceBlock, keys, seq, canonical)
}

// Leaves puts the leaves of row firstSeq and those behind it into a slice as long as that of their canonical encodings.
// It hashes them side by side, which takes much less time than Leaf for each on machines with wide registers and
// without instructions for SHA-256.
func (h *Hasher) Leaves(keys *Keys, firstSeq uint64, canonical [][]byte, into []Hash) {
	if len(into) != len(canonical) {
		panic(fmt.Sprintf("tree: %d rows for %d leaves", len(canonical), len(into)))
	}
	for i, row := range canonical {
		seq := firstSeq + uint64(i)
		key := keys.at(seq)
		message := h.lanes.Next(headSize+len(row), (*[HashSize]byte)(&into[i]))
		h.fill(message, leafPrefix, nonceBlock, key, seq, row)
	}
	h.lanes.Flush()
}

// BlindState is what the canonical encoding of row seq, a change, holds in place of its state.
func (h *Hasher) BlindState(keys *Keys, seq uint64, state []byte) Hash {
	return h.sum(statePrefix, blindBlock, keys, seq, state)
}

// sum copies what it hashes into one piece. A digest that is fed in two parts was measured to be no faster.
func (h *Hasher) sum(prefix, use byte, keys *Keys, seq uint64, content []byte) Hash {
	size := headSize + len(content)
	h.buf = slices.Grow(h.buf[:0], size)[:size]
	h.fill(h.buf, prefix, use, keys.at(seq), seq, content)
	return sha256.Sum256(h.buf)
}

// fill writes what is hashed.
func (h *Hasher) fill(message []byte, prefix, use byte, key cipher.Block, seq uint64, content []byte) {
	message[0] = prefix
	h.block[0] = use
	binary.BigEndian.PutUint64(h.block[aes.BlockSize-8:], seq)
	key.Encrypt(message[1:headSize], h.block[:])
	copy(message[headSize:], content)
}
