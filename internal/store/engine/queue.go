package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
)

// Bounds of what may wait. A full queue answers at once that it is full: waiting longer would not make the disk faster.
const (
	maxQueuedFacts       = 400_000
	maxQueuedTenantFacts = 200_000
	maxQueuedBytes       = 256 << 20
	// quantum is how many facts a tenant may have decided before the next tenant's turn: one large batch's worth of a
	// millisecond, so that a tenant that floods the queue delays another by about that.
	quantum = 1000
)

// work is one call of Record or Update on its way through the committer.
type work struct {
	book *book

	// Of Record.
	by      string
	atomic  bool // all of the events or none
	events  []usage.Event
	facts   []prepared
	catalog *usage.Catalog // that the facts were prepared with
	// thresholds of one quota, at most, that the bound was made with.
	thresholds int
	epoch      keyindex.Epoch
	fetched    fetched
	targets    map[usage.Key]*usage.Row // of its corrections, without their properties
	plans      fetchedPlans
	verdicts   []usage.Verdict

	// Of Update.
	tenantID string
	update   func(store.Tx) error

	// Of Import, with tenantID.
	imported *ledger.Section

	probe bool // of Ready: it asks for nothing but an answer

	bound int // largest encoding
	err   error
	taken atomic.Bool   // by the committer, or by a caller that gave up
	done  chan struct{} // takes one token when the answer is there
}

func (w *work) cost() int { return max(1, len(w.events)) }

// fifo is one tenant's queue with its turn's credit.
type fifo struct {
	works  []*work
	facts  int
	credit int
}

// queue holds what waits for the committer: first in, first out for a tenant, deficit round robin between tenants.
type queue struct {
	wake chan struct{} // holds a token when there is something to take

	mu     sync.Mutex // guards the rest and every book's queued
	active []*fifo    // with works, in turn order
	facts  int
	bytes  int
	closed bool
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func errBusy() error {
	return problem.New(problem.Busy, "too many events wait to be committed: try again").Retry(time.Second)
}

func errClosed() error {
	return problem.New(problem.Unavailable, "the store is closing").Retry(time.Second)
}

// put appends work to its tenant's queue.
func (q *queue) put(f *fifo, w *work) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosed()
	}
	n := w.cost()
	full := q.facts+n > maxQueuedFacts || f.facts+n > maxQueuedTenantFacts || q.bytes+w.bound > maxQueuedBytes
	if full && !w.probe { // there is one probe at most, and it is to find out whether a full queue moves
		return errBusy()
	}
	if len(f.works) == 0 {
		q.active = append(q.active, f)
	}
	f.works = append(f.works, w)
	f.facts += n
	q.facts += n
	q.bytes += w.bound
	q.nudge()
	return nil
}

// nudge makes the committer look again.
func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take appends the next works in turn, until their facts or bytes reach a bound. It has claimed them: a caller can no
// longer give up on them.
func (q *queue) take(into []*work, facts, bytes int) []*work {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.active) > 0 && facts > 0 && bytes > 0 {
		f := q.active[0]
		w := f.works[0]
		if f.credit < w.cost() {
			f.credit += quantum
			if len(q.active) > 1 {
				copy(q.active, q.active[1:])
				q.active[len(q.active)-1] = f
			}
			continue
		}
		f.credit -= w.cost()
		q.remove(f, w)
		if w.taken.CompareAndSwap(false, true) {
			into = append(into, w)
			facts -= w.cost()
			bytes -= w.bound
		}
	}
	return into
}

func (q *queue) remove(f *fifo, w *work) {
	f.works[0] = nil
	f.works = f.works[1:]
	f.facts -= w.cost()
	q.facts -= w.cost()
	q.bytes -= w.bound
	if len(f.works) == 0 {
		f.works, f.credit = nil, 0
		q.active = append(q.active[:0], q.active[1:]...)
	}
}

// close refuses what comes from now on. What waits can still be taken.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.nudge()
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// waiting is the number of facts in the queue.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.facts
}
