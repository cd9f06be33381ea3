// Package engine is the embedded store: a journal that is the only truth, and everything else derived from it. It owns
// the data directory of one process: the committer that orders and decides, the journal (journal/), the index of keys
// (keyindex/) and the state of counters and tenants (state/). It never guesses: what it cannot read it names, and what
// it has not made durable it does not answer.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// Options of an engine. Only Dir is required.
type Options struct {
	// Dir is the data directory; it is made when absent. One process may have it open.
	Dir string
	// FS holds the files. Default: the operating system's.
	FS vfs.FS
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Fatal gets a failure after which the process must end: a write or sync that failed. It should not
	// return; if it does, the engine refuses everything from then on. Default: panic.
	Fatal func(error)
	// Damaged is called with damage of a sorted file, which is set aside and made again. Default: nothing is.
	Damaged func(error)
	// Kinds are the kinds of entities that this build knows. Default: all of them.
	Kinds *entity.Kinds
	// Metrics takes the engine's figures. Default: none.
	Metrics prometheus.Registerer
	// SegmentBytes is the length of a journal segment. Default 64 MiB.
	SegmentBytes uint32
	// IndexEntries is how many keys the index gathers in memory before it writes them. Default: the index's own.
	IndexEntries int
	// IndexBacklog is how many keys, about 45 bytes each, may wait in memory for the disk before facts are refused as
	// busy. What counts is the memory: small tables that wait because a processor is busy are no reason to refuse
	// anything. Default: five times IndexEntries, and 5 Mi at least.
	IndexBacklog int
	// CheckpointBytes is how much journal a start may have to replay. Default 64 MiB.
	CheckpointBytes int64
	// CounterBytes is the memory for counters, about 120 bytes each; what changed since the last checkpoint stays
	// beyond it. It is taken as it is needed. Default 512 MiB.
	CounterBytes int
	// NoSlices switches sorted files for reading usage off: questions about it then scan the journal.
	NoSlices bool
	// SliceBytes is how much journal gathers before it is sliced. Default 1 MiB.
	SliceBytes int64
	// SliceRows is how many rows are sorted at once, in memory. Default 262,144.
	SliceRows int
	// CloseWithin is how long Close waits for Views and other reads under way. Default 10 s.
	CloseWithin time.Duration
	// Progress gets how far replaying the journal has come, in bytes. Default: nothing is called.
	Progress func(done, total int64)

	locked  bool   // the caller holds the directory's lock
	reading func() // called before the state is read. Default: nothing is
	listing func() // called before a stretch of changed counters is listed. Default: nothing is
	dirty   int    // counters that start a checkpoint when they have changed. Default 150,000
	open    int    // counters that are decoded in memory. Default 262,144
	recall  int    // bytes of sections that judging remembers. Default recallBytes
}

// Engine implements store.Store.
type Engine struct {
	now     func() time.Time
	fatal   func(error)
	options Options
	id      [16]byte
	lock    io.Closer
	journal *journal.Journal
	index   *keyindex.Index
	state   *state.State
	slicer  *slicer // nil when slices are off
	metrics *metrics
	// followers are those who follow the ledgers.
	followers followers

	// mu guards all that is decided: cells, notes, the decided half of every book, byID, and the index's memory tables.
	// The decider writes it, readers read it, the checkpointer ends checkpoints under it.
	mu         sync.RWMutex
	cells      *cells
	tallies    *tallies
	days       days
	notes      [2]*notes // being written down; being saved
	byID       map[string]*book
	nextNumber uint32
	byNumber   []*book          // filled while replaying
	reindexer  *state.Reindexer // the checkpointer's
	replayer   decoder

	books    sync.Map // id → *book, durable ones
	queue    *queue
	founding fifo      // of updates for tenants that do not exist yet; guarded by queue.mu
	works    sync.Pool // *work of Record
	// waiting are the cells that batches have brought along and that are not answered yet.
	waiting atomic.Int64
	pool    sync.Pool

	// The committer.
	maxGroup int
	judging  history         // the decider's
	recall   recall          // the decider's
	due      []ledger.Change // the decider's
	warmth   uint64          // the decider's; of no meaning, see cells.warm
	writer   recordWriter    // the writer's
	leaves   leafHasher      // the writer's
	tiles    atomic.Int64    // in memory, of all books
	flight   atomic.Int64    // bound of the group being written
	toWrite  chan *group
	toAnswer chan *group
	idle     chan struct{} // holds a token while the writer has nothing
	failed   chan struct{} // closed by the first failure
	failure  atomic.Pointer[failure]

	// The checkpointer.
	checkpoints chan *checkpoint
	saving      atomic.Bool
	savedAt     int64 // journal size at the last checkpoint; the decider's
	gaveUp      error // why closing does not wait for a checkpoint; the checkpointer's
	asked       checkpointRequests
	encoded     []byte // a counter; the checkpointer's

	// examined is held, by a token in it, by what reads the journal over and needs its rows to stay: a run of Verify,
	// a Snapshot; and by Prune, which takes rows away.
	examined chan struct{}
	// durable is the position that the journal is durable up to, and all that it says is published; see pack.
	durable atomic.Uint64

	probes fifo                 // the part of the queue of what Ready sends; guarded by queue.mu
	probe  atomic.Pointer[work] // what Ready sent last
	reads  *reads

	running sync.WaitGroup
	closing sync.Once
	closed  atomic.Bool
}

type failure struct{ err error }

var _ store.Store = (*Engine)(nil)

// Open opens the data directory, replays what the derived files do not reflect yet, and starts the committer.
func Open(o Options) (*Engine, error) {
	e, err := open(&o)
	if err != nil {
		return nil, err
	}
	if err := e.recover(); err != nil {
		return nil, errors.Join(err, e.release())
	}
	e.start()
	return e, nil
}

func (e *Engine) start() {
	e.maxGroup = min(maxGroupBytes, e.journal.MaxPayload()/4)
	e.savedAt = e.journal.Size()
	e.durable.Store(pack(e.journal.End())) // recovering made it so
	loops := []func(){e.decideLoop, e.writeLoop, e.answerLoop, e.checkpointLoop}
	if e.slicer != nil {
		loops = append(loops, e.slicer.loop)
	}
	for _, loop := range loops {
		e.running.Add(1)
		go func() {
			defer e.running.Done()
			loop()
		}()
	}
}

// Record implements store.Store.
func (e *Engine) Record(ctx context.Context, batch store.Batch) ([]usage.Verdict, error) {
	if err := batch.Check(); err != nil {
		return nil, err
	}
	b, err := e.book(batch.Tenant)
	if err != nil {
		return nil, err
	}
	w, err := e.prepare(b, batch.By, batch.Events)
	if err != nil {
		return nil, err
	}
	w.atomic = batch.Atomic
	if err := e.submit(ctx, &b.queued, w); err != nil {
		e.unfetch(w)
		return nil, err
	}
	verdicts := w.verdicts
	e.recycle(w)
	return verdicts, nil
}

// Update implements store.Store.
func (e *Engine) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	queued := &e.founding
	if b, ok := e.books.Load(id); ok {
		queued = &b.(*book).queued
	}
	return e.submit(ctx, queued, &work{tenantID: id, update: fn, done: make(chan struct{}, 1)})
}

// submit queues work and waits for its answer. A caller whose context ends before its turn gives up without a trace;
// after that it waits for the answer, which is never far: the committer still uses the caller's memory.
func (e *Engine) submit(ctx context.Context, f *fifo, w *work) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.failure.Load() != nil {
		return e.errFailed()
	}
	if err := e.queue.put(f, w); err != nil {
		if e.failure.Load() != nil {
			return e.errFailed()
		}
		return err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if w.taken.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		<-w.done
	}
	return w.err
}

// View implements store.Store.
func (e *Engine) View(ctx context.Context, id string, fn func(store.View) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.reads.enter(); err != nil {
		return err
	}
	defer e.reads.leave()
	b, err := e.book(id)
	if err != nil {
		return err
	}
	p := b.published.Load()
	v := &view{e: e, b: b, from: &e.state.Reader, resident: p.resident, head: p.head}
	v.recall.limit = examineBytes
	v.now = max(p.head.Clock, calendar.FromTime(e.now()))
	return fn(v)
}

// Access implements store.Store.
func (e *Engine) Access(_ context.Context, id, keyID string) (store.Access, error) {
	b, err := e.book(id)
	if err != nil {
		return store.Access{}, err
	}
	return b.published.Load().resident.Access(keyID)
}

// Tenants implements store.Store.
func (e *Engine) Tenants(_ context.Context, after string, limit int) ([]store.Listed, error) {
	if e.closed.Load() {
		return nil, errClosed()
	}
	if err := store.CheckPlace(after); err != nil {
		return nil, err
	}
	all := e.tenants()
	var out []store.Listed
	for _, id := range page(all, after, limit) {
		self, _ := all[id].published.Load().resident.Entity(tenant.Kind.Name, tenant.Self)
		out = append(out, store.Listed{ID: id, Entity: self})
	}
	return out, nil
}

func (e *Engine) book(id string) (*book, error) {
	if e.failure.Load() != nil {
		return nil, e.errFailed()
	}
	if e.closed.Load() {
		return nil, errClosed()
	}
	b, ok := e.books.Load(id)
	if !ok {
		return nil, errNoTenant(id)
	}
	return b.(*book), nil
}

// Close commits what waits, leaves the derived files as far as the journal, waits for the Views under way and releases
// everything. Views that do not end in time keep the files open, for the end of the process to close: what they read
// stays there.
func (e *Engine) Close() error {
	var err error
	e.closing.Do(func() {
		e.reads.close()
		e.queue.close()
		e.closed.Store(true)
		e.state.Hurry()
		if e.slicer != nil {
			close(e.slicer.stop)
		}
		e.running.Wait()
		left := e.reads.wait(e.options.CloseWithin)
		if e.failure.Load() == nil {
			err = e.lastCheckpoint()
		}
		if left > 0 {
			err = errors.Join(err, fmt.Errorf("close store: %d reads are still under way after %s: the files stay open",
				left, e.options.CloseWithin))
			return
		}
		err = errors.Join(err, e.release())
	})
	return err
}

// release closes what was opened.
func (e *Engine) release() error {
	var errs []error
	if e.index != nil {
		errs = append(errs, e.index.Close())
	}
	if e.state != nil {
		errs = append(errs, e.state.Close())
	}
	if e.slicer != nil {
		errs = append(errs, e.slicer.set.Close())
	}
	if e.journal != nil {
		errs = append(errs, e.journal.Close())
	}
	if e.followers.log != nil {
		errs = append(errs, e.followers.log.Close())
	}
	if e.metrics != nil {
		e.metrics.unregister()
	}
	if e.lock != nil {
		errs = append(errs, e.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}
