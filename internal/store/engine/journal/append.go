package journal

import (
	"errors"
	"fmt"
)

// Reserve returns nil when prepared space surely holds one more record of n payload bytes: the rest of the current
// segment or the ready one. While the next segment is being prepared for the first time it waits for that. After
// preparation failed it has it tried again in the background and returns at once with an error that wraps ErrNoSpace
// and the cause. Other errors: ErrTooLarge, ErrClosed, the poison.
func (j *Journal) Reserve(n int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err := j.reserve(n)
	return err
}

// Prepared is Reserve for those who only ask how things stand: it never waits, and says nothing against a next segment
// that is being prepared.
func (j *Journal) Prepared(n int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _, err := j.space(n)
	return err
}

// reserve waits for space for n payload bytes and says whether it is in the next segment. mu is held.
func (j *Journal) reserve(n int) (roll bool, err error) {
	for {
		there, roll, err := j.space(n)
		if there || err != nil {
			return roll, err
		}
		j.changed.Wait()
	}
}

// space looks for space for n payload bytes: whether it is there, and whether in the next segment. If it is not there,
// it has been asked for. mu is held.
func (j *Journal) space(n int) (there, roll bool, err error) {
	if n <= 0 || n > j.MaxPayload() {
		return false, false, fmt.Errorf("%w: %d bytes of payload, between 1 and %d fit a segment of %d bytes",
			ErrTooLarge, n, j.MaxPayload(), j.segmentBytes)
	}
	if err := j.writable(); err != nil {
		return false, false, err
	}
	room := j.segments[len(j.segments)-1].size - j.end.Offset
	if HeaderSize+uint64(n) <= uint64(room) {
		return true, false, nil
	}
	if j.ready != nil {
		return true, true, nil
	}
	j.wakePreparer()
	if j.prepareErr != nil {
		return false, false, fmt.Errorf("%w for %d bytes: %w", ErrNoSpace, n, j.prepareErr)
	}
	return false, false, nil
}

// Append writes payload as one record, copying it. See AppendRecord.
func (j *Journal) Append(payload []byte) (pos, next Position, err error) {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	j.scratch = append(j.scratch[:0], make([]byte, HeaderSize)...)
	j.scratch = append(j.scratch, payload...)
	return j.appendRecord(j.scratch)
}

// AppendRecord writes the record whose payload is record[HeaderSize:]; the bytes before it are the journal's and are
// filled in. The record is durable when Sync has returned, and is not written before the Sync of the one ahead of it
// has. Errors: ErrNoSpace, ErrTooLarge, ErrClosed, and then nothing was written; any other error is poison.
func (j *Journal) AppendRecord(record []byte) (pos, next Position, err error) {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	return j.appendRecord(record)
}

func (j *Journal) appendRecord(record []byte) (pos, next Position, err error) {
	j.mu.Lock()
	roll, err := j.reserve(len(record) - HeaderSize)
	pos = j.end
	j.mu.Unlock()
	if err != nil {
		return Position{}, Position{}, fmt.Errorf("append record: %w", err)
	}
	if j.dirty {
		// I1 is what recovery rests on; a caller that breaks it must not be able to go on.
		return Position{}, Position{}, j.fail(errors.New("append record: the record before it was not synced"))
	}
	if roll {
		if err := j.roll(); err != nil {
			return Position{}, Position{}, j.fail(fmt.Errorf("append record: %w", err))
		}
		pos = j.End()
	}
	j.sums.seal(pos, record)
	if _, err := j.current.WriteAt(record, int64(pos.Offset)); err != nil {
		return Position{}, Position{}, j.fail(fmt.Errorf("append record: write %s at %d: %w", j.path(pos.Segment),
			pos.Offset, err))
	}
	j.dirty = true
	next = Position{Segment: pos.Segment, Offset: pos.Offset + uint32(len(record))}
	j.mu.Lock()
	j.end = next
	j.segments[len(j.segments)-1].used = next.Offset
	j.mu.Unlock()
	return pos, next, nil
}

// roll makes the ready segment the current one. The old one is sealed by nothing but the new header, which states its
// end.
func (j *Journal) roll() error {
	j.mu.Lock()
	ready, end := j.ready, j.end
	j.mu.Unlock()
	number := end.Segment + 1
	header := segmentHeader{
		version: formatVersion, number: number, storeID: j.storeID, size: ready.size, previousEnd: end.Offset,
	}.encode()
	if _, err := ready.file.WriteAt(header[:], 0); err != nil {
		return fmt.Errorf("write header of %s: %w", j.path(number), err)
	}
	if err := ready.file.SyncData(); err != nil {
		return fmt.Errorf("sync header of %s: %w", j.path(number), err)
	}
	sealed := j.pinned
	j.pinned = j.files.add(number, ready.file)
	j.files.release(sealed)
	j.current = ready.file
	j.mu.Lock()
	j.ready = nil
	j.segments = append(j.segments, segment{size: ready.size, used: headerBlock})
	j.end = Position{Segment: number, Offset: headerBlock}
	j.wakePreparer()
	j.mu.Unlock()
	return nil
}

// Sync makes what Append wrote durable. It may run while others Reserve and read.
func (j *Journal) Sync() error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	j.mu.Lock()
	err, end := j.writable(), j.end
	j.mu.Unlock()
	if err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	if !j.dirty {
		return nil
	}
	if err := j.current.SyncData(); err != nil {
		return j.fail(fmt.Errorf("sync journal: sync %s: %w", j.path(end.Segment), err))
	}
	j.dirty = false
	return nil
}
