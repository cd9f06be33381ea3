package tree

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

func TestBinaryReadsBack(t *testing.T) {
	leaves := someLeaves(1500)
	rapid.Check(t, func(t *rapid.T) {
		n := sizes.Draw(t, "size")
		tree, _ := grow(leaves[:n])
		b := AppendBinary([]byte("before"), tree)[len("before"):]
		if want := len(binary.AppendUvarint(nil, uint64(n))) + bits.OnesCount(uint(n))*HashSize; len(b) != want {
			t.Fatalf("a tree of %d leaves takes %d bytes, want %d", n, len(b), want)
		}
		got, used, err := ReadBinary(append(bytes.Clone(b), "after"...))
		if err != nil || used != len(b) || got != tree {
			t.Fatalf("read back %d leaves: %d bytes of %d, %v", n, used, len(b), err)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if _, _, err := ReadBinary(b[:cut]); err == nil {
			t.Fatalf("%d bytes of %d were taken for a tree", cut, len(b))
		}
	})
}

func TestBinaryHasOneForm(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":             {},
		"a size cut short":    {0x80},
		"a size with padding": {0x80, 0x00},
		"a padded size of one": append([]byte{0x81, 0x00},
			make([]byte, HashSize)...),
		"a size above the largest": append(binary.AppendUvarint(nil, MaxSize+1),
			make([]byte, HashSize)...),
		"a size above 64 bits": bytes.Repeat([]byte{0xff}, 11),
		"no peak":              {1},
	} {
		if _, _, err := ReadBinary(b); err == nil {
			t.Errorf("%s was taken for a tree", name)
		}
	}
}

func FuzzReadBinary(f *testing.F) {
	leaves := someLeaves(TileRows + 1)
	for _, n := range []int{0, 1, 2, 3, 255, 257} {
		tree, _ := grow(leaves[:n])
		f.Add(AppendBinary(nil, tree))
	}
	f.Add([]byte{0x81, 0x00})
	f.Fuzz(func(t *testing.T, b []byte) {
		tree, n, err := ReadBinary(b)
		if err != nil {
			return
		}
		if again := AppendBinary(nil, tree); !bytes.Equal(again, b[:n]) {
			t.Fatalf("%x was read, and is written %x", b[:n], again)
		}
		tree.Root()
		if tree.Size() == MaxSize {
			return
		}
		var a Appender
		a.Reset(tree)
		a.Append(make([]Hash, 1), nil)
		if a.Tree().Size() != tree.Size()+1 {
			t.Fatalf("one leaf behind %d gives %d", tree.Size(), a.Tree().Size())
		}
	})
}
