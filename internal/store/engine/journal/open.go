package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Open opens the journal in o.Dir, or begins one there if the directory holds none. It reads the header of every
// segment and no record; call Recover next. Errors: *Damage, *VersionError, or a failure of the file system.
func Open(o Options) (*Journal, error) {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.SegmentBytes < minSegmentBytes || o.SegmentBytes > MaxSegmentBytes {
		return nil, fmt.Errorf("open journal: segment size %d is not between %d and %d", o.SegmentBytes,
			minSegmentBytes, MaxSegmentBytes)
	}
	j := &Journal{
		fs: o.FS, dir: o.Dir, segmentBytes: o.SegmentBytes,
		storeID: o.StoreID, sums: newChecksums(o.StoreID),
	}
	j.changed = sync.NewCond(&j.mu)
	j.files = &openFiles{fs: o.FS, path: j.path, load: j.loadPruned, files: make(map[uint32]*openFile)}
	if err := j.open(); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return j, nil
}

func (j *Journal) open() error {
	numbers, err := j.list()
	if err != nil {
		return err
	}
	if len(numbers) == 0 {
		if err := j.begin(); err != nil {
			return err
		}
		numbers = []uint32{1}
	}
	for i, number := range numbers {
		if want := uint32(i) + 1; number != want {
			return j.damage(Position{Segment: want},
				fmt.Sprintf("the segment is missing, but segment %d exists", number), hintRestore)
		}
		if err := j.openSegment(number, i == len(numbers)-1); err != nil {
			return err
		}
	}
	// A process that died before it synced the directory leaves names that a power failure could still take back.
	if err := syncDir(j.fs, j.dir); err != nil {
		return err
	}
	last := j.last()
	j.end = Position{Segment: last, Offset: headerBlock}
	j.current, err = j.fs.OpenReadWrite(j.path(last), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("open current segment: %w", err)
	}
	j.pinned = j.files.add(last, j.current)
	return nil
}

// list makes the directory, removes what a dead preparer left, and returns the numbers of the segment files in order.
// Other files are none of its business.
func (j *Journal) list() ([]uint32, error) {
	if err := j.fs.MkdirAll(j.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := syncDir(j.fs, j.fs.PathDir(j.dir)); err != nil {
		return nil, err
	}
	names, err := j.fs.List(j.dir)
	if err != nil {
		return nil, fmt.Errorf("list directory: %w", err)
	}
	var numbers []uint32
	for _, name := range names {
		if isTempName(name) {
			if err := j.fs.Remove(j.fs.PathJoin(j.dir, name)); err != nil {
				return nil, fmt.Errorf("remove unfinished segment: %w", err)
			}
		}
		if number, ok := parseSegmentName(name); ok {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// begin makes the first segment. Its header has no predecessor to wait for, so it is there before the file has its
// name.
func (j *Journal) begin() error {
	header := segmentHeader{version: formatVersion, number: 1, storeID: j.storeID, size: j.segmentBytes}.encode()
	file, err := j.makeSegment(1, header[:])
	if err != nil {
		return fmt.Errorf("make first segment: %w", err)
	}
	return file.Close()
}

// openSegment checks the header of the next segment and appends it to j.segments, or notes that it is a spare.
func (j *Journal) openSegment(number uint32, final bool) error {
	header, spare, err := j.readSegmentHeader(number)
	if err != nil {
		return err
	}
	if spare {
		if number == 1 || !final {
			return j.damage(Position{Segment: number}, "the segment header is missing", hintRestore)
		}
		j.spare = true
		return nil
	}
	if header.version == prunedVersion && final {
		return j.damage(Position{Segment: number}, "the segment was pruned, but the one after it is missing",
			hintRestore)
	}
	if number > 1 {
		previous := &j.segments[number-2]
		if header.previousEnd < headerBlock || header.previousEnd > previous.size {
			return j.damage(Position{Segment: number},
				fmt.Sprintf("the header says that the segment before it, of %d bytes, ends at %d", previous.size,
					header.previousEnd), hintRestore)
		}
		previous.used = header.previousEnd
	}
	j.segments = append(j.segments, segment{size: header.recordsEnd(), used: headerBlock})
	return nil
}

// readSegmentHeader returns a header that fits its file and store, or spare when the header block is all zero.
func (j *Journal) readSegmentHeader(number uint32) (h segmentHeader, spare bool, err error) {
	at := Position{Segment: number}
	file, err := j.fs.Open(j.path(number))
	if err != nil {
		return h, false, fmt.Errorf("open segment: %w", err)
	}
	defer func() { _ = file.Close() }() // was only read
	info, err := file.Stat()
	if err != nil {
		return h, false, fmt.Errorf("stat segment: %w", err)
	}
	if info.Size() < headerBlock {
		return h, false, j.damage(at, fmt.Sprintf("the file has %d bytes, less than its header", info.Size()),
			hintRestore)
	}
	block := make([]byte, headerBlock)
	if _, err := file.ReadAt(block, 0); err != nil && !errors.Is(err, io.EOF) {
		return h, false, fmt.Errorf("read header of %s: %w", j.path(number), err)
	}
	first := nonzero(block)
	if first == len(block) {
		return h, true, nil
	}
	h, ok := decodeSegmentHeader(block)
	if !ok {
		return h, false, j.damage(at, "the segment header does not match its checksum", hintRestore)
	}
	if h.version != formatVersion && h.version != prunedVersion {
		return h, false, &VersionError{Path: j.path(number), Version: h.version}
	}
	if h.storeID != j.storeID {
		return h, false, j.damage(at, fmt.Sprintf("the segment belongs to store %x, this is store %x", h.storeID,
			j.storeID), hintForeign)
	}
	if h.number != number {
		return h, false, j.damage(at, fmt.Sprintf("the file holds segment %d", h.number), hintForeign)
	}
	if n := nonzero(block[headerBytes:]); n != headerBlock-headerBytes {
		at.Offset = uint32(headerBytes + n)
		return h, false, j.damage(at, "the header block is not zero after the header", hintRestore)
	}
	if h.recordsEnd() < minSegmentBytes || h.recordsEnd() > MaxSegmentBytes || info.Size() != int64(h.size) {
		return h, false, j.damage(at, fmt.Sprintf("the file has %d bytes, its header says %d", info.Size(), h.size),
			hintRestore)
	}
	if number == 1 && h.previousEnd != 0 {
		return h, false, j.damage(at, "the first segment names a predecessor", hintForeign)
	}
	return h, false, nil
}
