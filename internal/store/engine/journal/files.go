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

	mu     sync.Mutex // guards what follows
	files  map[uint32]*openFile
	clock  uint64 // counts loans; orders them for eviction
	closed bool
}

type openFile struct {
	file  vfs.File
	loans int
	used  uint64
}

// add takes over a file that the caller opened, on loan to the caller.
func (o *openFiles) add(number uint32, file vfs.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.evict()
	o.clock++
	o.files[number] = &openFile{file: file, loans: 1, used: o.clock}
}

// borrow returns the segment's file; give it back with release.
func (o *openFiles) borrow(number uint32) (vfs.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, ErrClosed
	}
	o.clock++
	if f := o.files[number]; f != nil {
		f.loans++
		f.used = o.clock
		return f.file, nil
	}
	o.evict()
	file, err := o.fs.Open(o.path(number))
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	o.files[number] = &openFile{file: file, loans: 1, used: o.clock}
	return file, nil
}

func (o *openFiles) release(number uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.files[number]
	f.loans--
	if o.closed && f.loans == 0 {
		delete(o.files, number)
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
