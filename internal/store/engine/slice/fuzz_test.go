package slice

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tallystick/tallystick/internal/core/calendar"
)

// Whatever is in a manifest, it is read as what it says, or refused; never more.
func FuzzManifest(f *testing.F) {
	m, err := calendar.ParseMonth("2026-11")
	if err != nil {
		f.Fatal(err)
	}
	whole := manifest{StoreID: [16]byte{1, 2, 3}, Next: 9, Covered: position(40),
		Holes: []Hole{{Month: m, Span: Span{position(5), position(7)}}}, Files: []fileMeta{
			{Number: 3, Month: m, Tier: 1, Span: Span{position(7), position(9)}, Rows: 4, Bytes: 100, Sums: 5,
				Digest: 6},
			{Number: 8, Month: m + 1, Span: Span{position(5), position(40)}, Rows: 4, Bytes: 100},
		}}
	f.Add(whole.encode())
	f.Add((&manifest{}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeManifest("MANIFEST", b)
		var damage *Damage
		var version *VersionError
		if err != nil {
			if !errors.As(err, &damage) && !errors.As(err, &version) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if again := got.encode(); !bytes.Equal(again, b) {
			t.Fatalf("reads back as %x, was %x", again, b)
		}
	})
}

// A manifest that would count a row twice is refused, though its checksum is right.
func TestImpossibleManifests(t *testing.T) {
	m := calendar.MonthOf(0)
	file := func(number uint64, from, to int) fileMeta {
		return fileMeta{Number: number, Month: m, Span: Span{position(from), position(to)}, Rows: 1, Bytes: 1}
	}
	for name, bad := range map[string]manifest{
		"overlapping files": {Next: 9, Covered: position(9), Files: []fileMeta{file(1, 0, 5), file(2, 4, 6)}},
		"a file in a hole": {Next: 9, Covered: position(9), Files: []fileMeta{file(1, 0, 5)},
			Holes: []Hole{{m, Span{position(3), position(4)}}}},
		"one number twice":       {Next: 9, Covered: position(9), Files: []fileMeta{file(1, 0, 5), file(1, 5, 6)}},
		"a number to come":       {Next: 1, Covered: position(9), Files: []fileMeta{file(1, 0, 5)}},
		"beyond what is covered": {Next: 9, Covered: position(4), Files: []fileMeta{file(1, 0, 5)}},
		"an empty span":          {Next: 9, Covered: position(9), Files: []fileMeta{file(1, 5, 5)}},
	} {
		if _, err := decodeManifest("MANIFEST", bad.encode()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
