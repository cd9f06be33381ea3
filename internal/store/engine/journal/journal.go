// Package journal keeps the append-only segment files that are the only truth of the embedded store. It owns the bytes
// of those files: where a record starts, whether it is whole, what a crash may leave behind and what is damage. It
// never looks inside a payload, never decides anything about facts, shortens a record only when it is given what is
// left of it, and takes no lock on its directory: one process at a time is the caller's business.
package journal

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A journal is a sequence of segment files of fixed length. A segment is a header block and records one after the
// other, then zeros to its end. Bytes are in docs/formats.md; this is why they are so.
//
// Invariants
//
//	I1  A record is not written before the sync of the record ahead of it returned. So at most one record, the last
//	    of the last segment, can be torn, and everything ahead of it was durable when it was written.
//	I2  A record is written only where the file held synced zeros. So whatever follows the last record is zero, or is
//	    the one torn record; anything else was not written by this code and is damage.
//	I3  A record's checks cover the store, segment and offset it was written for. So no old, moved or foreign bytes
//	    can pass for a record.
//	I4  A segment's header says where its predecessor ended, and is synced before the segment takes its first
//	    record. So the length of every sealed segment is known without reading it, and a record in segment n+1
//	    implies that header.
//	I5  No write or sync that failed is tried again: the page cache may then claim what the disk does not have. The
//	    journal is poisoned, and every later call returns the first failure.
//
// Outline
//
//	Append: if the record does not fit here:                       (roll)
//	            write header{n+1, end of n} at the start of the ready file n+1; sync it
//	            n+1 is now the current segment; wake the preparer
//	        write header and payload with one WriteAt
//	Sync:   fdatasync the current segment
//
//	preparer, in the background, whenever no file is ready:
//	        create n+1.tmp; allocate; write zeros to its full length; sync
//	        rename to n+1; sync the directory; it is ready
//
// The ready file buys two things. A full disk shows itself while preparing, before anything was decided, instead of in
// the middle of a write that must not fail. And overwriting blocks that are already allocated and written needs no
// change of metadata, which makes the fdatasync that every answer waits for cheaper. It costs a segment of disk, and
// writes every byte twice: a journal that has to run at the full bandwidth of its disk is slower for it, one that runs
// below it is faster. BenchmarkAppendSync shows both.
//
// What a crash leaves, between each pair of steps
//
//	- preparing, before the rename is durable: n+1.tmp, n+1, both or neither. Nothing was ever written to it but
//	  zeros. Open removes the temporary file. A file n+1 whose header block is zero is a ready one, and Recover
//	  takes it over after reading that it is zero throughout: a segment that lost its header to a bad disk looks the
//	  same at the front.
//	- the directory was not synced but the process alone died: Open syncs the directory, so the file taken over
//	  stays.
//	- rolling, before the header's sync returned: the header's 64 bytes share a disk sector, so the header is absent
//	  (n is the last segment, n+1 is ready) or whole (n+1 is the last segment, without records). Both hold the same
//	  records: by I1 those of n are all durable. The header has a block of its own, so no record write ever rewrites
//	  the block it is in.
//	- appending, before the sync returned: any subset of the record's blocks. Whole by luck: it is kept; its answer
//	  was never given, which is allowed. Otherwise it is cut: its bytes become zeros, synced, before anything is
//	  appended (I2).
//	- cutting: some of its blocks are zero now. It stays torn, and the next start cuts it again.
//	- a sync failed and the process ended as it must, but the machine lived: the last record (or header) may sit in
//	  the page cache, marked clean, absent from the disk. Recover cannot see that. So it writes the last record over
//	  itself and syncs, before replaying any: what was replayed is on the disk.
//
// Torn or damaged
//
// The first record of the last segment that is not valid is the end. It may be cut if nothing contradicts I1: no
// derived file reflects a position beyond it (the floor), and no other record follows it. If its own header is intact,
// its extent is known and every byte beyond must be zero. If its header went with a lost block, its extent is unknown,
// so the rest of the segment is searched for a header that is valid for its place. That is why a header has a check of
// its own beside the payload's: a search that had to checksum a payload at every offset would be quadratic.
//
// Rejected
//
//   - Appending to a growing file: every sync also commits the new file length, and any append can meet a full disk.
//   - fallocate alone: the blocks are allocated but unwritten, and the first write of each changes metadata again.
//   - Truncating a segment when it is sealed. It saves less than one record of space per segment, costs another
//     metadata sync while the committer waits, and adds a crash window in which a length on disk disagrees with a
//     header. The zeros stay, every file has the length its header states, and a shorter or longer one is damage.
//   - Letting recycled segments keep old bytes, as some write-ahead logs do: their end is "the first record that
//     looks wrong", which cannot distinguish a torn record from a rotten one. Here I2 can.

// DefaultSegmentBytes is a compromise: less than a second to write when preparing, and few enough files at a terabyte.
const DefaultSegmentBytes = 64 << 20

// MaxSegmentBytes bounds what recovery may have to hold in memory when it searches a torn tail.
const MaxSegmentBytes = 1 << 30

// Options says where a journal is.
type Options struct {
	// FS holds the files. Required.
	FS vfs.FS
	// Dir is the journal's own directory. It is made when absent. Required.
	Dir string
	// SegmentBytes is the length of the segments made from now on; those that exist keep theirs. It bounds the size of
	// a record, see MaxPayload. Default 64 MiB, at most 1 GiB, at least 8 KiB.
	SegmentBytes uint32
	// StoreID is in the header of every segment and in the checks of every record. A segment of another store is
	// damage.
	StoreID [16]byte
}

// Journal is an open journal. Append and Sync belong to one writer; everything else may be called from any goroutine.
type Journal struct {
	fs           vfs.FS
	dir          string
	segmentBytes uint32
	storeID      [16]byte
	sums         checksums
	files        *openFiles

	// writeMu makes Append, Sync, Recover and Close exclude one another. It is held across writes and syncs, so
	// nothing that a reader or Reserve needs is behind it.
	writeMu sync.Mutex
	current vfs.File // the last segment, pinned in files; guarded by writeMu
	pinned  *openFile
	scratch []byte // Append's record; guarded by writeMu
	dirty   bool   // a record was written and not yet synced; guarded by writeMu

	// mu guards what follows. It is never held across I/O.
	mu         sync.Mutex
	changed    *sync.Cond // any of the following changed
	segments   []segment  // segments[i] is number i+1; the last one is the current one
	end        Position
	recovered  bool
	spare      bool // a file with a zero header follows the last segment; Recover decides about it
	ready      *preparedSegment
	wanted     bool  // the preparer has been asked to try
	preparing  bool  // the preparer is trying
	prepareErr error // why its last try failed
	err        error // poison
	closed     bool
	preparer   sync.WaitGroup
}

// segment is what must be known about a segment to read it.
type segment struct {
	size uint32 // length of the file, or that it had before it was pruned
	used uint32 // where its last record ends
}

// preparedSegment is a file of zeros, durable under its final name.
type preparedSegment struct {
	file vfs.File
	size uint32
}

var (
	// ErrNoSpace is wrapped by what Reserve and Append return when no prepared space holds the record. Nothing was
	// written, and preparation is being tried again.
	ErrNoSpace = errors.New("no journal space is prepared")
	// ErrTooLarge is wrapped when a payload is larger than MaxPayload.
	ErrTooLarge = errors.New("journal record is too large")
	// ErrClosed is returned by every call after Close.
	ErrClosed = errors.New("journal is closed")

	errNotRecovered = errors.New("journal: used before Recover succeeded")
)

// MaxPayload is the largest payload one record can hold.
func (j *Journal) MaxPayload() int {
	return int(j.segmentBytes - headerBlock - HeaderSize)
}

// End is the position after the last appended record.
func (j *Journal) End() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end
}

// Size is the number of bytes in use over all segments, without the space prepared ahead.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	var total int64
	for _, s := range j.segments {
		total += int64(s.used)
	}
	return total
}

// SizeBefore is how many of the bytes that Size counts lie before p.
func (j *Journal) SizeBefore(p Position) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	var total int64
	for i := range j.segments {
		switch number := uint32(i) + 1; {
		case number < p.Segment:
			total += int64(j.segments[i].used)
		case number == p.Segment:
			total += int64(min(p.Offset, j.segments[i].used))
		}
	}
	return total
}

// Close ends the preparer and closes the files. It does not sync: a record whose Sync did not return was never
// promised. Reads under way finish. It returns the poison of a poisoned journal.
func (j *Journal) Close() error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return ErrClosed
	}
	j.closed = true
	j.changed.Broadcast()
	j.mu.Unlock()
	j.preparer.Wait()

	errs := []error{j.err}
	if j.ready != nil {
		errs = append(errs, j.ready.file.Close())
	}
	j.files.release(j.pinned)
	errs = append(errs, j.files.close())
	return errors.Join(errs...)
}

// fail poisons the journal and returns the poison, which is the first failure there was.
func (j *Journal) fail(err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
		j.changed.Broadcast()
	}
	return j.err
}

// usable says why nothing can be done with the journal. mu is held.
func (j *Journal) usable() error {
	if j.err != nil {
		return j.err
	}
	if j.closed {
		return ErrClosed
	}
	return nil
}

// writable says why nothing can be appended. mu is held.
func (j *Journal) writable() error {
	if err := j.usable(); err != nil {
		return err
	}
	if !j.recovered {
		return errNotRecovered
	}
	return nil
}

// last is the number of the current segment. writeMu or mu is held.
func (j *Journal) last() uint32 { return uint32(len(j.segments)) }

func (j *Journal) path(number uint32) string {
	return j.fs.PathJoin(j.dir, segmentName(number))
}

// syncDir makes the names in the directory durable.
func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", dir, err)
	}
	if err := d.Sync(); err != nil {
		return errors.Join(fmt.Errorf("sync directory %s: %w", dir, err), d.Close())
	}
	return d.Close()
}
