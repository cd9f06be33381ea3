package journal

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxOpenFiles bounds the descriptors held for reading: a terabyte is 16,000 segments, and a process may have 1024.
const maxOpenFiles = 128

// openFiles lends segment files to readers, keeping the ones last used open.
type openFiles struct {
	fs   vfs.FS
	path func(number uint32) string
	// load reads where the records of a file are when it is one of a pruned segment, else nil.
	load func(number uint32, file vfs.File) ([]prunedRecord, error)

	mu     sync.Mutex // guards what follows
	files  map[uint32]*openFile
	clock  uint64 // counts loans; orders them for eviction
	forgot uint64 // counts files that were forgotten
	closed bool
}

type openFile struct {
	file   vfs.File
	number uint32
	pruned []prunedRecord // nil: an ordinary segment
	loans  int
	used   uint64
	stale  bool // the segment has another file by now
}

// add takes over a file that the caller opened, on loan to the caller.
func (o *openFiles) add(number uint32, file vfs.File) *openFile {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.evict()
	o.clock++
	f := &openFile{file: file, number: number, loans: 1, used: o.clock}
	o.files[number] = f
	return f
}

// borrow returns the segment's file; give it back with release. A file is opened without the lock, so that those who
// want an open one do not wait for the disk: of two who open the same, the first one's stays.
func (o *openFiles) borrow(number uint32) (*openFile, error) {
	for {
		f, forgot, err := o.lend(number)
		if f != nil || err != nil {
			return f, err
		}
		if f, err = o.open(number); err != nil {
			return nil, err
		}
		kept, err := o.keep(f, forgot)
		if kept != f {
			_ = f.file.Close() // was only read
		}
		if kept != nil || err != nil {
			return kept, err
		}
	}
}

// lend returns the file if it is open, else how many were forgotten so far.
func (o *openFiles) lend(number uint32) (f *openFile, forgot uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, 0, ErrClosed
	}
	if f = o.files[number]; f != nil {
		o.lent(f)
	}
	return f, o.forgot, nil
}

// lent counts a loan. mu is held.
func (o *openFiles) lent(f *openFile) {
	o.clock++
	f.loans++
	f.used = o.clock
}

func (o *openFiles) open(number uint32) (*openFile, error) {
	file, err := o.fs.Open(o.path(number))
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	pruned, err := o.load(number, file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &openFile{file: file, number: number, pruned: pruned}, nil
}

// keep lends the file that was opened, or the one that another has opened meanwhile. It is nil when files were
// forgotten since: what was opened may be one that the segment no longer has.
func (o *openFiles) keep(f *openFile, forgot uint64) (*openFile, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, ErrClosed
	}
	if first := o.files[f.number]; first != nil {
		f = first
	} else if o.forgot != forgot {
		return nil, nil
	} else {
		o.evict()
		o.files[f.number] = f
	}
	o.lent(f)
	return f, nil
}

// forget makes the next borrower open the segment's file anew. Who has the old one reads on in it.
func (o *openFiles) forget(number uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgot++
	f := o.files[number]
	if f == nil {
		return
	}
	delete(o.files, number)
	if f.stale = true; f.loans == 0 {
		_ = f.file.Close() // was only read
	}
}

func (o *openFiles) release(f *openFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f.loans--
	if (o.closed || f.stale) && f.loans == 0 {
		if o.files[f.number] == f {
			delete(o.files, f.number)
		}
		// The file was only read, or every sync of it returned: closing cannot lose anything.
		_ = f.file.Close()
	}
}

// evict closes the file unused for longest when there are too many. mu is held.
func (o *openFiles) evict() {
	if len(o.files) < maxOpenFiles {
		return
	}
	var oldest uint32
	for number, f := range o.files {
		if f.loans == 0 && (oldest == 0 || f.used < o.files[oldest].used) {
			oldest = number
		}
	}
	if oldest == 0 {
		return
	}
	_ = o.files[oldest].file.Close()
	delete(o.files, oldest)
}

// close closes what is not on loan; the rest closes when it is given back.
func (o *openFiles) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	var errs []error
	for number, f := range o.files {
		if f.loans == 0 {
			errs = append(errs, f.file.Close())
			delete(o.files, number)
		}
	}
	return errors.Join(errs...)
}
