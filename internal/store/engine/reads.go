package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// reads counts what reads files beside the committer, so that Close does not take the files away from under it.
type reads struct {
	mu     sync.Mutex // guards what follows
	count  int
	closed bool
	none   chan struct{} // closed when it is closed and the last one has left
}

func newReads() *reads { return &reads{none: make(chan struct{})} }

// enter begins a read; leave must follow, whatever happens in it.
func (r *reads) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed()
	}
	r.count++
	return nil
}

func (r *reads) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count--; r.closed && r.count == 0 {
		close(r.none)
	}
}

// close refuses reads from now on.
func (r *reads) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed = true; r.count == 0 {
		close(r.none)
	}
}

// wait waits until none is under way, for a while, and returns how many are left.
func (r *reads) wait(within time.Duration) int {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-r.none:
		return 0
	case <-timer.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Ready implements store.Store. It sends a probe the way of all facts, through queue, lock and writer: a committer that
// stands still answers nobody, and would be noticed by nothing else. The context bounds how long it may take.
func (e *Engine) Ready(ctx context.Context) error {
	switch {
	case e.failure.Load() != nil:
		return e.errFailed()
	case e.closed.Load():
		return errClosed()
	}
	if err := e.journal.Prepared(e.maxGroup + e.inFlight()); err != nil {
		return e.refuseSpace(err, 0)
	}
	w := e.sendProbe()
	select {
	case <-w.done:
		w.done <- struct{}{} // for the others who wait for the same one
		return w.err
	case <-e.failed:
		return e.errFailed()
	case <-ctx.Done():
	}
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return problem.Wrap(problem.Unavailable, ctx.Err(),
		"the committer does not answer: look at the disk, and at what the process is doing").Retry(5 * time.Second)
}

// sendProbe queues a probe, or joins the one that is under way: however many ask, a committer that stands still gathers
// one.
func (e *Engine) sendProbe() *work {
	last := e.probe.Load()
	if last != nil && len(last.done) == 0 {
		return last
	}
	w := &work{probe: true, done: make(chan struct{}, 1)}
	if !e.probe.CompareAndSwap(last, w) {
		return e.probe.Load() // another was faster
	}
	if err := e.queue.put(&e.probes, w); err != nil {
		w.err = err
		w.done <- struct{}{}
	}
	return w
}
