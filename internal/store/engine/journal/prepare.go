package journal

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// zeroChunk is how much is written, and synced, at a time while preparing. Without the syncs the last one would push a
// whole segment at the disk at once, in front of the committer's small ones; a chunk is the most that can be ahead of
// them.
const zeroChunk = 1 << 20

// dirSyncError is a failed sync of the directory. Unlike the sync of a file that is then thrown away, it is about
// names that count, and by I5 it is not tried again.
type dirSyncError struct{ err error }

func (e *dirSyncError) Error() string { return e.err.Error() }
func (e *dirSyncError) Unwrap() error { return e.err }

// wakePreparer asks for a segment to be prepared, unless there is one or it is being made. mu is held.
func (j *Journal) wakePreparer() {
	if j.ready != nil || j.wanted || j.preparing {
		return
	}
	j.wanted = true
	j.changed.Broadcast()
}

// prepareLoop makes one segment per request until the journal closes or is poisoned. A failure is left for Reserve to
// report and to ask again: retrying unasked would hammer a full disk that nobody wants to write to.
func (j *Journal) prepareLoop() {
	defer j.preparer.Done()
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		for !j.wanted && j.usable() == nil {
			j.changed.Wait()
		}
		if j.usable() != nil {
			return
		}
		j.wanted, j.preparing = false, true
		number := j.last() + 1
		j.mu.Unlock()
		file, err := j.makeSegment(number, nil)
		j.mu.Lock()
		j.preparing, j.prepareErr = false, err
		if err == nil {
			j.ready = &preparedSegment{file: file, size: j.segmentBytes}
		}
		if failed := (*dirSyncError)(nil); errors.As(err, &failed) && j.err == nil {
			j.err = fmt.Errorf("prepare segment: %w", err)
		}
		j.changed.Broadcast()
	}
}

// makeSegment makes a durable file of zeros, headed by header, and opens it. After a failure it starts over with a new
// file, because a file whose sync failed is not to be trusted.
func (j *Journal) makeSegment(number uint32, header []byte) (vfs.File, error) {
	path := j.path(number)
	temp := path + tempSuffix
	if err := j.writeZeros(temp, header); err != nil {
		// What cannot be removed now is removed at the next Open, or replaced by the next try.
		_ = j.fs.Remove(temp)
		return nil, fmt.Errorf("prepare %s: %w", path, err)
	}
	if err := j.fs.Rename(temp, path); err != nil {
		return nil, fmt.Errorf("prepare %s: rename: %w", path, err)
	}
	if err := syncDir(j.fs, j.dir); err != nil {
		return nil, &dirSyncError{fmt.Errorf("prepare %s: %w", path, err)}
	}
	file, err := j.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", path, err)
	}
	return file, nil
}

func (j *Journal) writeZeros(path string, header []byte) (err error) {
	file, err := j.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// Allocating first finds a full disk before megabytes are written to it. File systems that cannot allocate say so
	// with other errors, and writing decides.
	if err := file.Preallocate(0, int64(j.segmentBytes)); vfs.IsNoSpaceError(err) {
		return fmt.Errorf("allocate %d bytes: %w", j.segmentBytes, err)
	}
	chunk := make([]byte, min(zeroChunk, j.segmentBytes))
	copy(chunk, header)
	for written := uint32(0); written < j.segmentBytes; {
		if j.closing() {
			return ErrClosed
		}
		n := min(uint32(len(chunk)), j.segmentBytes-written)
		if _, err := file.Write(chunk[:n]); err != nil {
			return fmt.Errorf("write %d bytes at %d: %w", n, written, err)
		}
		if err := file.Sync(); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		written += n
		// Write may scribble on what it was given, and only the first chunk has the header.
		clear(chunk)
	}
	return nil
}

func (j *Journal) closing() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closed
}
