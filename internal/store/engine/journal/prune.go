package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sort"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A pruned segment holds what is left of the records of a sealed one. Each record keeps the place it had: its frame
// says where it began and ended before, and reads and scans go by those places. So nothing that points into the journal
// has to change, and replacing a segment is one rename: before it the old file is there, after it the new one, and both
// hold the same places.
//
// A frame is: begin, end, length of the payload, a check of all that with store and segment, a check continued over the
// payload.

// prunedHeader is how many bytes of a frame come before its payload.
const prunedHeader = 20

// prunedRecord is where a record was, and where what is left of it is.
type prunedRecord struct {
	begin, end uint32 // before
	at, length uint32 // of the payload in the file
	sum        uint32 // of the payload
}

// Rewrite replaces a sealed segment by what fn leaves of each of its records; a payload must not become empty. Reads go
// on meanwhile. Nothing has changed when it fails, except that after a failed sync of the directory a power failure may
// bring the old segment back.
func (j *Journal) Rewrite(number uint32, fn func(pos Position, payload []byte) ([]byte, error)) error {
	j.mu.Lock()
	err, last := j.usable(), j.last()
	j.mu.Unlock()
	if err == nil && (number == 0 || number >= last) {
		err = errors.New("it is not sealed")
	}
	if err != nil {
		return fmt.Errorf("prune segment %d: %w", number, err)
	}
	path := j.path(number)
	temp := path + tempSuffix
	if err := j.writePruned(number, temp, fn); err != nil {
		_ = j.fs.Remove(temp) // what cannot be removed now is removed at the next Open
		return fmt.Errorf("prune %s: %w", path, err)
	}
	if err := j.fs.Rename(temp, path); err != nil {
		return fmt.Errorf("prune %s: rename: %w", path, err)
	}
	j.files.forget(number)
	if err := syncDir(j.fs, j.dir); err != nil {
		return fmt.Errorf("prune %s: %w", path, err)
	}
	return nil
}

func (j *Journal) writePruned(number uint32, temp string,
	fn func(pos Position, payload []byte) ([]byte, error)) (err error) {
	old, _, err := j.readSegmentHeader(number)
	if err != nil {
		return err
	}
	file, err := j.fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriterSize(file, scanBuffer)
	if _, err := out.Write(zeroBlock[:headerBlock]); err != nil {
		return err
	}
	size := uint64(headerBlock)
	begin, end := Position{Segment: number, Offset: headerBlock}, Position{Segment: number + 1, Offset: headerBlock}
	err = j.Scan(begin, end, func(pos, next Position, payload []byte) error {
		left, err := fn(pos, payload)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return fmt.Errorf("nothing is left of the record at %s", pos)
		}
		frame := j.sums.frame(pos, next.Offset, left)
		size += uint64(len(frame) + len(left))
		if _, err = out.Write(frame[:]); err == nil {
			_, err = out.Write(left)
		}
		return err
	})
	if err != nil {
		return err
	}
	if size > MaxSegmentBytes {
		return fmt.Errorf("%d bytes would be left, more than a segment can have", size)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	header := segmentHeader{version: prunedVersion, number: number, storeID: j.storeID, size: uint32(size),
		previousEnd: old.previousEnd, before: old.recordsEnd()}.encode()
	if _, err := file.WriteAt(header[:], 0); err != nil {
		return err
	}
	return file.Sync()
}

// frame is the front of a record in a pruned segment.
func (c checksums) frame(pos Position, end uint32, payload []byte) (b [prunedHeader]byte) {
	binary.LittleEndian.PutUint32(b[0:], pos.Offset)
	binary.LittleEndian.PutUint32(b[4:], end)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(payload)))
	sum := c.prunedHeader(pos.Segment, b[:12])
	binary.LittleEndian.PutUint32(b[12:], sum)
	binary.LittleEndian.PutUint32(b[16:], crc32.Update(sum, castagnoli, payload))
	return b
}

func (c checksums) prunedHeader(segment uint32, b []byte) uint32 {
	var number [4]byte
	binary.LittleEndian.PutUint32(number[:], segment)
	return crc32.Update(crc32.Update(c.seed, castagnoli, number[:]), castagnoli, b)
}

// loadPruned lists the records of a pruned segment; nil when the segment is an ordinary one. Records follow one another
// without a gap, in their old places as in the file.
func (j *Journal) loadPruned(number uint32, file vfs.File) ([]prunedRecord, error) {
	block := make([]byte, headerBytes)
	if _, err := file.ReadAt(block, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read header of %s: %w", j.path(number), err)
	}
	h, ok := decodeSegmentHeader(block)
	if !ok || h.version != prunedVersion {
		return nil, nil // reading its records will show
	}
	w := window{j: j, file: file, segment: number, limit: h.size}
	out := []prunedRecord{}
	for at, begin := uint32(headerBlock), uint32(headerBlock); at < h.size; {
		where := Position{Segment: number, Offset: at}
		if h.size-at <= prunedHeader {
			return nil, j.damage(where, "no record fits here", hintRestore)
		}
		b, err := w.bytes(at, prunedHeader)
		if err != nil {
			return nil, err
		}
		r := prunedRecord{begin: binary.LittleEndian.Uint32(b), end: binary.LittleEndian.Uint32(b[4:]),
			at:     at + prunedHeader,
			length: binary.LittleEndian.Uint32(b[8:]), sum: binary.LittleEndian.Uint32(b[16:])}
		if binary.LittleEndian.Uint32(b[12:]) != j.sums.prunedHeader(number, b[:12]) || r.begin != begin ||
			r.end <= r.begin ||
			r.length == 0 || r.length > h.size-r.at {
			return nil, j.damage(where, "what was left of a record is damaged", hintRestore)
		}
		out = append(out, r)
		at, begin = r.at+r.length, r.end
	}
	return out, nil
}

// payloadOf reads one record of a pruned segment into buf.
func (j *Journal) payloadOf(f *openFile, r *prunedRecord, buf []byte) ([]byte, error) {
	buf = sized(buf, r.length)
	where := Position{Segment: f.number, Offset: r.at}
	if err := j.readAt(f.file, where, buf); err != nil {
		return nil, err
	}
	header := j.sums.frame(Position{Segment: f.number, Offset: r.begin}, r.end, buf)
	if binary.LittleEndian.Uint32(header[16:]) != r.sum {
		return nil, j.damage(where, "the record does not match its checksum", hintRestore)
	}
	return buf, nil
}

// readPruned is Read in a pruned segment.
func (j *Journal) readPruned(f *openFile, pos Position, buf []byte) ([]byte, Position, error) {
	i := sort.Search(len(f.pruned), func(i int) bool { return f.pruned[i].begin >= pos.Offset })
	if i == len(f.pruned) || f.pruned[i].begin != pos.Offset {
		return nil, Position{}, j.damage(pos, "no record starts here", hintRestore)
	}
	r := &f.pruned[i]
	payload, err := j.payloadOf(f, r, buf)
	return payload, Position{Segment: pos.Segment, Offset: r.end}, err
}

// scanPruned is scanSegment in a pruned segment.
func (j *Journal) scanPruned(f *openFile, pos Position, stop uint32, buf []byte,
	fn func(pos, next Position, payload []byte) error) ([]byte, error) {
	for i := range f.pruned {
		r := &f.pruned[i]
		if r.begin < pos.Offset || r.begin >= stop {
			continue
		}
		if r.begin != pos.Offset {
			return buf, j.damage(pos, "no record starts here", hintRestore)
		}
		payload, err := j.payloadOf(f, r, buf)
		if err != nil {
			return buf, err
		}
		buf = payload
		next := Position{Segment: pos.Segment, Offset: r.end}
		if err := fn(pos, next, payload); err != nil {
			return buf, err
		}
		pos = next
	}
	if pos.Offset != stop {
		return buf, j.damage(pos, fmt.Sprintf("the segment ended at %d before it was pruned", stop), hintRestore)
	}
	return buf, nil
}

// Seal ends the current segment if it has records, so that it can be pruned.
func (j *Journal) Seal() error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	empty, err := j.readyToSeal()
	if err != nil {
		return fmt.Errorf("seal segment: %w", err)
	}
	if empty {
		return nil
	}
	if j.dirty {
		if err := j.current.SyncData(); err != nil {
			return j.fail(fmt.Errorf("seal segment: %w", err))
		}
		j.dirty = false
	}
	if err := j.roll(); err != nil {
		return j.fail(fmt.Errorf("seal segment: %w", err))
	}
	return nil
}

// readyToSeal waits for the next segment, unless the current one has no records.
func (j *Journal) readyToSeal() (empty bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		if err := j.writable(); err != nil {
			return false, err
		}
		if j.end.Offset == headerBlock || j.ready != nil {
			return j.end.Offset == headerBlock, nil
		}
		if j.wakePreparer(); j.prepareErr != nil {
			return false, fmt.Errorf("%w: %w", ErrNoSpace, j.prepareErr)
		}
		j.changed.Wait()
	}
}

// Sealed is the number of the last sealed segment; 0: there is none.
func (j *Journal) Sealed() uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last() - 1
}
