// Package state keeps what the engine derives from its journal so that a start need not replay everything: counters,
// tenants, where each section of rows is, corrections, members of unique meters. It owns a Pebble database and the keys
// and values in it. It is never an authority: all of it can be made again from the journal, and it always says which
// position of the journal it reflects, no more and no less.
package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// A checkpoint is one atomic batch: every change since the last one and the journal position that they lead to. The
// write-ahead log is off and the database is flushed after the batch, so after a crash it holds some whole number of
// checkpoints, and replaying the journal from the position it names gives the rest. A checkpoint is written only when
// the journal is durable up to its position; the state can therefore never know more than the journal.

// checkpointsApart is how many checkpoints may overlap before they are merged.
const checkpointsApart = 8

// Version of the keys and values below. Another one is never read: the state is made again from the journal instead.
const Version = 4

// Options of a state.
type Options struct {
	FS      vfs.FS
	Dir     string
	StoreID [16]byte
	// Cache is the memory for blocks that were read. Default 64 MiB.
	Cache int64
	// Fatal is called when the database cannot go on, as when its manifest cannot be written.
	Fatal func(error)
	// Reading is called before anything is read. Default: nothing is.
	Reading func()
}

// State is an open database.
type State struct {
	Reader
	db       *pebble.DB
	position journal.Position
	watch    *watch
}

// VersionError says that the directory was written by another build.
type VersionError struct {
	Dir   string
	Found byte
}

// Older reports whether the build came before this one.
func (e *VersionError) Older() bool { return e.Found < Version }

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s holds state version %d, this build has version %d: use the build that wrote it, or run "+
		"`tallystick rebuild`", e.Dir, e.Found, Version)
}

// DamageError says that the directory cannot be trusted.
type DamageError struct {
	Dir string
	Err error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged: %v: run `tallystick rebuild`; the journal has everything", e.Dir, e.Err)
}

func (e *DamageError) Unwrap() error { return e.Err }

// Open opens the state, or makes an empty one that reflects the beginning of the journal.
func Open(o Options) (*State, error) {
	if o.Cache == 0 {
		o.Cache = 64 << 20
	}
	cache := pebble.NewCache(o.Cache)
	defer cache.Unref()
	w := newWatch(o.Fatal)
	opts := &pebble.Options{
		// A checkpoint changes counters all over the state, so that merging one rewrites most of it. Some are gathered
		// first and then merged at once. What that costs are reads that look in more places; counters that are in use
		// are read rarely.
		L0CompactionThreshold: 2 * checkpointsApart,
		L0StopWritesThreshold: 8 * checkpointsApart,
		LBaseMaxBytes:         1 << 30,
		FS:                    namesFirst{o.FS, w.Fatalf},
		Cache:                 cache,
		DisableWAL:            true,
		// Pebble takes memory tables out of the cache. A checkpoint is one batch: one that is larger than half of a
		// table is flushed as it is, so that a large table would serve nothing.
		MemTableSize:                4 << 20,
		MemTableStopWritesThreshold: 4,
		FormatMajorVersion:          pebble.FormatNewest,
		Logger:                      w,
		EventListener:               w.listener(),
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := w.open(o.Dir, opts)
	if err != nil {
		return nil, openError(o.Dir, err)
	}
	from := pebble.Reader(db)
	if o.Reading != nil {
		from = hooked{db, o.Reading}
	}
	s := &State{Reader: Reader{from}, db: db, watch: w}
	if err := s.identify(o); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// openError distinguishes a disk that does not serve, which may pass, from files that are not what was written.
func openError(dir string, err error) error {
	var failed syscall.Errno
	if errors.As(err, &failed) && failed != syscall.ENOENT {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	return &DamageError{dir, err}
}

// identify reads or writes the meta record: version, store, position.
func (s *State) identify(o Options) error {
	b, err := s.get([]byte{kindMeta})
	if err != nil {
		return &DamageError{o.Dir, err}
	}
	if b == nil {
		iter, err := s.db.NewIter(nil)
		if err != nil {
			return &DamageError{o.Dir, err}
		}
		defer func() { _ = iter.Close() }()
		if iter.First() {
			return &DamageError{o.Dir, errors.New("it has entries but does not say what they reflect")}
		}
		return s.db.Set([]byte{kindMeta}, metaValue(o.StoreID, journal.Position{}), pebble.NoSync)
	}
	if len(b) != metaSize {
		return &DamageError{o.Dir, fmt.Errorf("its meta record has %d bytes", len(b))}
	}
	if b[0] != Version {
		return &VersionError{o.Dir, b[0]}
	}
	if [16]byte(b[1:17]) != o.StoreID {
		return &DamageError{o.Dir, errors.New("it belongs to another store")}
	}
	s.position = readMeta(b)
	return nil
}

const metaSize = 1 + 16 + 8

func metaValue(id [16]byte, p journal.Position) []byte {
	b := append([]byte{Version}, id[:]...)
	b = binary.BigEndian.AppendUint32(b, p.Segment)
	return binary.BigEndian.AppendUint32(b, p.Offset)
}

func readMeta(b []byte) journal.Position {
	return journal.Position{Segment: binary.BigEndian.Uint32(b[17:]), Offset: binary.BigEndian.Uint32(b[21:])}
}

// Position is the journal position that the state reflected when it was opened.
func (s *State) Position() journal.Position { return s.position }

// Checkpoint collects one step of the state.
type Checkpoint struct {
	b        *pebble.Batch
	entities map[string]struct{} // that it has set, by key
	key      []byte              // of a counter
}

// A batch that has to grow is copied as a whole.
const (
	minBatch     = 1 << 10
	counterBytes = 96 // a guess of what one takes, with its key
)

// Begin starts a checkpoint that will have about so many counters.
func (s *State) Begin(counters int) *Checkpoint {
	return &Checkpoint{b: s.db.NewBatchWithSize(minBatch + counters*counterBytes), entities: map[string]struct{}{}}
}

// set adds an entry. A batch in memory cannot fail to take one.
func (c *Checkpoint) set(key, value []byte) {
	if err := c.b.Set(key, value, nil); err != nil {
		panic(fmt.Sprintf("state: batch refuses an entry: %v", err))
	}
}

// Commit makes the checkpoint the state and waits until it is on disk.
func (s *State) Commit(c *Checkpoint, id [16]byte, at journal.Position) error {
	c.set([]byte{kindMeta}, metaValue(id, at))
	if err := s.db.Apply(c.b, pebble.NoSync); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	flushed, err := s.db.AsyncFlush()
	if err == nil {
		err = s.watch.wait(flushed)
	}
	if err != nil {
		return fmt.Errorf("flush checkpoint: %w", err)
	}
	return nil
}

// Verify reads every table and checks its checksums. It may run beside everything else. It calls pace after each
// stretch of entries and ends with its error.
func (s *State) Verify(pace func() error) error {
	iter, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	for n, ok := 1, iter.First(); ok && err == nil; n, ok = n+1, iter.Next() {
		if n%verifyStretch == 0 {
			err = pace()
		}
	}
	if err := errors.Join(err, iter.Error(), iter.Close()); err != nil {
		return err
	}
	return s.db.CheckLevels(nil)
}

// verifyStretch is how many entries are read between two calls of pace: less than a millisecond.
const verifyStretch = 1000

// Size is the space on disk.
func (s *State) Size() uint64 { return s.db.Metrics().DiskSpaceUsage() }

// Hurry makes Commit give up, with ErrGaveUp, when a write fails from now on, instead of waiting until it succeeds.
func (s *State) Hurry() { s.watch.hurry() }

// Close releases the database. What was not committed is gone, and comes again from the journal. A database that has
// ended the process, which still lives, holds its own locks for good and is left alone.
func (s *State) Close() error {
	if s.watch.isDead() {
		return errDead
	}
	// It may also end while it is being closed; then closing waits for good for a goroutine that is no more.
	closed := make(chan error, 1)
	go func() { closed <- s.db.Close() }()
	select {
	case err := <-closed:
		return err
	case <-s.watch.dead:
		return errDead
	}
}
