package postgres

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// A tenant's batches commit one transaction after the other, because its head is locked; what makes that fast is that
// all batches that wait go together in the next one, and that as much as possible is done before the lock:
//
//	Record       checks the events and derives their keys, in the caller's goroutine, and waits in the lane
//	lookUp       while a transaction is under way: searches the keys of those that wait, on another connection
//	commitGroups lock the head and read · read what that left open, if anything · decide · write and commit:
//	             two or three round trips
//
// What a search found, and what it did not find, holds as of the head that it saw; if only this node has written since,
// it remembers the keys of those rows, and no second look is needed. Else all keys are searched again under the lock:
// others have written, or the database failed over and has lost rows that the search still saw. The same goes for
// counters: the cache keeps them while the head is this node's own. A transaction that failed leaves nothing behind
// that the next attempt would build on.

// Bounds of what may wait, and of what goes together. A full queue answers at once that it is full.
const (
	maxWaiting            = 400_000
	maxWaitingTenant      = 200_000
	maxWaitingBytes       = 256 << 20
	maxWaitingTenantBytes = 128 << 20
	// maxGroup is a quarter of a second's work: more would not commit faster, and holds the head longer.
	maxGroup = 16_000
	// lookUpFrom is how many facts make a search before the lock worth its own transaction; fewer are searched under
	// the lock in the round trip that takes it.
	lookUpFrom = 512
	// timedShare of the transactions of fewer facts than that have their parts measured: to learn when a part has ended
	// costs the server a packet, and this node a turn, which is nothing beside a thousand facts and some percents
	// beside one.
	timedShare = 8
	// maxLanes bounds the lanes that are kept for what they remember.
	maxLanes = 1024
)

// lane is the way of one tenant's writes through this node.
type lane struct {
	s        *Store
	tenantID string
	users    int // calls under way; Store.mu guards it

	// turn holds a token while nobody writes for this tenant on this node. Waiting here is fair and can be given up;
	// waiting for the head's lock in the database is neither. The holder owns the cache.
	turn   chan struct{}
	cache  cache
	groups int // that were tried

	mu         sync.Mutex // guards all below
	waiting    []*work    // not looked up yet
	ready      []*work    // looked up, and taken: their callers wait for them
	facts      int        // in waiting
	all        int        // in waiting and ready
	bytes      int        // of all
	committing bool
	looking    bool
}

// work is one call of Record.
type work struct {
	by       string // who brings the events
	atomic   bool   // all of the events or none
	events   []usage.Event
	bytes    int // of memory, roughly
	facts    []fact
	set      *residentSet // that the facts were prepared with
	looked   bool
	lookedAt ledger.Head // that the search saw
	found    []*ledger.Row
	verdicts []usage.Verdict
	err      error
	taken    atomic.Bool // by the lane, or by a caller that gave up
	done     chan struct{}
}

// fact is a prepared event.
type fact struct {
	usage.Fact
	hash uint64 // of its key
}

func (w *work) cost() int { return max(1, len(w.events)) }

// weigh returns the memory that a batch holds while it waits.
func weigh(events []usage.Event) int {
	n := len(events) * int(unsafe.Sizeof(usage.Event{})+unsafe.Sizeof(fact{})+unsafe.Sizeof(usage.Verdict{}))
	for i := range events {
		e := &events[i]
		n += len(e.ID) + len(e.Meter) + len(e.Type) + len(e.Customer) + len(e.Resource) + len(e.Properties) +
			len(e.Corrects) + len(e.Reason)
	}
	return n
}

func errBusy() error {
	return problem.New(problem.Busy, "too many events wait to be committed: try again").Retry(time.Second)
}

// enter returns the tenant's lane. leave must follow.
func (s *Store) enter(tenantID string) (*lane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, problem.New(problem.Unavailable, "the store is closed")
	}
	l := s.lanes[tenantID]
	if l == nil {
		s.dropLane()
		l = &lane{s: s, tenantID: tenantID, turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		s.lanes[tenantID] = l
	}
	l.users++
	s.works.Add(1)
	return l, nil
}

// dropLane forgets some lane that nobody uses, when there are too many. Store.mu is held.
func (s *Store) dropLane() {
	if len(s.lanes) < maxLanes {
		return
	}
	for id, l := range s.lanes {
		if l.users == 0 {
			delete(s.lanes, id)
			return
		}
	}
}

func (l *lane) leave() {
	l.s.mu.Lock()
	l.users--
	l.s.mu.Unlock()
	l.s.works.Done()
}

// reserve takes room for work that will wait, and reports whether there is any.
func (s *Store) reserve(w *work) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.facts+w.cost() > maxWaiting || s.bytes+w.bytes > maxWaitingBytes {
		return false
	}
	s.facts += w.cost()
	s.bytes += w.bytes
	return true
}

func (s *Store) release(w *work) {
	s.mu.Lock()
	s.facts -= w.cost()
	s.bytes -= w.bytes
	s.mu.Unlock()
}

// queued is what waits.
func (s *Store) queued() (facts, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts, s.bytes
}

// put queues work and sees to it that somebody takes it. The caller is inside the lane, which keeps the store from
// closing.
func (l *lane) put(w *work) error {
	if !l.s.reserve(w) {
		l.s.metrics.busy.Inc()
		return errBusy()
	}
	n := w.cost()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all+n > maxWaitingTenant || l.bytes+w.bytes > maxWaitingTenantBytes {
		l.s.release(w)
		l.s.metrics.busy.Inc()
		return errBusy()
	}
	l.waiting = append(l.waiting, w)
	l.facts += n
	l.all += n
	l.bytes += w.bytes
	if !l.committing {
		l.committing = true
		l.s.works.Go(l.commitGroups)
		return nil
	}
	if !l.looking && l.facts >= lookUpFrom {
		l.looking = true
		l.s.works.Go(l.lookUps)
	}
	return nil
}

// takeGroup returns what goes into the next transaction: first what was looked up, then what was not. Nil ends the
// committer.
func (l *lane) takeGroup() []*work {
	l.mu.Lock()
	defer l.mu.Unlock()
	var group []*work
	for size := 0; ; {
		queue := &l.ready
		if len(*queue) == 0 {
			queue = &l.waiting
		}
		if len(*queue) == 0 || len(group) > 0 && size+(*queue)[0].cost() > maxGroup {
			break
		}
		claimed := queue == &l.ready
		w := l.pop(queue)
		l.gone(w)
		if claimed || w.taken.CompareAndSwap(false, true) {
			group = append(group, w)
			size += w.cost()
		}
	}
	l.committing = len(group) > 0
	return group
}

// pop takes the first work of a queue. lane.mu is held.
func (l *lane) pop(queue *[]*work) *work {
	w := (*queue)[0]
	(*queue)[0] = nil
	*queue = (*queue)[1:]
	if queue == &l.waiting {
		l.facts -= w.cost()
	}
	return w
}

// gone notes that work waits no longer. lane.mu is held.
func (l *lane) gone(w *work) {
	l.all -= w.cost()
	l.bytes -= w.bytes
	l.s.release(w)
}

// commitGroups runs while there is work.
func (l *lane) commitGroups() {
	for few := true; ; {
		if few { // of large batches the keys are looked up while others commit: they need not come along
			l.letRun()
		}
		group := l.takeGroup()
		if group == nil {
			return
		}
		<-l.turn
		err := l.commitGroup(group)
		l.turn <- struct{}{}
		facts := 0
		for _, w := range group {
			w.err = err
			facts += w.cost()
			close(w.done)
		}
		few = facts < lookUpFrom
	}
}

// letRun gives way to callers that are ready to run, as long as that brings work. Those who were answered together come
// back together, to this lane or to the next: without this the first of them would have a transaction alone, which
// costs half as much as one of them all, and the others would wait for it. When nobody is ready it returns at once:
// nothing lingers by the clock.
func (l *lane) letRun() {
	for range yields {
		before := l.queued()
		runtime.Gosched()
		if l.queued() == before {
			return
		}
	}
}

// yields bounds how often a group gives way.
const yields = 4

// queued is how many facts wait.
func (l *lane) queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// lookUps searches keys ahead while enough facts wait and the committer is busy.
func (l *lane) lookUps() {
	for {
		l.mu.Lock()
		var group []*work
		for size := 0; l.committing && l.facts >= lookUpFrom && len(l.waiting) > 0 && size < maxGroup; {
			w := l.pop(&l.waiting)
			if !w.taken.CompareAndSwap(false, true) {
				l.gone(w)
				continue
			}
			group = append(group, w)
			size += w.cost()
		}
		if len(group) == 0 {
			l.looking = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		l.lookUp(group)
		l.mu.Lock()
		l.ready = append(l.ready, group...)
		if !l.committing {
			l.committing = true
			l.s.works.Go(l.commitGroups)
		}
		l.mu.Unlock()
	}
}

// lookUp searches the keys of waiting works. A search that fails is no harm: the keys are searched under the lock.
func (l *lane) lookUp(group []*work) {
	ctx, cancel := context.WithTimeout(context.Background(), l.s.options.StatementTimeout)
	defer cancel()
	var w wants
	for _, one := range group {
		one.want(&w)
	}
	if w.keyCount == 0 {
		return // all of them are refused before they have keys
	}
	c, err := l.s.lend(ctx)
	if err != nil {
		return
	}
	defer c.giveBack(ctx)
	var h head
	found := map[usage.Key]*ledger.Row{}
	set := group[0].set
	r := c.roundTrip(ctx)
	r.beginReading(roleServe, l.tenantID)
	r.send(readHead, l.s.headFrom(&h), []byte(l.tenantID))
	r.send(eventsByKey, func(in *reader) error {
		if h.version != set.version {
			return nil // the row may name a meter that this set does not have
		}
		row, err := readEvent(in, set)
		if err == nil {
			found[row.Event.Key] = &row
		}
		return err
	}, []byte(l.tenantID), w.keys.param())
	r.send(commit, nil)
	if r.do() != nil || !h.exists || h.version != set.version {
		return
	}
	for _, one := range group {
		if one.set == set {
			one.saw(h.Head, found)
		}
	}
}

// want asks for the keys of the work's facts and of what they correct.
func (w *work) want(all *wants) {
	for i := range w.facts {
		f := &w.facts[i]
		if f.Key.Name == "" {
			continue
		}
		all.key(f.Key)
		if f.Event.Corrects != "" {
			all.key(usage.KeyOfID(f.Event.Corrects))
		}
	}
}

// forget drops what a search found.
func (w *work) forget() { w.looked, w.lookedAt, w.found = false, ledger.Head{}, nil }

// saw notes what a search found.
func (w *work) saw(head ledger.Head, found map[usage.Key]*ledger.Row) {
	w.looked, w.lookedAt, w.found = true, head, nil
	if len(found) == 0 {
		return
	}
	for i := range w.facts {
		f := &w.facts[i]
		if r := found[f.Key]; r != nil {
			w.found = append(w.found, r)
		}
		if f.Event.Corrects != "" {
			if r := found[usage.KeyOfID(f.Event.Corrects)]; r != nil {
				w.found = append(w.found, r)
			}
		}
	}
}
