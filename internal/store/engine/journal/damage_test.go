package journal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// closedJournal makes a journal of so many records, with a prepared segment behind them, and closes it.
func closedJournal(t testing.TB, records int) (fs *vfs.MemFS, starts []Position, end Position) {
	t.Helper()
	fs = vfs.NewMem()
	j := mustReopen(t, fs, Position{}, 0)
	starts = commit(t, j, 0, records)
	settled(j)
	end = j.End()
	mustClose(t, j)
	return fs, starts, end
}

// Given a last record of which any part is missing, when nothing reflects it yet, then it is cut and the journal goes
// on; when something does, it is damage.
func TestTornTailIsCut(t *testing.T) {
	for _, records := range []int{1, 3, 4} {
		fs, starts, end := closedJournal(t, records)
		last := starts[records-1]
		segment := file(t, fs, last.Segment)
		whole := slices.Clone(segment)
		length := int(end.Offset - last.Offset)
		step := 1 + length/400
		for cut := 0; cut < length; cut += step {
			for _, lost := range [][2]int{{cut, length}, {0, cut + 1}, {cut, min(cut+step, length)}} {
				copy(segment, whole)
				clear(segment[int(last.Offset)+lost[0] : int(last.Offset)+lost[1]])
				if bytes.Equal(segment, whole) {
					continue
				}
				name := fmt.Sprintf("%d records, bytes %d to %d of %d lost", records, lost[0], lost[1], length)
				torn := slices.Clone(segment)
				if _, _, err := reopen(fs, end); err == nil {
					t.Fatalf("%s: below the floor, and not reported", name)
				} else {
					wantDamage(t, err)
				}
				if !bytes.Equal(segment, torn) {
					t.Fatalf("%s: damage was overwritten", name)
				}
				checkCut(t, fs, name, last, records-1)
			}
		}
	}
}

// checkCut recovers a torn journal, appends to a copy of it, and recovers that.
func checkCut(t *testing.T, fs *vfs.MemFS, name string, last Position, records int) {
	t.Helper()
	j, count, err := reopen(fs, last)
	if err != nil || count != records {
		t.Fatalf("%s: recovered %d of %d records: %v", name, count, records, err)
	}
	if j.End() != last {
		t.Fatalf("%s: ends at %s, want %s", name, j.End(), last)
	}
	if rest := file(t, fs, last.Segment)[last.Offset:]; nonzero(rest) != len(rest) {
		t.Fatalf("%s: the torn bytes are still there", name)
	}
	commit(t, j, records, records+1)
	end := j.End()
	mustClose(t, j)
	mustClose(t, mustReopen(t, fs, end, records+1))
}

// A bad record that is not the last cannot be torn, even when no derived file says how far the journal went.
func TestBadRecordBeforeAValidOneIsDamage(t *testing.T) {
	fs, starts, _ := closedJournal(t, 3)
	segment := file(t, fs, 1)
	whole := slices.Clone(segment)
	for i := range 2 {
		for offset := starts[i].Offset; offset < starts[i+1].Offset; offset++ {
			segment[offset] ^= 0x10
			_, _, err := reopen(fs, Position{})
			if d := damageOf(t, err); d.Offset != starts[i].Offset || d.Segment != 1 {
				t.Fatalf("byte %d of record %d: reported at %d:%d", offset, i, d.Segment, d.Offset)
			}
			segment[offset] ^= 0x10
		}
		clear(segment[starts[i].Offset:starts[i+1].Offset])
		_, _, err := reopen(fs, Position{})
		wantDamage(t, err)
		copy(segment, whole)
	}
	mustClose(t, mustReopen(t, fs, Position{}, 3))
}

func TestDamagedFilesAreRefused(t *testing.T) {
	header := func(change func(*segmentHeader)) func(t *testing.T, fs *vfs.MemFS) {
		return func(t *testing.T, fs *vfs.MemFS) {
			b := file(t, fs, 2)
			h, ok := decodeSegmentHeader(b)
			if !ok {
				t.Fatal("no header")
			}
			change(&h)
			encoded := h.encode()
			copy(b, encoded[:])
		}
	}
	resize := func(number uint32, by int) func(t *testing.T, fs *vfs.MemFS) {
		return func(t *testing.T, fs *vfs.MemFS) {
			b := slices.Clone(file(t, fs, number))
			if by < 0 {
				b = b[:len(b)+by]
			} else {
				b = append(b, make([]byte, by)...)
			}
			writeFile(t, fs, number, b)
		}
	}
	remove := func(number uint32) func(t *testing.T, fs *vfs.MemFS) {
		return func(t *testing.T, fs *vfs.MemFS) {
			if err := fs.Remove(fs.PathJoin(testDir, segmentName(number))); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := map[string]func(t *testing.T, fs *vfs.MemFS){
		"first segment missing":       remove(1),
		"sealed segment missing":      remove(2),
		"current segment missing":     remove(3),
		"sealed segment shorter":      resize(2, -1),
		"sealed segment longer":       resize(2, 1),
		"sealed segment empty":        resize(2, -testSize),
		"current segment shorter":     resize(3, -1),
		"current segment longer":      resize(3, 4096),
		"prepared segment empty":      resize(4, -testSize),
		"other store":                 header(func(h *segmentHeader) { h.storeID[3]++ }),
		"other number":                header(func(h *segmentHeader) { h.number = 7 }),
		"other size":                  header(func(h *segmentHeader) { h.size += 4096 }),
		"impossible size":             header(func(h *segmentHeader) { h.size = 1 }),
		"predecessor ends in header":  header(func(h *segmentHeader) { h.previousEnd = headerBlock - 1 }),
		"predecessor ends after file": header(func(h *segmentHeader) { h.previousEnd = testSize + 1 }),
		"predecessor ends early":      header(func(h *segmentHeader) { h.previousEnd-- }),
		"predecessor ends late":       header(func(h *segmentHeader) { h.previousEnd++ }),
		"header of current lost": func(t *testing.T, fs *vfs.MemFS) {
			remove(4)(t, fs)
			clear(file(t, fs, 3)[:headerBlock])
		},
		"header of first lost": func(t *testing.T, fs *vfs.MemFS) { clear(file(t, fs, 1)[:headerBlock]) },
		"sealed swapped for another": func(t *testing.T, fs *vfs.MemFS) {
			writeFile(t, fs, 2, slices.Clone(file(t, fs, 1)))
		},
		"records of another segment": func(t *testing.T, fs *vfs.MemFS) {
			copy(file(t, fs, 2)[headerBlock:], file(t, fs, 1)[headerBlock:])
		},
		"written after the sealed end": func(t *testing.T, fs *vfs.MemFS) { file(t, fs, 1)[testSize-1] = 1 },
	}
	// The headers alone do not show these.
	inReplay := map[string]bool{
		"predecessor ends early": true, "predecessor ends late": true, "header of current lost": true,
		"records of another segment": true, "written after the sealed end": true,
	}
	for name, harm := range cases {
		t.Run(name, func(t *testing.T) {
			fs, starts, end := closedJournal(t, 14)
			if starts[13].Segment != 3 {
				t.Fatalf("the last record is at %s", starts[13])
			}
			harm(t, fs)
			if !inReplay[name] {
				_, err := Open(testOptions(fs))
				wantDamage(t, err)
			}
			_, _, err := reopen(fs, end)
			wantDamage(t, err)
		})
	}
}

func writeFile(t testing.TB, fs *vfs.MemFS, number uint32, b []byte) {
	t.Helper()
	f, err := fs.Create(fs.PathJoin(testDir, segmentName(number)), vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(b)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestJournalThatEndsBeforeTheFloorIsDamage(t *testing.T) {
	fs, _, end := closedJournal(t, 10)
	for _, floor := range []Position{{end.Segment, end.Offset + 1}, {end.Segment + 1, headerBlock}} {
		_, _, err := reopen(fs, floor)
		wantDamage(t, err)
		j := mustOpen(t, fs)
		wantDamage(t, j.Recover(floor, Position{}, func(_, _ Position, _ []byte) error { return nil }))
		mustClose(t, j)
	}
	mustClose(t, mustReopen(t, fs, end, 10))
}

// Damage in an old segment does not stop a start that does not need it, but fails the reads that do.
func TestDamageFailsTheReadsThatNeedIt(t *testing.T) {
	fs, starts, end := closedJournal(t, 10)
	bad := 1
	file(t, fs, 1)[starts[bad].Offset+HeaderSize] ^= 1
	j := mustOpen(t, fs)
	count := 9
	if err := j.Recover(starts[9], end, inOrder(&count)); err != nil || count != 10 {
		t.Fatalf("recovered up to %d: %v", count, err)
	}
	for i, pos := range starts {
		_, _, err := j.Read(pos, nil)
		if i != bad && err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if i == bad {
			wantDamage(t, err)
		}
	}
	count = 0
	wantDamage(t, j.Scan(Position{}, end, inOrder(&count)))
	_, _, err := j.Read(Position{Segment: 1, Offset: testSize}, nil)
	wantDamage(t, err)
	_, _, err = j.Read(Position{Segment: 9, Offset: headerBlock}, nil)
	wantDamage(t, err)
	mustClose(t, j)
}

func TestUnknownVersionIsNotDamage(t *testing.T) {
	fs, _, end := closedJournal(t, 10)
	b := file(t, fs, 2)
	h, _ := decodeSegmentHeader(b)
	h.version = 3
	encoded := h.encode()
	copy(b, encoded[:])
	_, _, err := reopen(fs, end)
	var v *VersionError
	var d *Damage
	if !errors.As(err, &v) || errors.As(err, &d) {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"version 3", v.Path, "newer release"} {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("%q does not say %q", err, part)
		}
	}
}

func TestStrayFiles(t *testing.T) {
	fs, _, end := closedJournal(t, 10)
	for _, name := range []string{"0000000009.journal.tmp", "notes.txt", "1.journal", "0000000000.journal",
		"00000000x1.journal"} {
		f, err := fs.Create(fs.PathJoin(testDir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, mustReopen(t, fs, end, 10))
	if _, err := fs.Stat(fs.PathJoin(testDir, "0000000009.journal.tmp")); err == nil {
		t.Fatal("the unfinished segment is still there")
	}
	if _, err := fs.Stat(fs.PathJoin(testDir, "notes.txt")); err != nil {
		t.Fatal("a file that is not the journal's was removed")
	}
}
