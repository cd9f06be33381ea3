package journal

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FuzzSegment puts arbitrary bytes where a segment should be. They are refused, or recovered and written on; nothing
// else. With headed they follow an intact header, so that the fuzzer need not guess its checksum.
func FuzzSegment(f *testing.F) {
	sums := newChecksums(testStore)
	record := append(make([]byte, HeaderSize), "a record"...)
	sums.seal(Position{Segment: 1, Offset: headerBlock}, record)
	second := append(make([]byte, HeaderSize), "another"...)
	sums.seal(Position{Segment: 1, Offset: headerBlock + uint32(len(record))}, second)
	both := append(append([]byte{}, record...), second...)
	f.Add([]byte{}, true)
	f.Add(record, true)
	f.Add(both, true)
	f.Add(both[:len(both)-3], true)
	f.Add(both[:len(record)+5], true)
	header := segmentHeader{version: formatVersion, number: 1, storeID: testStore, size: minSegmentBytes}.encode()
	f.Add(header[:], false)
	f.Fuzz(func(t *testing.T, data []byte, headed bool) {
		b := data
		if headed {
			b = make([]byte, minSegmentBytes)
			copy(b, header[:])
			copy(b[headerBlock:], data)
		}
		fs := vfs.NewMem()
		if err := fs.MkdirAll(testDir, 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, fs, 1, b)

		recovered, err := writeOn(fs)
		if err != nil {
			return
		}
		again, err := writeOn(fs)
		if err != nil || again != recovered+1 {
			t.Fatalf("recovered %d records and wrote one, then recovered %d: %v", recovered, again, err)
		}
	})
}

// writeOn recovers whatever is there, counting it, and appends a record.
func writeOn(fs vfs.FS) (count int, err error) {
	o := testOptions(fs)
	o.SegmentBytes = minSegmentBytes
	j, err := Open(o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := j.Recover(Position{}, Position{},
		func(_, _ Position, _ []byte) error { count++; return nil }); err != nil {
		return 0, err
	}
	if _, _, err := j.Append([]byte("one more")); err != nil {
		return 0, err
	}
	return count, j.Sync()
}

func FuzzSegmentHeader(f *testing.F) {
	good := segmentHeader{version: 3, number: 9, storeID: testStore, size: 1 << 20, previousEnd: 77}.encode()
	f.Add(good[:])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := decodeSegmentHeader(b)
		if !ok {
			return
		}
		if again, ok := func() (segmentHeader, bool) { e := h.encode(); return decodeSegmentHeader(e[:]) }(); !ok ||
			again != h {
			t.Fatalf("%+v became %+v", h, again)
		}
	})
}
