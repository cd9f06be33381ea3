package journal

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Recover finds the end of the journal, cuts a torn last record, makes sure that what remains is durable, and then
// calls fn with each record from `from`, which is zero or a record boundary. It is called once, before anything is
// appended; fn may Read what it was shown. floor is the farthest position that anything derived from the journal
// reflects: a journal that ends before it is damage. A payload is valid until fn returns. Errors: *Damage, a failure of
// the file system, fn's own; after any of them nothing can be appended.
func (j *Journal) Recover(from, floor Position, fn func(pos, next Position, payload []byte) error) error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	j.mu.Lock()
	err, again := j.usable(), j.recovered
	j.mu.Unlock()
	if err == nil && again {
		err = errors.New("it was recovered before")
	}
	if err != nil {
		return fmt.Errorf("recover journal: %w", err)
	}
	if err := j.settle(floor); err != nil {
		return fmt.Errorf("recover journal: %w", err)
	}
	end := j.End()
	if end.Less(from) {
		return fmt.Errorf("recover journal: %w",
			j.damage(end, fmt.Sprintf("the journal ends here, but was to be replayed from %s", from), hintShorter))
	}
	if err := j.takeSpare(); err != nil {
		return fmt.Errorf("recover journal: %w", err)
	}
	if err := j.Scan(from, end, fn); err != nil {
		return fmt.Errorf("recover journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.recovered = true
	j.preparer.Add(1)
	go j.prepareLoop()
	j.wakePreparer()
	return nil
}

// settle finds the end of the last segment and leaves it durable, with zeros after it.
func (j *Journal) settle(floor Position) error {
	number := j.last()
	size := j.segments[number-1].size
	w := window{j: j, file: j.current, segment: number, limit: size}
	end := Position{Segment: number, Offset: headerBlock}
	last := Position{Segment: number}
	var tail found
	for {
		_, f, err := w.record(end)
		if err != nil {
			return err
		}
		if f.what != "" {
			tail = f
			break
		}
		last, end.Offset = end, f.end
	}
	_, tailEnd, err := w.nonzeros(end.Offset)
	if err != nil {
		return err
	}
	if end.Less(floor) {
		what := fmt.Sprintf("the journal ends here, but the data derived from it reaches %s", floor)
		if tailEnd > end.Offset {
			what = fmt.Sprintf("%s, and the data derived from the journal reaches %s", tail.what, floor)
		}
		return j.damage(end, what, hintShorter)
	}
	if err := j.checkTorn(&w, end, tail, tailEnd); err != nil {
		return err
	}
	if err := j.rewrite(&w, last, end, tailEnd); err != nil {
		return j.fail(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.end = end
	j.segments[number-1].used = end.Offset
	return nil
}

// checkTorn refuses a tail that cannot be one torn record. The tail's bytes other than zero are in [end, tailEnd).
func (j *Journal) checkTorn(w *window, end Position, tail found, tailEnd uint32) error {
	if tailEnd == end.Offset {
		return nil
	}
	if tail.extent {
		if tailEnd > tail.end {
			return j.damage(end, fmt.Sprintf("%s, and more was written after it", tail.what), hintRestore)
		}
		return nil
	}
	after, found, err := j.findHeader(w, end, tailEnd)
	if err != nil {
		return err
	}
	if found {
		return j.damage(end, fmt.Sprintf("%s, and there is a record after it at %d", tail.what, after), hintRestore)
	}
	return nil
}

// findHeader looks at every offset after end for an intact record header. One such header is enough, whatever its
// payload looks like: a header is intact by chance once in four billion tries, and a torn record of a megabyte has some
// sixteen thousand places whose length is even plausible.
func (j *Journal) findHeader(w *window, end Position, tailEnd uint32) (at uint32, found bool, err error) {
	size := w.limit
	for at = end.Offset + 1; at < tailEnd && at <= size-HeaderSize; at++ {
		b, err := w.bytes(at, HeaderSize)
		if err != nil {
			return 0, false, err
		}
		if _, ok := j.sums.open(Position{Segment: end.Segment, Offset: at}, size-at, b); ok {
			return at, true, nil
		}
	}
	return 0, false, nil
}

// rewrite writes the last record (of a segment without records, the header) over itself, zeros over the torn one, and
// syncs. The essay says why the first is needed. Identical bytes make it safe to be interrupted anywhere.
func (j *Journal) rewrite(w *window, last, end Position, tailEnd uint32) error {
	from, to := last.Offset, end.Offset
	if from == 0 {
		to = headerBytes
	}
	b, err := w.bytes(from, to-from)
	if err != nil {
		return err
	}
	path := j.path(end.Segment)
	if _, err := j.current.WriteAt(b, int64(from)); err != nil {
		return fmt.Errorf("write last record of %s again: %w", path, err)
	}
	zeros := make([]byte, min(scanBuffer, tailEnd-end.Offset))
	for offset := end.Offset; offset < tailEnd; {
		n := min(uint32(len(zeros)), tailEnd-offset)
		if _, err := j.current.WriteAt(zeros[:n], int64(offset)); err != nil {
			return fmt.Errorf("cut torn record of %s: %w", path, err)
		}
		offset += n
	}
	if err := j.current.SyncData(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// takeSpare makes the file after the last segment the ready one, once it is known to be nothing but zeros. One of
// another length, from before the option changed, is removed.
func (j *Journal) takeSpare() error {
	if !j.spare {
		return nil
	}
	number := j.last() + 1
	path := j.path(number)
	file, err := j.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("open prepared segment: %w", err)
	}
	size, err := j.checkZero(number, file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if size == j.segmentBytes {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.ready = &preparedSegment{file: file, size: size}
		return nil
	}
	if err := errors.Join(file.Close(), j.fs.Remove(path)); err != nil {
		return fmt.Errorf("remove prepared segment of another length: %w", err)
	}
	return nil
}

func (j *Journal) checkZero(number uint32, file vfs.File) (size uint32, err error) {
	info, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("stat prepared segment: %w", err)
	}
	if info.Size() > MaxSegmentBytes {
		return 0, j.damage(Position{Segment: number}, "the file is longer than a segment can be", hintRestore)
	}
	size = uint32(info.Size())
	w := window{j: j, file: file, segment: number, limit: size}
	first, _, err := w.nonzeros(0)
	if err != nil {
		return 0, err
	}
	if first < size {
		return 0, j.damage(Position{Segment: number, Offset: first}, "the segment holds data but has lost its header",
			hintRestore)
	}
	return size, nil
}
