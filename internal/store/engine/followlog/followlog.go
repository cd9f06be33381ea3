// Package followlog keeps where followers stand in files: a log of what changed, made anew when it has grown. It is
// small, and nothing else can be made again from it; nor can it be made again from the journal, which it says nothing
// of. So a rebuild leaves it alone.
//
// What is written at once is a group of records behind a mark, its length and a checksum. The last group may be torn
// by a crash: it was then never answered, and is cut. A group that does not read and has another behind it is damage.
package followlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store"
)

const (
	logName  = "LOG"
	nextName = "LOG.next"

	magic   = "tallyfol"
	version = 1

	mark     = "tFol"
	headSize = len(mark) + 8 // and length and checksum of a group
	// renewAt is how long a log may be before it is made anew, if most of it is old.
	renewAt = 4 << 20
)

const (
	opPut    = 1
	opDelete = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is what does not read.
var errDamaged = errors.New("damaged")

// Log is an open log. Put and Delete are safe for concurrent use; those that wait together share a sync.
type Log struct {
	fs  vfs.FS
	dir string
	// failed gets the error of a write or sync: what the file holds is then unknown.
	failed  func(error)
	renewAt int64

	mu      sync.Mutex // guards what follows
	pending []byte
	put     uint64 // records that were added to pending, ever
	live    map[key]store.Following
	broken  error

	writing sync.Mutex // held by the one who writes; guards what follows
	file    vfs.File
	size    int64
	written uint64 // records that are durable
}

type key struct{ tenant, follower string }

// Open opens the log in a directory and returns what it holds. Neither need be there: both are made when there is
// something to write, so that a start needs no space on the disk.
func Open(fs vfs.FS, dir string, failed func(error)) (*Log, []store.Following, error) {
	l := &Log{fs: fs, dir: dir, failed: failed, renewAt: renewAt, live: map[key]store.Following{}}
	if err := l.read(); err != nil {
		return nil, nil, err
	}
	out := make([]store.Following, 0, len(l.live))
	for _, f := range l.live {
		out = append(out, f)
	}
	return l, out, nil
}

func (l *Log) path(name string) string { return l.fs.PathJoin(l.dir, name) }

// read fills live from the log, if there is one, and leaves it open.
func (l *Log) read() error {
	f, err := l.fs.OpenReadWrite(l.path(logName), "followers")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open followers: %w", err)
	}
	all, err := io.ReadAll(f)
	if err != nil {
		err = fmt.Errorf("read followers: %w", err)
	} else {
		err = l.readAll(all)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file = f
	return nil
}

func (l *Log) readAll(all []byte) error {
	at := len(magic) + 1
	if len(all) < at || string(all[:len(magic)]) != magic {
		return l.damaged(0, errDamaged)
	}
	if all[len(magic)] != version {
		return fmt.Errorf("%s is of format %d, this build knows %d: use the build that wrote it, or a newer one",
			l.path(logName), all[len(magic)], version)
	}
	for l.size = int64(at); at < len(all); l.size = int64(at) {
		records, size := group(all[at:])
		if size == 0 {
			if followed(all[at:]) {
				return l.damaged(at, errDamaged)
			}
			return nil // torn by a crash; it is written over
		}
		if err := l.replay(records); err != nil {
			return l.damaged(at, err)
		}
		at += size
	}
	return nil
}

func (l *Log) damaged(at int, err error) error {
	return fmt.Errorf("%s at byte %d: %w: restore the file from a backup, or remove it: each sink then begins anew",
		l.path(logName), at, err)
}

// group returns the records of the group that some bytes begin with, and its size, 0 when it does not read.
func group(b []byte) (records []byte, size int) {
	if len(b) < headSize || string(b[:len(mark)]) != mark {
		return nil, 0
	}
	n, sum := binary.LittleEndian.Uint32(b[len(mark):]), binary.LittleEndian.Uint32(b[len(mark)+4:])
	if n == 0 || uint64(n) > uint64(len(b)-headSize) { // none is empty, as a mark before zeros would be
		return nil, 0
	}
	records = b[headSize : headSize+int(n)]
	if crc32.Checksum(records, castagnoli) != sum {
		return nil, 0
	}
	return records, headSize + int(n)
}

// followed reports whether a group stands behind one that does not read.
func followed(b []byte) bool {
	for at := 1; ; at++ {
		next := bytes.Index(b[at:], []byte(mark))
		if next < 0 {
			return false
		}
		at += next
		if _, size := group(b[at:]); size > 0 {
			return true
		}
	}
}

// replay applies the records of a group.
func (l *Log) replay(b []byte) error {
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return errDamaged
		}
		op, f, err := decode(b[size : size+int(n)])
		if err != nil {
			return err
		}
		l.apply(op, f)
		b = b[size+int(n):]
	}
	return nil
}

func (l *Log) apply(op byte, f store.Following) {
	if k := (key{f.Tenant, f.Follower}); op == opDelete {
		delete(l.live, k)
	} else {
		l.live[k] = f
	}
}

func appendRecord(b []byte, op byte, f *store.Following) []byte {
	var head [3*binary.MaxVarintLen64 + 2*binary.MaxVarintLen32 + 2*store.MaxFollower]byte
	r := append(head[:0], op)
	for _, s := range [...]string{f.Tenant, f.Follower} {
		r = append(binary.AppendUvarint(r, uint64(len(s))), s...)
	}
	r = binary.AppendUvarint(r, f.Position)
	r = binary.AppendVarint(r, int64(f.Due))
	if f.Failing {
		r = append(r, 1)
	} else {
		r = append(r, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(r)+len(f.Note)))
	return append(append(b, r...), f.Note...)
}

// sealed appends records behind a head, unless there are none.
func sealed(b, records []byte) []byte {
	if len(records) == 0 {
		return b
	}
	b = append(b, mark...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(records)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(records, castagnoli))
	return append(b, records...)
}

func decode(b []byte) (op byte, f store.Following, err error) {
	if len(b) == 0 || b[0] != opPut && b[0] != opDelete {
		return 0, f, errDamaged
	}
	op, b = b[0], b[1:]
	for _, s := range [...]*string{&f.Tenant, &f.Follower} {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return 0, f, errDamaged
		}
		*s, b = string(b[size:size+int(n)]), b[size+int(n):]
	}
	position, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, f, errDamaged
	}
	due, n := binary.Varint(b[size:])
	if n <= 0 || len(b) <= size+n || b[size+n] > 1 {
		return 0, f, errDamaged
	}
	f.Position, f.Due, f.Failing = position, calendar.Micros(due), b[size+n] == 1
	if note := b[size+n+1:]; len(note) > 0 {
		f.Note = slices.Clone(note)
	}
	return op, f, nil
}

// Put implements following.Keeper.
func (l *Log) Put(f store.Following) error { return l.add(opPut, f) }

// Delete implements following.Keeper.
func (l *Log) Delete(tenantID, follower string) error {
	return l.add(opDelete, store.Following{Tenant: tenantID, Follower: follower})
}

// add makes a record durable. Whoever comes while another syncs waits for it, and the first of those who waited writes
// what all of them brought.
func (l *Log) add(op byte, f store.Following) error {
	l.mu.Lock()
	if l.broken != nil {
		l.mu.Unlock()
		return l.broken
	}
	l.pending = appendRecord(l.pending, op, &f)
	l.put++
	number := l.put
	l.apply(op, f)
	l.mu.Unlock()
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.written >= number {
		return nil
	}
	return l.write()
}

// write makes durable what waits. The caller holds writing. What cannot be written for want of space may be written
// later; after a sync that failed, nobody knows what the file holds.
func (l *Log) write() error {
	l.mu.Lock()
	if l.broken != nil {
		l.mu.Unlock()
		return l.broken
	}
	some, upTo := l.pending, l.put
	l.pending = nil
	l.mu.Unlock()
	if l.file == nil {
		return l.renew()
	}
	group := sealed(nil, some)
	if _, err := l.file.WriteAt(group, l.size); err != nil {
		l.mu.Lock()
		l.pending = append(some, l.pending...)
		l.mu.Unlock()
		return l.noSpace(err)
	}
	if err := l.file.SyncData(); err != nil {
		return l.fail(err)
	}
	l.size += int64(len(group))
	l.written = upTo
	if l.size > l.renewAt && l.size > 2*l.need() {
		return l.renew()
	}
	return nil
}

func (l *Log) noSpace(err error) error {
	return problem.Wrap(problem.Unavailable, err, "where followers stand cannot be written in %s: free space on the "+
		"disk; nothing was lost", l.dir).Retry(5 * time.Second)
}

func (l *Log) fail(err error) error {
	err = fmt.Errorf("write followers in %s: %w", l.dir, err)
	l.mu.Lock()
	l.broken = err
	l.mu.Unlock()
	l.failed(err)
	return err
}

// need is about how long a log of what is live is.
func (l *Log) need() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.live {
		n += int64(len(f.Note) + len(f.Tenant) + len(f.Follower) + headSize)
	}
	return n
}

// renew writes what is live into a new file and puts it in place of the log. The caller holds writing.
func (l *Log) renew() error {
	l.mu.Lock()
	var records []byte
	for _, f := range l.live {
		records = appendRecord(records, opPut, &f)
	}
	upTo := l.put
	l.mu.Unlock()
	b := sealed(append([]byte(magic), version), records)
	f, err := l.create(b)
	if err != nil {
		if l.file != nil {
			return nil // what is durable is in the old one, which grows on
		}
		return l.noSpace(err)
	}
	err = l.fs.Rename(l.path(nextName), l.path(logName))
	if err == nil {
		err = syncDir(l.fs, l.dir)
	}
	if err == nil && l.file != nil {
		err = l.file.Close()
	}
	if err != nil {
		return l.fail(errors.Join(err, f.Close()))
	}
	l.file, l.size, l.written = f, int64(len(b)), upTo
	return nil
}

// create makes a file beside the log, and the folder when it is not there.
func (l *Log) create(b []byte) (vfs.File, error) {
	if err := l.fs.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	if err := syncDir(l.fs, l.fs.PathDir(l.dir)); err != nil {
		return nil, err
	}
	f, err := l.fs.Create(l.path(nextName), "followers")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Close closes the file. Nothing is under way.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
