package tree

import (
	"bytes"
	"crypto/aes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func sha256Of(parts ...[]byte) [sha256.Size]byte { return sha256.Sum256(bytes.Join(parts, nil)) }

// encrypted is AES-256 of a block that begins with use and ends with seq.
func encrypted(t interface{ Fatal(...any) }, key [32]byte, use byte, seq uint64) []byte {
	cipher, err := aes.NewCipher(key[:])
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, 16)
	cipher.Encrypt(out, binary.BigEndian.AppendUint64([]byte{use, 0, 0, 0, 0, 0, 0, 0}, seq))
	return out
}

func mustKeys(t interface{ Fatal(...any) }, keys ...Key) *Keys {
	k, err := NewKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestLeavesAndStatesAreThoseOfTheDefinition(t *testing.T) {
	seqs := rapid.OneOf(rapid.Uint64Range(1, 20), rapid.Uint64Range(1, MaxSize))
	rapid.Check(t, func(t *rapid.T) {
		froms := rapid.SliceOfNDistinct(seqs, 0, 4, rapid.ID).Draw(t, "from")
		froms = slices.DeleteFunc(froms, func(from uint64) bool { return from == 1 })
		slices.Sort(froms)
		keys := []Key{{FromSeq: 1, Secret: [32]byte{1}}}
		for i, from := range froms {
			keys = append(keys, Key{FromSeq: from, Secret: [32]byte{byte(i + 2)}})
		}
		ready := mustKeys(t, keys...)
		var h Hasher
		// The rows at which keys change, their neighbors, and others.
		rows := rapid.SliceOfN(seqs, 1, 5).Draw(t, "rows")
		for _, from := range froms {
			rows = append(rows, from-1, from, from+1)
		}
		for _, seq := range rows {
			content := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "content")
			inUse := keys[0]
			for _, key := range keys {
				if key.FromSeq <= seq {
					inUse = key
				}
			}
			nonce, blind := encrypted(t, inUse.Secret, 0, seq), encrypted(t, inUse.Secret, 1, seq)
			if bytes.Equal(nonce, blind) {
				t.Fatalf("nonce and blind of row %d are equal", seq)
			}
			if got := h.Leaf(ready, seq, content); got != Hash(sha256Of([]byte{0}, nonce, content)) {
				t.Fatalf("leaf of row %d with keys from %v", seq, froms)
			}
			if got := h.BlindState(ready, seq, content); got != Hash(sha256Of([]byte{2}, blind, content)) {
				t.Fatalf("blinded state of row %d with keys from %v", seq, froms)
			}
		}
	})
}

func TestNoncesAndBlindsAreAllDifferent(t *testing.T) {
	keys := mustKeys(t, Key{FromSeq: 1, Secret: [32]byte{7}})
	var h Hasher
	seen := map[string]string{}
	note := func(what string) {
		secret := string(h.buf[1 : 1+secretSize])
		if other, ok := seen[secret]; ok {
			t.Fatalf("%s has the secret of %s", what, other)
		}
		seen[secret] = what
	}
	for i := range uint64(3000) {
		for _, seq := range []uint64{i + 1, MaxSize - i} {
			h.Leaf(keys, seq, nil)
			note(fmt.Sprintf("the leaf of row %d", seq))
			h.BlindState(keys, seq, nil)
			note(fmt.Sprintf("the state of row %d", seq))
		}
	}
}

// What is expected here was computed without this package, with openssl (AES) and Python (SHA-256). A
// build that fails this test cannot verify the ledgers that exist.
func TestTheFormatStays(t *testing.T) {
	var first, second Key
	first.FromSeq, second.FromSeq = 1, 3
	for i := range 32 {
		first.Secret[i], second.Secret[i] = byte(i), byte(0xff-i)
	}
	keys := mustKeys(t, first, second)
	var h Hasher
	var leaves []Hash
	for i := range 5 {
		leaf := h.Leaf(keys, uint64(i+1), fmt.Appendf(nil, "row %d", i+1))
		if got := hex.EncodeToString(leaf[:]); got != goldenLeaves[i] {
			t.Errorf("leaf of row %d is %s", i+1, got)
		}
		leaves = append(leaves, leaf)
	}
	for i, want := range goldenStates {
		state := h.BlindState(keys, uint64(i+2), []byte(`{"v":1}`))
		if got := hex.EncodeToString(state[:]); got != want {
			t.Errorf("blinded state of row %d is %s", i+2, got)
		}
	}
	var a Appender
	for n := range len(leaves) + 1 {
		root := a.Tree().Root()
		if got := hex.EncodeToString(root[:]); got != goldenRoots[n] {
			t.Errorf("root of %d rows is %s", n, got)
		}
		if n < len(leaves) {
			a.Append(leaves[n:n+1], nil)
		}
	}
	if got := hex.EncodeToString(AppendBinary(nil, a.Tree())); got != goldenBinary {
		t.Errorf("the encoding is %s", got)
	}
}

func TestKeysAreChecked(t *testing.T) {
	for name, keys := range map[string][]Key{
		"no key":                  {},
		"no key for row 1":        {{FromSeq: 2}},
		"a key before row 1":      {{FromSeq: 0}},
		"two keys from one row":   {{FromSeq: 1}, {FromSeq: 5}, {FromSeq: 5}},
		"keys in the wrong order": {{FromSeq: 1}, {FromSeq: 5}, {FromSeq: 4}},
	} {
		if _, err := NewKeys(keys); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	keys := mustKeys(t, Key{FromSeq: 1})
	mustPanic(t, "a row 0", func() { new(Hasher).Leaf(keys, 0, nil) })
}

// Leaves are independent of one another: two goroutines with a hasher each share the keys.
func TestLeavesCanBeHashedSideBySide(t *testing.T) {
	keys := mustKeys(t, Key{FromSeq: 1, Secret: [32]byte{1}}, Key{FromSeq: 300, Secret: [32]byte{2}})
	row := []byte("a row")
	hash := func(leaves []Hash, first int) {
		var h Hasher
		for i := range leaves {
			leaves[i] = h.Leaf(keys, uint64(first+i), row)
		}
	}
	want, got := make([]Hash, 600), make([]Hash, 600)
	hash(want, 1)
	var both sync.WaitGroup
	both.Go(func() { hash(got[:250], 1) })
	both.Go(func() { hash(got[250:], 251) })
	both.Wait()
	if !slices.Equal(got, want) {
		t.Fatal("leaves that were hashed side by side are others")
	}
}

func TestAppendingDoesNotAllocate(t *testing.T) {
	keys := mustKeys(t, Key{FromSeq: 1}, Key{FromSeq: 100})
	row, leaves, tiles := make([]byte, 180), someLeaves(1000), make([]Tile, 0, 8)
	rows := slices.Repeat([][]byte{row[:100], row}, 100)
	tree, _ := grow(leaves)
	var h Hasher
	var a Appender
	var root Hash
	h.Leaf(keys, 1, row)
	for name, do := range map[string]func(){
		"hashing a row":     func() { leaves[0] = h.Leaf(keys, 150, row) },
		"hashing many rows": func() { h.Leaves(keys, 50, rows, leaves[:len(rows)]) },
		"blinding a state":  func() { leaves[1] = h.BlindState(keys, 150, row) },
		"appending leaves":  func() { a.Reset(tree); tiles = a.Append(leaves, tiles[:0]) },
		"computing a root":  func() { root = tree.Root() },
		"encoding a tree":   func() { row = AppendBinary(row[:0], tree)[:180] },
		"a perfect subtree": func() { root = Perfect(leaves[:TileRows]) },
	} {
		if n := testing.AllocsPerRun(10, do); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	if root == (Hash{}) || len(tiles) != 4 {
		t.Errorf("the root is %x, and %d tiles were completed", root, len(tiles))
	}
}
