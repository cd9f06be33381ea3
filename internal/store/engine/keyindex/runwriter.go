package keyindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// writeBlocks is how many blocks go to the file in one write.
	writeBlocks = 64
	// readBlocks is how many come from it in one read of a merge, which has sixteen
	// such buffers: 128 KiB, past which bigger calls gain nothing.
	readBlocks = 32
	// pushBytes is how much is written before the file system is asked to start
	// writing it back, so that the sync at the end, which the journal's own syncs may
	// have to wait behind, finds little left to do.
	pushBytes = 4 << 20
)

var errOrder = errors.New("hash not above the one before it")

// runWriter writes one run from entries that arrive in ascending order. Its first
// error sticks and is returned by finish.
type runWriter struct {
	footer
	file  vfs.File
	name  string
	stop  <-chan struct{}
	shift uint
	filt  filter
	fence []uint64

	buf     []byte // whole blocks not yet written
	used    int    // bytes of buf that hold entries and finished blocks
	inBlock int    // entries in the block being filled
	written int64
	pushed  int64
	last    Hash
	err     error
}

// newRunWriter creates the file. keys may be more than will be added: it only sizes
// the filter.
func newRunWriter(fs vfs.FS, name string, ft footer, keys int64, stop <-chan struct{}) (*runWriter, error) {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("create key index run: %w", err)
	}
	w := &runWriter{
		footer: ft,
		file:   f,
		name:   name,
		stop:   stop,
		shift:  rangeShift(ft.Partitions, ft.Width),
		filt:   make(filter, filterBlocks(keys)),
		fence:  make([]uint64, 0, keys/blockKeys+1),
		buf:    make([]byte, min(writeBlocks, blocksFor(uint64(keys)))*blockBytes),
	}
	w.Count = 0
	return w, nil
}

// append adds entries. errOrder says that they are not in ascending order, or not
// above those before.
func (w *runWriter) append(entries []Entry) error {
	for i := range entries {
		s := w.slot(entries[i].Hash)
		if s == nil {
			return w.err
		}
		encodeEntry(s, &entries[i])
	}
	giveWay()
	return nil
}

// slot returns the bytes for the entry of hash h, to be filled before the next call,
// or nil after an error.
func (w *runWriter) slot(h Hash) []byte {
	if w.inBlock == blockKeys {
		w.endBlock()
	}
	if !w.last.less(h) && w.Count > 0 {
		w.fail(errOrder)
	}
	if w.err != nil {
		return nil
	}
	if w.inBlock == 0 {
		w.fence = append(w.fence, h.Hi)
	}
	w.filt.add(h.Hi<<w.shift, h.Lo)
	w.last = h
	w.Count++
	w.inBlock++
	s := w.buf[w.used : w.used+entryBytes]
	w.used += entryBytes
	return s
}

func (w *runWriter) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *runWriter) endBlock() {
	end := (w.used + blockBytes - 1) / blockBytes * blockBytes
	body := w.buf[end-blockBytes : end-4]
	clear(w.buf[w.used : end-4])
	number := uint64(w.written/blockBytes) + uint64(end/blockBytes) - 1
	binary.LittleEndian.PutUint32(w.buf[end-4:], blockCRC(w.Number, number, body))
	w.used, w.inBlock = end, 0
	if w.used == len(w.buf) {
		w.write(w.buf)
		w.used = 0
	}
}

func (w *runWriter) write(b []byte) {
	if w.err != nil {
		return
	}
	select {
	case <-w.stop:
		w.fail(errStopped)
		return
	default:
	}
	n, err := w.file.Write(b)
	w.written += int64(n)
	if err != nil {
		w.fail(fmt.Errorf("write key index run %s: %w", w.name, err))
		return
	}
	if w.written-w.pushed < pushBytes {
		return
	}
	w.pushed = w.written
	if _, err := w.file.SyncTo(w.written); err != nil {
		w.fail(fmt.Errorf("write back key index run %s: %w", w.name, err))
	}
}

// finish makes the file durable and closes it. After an error the file is closed but
// still there: the caller removes it.
func (w *runWriter) finish() (runMeta, error) {
	if w.inBlock > 0 {
		w.endBlock()
	}
	w.write(w.buf[:w.used])
	w.FilterBlocks = uint64(len(w.filt))
	tail := make([]byte, len(w.filt)*filterBlockBytes+len(w.fence)*fenceBytes,
		len(w.filt)*filterBlockBytes+len(w.fence)*fenceBytes+footerBytes)
	w.filt.encode(tail)
	fence := tail[len(w.filt)*filterBlockBytes:]
	for i, hi := range w.fence {
		binary.LittleEndian.PutUint64(fence[i*fenceBytes:], hi)
	}
	w.FilterCRC = crc32.Checksum(tail[:len(w.filt)*filterBlockBytes], castagnoli)
	w.FenceCRC = crc32.Checksum(fence, castagnoli)
	w.write(append(tail, w.footer.encode()...))
	if w.err == nil {
		if err := w.file.Sync(); err != nil {
			w.fail(fmt.Errorf("sync key index run %s: %w", w.name, err))
		}
	}
	if err := w.file.Close(); err != nil {
		w.fail(fmt.Errorf("close key index run %s: %w", w.name, err))
	}
	return w.runMeta, w.err
}
