package wire

import (
	"encoding/binary"
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
)

func TestReaderReadsInOrderAndSharesMemory(t *testing.T) {
	b := binary.AppendVarint(binary.AppendUvarint([]byte{7}, 300), -5)
	b = amount.AppendBinary(b, amount.FromInt(42))
	b = append(b, "tail"...)
	r := Reader{Rest: b}
	if c, u, v, a := r.Byte(), r.Uvarint(), r.Varint(),
		r.Amount(); c != 7 || u != 300 || v != -5 || a != amount.FromInt(42) {
		t.Errorf("read %d, %d, %d, %s", c, u, v, a)
	}
	tail := r.Take(4)
	if string(tail) != "tail" || &tail[0] != &b[len(b)-4] || len(r.Rest) != 0 || r.Bad {
		t.Errorf("took %q, %d left, bad %v", tail, len(r.Rest), r.Bad)
	}
}

// What is cut short is bad, reads as zero and takes nothing away from what follows.
func TestReaderRemembersWhatDoesNotFit(t *testing.T) {
	for name, read := range map[string]func(r *Reader) bool{
		"byte":    func(r *Reader) bool { return r.Byte() == 0 },
		"uvarint": func(r *Reader) bool { return r.Uvarint() == 0 },
		"varint":  func(r *Reader) bool { return r.Varint() == 0 },
		"amount":  func(r *Reader) bool { return r.Amount().IsZero() },
		"take":    func(r *Reader) bool { return r.Take(1) == nil },
	} {
		r := Reader{}
		if !read(&r) || !r.Bad {
			t.Errorf("%s of nothing: bad %v", name, r.Bad)
		}
	}
	r := Reader{Rest: []byte{0x80}} // a number that goes on
	if r.Uvarint() != 0 || !r.Bad || len(r.Rest) != 1 {
		t.Errorf("%+v", r)
	}
	if r = (Reader{Rest: []byte("ab")}); r.Take(1<<63) != nil || !r.Bad || len(r.Rest) != 2 {
		t.Errorf("%+v", r)
	}
}
