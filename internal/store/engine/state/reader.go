package state

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// hooked calls a function before anything is read.
type hooked struct {
	pebble.Reader
	reading func()
}

func (h hooked) Get(key []byte) ([]byte, io.Closer, error) {
	h.reading()
	return h.Reader.Get(key)
}

func (h hooked) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	h.reading()
	return h.Reader.NewIter(o)
}

// Reader reads the entries of a state: as they are now, or as a checkpoint left them.
type Reader struct{ from pebble.Reader }

// Snapshot is the state as one checkpoint left it. Checkpoints that come later do not change it.
type Snapshot struct {
	Reader
	snapshot *pebble.Snapshot
}

// Snapshot keeps the last checkpoint. It must be closed before the state is.
func (s *State) Snapshot() *Snapshot {
	n := s.db.NewSnapshot()
	return &Snapshot{Reader{n}, n}
}

// Close lets go of the checkpoint.
func (n *Snapshot) Close() error { return n.snapshot.Close() }

// Reflects is the journal position that the entries reflect.
func (s *Reader) Reflects() (journal.Position, error) {
	b, err := s.get([]byte{kindMeta})
	if err == nil && len(b) != metaSize {
		err = fmt.Errorf("meta record of %d bytes: %w", len(b), errValue)
	}
	if err != nil {
		return journal.Position{}, err
	}
	return readMeta(b), nil
}

// get returns a copy of a value, or nil.
func (s *Reader) get(key []byte) ([]byte, error) {
	v, closer, err := s.from.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := append([]byte{}, v...)
	return b, closer.Close()
}
