package engine

import (
	"context"
	"time"

	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// While facts come in, what works beside the committer rests after each stretch of work, so that it takes a quarter
// of one processor: on two of them the committer keeps seven eighths.
const (
	workStretch = 2 * time.Millisecond
	restFactor  = 3
)

// pacer paces one piece of work. It belongs to one goroutine.
type pacer struct {
	e     *Engine
	stop  <-chan struct{} // closed when the work is not wanted any more
	since time.Time       // when the stretch of work began
	seen  uint64          // how far the journal was durable then
}

// begin starts a stretch of work.
func (p *pacer) begin() { p.since, p.seen = time.Now(), p.e.durable.Load() }

// pace gives way to the committer while it is busy. It reports false when the engine ends or the work is not wanted
// any more.
func (p *pacer) pace() bool {
	worked := time.Since(p.since)
	if worked < workStretch {
		return !p.ending()
	}
	on := true
	if p.e.queue.waiting() > 0 || p.e.durable.Load() != p.seen {
		on = p.rest(restFactor * worked)
	}
	p.begin()
	return on && !p.ending()
}

// going paces work that a caller waits for, and says why it must end.
func (p *pacer) going(ctx context.Context) error {
	on := p.pace()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case p.e.closed.Load():
		return errClosed()
	case !on:
		return p.e.errFailed()
	}
	return nil
}

func (p *pacer) ending() bool {
	select {
	case <-p.stop:
		return true
	case <-p.e.failed:
		return true
	default:
		return false
	}
}

// rest waits; it reports false when the engine ends or the work is not wanted any more.
func (p *pacer) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.stop:
		return false
	case <-p.e.failed:
		return false
	}
}

// pack makes one number of a position, so that it can be kept in an atomic.
func pack(p journal.Position) uint64 { return uint64(p.Segment)<<32 | uint64(p.Offset) }

func unpack(n uint64) journal.Position {
	return journal.Position{Segment: uint32(n >> 32), Offset: uint32(n)}
}
