// Package tree defines the Merkle tree over a tenant's ledger: an RFC 6962 log with SHA-256, in which row seq (from 1)
// is leaf seq - 1. It is pure, and the same on every store: it is defined over the canonical encoding of rows.
//
//	leaf  = SHA-256(0x00 ‖ nonce ‖ canonical row)
//	node  = SHA-256(0x01 ‖ left ‖ right)
//	root  of n leaves: n = 0: SHA-256(""); n = 1: the leaf;
//	      else node(root of the first k leaves, root of the others), k the largest power of two below n
//	state = SHA-256(0x02 ‖ blind ‖ state of a change)
//	nonce = AES-256(tree key, 00 00 00 00 00 00 00 00 ‖ seq)
//	blind = AES-256(tree key, 01 00 00 00 00 00 00 00 ‖ seq), seq in 8 bytes, big-endian
//
// A proof shows hashes of neighboring rows, which may be another customer's. Rows can be guessed: few fields, small
// numbers. So a leaf contains a nonce that only the holder of the tree key can compute, and that is revealed row by
// row. A change's canonical row holds its blinded state instead of the state, so that the change can be proved without
// showing the state. AES is a permutation, so no nonce equals a blind or another nonce of the same key.
//
// A store keeps three things. With the head, the Tree: its size and its peaks, which are the roots of the perfect
// subtrees that the binary digits of the size stand for. For good, the hash of each full Tile of 256, 256², … rows.
// And its rows: what lies inside a tile of 256 is hashed from them again when it is needed. Subtree finds any node of
// the tree in these, and Rebuild the Tree, so they suffice for every inclusion and consistency proof.
package tree

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/bits"
)

// HashSize is the length of every hash of the tree.
const HashSize = sha256.Size

// Hash is the hash of a leaf, of a node, or of a change's state.
type Hash [HashSize]byte

// MaxSize is the largest tree. Databases and proof libraries number rows with signed 64 bits.
const MaxSize = 1<<63 - 1

// maxPeaks is how many binary digits MaxSize has.
const maxPeaks = 63

// The first byte of whatever is hashed says what it is, so that one thing cannot be passed off as another.
const (
	leafPrefix  = 0x00
	nodePrefix  = 0x01
	statePrefix = 0x02
)

// nodeSize is the length of what the hash of a node is computed from.
const nodeSize = 1 + 2*HashSize

func node(left, right *Hash) Hash {
	var b [nodeSize]byte
	fillNode(&b, left, right)
	return sha256.Sum256(b[:])
}

func fillNode(b *[nodeSize]byte, left, right *Hash) {
	b[0] = nodePrefix
	copy(b[1:], left[:])
	copy(b[1+HashSize:], right[:])
}

// Tree is what a ledger's head keeps of its tree: enough to append, and to compute the root. The zero value is the
// empty tree. A Tree is immutable; two are the same tree exactly when they are equal with ==. An Appender makes larger
// ones.
type Tree struct {
	size  uint64
	peaks string // bits.OnesCount64(size) hashes, of the largest subtree first
}

// Size is the number of leaves: the sequence number of the last row.
func (t Tree) Size() uint64 { return t.size }

// Root is the Merkle tree hash of all leaves.
func (t Tree) Root() Hash {
	i := len(t.peaks) / HashSize
	if i == 0 {
		return sha256.Sum256(nil)
	}
	i--
	root := t.peak(i)
	for i > 0 {
		i--
		left := t.peak(i)
		root = node(&left, &root)
	}
	return root
}

// Full is the tree without the rows behind its last full tile of level 1.
func (t Tree) Full() Tree {
	size := t.size &^ (TileRows - 1)
	return Tree{size: size, peaks: t.peaks[:bits.OnesCount64(size)*HashSize]}
}

func (t Tree) peak(i int) (h Hash) {
	copy(h[:], t.peaks[i*HashSize:])
	return h
}

// AppendBinary appends the one encoding of a tree: its size as an unsigned varint, then its peaks, of the largest
// subtree first. How many they are follows from the size, so no encoding is a prefix of another.
func AppendBinary(b []byte, t Tree) []byte {
	b = binary.AppendUvarint(b, t.size)
	return append(b, t.peaks...)
}

var (
	errTruncated    = errors.New("the encoding of a tree is cut short")
	errNotCanonical = errors.New("not the canonical encoding of a tree")
)

// ReadBinary reads the tree that src begins with and returns how many bytes it took. It refuses whatever AppendBinary
// does not write.
func ReadBinary(src []byte) (Tree, int, error) {
	size, n := binary.Uvarint(src)
	switch {
	case n == 0:
		return Tree{}, 0, errTruncated
	case n < 0, n > 1 && src[n-1] == 0, size > MaxSize:
		return Tree{}, 0, errNotCanonical
	}
	end := n + bits.OnesCount64(size)*HashSize
	if end > len(src) {
		return Tree{}, 0, errTruncated
	}
	return Tree{size: size, peaks: string(src[n:end])}, end, nil
}
