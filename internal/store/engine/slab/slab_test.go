package slab

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Given any history of taking and freeing blocks, then no block loses a byte, the hand meets every block that is in use
// once in a round, and what is in use is what was taken.
func TestBlocksKeepTheirBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		held := map[Ref][]byte{}
		var hand Ref
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				size := rapid.OneOf(rapid.IntRange(Head, 200), rapid.IntRange(Head, MaxBytes)).Draw(t, "size")
				r := s.Take(size)
				b := s.Bytes(r)
				if _, twice := held[r]; twice || r == 0 || len(b) < size || len(b) >= size+(nearly+1)*Unit {
					t.Fatalf("block %d has %d bytes of %d, and is held already: %t", r, len(b), size, twice)
				}
				fill := byte(len(held) + 1)
				for i := range b[Head:] {
					b[Head+i] = fill
				}
				held[r] = bytes.Clone(b)
			},
			"free": func(t *rapid.T) {
				if len(held) == 0 {
					return
				}
				r := rapid.SampledFrom(slices.Sorted(maps.Keys(held))).Draw(t, "block")
				delete(held, r)
				s.Free(r)
			},
			"walk": func(t *rapid.T) {
				if len(s.chunks) == 0 {
					return
				}
				hand = 0
				met, units := map[Ref]bool{}, 0
				for units < s.Units()-1 {
					r, n, used := s.Walk(&hand)
					units += n
					if _, mine := held[r]; mine != used || met[r] {
						t.Fatalf("block %d is in use: %t, held: %t, met before: %t", r, used, mine, met[r])
					}
					met[r] = true
				}
				for r := range held {
					if !met[r] {
						t.Fatalf("block %d was not met", r)
					}
				}
			},
			"": func(t *rapid.T) {
				used := 0
				for r, want := range held {
					if !bytes.Equal(s.Bytes(r), want) {
						t.Fatalf("block %d has changed", r)
					}
					used += len(want)
				}
				if s.Used() != used || used > s.Held() {
					t.Fatalf("%d bytes in use, want %d of %d", s.Used(), used, s.Held())
				}
			},
		})
	})
}

// Given blocks that are freed and taken again, of lengths that differ a little, then no more memory is needed.
func TestFreedBlocksAreUsedAgain(t *testing.T) {
	s := New()
	var refs []Ref
	for i := range 100_000 {
		refs = append(refs, s.Take(100+i%Unit))
	}
	held := s.Held()
	for range 10 {
		for i, r := range refs {
			s.Free(r)
			refs[i] = s.Take(90 + i%Unit)
		}
	}
	if s.Held() != held {
		t.Errorf("%d bytes of memory, where %d were enough", s.Held(), held)
	}
}
