package journal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// halved is what the tests leave of a record.
func halved(_ Position, payload []byte) ([]byte, error) { return payload[:len(payload)/2+1], nil }

// expectHalves reads every record, alone and in a scan; those of segments in pruned are shorter.
func expectHalves(t *testing.T, j *Journal, starts []Position, pruned func(segment uint32) bool) {
	t.Helper()
	want := func(i int) []byte {
		if pruned(starts[i].Segment) {
			b, _ := halved(starts[i], payload(i))
			return b
		}
		return payload(i)
	}
	for i, pos := range starts {
		got, next, err := j.Read(pos, nil)
		if err != nil || !bytes.Equal(got, want(i)) {
			t.Fatalf("record %d at %s: %d bytes, %v", i, pos, len(got), err)
		}
		if i+1 < len(starts) && starts[i+1].Segment == pos.Segment && next != starts[i+1] {
			t.Fatalf("record %d ends at %s, the next begins at %s", i, next, starts[i+1])
		}
	}
	for from := range starts {
		i := from
		err := j.Scan(starts[from], j.End(), func(pos, _ Position, got []byte) error {
			if pos != starts[i] || !bytes.Equal(got, want(i)) {
				return fmt.Errorf("record %d at %s", i, pos)
			}
			i++
			return nil
		})
		if err != nil || i != len(starts) {
			t.Fatalf("scan from record %d: came to %d of %d: %v", from, i, len(starts), err)
		}
	}
}

// Given a journal of several segments, when sealed ones are rewritten, in any order and twice, then every record is
// where it was, what is left of it is read, and so it is after the next start; the current segment cannot be rewritten.
func TestRewrittenSegmentsKeepTheirPlaces(t *testing.T) {
	fs := vfs.NewMem()
	j := mustReopen(t, fs, Position{}, 0)
	starts := commit(t, j, 0, 60)
	last := starts[59].Segment
	if err := j.Rewrite(last, halved); err == nil {
		t.Fatal("the current segment was rewritten")
	}
	pruned := map[uint32]bool{}
	for _, number := range []uint32{last - 1, 1, 3} {
		if err := j.Rewrite(number, halved); err != nil {
			t.Fatal(err)
		}
		pruned[number] = true
		expectHalves(t, j, starts, func(n uint32) bool { return pruned[n] })
	}
	if err := j.Rewrite(3, func(_ Position, payload []byte) ([]byte, error) { return payload, nil }); err != nil {
		t.Fatal(err)
	}
	expectHalves(t, j, starts, func(n uint32) bool { return pruned[n] })
	if err := j.Seal(); err != nil {
		t.Fatal(err)
	}
	if err := j.Rewrite(last, halved); err != nil {
		t.Fatal(err)
	}
	pruned[last] = true
	starts = append(starts, commit(t, j, 60, 80)...)
	end := j.End()
	mustClose(t, j)
	j = mustOpen(t, fs)
	if err := j.Recover(end, end, nil); err != nil {
		t.Fatal(err)
	}
	expectHalves(t, j, starts, func(n uint32) bool { return pruned[n] })
	mustClose(t, j)
}

// Given a rewritten segment, when any byte of it is flipped, then a scan or the start reports damage.
func TestFlipsInARewrittenSegmentAreFound(t *testing.T) {
	fs := vfs.NewMem()
	j := mustReopen(t, fs, Position{}, 0)
	commit(t, j, 0, 20)
	if err := j.Rewrite(1, func(_ Position, payload []byte) ([]byte, error) {
		return payload[:min(len(payload), 40)],
			nil
	}); err != nil {
		t.Fatal(err)
	}
	end := j.End()
	mustClose(t, j)
	segment := file(t, fs, 1)
	whole := slices.Clone(segment)
	for i := range whole {
		if i >= headerBytes && i < headerBlock && i%97 != 0 {
			continue
		}
		segment[i] ^= 0x10
		j, err := Open(testOptions(fs))
		if err == nil {
			err = j.Recover(Position{}, end, func(Position, Position, []byte) error { return nil })
			err = errors.Join(err, j.Close())
		}
		var v *VersionError
		if !errors.As(err, &v) {
			wantDamage(t, err)
		}
		copy(segment, whole)
	}
}

// Given a failure of any operation, when a segment is rewritten, then the journal holds the records whole or as they
// are left, and goes on.
func TestARewriteThatFails(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileWriteAt,
		errorfs.OpFileSync, errorfs.OpRename} {
		mem := vfs.NewMem()
		broken := false
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken && op.Kind == kind {
				return errors.New("broken on purpose")
			}
			return nil
		}))
		j := mustReopen(t, fs, Position{}, 0)
		starts := commit(t, j, 0, 20)
		settled(j)
		broken = true
		if err := j.Rewrite(1, halved); err == nil {
			t.Errorf("operation %d failed, and the rewrite did not", kind)
		}
		broken = false
		expectHalves(t, j, starts, func(uint32) bool { return false })
		mustClose(t, j)
		mustClose(t, mustReopen(t, fs, Position{}, 20))
	}
}
