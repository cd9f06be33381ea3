package state

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// ErrGaveUp is wrapped when a checkpoint could not be written and nobody waits for the disk to recover.
var ErrGaveUp = errors.New("gave up on the checkpoint")

var errDead = errors.New("the state database has ended")

// watch hears what Pebble says. Pebble repeats a failed flush for ever, which is right while the store runs, since a
// full disk may have space again, and wrong when it is to be closed. When Pebble cannot go on at all it ends the
// process by Logger.Fatalf, from whatever goroutine it is in, often with its locks held. Its running commentary goes
// nowhere.
type watch struct {
	fatal   func(error)
	opening atomic.Bool
	once    sync.Once
	dead    chan struct{} // closed when Pebble cannot go on
	hurried chan struct{} // closed by hurry
	failed  chan error    // holds the last failure of a background write
}

func newWatch(fatal func(error)) *watch {
	return &watch{fatal: fatal, dead: make(chan struct{}), hurried: make(chan struct{}), failed: make(chan error, 1)}
}

// listener takes errors. Damage that a read meets is returned to the reader; that alone is no reason to end the
// process.
func (w *watch) listener() *pebble.EventListener {
	return &pebble.EventListener{
		DataCorruption: func(pebble.DataCorruptionInfo) {},
		BackgroundError: func(err error) {
			select {
			case <-w.failed:
			default:
			}
			select {
			case w.failed <- err:
			default:
			}
		},
	}
}

// open opens the database. What ends Pebble while it opens is an error like any other.
func (w *watch) open(dir string, opts *pebble.Options) (db *pebble.DB, err error) {
	w.opening.Store(true)
	defer w.opening.Store(false)
	defer func() {
		if r := recover(); r != nil {
			failure, ok := r.(openFailure)
			if !ok {
				panic(r)
			}
			err = failure.error
		}
	}()
	return pebble.Open(dir, opts)
}

type openFailure struct{ error }

// wait waits for a flush.
func (w *watch) wait(flushed <-chan struct{}) error {
	select {
	case <-flushed:
		return nil
	case <-w.dead:
		return errDead
	case <-w.hurried:
	}
	// A failure from before may be over. If it is not, the next try says so at once.
	select {
	case <-w.failed:
	default:
	}
	select {
	case <-flushed:
		return nil
	case <-w.dead:
		return errDead
	case err := <-w.failed:
		return fmt.Errorf("%w: %w", ErrGaveUp, err)
	}
}

func (w *watch) hurry() { close(w.hurried) }

func (w *watch) isDead() bool {
	select {
	case <-w.dead:
		return true
	default:
		return false
	}
}

func (*watch) Infof(string, ...any)  {}
func (*watch) Errorf(string, ...any) {}

// Fatalf does not return. If the process outlives it, the goroutine ends here and leaves Pebble as it is.
func (w *watch) Fatalf(format string, args ...any) {
	err := &ended{what: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if cause, ok := a.(error); ok {
			err.cause = cause
		}
	}
	if w.opening.Load() {
		panic(openFailure{err})
	}
	w.once.Do(func() {
		close(w.dead)
		if w.fatal != nil {
			w.fatal(err)
		}
	})
	runtime.Goexit()
}

// ended is what Pebble said when it could not go on.
type ended struct {
	what  string
	cause error
}

func (e *ended) Error() string {
	return "state database: " + e.what + ": nothing acknowledged is lost; " + journal.Remedy(e.cause) + ", and restart"
}

func (e *ended) Unwrap() error { return e.cause }
