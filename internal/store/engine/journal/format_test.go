package journal

import "testing"

// A record is one only where it was written: moved, it is not.
func TestRecordHoldsForItsPlaceAlone(t *testing.T) {
	other := testStore
	other[0]++
	here := Position{Segment: 3, Offset: 5000}
	record := append(make([]byte, HeaderSize), "payload"...)
	newChecksums(testStore).seal(here, record)
	const enough = 1000
	whole := uint32(len(record))
	cases := []struct {
		name  string
		store [16]byte
		at    Position
		room  uint32
		want  bool
	}{
		{"where it was written", testStore, here, enough, true},
		{"just enough room", testStore, here, whole, true},
		{"too little room", testStore, here, whole - 1, false},
		{"no room for a header", testStore, here, HeaderSize - 1, false},
		{"other offset", testStore, Position{3, 5001}, enough, false},
		{"other segment", testStore, Position{4, 5000}, enough, false},
		{"other store", other, here, enough, false},
	}
	for _, c := range cases {
		header, ok := newChecksums(c.store).open(c.at, c.room, record)
		if ok != c.want {
			t.Errorf("%s: %v, want %v", c.name, ok, c.want)
		}
		if ok && !header.matches(record[HeaderSize:]) {
			t.Errorf("%s: the payload does not match", c.name)
		}
	}
}

func TestSegmentNames(t *testing.T) {
	for _, number := range []uint32{1, 2, 4294967295} {
		if got, ok := parseSegmentName(segmentName(number)); !ok || got != number {
			t.Errorf("%d became %d", number, got)
		}
	}
	for _, name := range []string{"", "journal", ".journal", "1.journal", "0000000000.journal", "4294967296.journal",
		"+000000001.journal", "0000000001.journal.tmp"} {
		if _, ok := parseSegmentName(name); ok {
			t.Errorf("%q is taken for a segment", name)
		}
	}
}
