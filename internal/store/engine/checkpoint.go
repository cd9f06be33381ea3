package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
	"github.com/tallystick/tallystick/internal/store/engine/slab"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// A checkpoint carries the state to where the journal is, so that a start replays little. The decider begins one
// between two groups, when nothing is on its way to the disk: position, trees and counters then belong together.
// Writing it is the checkpointer's business, beside the committer.

// minFree is what must be free on the disk before a checkpoint is tried: it rewrites only derived files, and must not
// take the last of the space that the journal needs. Pebble ends the process when it cannot write its manifest.
const minFree = 256 << 20

type checkpoint struct {
	epoch uint64
	at    journal.Position
	heads []state.Head
	books []*book

	changed []*book // with counters to save

	tallies []savedTally
	days    []savedDay
	asked   []chan error // by those who wait for it
}

// checkpointRequests are of those who wait for a checkpoint that begins from now on.
type checkpointRequests struct {
	mu      sync.Mutex // guards what follows
	waiting []chan error
	closed  bool
}

func (r *checkpointRequests) put(c chan error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed()
	}
	r.waiting = append(r.waiting, c)
	return nil
}

func (r *checkpointRequests) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) > 0
}

func (r *checkpointRequests) take() []chan error {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.waiting
	r.waiting = nil
	return waiting
}

func (r *checkpointRequests) close() []chan error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return r.take()
}

// answerAll answers those who wait; each has room for one answer.
func answerAll(waiting []chan error, err error) {
	for _, w := range waiting {
		w <- err
	}
}

// checkpointed has a checkpoint begin now and waits for it.
func (e *Engine) checkpointed(ctx context.Context) error {
	done := make(chan error, 1)
	if err := e.asked.put(done); err != nil {
		return err
	}
	e.queue.nudge()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.failed:
		return e.errFailed()
	}
}

func mark(p journal.Position) keyindex.Mark {
	return keyindex.Mark{Segment: p.Segment, Offset: p.Offset}
}

// maybeCheckpoint runs in the decider, after it handed a group over.
func (e *Engine) maybeCheckpoint() {
	full := e.indexFull()
	due := e.checkpointDue(e.journal.Size())
	if !full && !due {
		return
	}
	e.drain()
	if e.failure.Load() != nil {
		return
	}
	end := e.journal.End()
	if full {
		e.freezeIndex(end)
	}
	if due {
		e.saving.Store(true)
		e.savedAt = e.journal.Size()
		c := e.freeze(end)
		c.asked = e.asked.take()
		e.checkpoints <- c
	}
}

func (e *Engine) indexFull() bool {
	e.mu.RLock() // callers have their answers already, and may have begun to verify
	defer e.mu.RUnlock()
	return e.index.Full()
}

func (e *Engine) freezeIndex(end journal.Position) {
	defer e.index.Durable(mark(end))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.index.Freeze(mark(end))
}

func (e *Engine) checkpointDue(size int64) bool {
	if e.saving.Load() {
		return false
	}
	due := size-e.savedAt >= e.options.CheckpointBytes || e.cells.dirty >= e.cells.most || e.notes[0].full() ||
		e.tiles.Load() >= maxTiles || len(e.days.dirty) >= maxDirtyDays
	if due = due || e.asked.any(); due && !e.hasRoom() {
		answerAll(e.asked.take(), errNoRoom())
		return false
	}
	return due
}

func errNoRoom() error {
	p := problem.New(problem.Unavailable, "too little space is free on the data disk to write a checkpoint: free some")
	return p.Retry(retryAfter)
}

func (e *Engine) hasRoom() bool {
	usage, err := e.options.FS.GetDiskUsage(e.options.Dir)
	return err != nil || usage.AvailBytes >= minFree
}

// freeze takes what the checkpoint shall save. Everything decided is durable.
func (e *Engine) freeze(end journal.Position) *checkpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &checkpoint{epoch: e.cells.freeze(), at: end, tallies: e.tallies.freeze(), days: e.days.freeze()}
	c.changed = e.cells.saving
	e.notes[0], e.notes[1] = newNotes(), e.notes[0]
	for b := range e.notes[1].heads {
		b.tiles.freeze()
		c.books = append(c.books, b)
		c.heads = append(c.heads, state.Head{Number: b.number, ID: b.id, Head: b.published.Load().head})
	}
	return c
}

func (e *Engine) checkpointLoop() {
	for c := range e.checkpoints {
		err := e.save(c)
		switch {
		case err == nil:
			e.saving.Store(false)
			answerAll(c.asked, nil)
			if e.asked.any() { // since it began
				e.queue.nudge()
			}
		case errors.Is(err, state.ErrGaveUp):
			e.gaveUp = err
			answerAll(c.asked, err)
		default:
			e.fail(err)
			return
		}
	}
}

// cellsAtOnce is how many counters are encoded, and unitsAtOnce how much memory is looked at to let some go, before the
// decider gets its turn again.
const (
	cellsAtOnce = 512
	unitsAtOnce = 16 << 10
)

// save writes a checkpoint and then forgets what it saved.
func (e *Engine) save(c *checkpoint) error {
	counters := 0
	for _, b := range c.changed {
		counters += len(b.saving)
	}
	batch := e.state.Begin(counters)
	for _, b := range c.changed {
		for some := range slices.Chunk(e.inStateOrder(b.saving), cellsAtOnce) {
			e.saveCells(batch, b, some)
		}
	}
	reaped, err := e.saveNotes(batch)
	if err != nil {
		return err
	}
	saveTallies(batch, c.tallies)
	saveDays(batch, c.days)
	dropped, tiles := make([]int, len(c.books)), 0
	for i, b := range c.books {
		batch.SetHead(c.heads[i])
		tiles += b.tiles.save(batch, b.number)
		places := b.placesBefore(c.at)
		for j := range places {
			batch.SetSection(b.number, &places[j])
		}
		dropped[i] = len(places)
	}
	if err := e.state.Commit(batch, e.id, c.at); err != nil {
		return fmt.Errorf("checkpoint of the state: %w: nothing acknowledged is lost; the next start replays the "+
			"journal", err)
	}
	e.finish(c)
	for i, b := range c.books {
		b.dropPlaces(dropped[i])
		b.tiles.drop()
	}
	e.tiles.Add(-int64(tiles))
	e.metrics.checkpoints.Inc()
	e.metrics.expired.Add(float64(reaped))
	return nil
}

// saveCells encodes some counters.
func (e *Engine) saveCells(batch *state.Checkpoint, b *book, some []slab.Ref) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, r := range some {
		e.encoded = e.cells.saved(e.encoded[:0], r)
		batch.SetCounter(b.number, e.cells.place(r), e.encoded)
	}
}

// finish forgets what the state has now, and lets go of counters in small steps, so that the decider never waits for
// all of them.
func (e *Engine) finish(c *checkpoint) {
	left, wide := e.forget(c)
	for some := range slices.Chunk(wide, cellsAtOnce) {
		e.moveWide(some)
	}
	for left > 0 {
		left = e.letCellsGo(left)
	}
}

func (e *Engine) forget(c *checkpoint) (units int, wide []slab.Ref) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cells.finish(c.epoch)
	e.tallies.finish()
	e.days.finish()
	e.notes[1] = newNotes()
	return e.cells.rounds(), slices.Collect(maps.Keys(e.cells.wide))
}

// moveWide gives counters the room that they need, unless they have changed again.
func (e *Engine) moveWide(some []slab.Ref) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range some {
		if _, ok := e.cells.wide[r]; ok && e.cells.mayGo(e.cells.entry(r), 0) {
			e.cells.move(r)
		}
	}
}

func (e *Engine) letCellsGo(left int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cells.letGo(left, unitsAtOnce)
}

// lastCheckpoint leaves state and index exactly as far as the journal. The committer has stopped.
func (e *Engine) lastCheckpoint() error {
	if e.gaveUp != nil || !e.hasRoom() {
		return e.gaveUp
	}
	end := e.journal.End()
	e.freezeIndex(end)
	err := e.save(e.freeze(end))
	return errors.Join(err, e.index.Flush())
}
