package keyindex

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/tallystick/tallystick/internal/yield"
)

const (
	retryFirst = 100 * time.Millisecond
	retryLast  = 5 * time.Second
)

// attempts counts tries of a kind of background work, so that a waiter can distinguish a
// failure that came after its call from an older one.
type attempts struct {
	begun  uint64
	failed uint64 // number of the last try that failed
	err    error  // of that try; nil after a success
	busy   bool
}

func (x *Index) begin(a *attempts) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a.begun++
	a.busy = true
}

func (x *Index) end(a *attempts, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a.busy = false
	a.err = err
	if err != nil {
		a.failed = a.begun
	}
	x.changed.Broadcast()
}

// pause waits before a try is repeated: for the timer, which grows, or for someone
// who asks for it now. False when the index closes.
func (x *Index) pause(delay *time.Duration, retry <-chan struct{}) bool {
	*delay = min(max(2**delay, retryFirst), retryLast)
	timer := time.NewTimer(*delay)
	defer timer.Stop()
	select {
	case <-x.stop:
		return false
	case <-timer.C:
	case <-retry:
	}
	return true
}

func (x *Index) flushLoop() {
	var delay time.Duration
	for {
		t := x.nextFlush()
		if t == nil {
			select {
			case <-x.stop:
				return
			case <-x.flushPoke:
			}
			continue
		}
		x.begin(&x.flushing)
		err := x.flush(t)
		x.end(&x.flushing, err)
		if err == nil {
			delay = 0
			continue
		}
		if !x.pause(&delay, x.flushRetry) {
			return
		}
	}
}

func (x *Index) nextFlush() *memTable {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	return x.flushable()
}

// flushable is the oldest frozen table if the journal is durable past it. x.mu is held.
func (x *Index) flushable() *memTable {
	if len(x.frozen) == 0 || x.durable.less(x.frozen[0].mark) {
		return nil
	}
	return x.frozen[0]
}

// flush writes a table as one run of tier 0 over all partitions and publishes it. An
// empty table only moves the mark.
//
// Its keys are in the sketches before the view that holds the run is published, and no
// sketch is replaced in between: what a view's sketch denies is in none of its runs.
func (x *Index) flush(t *memTable) error {
	if len(t.entries) == 0 {
		return x.commit(change{table: t})
	}
	x.sketchMu.Lock()
	defer x.sketchMu.Unlock()
	sketches := x.currentSketches()
	keys := make([]int64, x.partitions)
	pbits := 64 - x.pshift
	w, err := x.newWriter(0, 0, x.partitions, int64(len(t.entries)))
	if err != nil {
		return err
	}
	err = t.ascend(func(chunk []Entry) error {
		for i := range chunk {
			hi := chunk[i].Hash.Hi
			p := hi >> x.pshift
			sketches[p].add(hi, hi<<pbits)
			keys[p]++
		}
		return w.append(chunk)
	})
	r, err := x.finishRun(w, err)
	if err != nil {
		return err
	}
	r.flushed = t.number
	return x.commit(change{added: []*run{r}, table: t, keys: keys})
}

func (x *Index) currentSketches() []sketch {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.view.sketches
}

func (x *Index) newWriter(tier, lo, width uint32, keys int64) (*runWriter, error) {
	n := x.nextFile.Add(1) - 1
	ft := footer{
		runMeta:    runMeta{Number: n, Tier: tier, Lo: lo, Width: width},
		StoreID:    x.opts.StoreID,
		Partitions: x.partitions,
	}
	name := x.opts.FS.PathJoin(x.opts.Dir, runName(n))
	w, err := newRunWriter(x.opts.FS, name, ft, keys, x.stop)
	if err != nil {
		x.removeFile(name) // Create may have failed half way
	}
	return w, err
}

// finishRun ends a writer and opens what it wrote; after an error of the caller or
// its own nothing of it stays.
func (x *Index) finishRun(w *runWriter, copying error) (*run, error) {
	w.fail(copying)
	meta, err := w.finish()
	if err = cmp.Or(copying, err); err != nil {
		x.removeFile(w.name)
		return nil, err
	}
	r, err := openRun(x.opts.FS, w.name, meta, w.StoreID, w.Partitions)
	if err != nil {
		x.removeFile(w.name)
		return nil, err
	}
	return r, nil
}

// change is what a flush or a merge does to the index, as one.
type change struct {
	added, removed []*run
	table          *memTable // that the added run came from, nil for a merge
	keys           []int64   // of the table, by partition; nil if it has none
}

// commit replaces the manifest by one with the added runs and without the removed
// ones, and publishes that. After an error all is as before and the added runs are gone.
func (x *Index) commit(c change) error {
	x.commitMu.Lock()
	defer x.commitMu.Unlock()
	man := x.man.clone()
	man.Runs = slices.DeleteFunc(man.Runs, func(m runMeta) bool {
		return slices.ContainsFunc(c.removed, func(r *run) bool { return r.Number == m.Number })
	})
	for _, r := range c.added {
		man.Runs = append(man.Runs, r.runMeta)
	}
	if c.table != nil {
		man.Mark = c.table.mark
	}
	man.Next = x.nextFile.Load()
	inDoubt, err := writeManifest(x.opts.FS, x.opts.Dir, &man)
	if err != nil {
		for _, r := range c.added {
			err = errors.Join(err, r.file.Close())
			if inDoubt {
				x.doubtful = append(x.doubtful, r.name)
			} else {
				x.removeFile(r.name)
			}
		}
		return err
	}
	x.man = man
	x.publish(c)
	return nil
}

// publish shows a committed change to readers. The view goes first and the frozen
// list second, so that a table is never in neither. x.commitMu is held.
func (x *Index) publish(c change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	runs := slices.DeleteFunc(slices.Clone(x.view.runs), func(r *run) bool { return slices.Contains(c.removed, r) })
	flushed := x.view.flushed
	done, written := &x.stats.MergesDone, &x.stats.BytesMerged
	t := c.table
	if t != nil {
		flushed = t.number
		done, written = &x.stats.Flushes, &x.stats.BytesFlushed
	}
	*done++
	for _, r := range c.removed {
		r.obsolete = true
	}
	for _, r := range c.added {
		*written += r.size
	}
	for p, n := range c.keys {
		x.tallies[p].keys += n
	}
	x.setView(newView(append(runs, c.added...), x.view.sketches, x.pshift, flushed))
	if t != nil {
		x.frozen = slices.Clone(x.frozen[1:])
		x.memory.Store(&memory{flushed: flushed, frozen: x.frozen})
		if cap(t.entries) <= 2*x.opts.MemEntries {
			x.spare = t
		}
	}
	x.doomed = append(x.doomed, x.doubtful...)
	x.doubtful = nil
	poke(x.mergePoke)
}

// removeFile removes a file that no manifest names, or leaves it to reap.
func (x *Index) removeFile(name string) {
	if err := x.opts.FS.Remove(name); err != nil && !isMissing(err) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.doomed = append(x.doomed, name)
	}
}

// reap closes runs that no view holds and removes those that no manifest names. What
// cannot be removed is tried again after the next change, and at Open.
func (x *Index) reap() error {
	x.mu.Lock()
	dead, doomed := x.dead, x.doomed
	x.dead, x.doomed = nil, nil
	x.mu.Unlock()
	var errs error
	for _, r := range dead {
		errs = errors.Join(errs, r.file.Close())
		if r.obsolete {
			doomed = append(doomed, r.name)
		}
	}
	for _, name := range doomed {
		x.removeFile(name)
	}
	return errs
}

// Flush waits until every frozen table that the journal is durable past is on disk,
// asking for a try now. It returns the error of a try that failed meanwhile; the
// tables stay and are tried again.
func (x *Index) Flush() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	since := x.flushing.begun
	for {
		if x.closed {
			return ErrClosed
		}
		if x.flushable() == nil {
			return nil
		}
		if x.flushing.failed > since && x.flushing.err != nil { // a later try may have succeeded already
			return x.flushing.err
		}
		poke(x.flushPoke)
		poke(x.flushRetry)
		poke(x.mergeRetry)
		x.changed.Wait()
	}
}

// giveWay lets callers run. Flushes and merges work without a pause, and Go takes a
// processor away only after 10 ms: on a machine of few, answers would wait that long at
// each of the steps they pass through. It is called every hundred microseconds or so.
func giveWay() { yield.ToNetwork() }
