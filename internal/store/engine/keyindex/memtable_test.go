package keyindex

import (
	"testing"

	"pgregory.net/rapid"
)

// The memory table is a map whose entries come out sorted, whatever the hashes.
func TestMemTableIsASortedMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := newMemTable(rapid.IntRange(1, 50).Draw(t, "limit"))
		for round := range 2 {
			want := map[Hash]Entry{}
			hash := rapid.Custom(func(t *rapid.T) Hash {
				shift := rapid.SampledFrom([]uint{0, 32, 60, 63}).Draw(t, "shift")
				return Hash{rapid.Uint64().Draw(t, "hi") >> shift << shift, rapid.Uint64().Draw(t, "lo") >> shift}
			})
			for _, h := range rapid.SliceOfDistinct(hash, rapid.ID).Draw(t, "hashes") {
				e := Entry{Hash: h, Check: uint32(len(want)), Seq: uint64(round)}
				table.insert(e)
				want[h] = e
			}
			for h, e := range want {
				if f, ok := table.find(h); !ok || f != (Found{Seq: e.Seq, Check: e.Check, OK: true}) {
					t.Fatalf("%x: %+v %v", h, f, ok)
				}
			}
			if f, ok := table.find(hash.Draw(t, "other")); ok && f.Seq != uint64(round) {
				t.Fatalf("reset left %+v", f)
			}
			checkAscending(t, table, want)
			table.reset()
		}
	})
}

func checkAscending(t *rapid.T, table *memTable, want map[Hash]Entry) {
	var last Hash
	n := 0
	err := table.ascend(func(chunk []Entry) error {
		for _, e := range chunk {
			if n > 0 && !last.less(e.Hash) || want[e.Hash] != e {
				t.Fatalf("entry %d is %+v after %x", n, e, last)
			}
			last = e.Hash
			n++
		}
		return nil
	})
	if err != nil || n != len(want) {
		t.Fatalf("%d entries of %d: %v", n, len(want), err)
	}
}

// Chunks past both sizes of sortChunkEntries: uniform hashes, and one long cluster.
func TestAscendManyEntries(t *testing.T) {
	for name, hash := range map[string]func(uint64) Hash{
		"uniform": hashOf,
		"cluster": func(i uint64) Hash { return Hash{Hi: mix(i) >> 20, Lo: i} },
	} {
		const n = 3 * sortNearly
		table := newMemTable(n)
		for i := range uint64(n) {
			table.insert(Entry{Hash: hash(i), Seq: i})
		}
		var last Hash
		seen := 0
		_ = table.ascend(func(chunk []Entry) error {
			for _, e := range chunk {
				if seen > 0 && !last.less(e.Hash) {
					t.Fatalf("%s: entry %d out of order", name, seen)
				}
				last = e.Hash
				seen++
			}
			return nil
		})
		if seen != n {
			t.Fatalf("%s: %d of %d entries", name, seen, n)
		}
	}
}

// A filter never denies a key it was given, and wrongly affirms about 11 in 1000.
func TestFilterRates(t *testing.T) {
	const n = 100_000
	f := make(filter, filterBlocks(n))
	for i := range uint64(n) {
		h := hashOf(i)
		f.add(h.Hi, h.Lo)
	}
	wrong := 0
	for i := range uint64(n) {
		if h := hashOf(i); f.admits(h.Hi, h.Lo) == 0 {
			t.Fatalf("key %d denied", i)
		}
		if h := hashOf(n + i); f.admits(h.Hi, h.Lo) == 1 {
			wrong++
		}
	}
	if wrong > n/60 {
		t.Fatalf("%d of %d absent keys pass the filter", wrong, n)
	}
}
