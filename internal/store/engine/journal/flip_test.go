package journal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// flipRecords records of flipPayload bytes fill one segment of flipSize and begin a second.
	flipRecords = 5
	flipPayload = 900
	flipSize    = minSegmentBytes
)

// Given a journal closed cleanly, when any one bit of any file flips, then the start says so. The one exception is the
// zeros after the last record: a bit there cannot be distinguished from what is left of a torn record, no record is
// lost to it, and the start makes it zero again.
func TestEveryFlippedBitIsFound(t *testing.T) {
	fs := vfs.NewMem()
	j, err := recoverFlipped(fs, Position{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range flipRecords {
		if _, _, err := j.Append(payloadOf(i, flipPayload)); err != nil {
			t.Fatal(err)
		}
		if err := j.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	settled(j)
	end := j.End()
	mustClose(t, j)
	names, err := fs.List(testDir)
	if err != nil || end.Segment != 2 || len(names) != 3 {
		t.Fatalf("want a sealed, a current and a prepared segment, got %v %v", names, err)
	}
	flips := 0
	for number := uint32(1); number <= 3; number++ {
		b := file(t, fs, number)
		before := slices.Clone(b)
		for bit := 0; bit < len(b)*8; bit += stride(b, bit) {
			flips++
			b[bit/8] ^= 1 << (bit % 8)
			at := Position{Segment: number, Offset: uint32(bit / 8)}
			fixed, err := findFlip(fs, end, at)
			if err != nil {
				t.Fatalf("bit %d of the byte at %s: %v", bit%8, at, err)
			}
			if !fixed {
				b[bit/8] ^= 1 << (bit % 8)
			}
		}
		if !bytes.Equal(before, file(t, fs, number)) {
			t.Fatalf("segment %d is not what it was", number)
		}
	}
	t.Logf("%d flips", flips)
	j, err = recoverFlipped(fs, end, flipRecords)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
}

// stride is 1 within what was written. Inside a run of zeros, which are all checked the same way, a step that is
// coprime to the bits of a byte gives every bit its turn.
func stride(b []byte, bit int) int {
	const step = 37
	from, to := max(0, bit/8-HeaderSize), min(len(b), (bit+step)/8+1)
	if nonzero(b[from:to]) == to-from {
		return step
	}
	return 1
}

// findFlip recovers the journal with a bit flipped at the position, and reports whether that undid the flip.
func findFlip(fs vfs.FS, end, flipped Position) (fixed bool, err error) {
	j, err := recoverFlipped(fs, end, flipRecords)
	if flipped.Segment == end.Segment && flipped.Offset >= end.Offset {
		if err != nil {
			return false, err
		}
		return true, j.Close()
	}
	if d := (*Damage)(nil); !errors.As(err, &d) {
		return false, fmt.Errorf("got %v, want damage", err)
	}
	return false, nil
}

func recoverFlipped(fs vfs.FS, floor Position, want int) (*Journal, error) {
	o := testOptions(fs)
	o.SegmentBytes = flipSize
	j, err := Open(o)
	if err != nil {
		return nil, err
	}
	count := 0
	err = j.Recover(Position{}, floor, func(_, _ Position, got []byte) error {
		if !bytes.Equal(got, flipPayloads[count]) {
			return fmt.Errorf("record %d is not the one appended", count)
		}
		count++
		return nil
	})
	if err == nil && count != want {
		err = fmt.Errorf("recovered %d records, want %d", count, want)
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

var flipPayloads = func() (all [flipRecords][]byte) {
	for i := range all {
		all[i] = payloadOf(i, flipPayload)
	}
	return all
}()
