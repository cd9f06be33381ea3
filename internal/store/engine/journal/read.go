package journal

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// scanBuffer is how much a sequential read asks for at a time; beyond this a disk gets no faster.
	scanBuffer = 1 << 20
	// readAhead is what Read fetches along with the header, so that a small record takes one read.
	readAhead = 4096
)

// Read returns the record at pos, which must be zero, the position of a record, or the next of one. The payload is in
// buf if that has the capacity. Errors: io.EOF at End, *Damage if the record is not intact, or a failure of the file
// system.
func (j *Journal) Read(pos Position, buf []byte) (payload []byte, next Position, err error) {
	pos, room, err := j.locate(pos)
	if err != nil {
		return nil, Position{}, err
	}
	lent, err := j.files.borrow(pos.Segment)
	if err != nil {
		return nil, Position{}, fmt.Errorf("read journal: %w", err)
	}
	defer j.files.release(lent)
	if lent.pruned != nil {
		return j.readPruned(lent, pos, buf)
	}
	file := lent.file
	if room < HeaderSize {
		return nil, Position{}, j.damage(pos, "no record fits here", hintRestore)
	}

	got := min(max(HeaderSize, min(uint32(cap(buf)), readAhead)), room)
	buf = sized(buf, got)
	if err := j.readAt(file, pos, buf); err != nil {
		return nil, Position{}, err
	}
	header, ok := j.sums.open(pos, room, buf)
	if !ok {
		return nil, Position{}, j.damage(pos, "no record starts here, or its header is damaged", hintRestore)
	}
	if total := HeaderSize + header.length; total > got {
		whole := sized(buf, total)
		copy(whole, buf)
		buf = whole
		rest := Position{Segment: pos.Segment, Offset: pos.Offset + got}
		if err := j.readAt(file, rest, buf[got:]); err != nil {
			return nil, Position{}, err
		}
	}
	payload = buf[HeaderSize : HeaderSize+header.length]
	if !header.matches(payload) {
		return nil, Position{}, j.damage(pos, "the record does not match its checksum", hintRestore)
	}
	return payload, Position{Segment: pos.Segment, Offset: pos.Offset + HeaderSize + header.length}, nil
}

// locate finds the record that pos means and how many bytes of its segment hold records from there on.
func (j *Journal) locate(pos Position) (at Position, room uint32, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.usable(); err != nil {
		return pos, 0, err
	}
	at = firstRecord(pos)
	for at.Less(j.end) && at.Offset == j.segments[at.Segment-1].used {
		at = Position{Segment: at.Segment + 1, Offset: headerBlock}
	}
	if at == j.end {
		return at, 0, io.EOF
	}
	if j.end.Less(at) {
		return at, 0, j.damage(at, fmt.Sprintf("the journal ends at %s", j.end), hintShorter)
	}
	used := j.segments[at.Segment-1].used
	if at.Offset > used {
		return at, 0, j.damage(at, fmt.Sprintf("the segment ends at %d", used), hintShorter)
	}
	return at, used - at.Offset, nil
}

// firstRecord is pos, or where the first record at or after it can be if pos lies before a segment's records.
func firstRecord(pos Position) Position {
	return Position{Segment: max(pos.Segment, 1), Offset: max(pos.Offset, headerBlock)}
}

// Scan calls fn with each record from `from` (zero, or a record boundary) up to `to` or the End there was when it was
// called, whichever is less, and stops at the first error. The payload is valid until fn returns. Errors: as Read, and
// fn's own.
func (j *Journal) Scan(from, to Position, fn func(pos, next Position, payload []byte) error) error {
	j.mu.Lock()
	err, end := j.usable(), j.end
	j.mu.Unlock()
	if err != nil {
		return fmt.Errorf("scan journal: %w", err)
	}
	if end.Less(to) {
		to = end
	}
	var buf []byte
	for pos := firstRecord(from); pos.Less(to); pos = (Position{Segment: pos.Segment + 1, Offset: headerBlock}) {
		if buf, err = j.scanSegment(pos, to, buf, fn); err != nil {
			return err
		}
	}
	return nil
}

// scanSegment scans pos's segment from pos on. If it goes to the end of a sealed one, it also checks that nothing
// follows. It returns the buffer to use for the next one.
func (j *Journal) scanSegment(pos, to Position, buf []byte, fn func(pos, next Position, payload []byte) error) ([]byte,
	error) {
	j.mu.Lock()
	s := j.segments[pos.Segment-1]
	j.mu.Unlock()
	sealed := pos.Segment < to.Segment
	stop := s.used
	if !sealed {
		stop = to.Offset
	}
	if pos.Offset > s.used {
		return buf, j.damage(pos, fmt.Sprintf("the segment ends at %d", s.used), hintShorter)
	}
	lent, err := j.files.borrow(pos.Segment)
	if err != nil {
		return buf, fmt.Errorf("scan journal: %w", err)
	}
	defer j.files.release(lent)
	if lent.pruned != nil {
		return j.scanPruned(lent, pos, stop, buf, fn)
	}

	w := window{j: j, file: lent.file, segment: pos.Segment, limit: s.used, buf: buf[:0]}
	for pos.Offset < stop {
		payload, found, err := w.record(pos)
		if err != nil {
			return w.buf, err
		}
		if found.what != "" {
			return w.buf, j.damage(pos, found.what, hintRestore)
		}
		next := Position{Segment: pos.Segment, Offset: found.end}
		if err := fn(pos, next, payload); err != nil {
			return w.buf, err
		}
		pos = next
	}
	if !sealed {
		return w.buf, nil
	}
	w.limit = s.size
	first, _, err := w.nonzeros(stop)
	if err != nil {
		return w.buf, err
	}
	if first < s.size {
		return w.buf, j.damage(Position{Segment: pos.Segment, Offset: first},
			"something was written after the end of the sealed segment", hintRestore)
	}
	return w.buf, nil
}

// window reads a segment front to back through a buffer.
type window struct {
	j       *Journal
	file    vfs.File
	segment uint32
	limit   uint32 // nothing is read from here on
	buf     []byte // holds the file from start on
	start   uint32
}

// found is what is at a place where a record was looked for.
type found struct {
	what   string // what is wrong; empty for a valid record
	extent bool   // the header is intact, so end is known
	end    uint32 // where the record ends
}

// record returns the payload of the record at pos, valid until the next call.
func (w *window) record(pos Position) ([]byte, found, error) {
	room := w.limit - pos.Offset
	if room < HeaderSize {
		return nil, found{what: "no record fits here"}, nil
	}
	b, err := w.bytes(pos.Offset, HeaderSize)
	if err != nil {
		return nil, found{}, err
	}
	header, ok := w.j.sums.open(pos, room, b)
	if !ok {
		return nil, found{what: "no record starts here, or its header is damaged"}, nil
	}
	end := pos.Offset + HeaderSize + header.length
	b, err = w.bytes(pos.Offset, HeaderSize+header.length)
	if err != nil {
		return nil, found{}, err
	}
	if !header.matches(b[HeaderSize:]) {
		return nil, found{what: "the record does not match its checksum", extent: true, end: end}, nil
	}
	return b[HeaderSize:], found{extent: true, end: end}, nil
}

// nonzeros returns where the first byte that is not zero is, from offset to the limit, and where the last one ends.
// Both are the limit and offset when there is none.
func (w *window) nonzeros(offset uint32) (first, end uint32, err error) {
	first, end = w.limit, offset
	for offset < w.limit {
		b, err := w.bytes(offset, min(scanBuffer, w.limit-offset))
		if err != nil {
			return 0, 0, err
		}
		if i := nonzero(b); i < len(b) {
			first = min(first, offset+uint32(i))
			last := len(b)
			for b[last-1] == 0 {
				last--
			}
			end = offset + uint32(last)
		}
		offset += uint32(len(b))
	}
	return first, end, nil
}

// bytes returns n bytes at offset, of which the caller knows that they lie before the limit.
func (w *window) bytes(offset, n uint32) ([]byte, error) {
	if offset < w.start || uint64(offset)+uint64(n) > uint64(w.start)+uint64(len(w.buf)) {
		w.buf = sized(w.buf, max(n, min(scanBuffer, w.limit-offset)))
		w.start = offset
		if err := w.j.readAt(w.file, Position{Segment: w.segment, Offset: offset}, w.buf); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	i := offset - w.start
	return w.buf[i : i+n], nil
}

// readAt fills buf from p. A file that ends early was long enough when it was opened.
func (j *Journal) readAt(file vfs.File, p Position, buf []byte) error {
	n, err := file.ReadAt(buf, int64(p.Offset))
	if n == len(buf) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return j.damage(p, "the file is shorter than its header says", hintRestore)
	}
	return fmt.Errorf("read %s at %d: %w", j.path(p.Segment), p.Offset, err)
}

// sized is buf with length n, newly made if it is too small.
func sized(buf []byte, n uint32) []byte {
	if uint64(cap(buf)) < uint64(n) {
		return make([]byte, n)
	}
	return buf[:n]
}
