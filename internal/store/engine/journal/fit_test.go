package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fitted is a journal whose last record ends so many bytes before the end of the first segment, behind so many others.
// One that ends after it is the first of the next segment. The last one has tail bytes, or all that are left when that
// is zero.
func fitted(t *testing.T, fs vfs.FS, others, tail, slack int) (payloads [][]byte, starts []Position) {
	t.Helper()
	j := mustOpen(t, fs)
	if err := j.Recover(Position{}, Position{}, nil); err != nil {
		t.Fatal(err)
	}
	for i := range others {
		payloads = append(payloads, payloadOf(i, 8+i))
	}
	room := testSize - headerBlock
	for _, p := range payloads {
		room -= HeaderSize + len(p)
	}
	if tail > 0 {
		room -= HeaderSize + tail
		payloads = append(payloads, payloadOf(others, room-HeaderSize-slack), bytes.Repeat([]byte{7}, tail))
	} else {
		payloads = append(payloads, payloadOf(others, room-HeaderSize-slack))
	}
	for _, p := range payloads {
		starts = append(starts, mustAppend(t, j, p))
	}
	mustClose(t, j)
	return payloads, starts
}

func mustAppend(t *testing.T, j *Journal, p []byte) Position {
	t.Helper()
	pos, _, err := j.Append(p)
	if err := errors.Join(err, j.Sync()); err != nil {
		t.Fatal(err)
	}
	return pos
}

// mustHold recovers the journal and expects these records, however they are read.
func mustHold(t *testing.T, fs vfs.FS, payloads [][]byte, starts []Position) *Journal {
	t.Helper()
	j := mustOpen(t, fs)
	count := 0
	each := func(pos, _ Position, got []byte) error {
		if count >= len(payloads) || pos != starts[count] || !bytes.Equal(got, payloads[count]) {
			return fmt.Errorf("record %d at %s is not the one appended", count, pos)
		}
		count++
		return nil
	}
	if err := j.Recover(Position{}, Position{}, each); err != nil || count != len(payloads) {
		t.Fatalf("recovered %d of %d records: %v", count, len(payloads), err)
	}
	count = 0
	if err := j.Scan(Position{}, j.End(), each); err != nil || count != len(payloads) {
		t.Fatalf("scanned %d of %d records: %v", count, len(payloads), err)
	}
	at := Position{}
	for i := range payloads {
		got, next, err := j.Read(at, nil)
		if err != nil || !bytes.Equal(got, payloads[i]) {
			t.Fatalf("record %d, read at %s, is not the one appended: %v", i, at, err)
		}
		at = next
	}
	if _, _, err := j.Read(at, nil); !errors.Is(err, io.EOF) {
		t.Fatalf("after the last record: %v", err)
	}
	return j
}

// Given a record that ends with its segment, or some bytes before or after, large or small, behind others or alone,
// then a start finds it, also when more was appended since.
func TestRecordsAtTheEndOfASegment(t *testing.T) {
	eachFit(t, func(t *testing.T, others, tail, slack int) {
		fs := vfs.NewMem()
		payloads, starts := fitted(t, fs, others, tail, slack)
		last := starts[len(starts)-1]
		if rolled := last == (Position{Segment: 2, Offset: headerBlock}); rolled != (slack < 0) {
			t.Fatalf("the last record begins at %s", last)
		}
		for _, more := range []int{1, 20} {
			j := mustHold(t, fs, payloads, starts)
			payloads = append(payloads, payloadOf(len(payloads), more+7))
			starts = append(starts, mustAppend(t, j, payloads[len(payloads)-1]))
			mustClose(t, j)
		}
		mustClose(t, mustHold(t, fs, payloads, starts))
	})
}

// Given such a record of which some byte was lost, then it is cut, and its space is used again.
func TestTornRecordsAtTheEndOfASegment(t *testing.T) {
	eachFit(t, func(t *testing.T, others, tail, slack int) {
		for _, lost := range []int{1, 2, tail + 1} { // the last of it, one within it, one of its header
			fs := vfs.NewMem()
			payloads, starts := fitted(t, fs, others, tail, slack)
			n := len(payloads) - 1
			last := starts[n]
			whole := file(t, fs, last.Segment)
			whole[int(last.Offset)+HeaderSize+len(payloads[n])-lost] ^= 0xff
			writeFile(t, fs, last.Segment, whole)
			j := mustHold(t, fs, payloads[:n], starts[:n])
			if again := mustAppend(t, j, payloads[n]); again != last {
				t.Errorf("the record was cut at %s, and comes again at %s", last, again)
			}
			mustClose(t, j)
			mustClose(t, mustHold(t, fs, payloads, starts))
		}
	})
}

// eachFit calls fn with every way in which a record can be near the end of its segment.
func eachFit(t *testing.T, fn func(t *testing.T, others, tail, slack int)) {
	for _, others := range []int{0, 1, 3} {
		for _, tail := range []int{0, 1, 2, HeaderSize} {
			least := -2
			if others == 0 && tail == 0 {
				least = 0 // a larger one fits no segment
			}
			for slack := least; slack <= 2*HeaderSize+2; slack++ {
				t.Run(fmt.Sprintf("%d before it, %d bytes, %d left", others, tail, slack), func(t *testing.T) {
					fn(t, others, tail, slack)
				})
			}
		}
	}
}
