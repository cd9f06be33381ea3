package engine

import (
	"encoding/binary"

	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/store/engine/wire"
)

// kept is what a section keeps of the tree for rows that have left, so that the tree can be computed again from the
// journal alone. A tile that has left whole keeps its hash, in the section that held its last row. Of other tiles the
// section keeps the leaf of each of its rows that has left.
type kept struct {
	whole  []byte // a bit for each tile that has a row in the section, the lowest first: it has left whole
	tiles  []byte // hashes of those whose last row is in the section
	leaves []byte // of rows that have left other tiles
}

// newKept has room for the tiles of a section.
func newKept(first, rows uint64) kept {
	return kept{whole: make([]byte, (tilesOf(first, rows)+7)/8)}
}

// tilesOf is how many tiles have rows in a section.
func tilesOf(first, rows uint64) uint64 { return tileOf(first+rows-1) - tileOf(first) + 1 }

func (k *kept) isWhole(i uint64) bool {
	return i/8 < uint64(len(k.whole)) && k.whole[i/8]&(1<<(i%8)) != 0
}

func (k *kept) setWhole(i uint64) { k.whole[i/8] |= 1 << (i % 8) }

func (k *kept) append(b []byte) []byte {
	b = append(append(b, k.whole...), k.tiles...)
	b = binary.AppendUvarint(b, uint64(len(k.leaves)/tree.HashSize))
	return append(b, k.leaves...)
}

// readKept reads what append wrote. How many bits and tiles there are follows from the section's rows.
func readKept(r *wire.Reader, first, rows uint64) (k kept) {
	if r.Bad || first == 0 || rows == 0 || rows > tree.MaxSize || first > tree.MaxSize {
		r.Bad = true
		return k
	}
	n := tilesOf(first, rows)
	k.whole = r.Take((n + 7) / 8)
	for i := n; i < uint64(len(k.whole))*8; i++ {
		r.Bad = r.Bad || k.isWhole(i)
	}
	ended := uint64(0)
	for i := range n {
		if k.isWhole(i) && (tileOf(first)+i+1)*tree.TileRows < first+rows {
			ended++
		}
	}
	k.tiles = r.Take(ended * tree.HashSize)
	leaves := r.Uvarint()
	if leaves > rows {
		r.Bad = true
		return k
	}
	k.leaves = r.Take(leaves * tree.HashSize)
	return k
}

// isWhole reports whether the tile of a row has left whole.
func (s *section) isWhole(seq uint64) bool { return s.kept.isWhole(tileOf(seq) - tileOf(s.first)) }

// tileHash is the hash of a tile that has left whole and whose last row was in the section.
func (s *section) tileHash(index uint64) (hash tree.Hash, ok bool) {
	if index < tileOf(s.first) || !s.kept.isWhole(index-tileOf(s.first)) {
		return hash, false
	}
	at := 0
	for i := range index - tileOf(s.first) {
		if s.kept.isWhole(i) {
			at += tree.HashSize
		}
	}
	if at >= len(s.kept.tiles) {
		return hash, false
	}
	return tree.Hash(s.kept.tiles[at:]), true
}

// eachLeaf calls fn for every row that the section had. The leaves of those that are there are given; nil is that of a
// row that left with its whole tile.
func (s *section) eachLeaf(own []tree.Hash, fn func(seq uint64, leaf *tree.Hash) error) error {
	row, leaves := 0, s.kept.leaves
	for seq := s.first; seq < s.first+uint64(s.count()); seq++ {
		var leaf *tree.Hash
		switch {
		case row < len(s.rows) && s.rows[row].Seq == seq:
			leaf = &own[row]
			row++
		case !s.isWhole(seq):
			leaf = (*tree.Hash)(leaves)
			leaves = leaves[tree.HashSize:]
		}
		if err := fn(seq, leaf); err != nil {
			return err
		}
	}
	return nil
}

// checkKept refuses a section that does not keep exactly what eachLeaf needs.
func (s *section) checkKept() error {
	if s.had == 0 {
		return nil
	}
	gone, next := 0, s.first
	count := func(before uint64) {
		for ; next < before; next++ {
			if !s.isWhole(next) {
				gone++
			}
		}
	}
	for i := range s.rows {
		seq := s.rows[i].Seq
		if s.isWhole(seq) {
			return errRecord
		}
		count(seq)
		next = seq + 1
	}
	count(s.first + uint64(s.had))
	if gone*tree.HashSize != len(s.kept.leaves) {
		return errRecord
	}
	return nil
}

// between are the rows of the section from one number to another: those from the first index up to the second.
func (s *section) between(first, last uint64) (from, to int) {
	for from < len(s.rows) && s.rows[from].Seq < first {
		from++
	}
	for to = from; to < len(s.rows) && s.rows[to].Seq <= last; to++ {
	}
	return from, to
}
